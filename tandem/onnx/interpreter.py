"""Runs the nodes of an ONNX graph one after the other, with Tandem's operators.

Note [Host values]
ONNX computes shapes with the operators that compute data: Shape, Gather, Concat, Reshape. Here a value is a tensor or a *host
value*, a NumPy array that is known while the graph runs: sizes, integer constants, and what is computed from them alone. An
operator whose operands are all host values runs at once, outside of any program that is being captured, and gives host values.
So a compiled model is one program, whatever shape arithmetic its file contains.
"""

from __future__ import annotations

import numpy as np

from tandem import _runtime
from tandem.errors import TandemError, UnsupportedError
from tandem.onnx.functions import function_body
from tandem.onnx.model import Graph, Node
from tandem.onnx.registry import Handler
from tandem.onnx.types import to_host, to_tensor

_SMALL = 4096  # elements; larger constants are tensors from the start


class Scope:
    """Values by name; those of graphs around this one are seen too."""

    def __init__(self, values: dict, outer: Scope | None = None, training: bool = False):
        self.values = values
        self.outer = outer
        self.training = training if outer is None else outer.training

    def __getitem__(self, name: str):
        scope = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise UnsupportedError("onnx", f"the value {name!r} is used before it is computed: the file is damaged")

    def run(self, graph: Graph, arguments: list) -> list:
        """Results of a graph inside a node."""
        values = {**graph.constants, **dict(zip(graph.inputs, arguments, strict=False))}
        return run_graph(graph, Scope(values, self))


def run_graph(graph: Graph, scope: Scope) -> list:
    """The graph's outputs, given its inputs and constants in the scope."""
    values = scope.values
    for position, node in enumerate(graph.nodes):
        given = [scope[name] if name else None for name in node.inputs]
        try:
            results = run_node(node, given, scope)
        except TandemError as error:
            error.add_note(f"  in {_place(node, graph)}")
            raise
        except _NO_ERRORS_OF_OURS as error:
            raise _does_not_fit(node, graph, given, error) from error
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                values[name] = result
        for name in {*node.inputs}:
            if graph.last_use.get(name) == position and name not in graph.constants:
                values.pop(name, None)
    return [scope[name] for name in graph.outputs]


# What a handler, NumPy or onnx raise for operands and attributes that they were not made for: the file's mistake.
_NO_ERRORS_OF_OURS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)


def _place(node: Node, graph: Graph) -> str:
    return f"node {node.name or (node.outputs or ['?'])[0]!r} ({node.op}) of the ONNX graph {graph.name!r}"


def _does_not_fit(node: Node, graph: Graph, given: list, error: Exception) -> UnsupportedError:
    operands = ", ".join(_described(v) for v in given)
    return UnsupportedError(
        f"onnx {node.op}",
        f"{_place(node, graph)} cannot be run on ({operands}): {type(error).__name__}: {error}",
        fix="if onnxruntime runs this model, please report it",
    )


def _described(value) -> str:
    if isinstance(value, (_runtime.Tensor, np.ndarray)):
        return f"{value.dtype} {tuple(value.shape)}"
    return "nothing" if value is None else type(value).__name__


def run_node(node: Node, given: list, scope: Scope) -> list:
    handler = node.handler
    if handler is None:
        body = node.body or function_body(node, given)
        return run_graph(
            body, Scope({**body.constants, **dict(zip(body.inputs, given, strict=False))}, None, scope.training)
        )
    if handler.scoped:
        return _as_list(handler.function(node, scope, *given))
    if handler.host:
        return _as_list(handler.function(node, *[to_host(v) for v in given]))
    if (given and all(_on_host(v) for v in given)) or (not given and node.op not in _RANDOM):
        with _runtime.PauseCapture():
            results = _as_list(handler.function(node, *_arguments(handler, given)))
            return [_as_host(r) for r in results]
    return _as_list(handler.function(node, *_arguments(handler, given)))


_RANDOM = {"RandomNormal", "RandomUniform"}


def _on_host(value) -> bool:
    if isinstance(value, list):
        return all(_on_host(v) for v in value)
    return value is None or isinstance(value, np.ndarray)


def _arguments(handler: Handler, given: list) -> list:
    return [to_host(v) if i in handler.static else to_tensor(v) for i, v in enumerate(given)]


def _as_list(result) -> list:
    return list(result) if isinstance(result, tuple) else [result]


def _as_host(value):
    """A result of host values: small ones stay on the host."""
    if isinstance(value, list):
        return [_as_host(v) for v in value]
    if isinstance(value, _runtime.Tensor) and value.numel() <= _SMALL:
        return value.numpy()
    return value
