"""Graphs as text that reads like code."""

from __future__ import annotations


def print_graph(graph) -> str:
    names = {v: f"%{i}" for i, v in enumerate(v for n in graph.nodes for v in n.outputs)}
    lines = []
    for node in graph.nodes:
        left = ", ".join(f"{names[v]}: {v.type!r}" for v in node.outputs)
        arguments = ", ".join(names[v] for v in node.inputs)
        source = f"   # {node.source}" if node.source else ""
        op = (
            "input" if node.op.name == "input" else repr(node.op)
        )  # its type stands on the left, its position is its place
        lines.append(f"{left} = {op}({arguments}){source}")
    for position, value in graph.mutations:
        lines.append(f"store {names[value]} -> {names[graph.inputs[position]]}")
    lines.append("return " + ", ".join(names[v] for v in graph.outputs))
    return "\n".join(lines)
