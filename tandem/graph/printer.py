"""Graphs as text that reads like code."""

from __future__ import annotations


def print_graph(graph) -> str:
    return "\n".join(_lines(graph))


def _lines(graph) -> list[str]:
    names = {v: f"%{i}" for i, v in enumerate(v for n in graph.nodes for v in n.outputs)}
    bare = {n: f"!{i}" for i, n in enumerate(n for n in graph.nodes if not n.outputs)}  # nodes without results
    lines = []
    for node in graph.nodes:
        left = ", ".join(f"{names[v]}: {v.type!r}" for v in node.outputs) or bare[node]
        operands = [names[v] for v in node.inputs]
        arguments = node.op.shown(operands)
        source = f"   # {getattr(node.source, 'short', node.source)}" if node.source else ""
        op = "input" if node.op.is_input else repr(node.op)  # its type stands on the left, its position is its place
        lines.append(f"{left} = {op}({arguments}){_place(node, names, bare)}{source}")
        if hasattr(node.op, "graphs"):  # a region: its graphs, whose values are numbered again
            for part in node.op.graphs():
                lines += [f"  {part.name or 'body'}:", *("    " + line for line in _lines(part))]
    for position, value in graph.mutations:
        lines.append(f"store {names[value]} -> {names[graph.inputs[position]]}")
    lines.append("return " + ", ".join("-" if v is None else names[v] for v in graph.outputs))
    return lines


def _place(node, names, bare) -> str:
    """What a node waits for besides its operands, and where it must run: " after %2 on cpu"."""
    waits = ", ".join(names.get(n.outputs[0], "%?") if n.outputs else bare.get(n, "!?") for n in node.control)
    return (f" after {waits}" if waits else "") + (f" on {node.device}" if node.device is not None else "")
