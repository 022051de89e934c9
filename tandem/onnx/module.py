"""A model from an ONNX file, as a module."""

from __future__ import annotations

import numpy as np

import tandem.onnx.operators  # noqa: F401  fills the registry
from tandem import _runtime
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter
from tandem.onnx.functions import has_body
from tandem.onnx.interpreter import Graph, Scope, run_graph
from tandem.onnx.read import Reader, read_model
from tandem.onnx.types import has_tensor_type, to_tensor


class Model(Module):
    """What `td.onnx.load` gives: called with tensors by position or by the file's names, gives the file's outputs.

    Weights are parameters (buffers, where they are no floats) under the names of the file with dots in place of slashes.
    """

    def __init__(self, graph: Graph, inputs: list[str], outputs: list[str], optional: set[str], opsets: dict[str, int]):
        super().__init__()
        self.graph = graph
        self.input_names = inputs
        self.output_names = outputs
        self.opsets = opsets
        self._optional = optional
        self._weights: dict[str, str] = {}  # the file's name -> attribute
        static = set(_read_on_host(graph))
        for name, value in graph.constants.items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim and name not in static:
                value = to_tensor(value)
            if isinstance(value, _runtime.Tensor):
                self._weights[name] = self._keep(name, value)
        for name in self._weights:
            del graph.constants[name]

    def _keep(self, name: str, value) -> str:
        attribute = name.replace(".", "_").replace("/", "_").replace(":", "_") or "weight"
        while hasattr(self, attribute):
            attribute += "_"
        if value.dtype.is_floating:
            setattr(self, attribute, Parameter(value))
        else:
            self.register_buffer(attribute, value)
        return attribute

    def forward(self, *args, **kwargs):
        values = {**self.graph.constants, **self._given(args, kwargs)}
        for name, attribute in self._weights.items():
            values.setdefault(name, getattr(self, attribute))
        results = run_graph(self.graph, Scope(values, None, self.training))
        results = [_result(r) for r in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _given(self, args: tuple, kwargs: dict) -> dict:
        if len(args) > len(self.input_names):
            raise ValueRangeError(
                "onnx", f"the model takes {len(self.input_names)} inputs {self.input_names}; {len(args)} were given"
            )
        given = dict(zip(self.input_names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.input_names or name in given:
                raise ValueRangeError("onnx", f"{name!r} is given twice or is no input; inputs are {self.input_names}")
            given[name] = value
        missing = [n for n in self.input_names if n not in given and n not in self._optional]
        if missing:
            raise ValueRangeError("onnx", f"the inputs {missing} are not given", fix="pass them by position or by name")
        return {name: _argument(v) for name, v in given.items()}

    def extra_repr(self) -> str:
        return f"{self.graph.name}: {len(self.graph.nodes)} nodes, {self.input_names} -> {self.output_names}"


def _read_on_host(graph: Graph):
    """Names of values that operators need to know while the graph runs, such as the scales of Resize."""
    for node in graph.nodes:
        if node.body is not None:
            yield from node.inputs
        elif node.handler is not None:
            yield from (name for i, name in enumerate(node.inputs) if node.handler.host or i in node.handler.static)
        for inner in node.graphs():
            yield from _read_on_host(inner)


def _argument(value):
    if isinstance(value, (list, tuple)) and not all(isinstance(v, (int, float, bool)) for v in value):
        return [_argument(v) for v in value]
    if value is None or isinstance(value, _runtime.Tensor):
        return value
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype.kind in "iub":
        return array  # a setting, such as a rate: known while the graph runs, see Note [Host values]
    if array.dtype.kind in "US":
        array = array.astype(object)
    return to_tensor(array) if has_tensor_type(array) else array


def _result(value):
    if isinstance(value, list):
        return [_result(v) for v in value]
    return to_tensor(value) if isinstance(value, np.ndarray) and has_tensor_type(value) else value


def load(source) -> Model:
    """The model of an ONNX file, as a module that runs eagerly and compiled.

    source: a path, the bytes of a file, an open file, or an onnx.ModelProto. Weights kept in other files beside it are loaded.
    """
    proto = read_model(source)
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in proto.opset_import} or {"": 1}
    functions = {
        ("" if f.domain == "ai.onnx" else f.domain, f.name, getattr(f, "overload", "")): f for f in proto.functions
    }
    graph = Reader(opsets, functions).graph(proto.graph)
    _refuse_unknown(graph)
    weights = {t.name for t in proto.graph.initializer}
    inputs = [i.name for i in proto.graph.input if i.name not in weights]
    inputs += [i.name for i in proto.graph.input if i.name in weights]
    return Model(graph, inputs, graph.outputs, weights, opsets)


def _refuse_unknown(graph: Graph):
    unknown = sorted(set(_unknown(graph)))
    if unknown:
        raise UnsupportedError(
            "onnx",
            f"{len(unknown)} operators of the file are not offered: {', '.join(unknown)}",
            fix="export the model with operators of the default domain (ai.onnx)",
        )


def _unknown(graph: Graph):
    for node in graph.nodes:
        if node.body is not None:
            yield from _unknown(node.body)
        elif node.handler is None and not has_body(node):
            yield f"{node.domain or 'ai.onnx'}.{node.op} (version {node.version})"
        for inner in node.graphs():
            yield from _unknown(inner)
