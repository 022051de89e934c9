"""A model as it was read: graphs of nodes, with constants."""

from __future__ import annotations

import dataclasses

import numpy as np

from tandem.errors import UnsupportedError
from tandem.onnx.registry import Handler
from tandem.onnx.types import has_tensor_type, to_tensor

_SMALL = 4096  # elements; larger constants are tensors from the start


@dataclasses.dataclass
class Node:
    """A node as handlers see it: attributes by name, versions of operator sets, the number of results that are used."""

    name: str
    op: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict
    opsets: dict[str, int]
    handler: Handler | None
    body: Graph | None = None  # what it is made of, where nothing here runs it as one

    def get(self, name: str, default=None):
        return self.attributes.get(name, default)

    @property
    def version(self) -> int:
        return self.opsets.get("" if self.domain == "ai.onnx" else self.domain, 1)

    def __getitem__(self, name: str):
        try:
            return self.attributes[name]
        except KeyError:
            raise UnsupportedError(f"onnx {self.op}", f"node {self.name!r} has no attribute {name!r}") from None

    def graphs(self):
        """The graphs among the attributes: branches, bodies of loops."""
        for value in self.attributes.values():
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, Graph):
                    yield inner

    def has_output(self, index: int) -> bool:
        return index < len(self.outputs) and bool(self.outputs[index])


@dataclasses.dataclass
class Graph:
    """Nodes in order, and the names of what comes in and goes out."""

    name: str
    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    constants: dict[str, object]
    last_use: dict[str, int] = dataclasses.field(
        default_factory=dict
    )  # position of the node after which a value is not needed

    def __post_init__(self):
        kept = set(self.outputs)
        for position, node in enumerate(self.nodes):
            for name in [*node.inputs, *free_names(node)]:
                if name not in kept:
                    self.last_use[name] = position


def free_names(node: Node) -> set[str]:
    """Names that the graphs inside a node take from outside."""
    return set().union(*(_free_in(graph) for graph in node.graphs()))


def _free_in(graph: Graph) -> set[str]:
    known, free = {*graph.inputs, *graph.constants}, set()
    for node in graph.nodes:
        free |= {n for n in [*node.inputs, *free_names(node)] if n and n not in known}
        known.update(node.outputs)
    return free | {n for n in graph.outputs if n not in known}


def as_constant(array: np.ndarray):
    """A constant of the file as a value: small ones and those that tensors cannot hold on the host."""
    return array if array.size <= _SMALL or not has_tensor_type(array) else to_tensor(array)
