"""Deferred graphs as text that reads like code, in the manner of graphs of primitives (graph/printer.py).

%0: f32[s0] = placeholder('x')   # train.py:3
%1: f32[] = sum(%0)   # train.py:4
%2: f32[] = identity(%1) as 'total'   # train.py:5
"""

from __future__ import annotations

import re

from tandem.session.nodes import Fed

_FEW = 4  # elements of a constant that is shown by its value


def print_graph(graph) -> str:
    return "\n".join(_lines(graph, {}, ()))


def _lines(graph, lifted: dict, results: list | tuple) -> list[str]:
    """lifted: what stands in a body for tensors around it -> their names there."""
    names = {v: f"%{i}" for i, v in enumerate(v for n in graph.nodes for v in n.outputs)}
    bare = {n: f"!{i}" for i, n in enumerate(n for n in graph.nodes if not n.outputs)}  # nodes without results
    lines = []
    for node in graph.nodes:
        left = ", ".join(f"{names[v]}: {v.type!r}" for v in node.outputs) or bare[node]
        source = f"   # {getattr(node.source, 'short', node.source)}" if node.source else ""
        name = "" if isinstance(node.op, Fed) else _named(node)
        lines.append(f"{left} = {_call(node, names, lifted)}{_place(node, names, bare)}{name}{source}")
        for what, body in _bodies(node.op):
            here = getattr(
                graph, "lifted", {}
            )  # what a body inside of this body takes from farther out, this one takes too
            around = {inside: names.get(here.get(v, v), "%?") for v, inside in body.graph.lifted.items()}
            lines += [f"  {what}:", *("    " + line for line in _lines(body.graph, around, body.results))]
    if results:
        lines.append("return " + ", ".join(names[v] for v in results))
    return lines


def _call(node, names: dict, lifted: dict) -> str:
    if isinstance(node.op, Fed):
        if node.outputs and node.outputs[0] in lifted:  # a tensor of the graph around this body, by its number there
            return f"outer({lifted[node.outputs[0]]})"
        if node.op.name == "argument":
            return "argument()"
        if node.op.tensor is not None and node.op.tensor.numel() <= _FEW and not _named(node):
            return f"{node.op.name}({node.op.tensor.tolist()})"
        return f"{node.op.name}({node.name!r})"
    operands = [names[v] for v in node.inputs]
    return f"{node.op.name}({node.op.shown(operands)})"


def _bodies(op) -> list[tuple[str, object]]:
    """What a branch or loop does, with a name for each."""
    names = ["false_fn", "true_fn"] if op.name == "cond" else [body.graph.name for body in op.bodies]
    return list(zip(names, op.bodies, strict=True)) if op.bodies else []


def _place(node, names: dict, bare: dict) -> str:
    """What a node waits for besides its operands, and where it must run: " after %2 on cpu"."""
    waits = ", ".join(names.get(n.outputs[0], "%?") if n.outputs else bare.get(n, "!?") for n in node.control)
    return (f" after {waits}" if waits else "") + (f" on {node.device}" if node.device is not None else "")


def _named(node) -> str:
    """The name of a node, where it is another than its operator and a number."""
    if re.fullmatch(re.escape(node.op.name.rstrip("_")) + r"(_\d+)?", node.name):
        return ""
    return f" as {node.name!r}"
