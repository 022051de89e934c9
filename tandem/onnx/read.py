"""From an ONNX file to graphs that the interpreter runs."""

from __future__ import annotations

import os
import struct

import numpy as np

from tandem.errors import UnsupportedError
from tandem.onnx.check import check_node
from tandem.onnx.model import Graph, Node, as_constant
from tandem.onnx.registry import handler_of


def onnx_package():
    """The package onnx, which reads and writes the files."""
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError:
        raise UnsupportedError(
            "onnx", "the package onnx is not installed", fix="pip install onnx, or 'tandem-dl[onnx]'"
        ) from None
    return onnx


def read_model(source):
    """The ModelProto of a path, bytes, an open file, or one itself; weights in files beside it are loaded."""
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        return source
    try:
        if isinstance(source, bytes):
            return onnx.load_model_from_string(source)
        return onnx.load(os.fspath(source) if isinstance(source, os.PathLike) else source)
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:  # protobuf's DecodeError, the external-data checks of onnx
        name = source if isinstance(source, (str, os.PathLike)) else "what was given"
        raise UnsupportedError("onnx", f"{name} is no ONNX model: {error}") from None


class Reader:
    """What all graphs of one model share: versions of operator sets, and the functions that the file defines."""

    def __init__(self, opsets: dict[str, int], functions: dict):
        self.opsets = opsets
        self.functions = functions

    def graph(self, proto) -> Graph:
        onnx = onnx_package()
        constants = {t.name: as_constant(to_array(t)) for t in proto.initializer}
        for sparse in proto.sparse_initializer:
            constants[sparse.values.name] = as_constant(dense(sparse))
        inputs = [i.name for i in proto.input if i.name not in constants]
        nodes = []
        for node in proto.node:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                constants[node.output[0]] = constant_of(node, onnx)
            else:
                nodes.append(self.node(node))
        return Graph(proto.name, inputs, [o.name for o in proto.output], nodes, constants)

    def node(self, proto, references: dict | None = None) -> Node:
        attributes = {"__proto__": proto}
        for a in proto.attribute:
            if a.ref_attr_name:
                if references is not None and a.ref_attr_name in references:
                    attributes[a.name] = references[a.ref_attr_name]
                continue
            attributes[a.name] = self.attribute(a)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        function = self.functions.get((domain, proto.op_type, getattr(proto, "overload", "")))
        handler = None if function is not None else handler_of(domain, proto.op_type, self.opsets.get(domain, 1))
        node = Node(
            proto.name, proto.op_type, domain, list(proto.input), list(proto.output), attributes, self.opsets, handler
        )
        if function is not None:
            node.body = self.function(function, node)
        else:
            check_node(node, proto)
        return node

    def attribute(self, a):
        onnx = onnx_package()
        if a.type == a.GRAPH:
            return self.graph(a.g)
        if a.type == a.GRAPHS:
            return [self.graph(g) for g in a.graphs]
        if a.type == a.TENSOR:
            return to_array(a.t)
        if a.type == a.TENSORS:
            return [to_array(t) for t in a.tensors]
        if a.type == a.SPARSE_TENSOR:
            return dense(a.sparse_tensor)
        value = onnx.helper.get_attribute_value(a)
        if isinstance(value, bytes):
            return _text(value, a.name)
        if a.type == a.STRINGS:
            return [_text(s, a.name) for s in value]
        return list(value) if a.type in (a.INTS, a.FLOATS) else value

    def function(self, proto, node: Node) -> Graph:
        """A function of the file, or of the standard, with a node's attributes put in."""
        given = {a.name: self.attribute(a) for a in proto.attribute_proto}
        given.update({k: v for k, v in node.attributes.items() if k != "__proto__"})
        opsets = {**self.opsets, **{("" if o.domain == "ai.onnx" else o.domain): o.version for o in proto.opset_import}}
        reader = Reader(opsets, self.functions)
        constants, nodes = {}, []
        onnx = onnx_package()
        for inner in proto.node:
            if inner.op_type == "Constant" and not any(a.ref_attr_name for a in inner.attribute):
                constants[inner.output[0]] = constant_of(inner, onnx)
            else:
                nodes.append(reader.node(inner, given))
        return Graph(proto.name, list(proto.input), list(proto.output), nodes, constants)


def read_function(proto, node: Node) -> Graph:
    """The body that the standard gives for a node."""
    schema_defaults = _defaults(node)
    filled = Node(**{**vars(node), "attributes": {**schema_defaults, **node.attributes}})
    return Reader(node.opsets, {}).function(proto, filled)


def _defaults(node: Node) -> dict:
    onnx = onnx_package()
    schema = onnx.defs.get_schema(node.op, node.version, node.domain)
    reader = Reader(node.opsets, {})
    return {
        name: reader.attribute(a.default_value)
        for name, a in schema.attributes.items()
        if a.default_value.type != onnx.AttributeProto.UNDEFINED
    }


def constant_of(node, onnx):
    """The value of a Constant node."""
    values = [a for a in node.attribute if a.name.startswith(("value", "sparse_value"))]
    if len(values) != 1 or len(node.output) != 1:
        raise UnsupportedError(
            "onnx Constant",
            f"node {node.name!r} has {len(values)} values and {len(node.output)} outputs; it must have one",
        )
    (a,) = values
    kinds = {
        "value": lambda: to_array(a.t),
        "sparse_value": lambda: dense(a.sparse_tensor),
        "value_float": lambda: np.asarray(a.f, np.float32),
        "value_floats": lambda: np.asarray(list(a.floats), np.float32),
        "value_int": lambda: np.asarray(a.i, np.int64),
        "value_ints": lambda: np.asarray(list(a.ints), np.int64),
        "value_string": lambda: np.asarray(_text(a.s, a.name), object),
        "value_strings": lambda: np.asarray([_text(s, a.name) for s in a.strings], object),
    }
    if a.name not in kinds:
        raise UnsupportedError("onnx Constant", f"node {node.name!r} has a value of no kind that is known: {a.name!r}")
    return as_constant(kinds[a.name]())


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UnsupportedError("onnx", f"the attribute {name!r} is no text in UTF-8: the file is damaged") from None


def to_array(tensor) -> np.ndarray:
    """A TensorProto's elements; strings as Python's."""
    try:
        array = onnx_package().numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, struct.error) as error:
        raise UnsupportedError(
            "onnx", f"the tensor {tensor.name!r} of shape {tuple(tensor.dims)} is damaged: {error}"
        ) from None
    if tensor.data_type == tensor.STRING:
        decoded = [_text(s, tensor.name) if isinstance(s, bytes) else str(s) for s in array.ravel()]
        return np.array(decoded, dtype=object).reshape(array.shape)
    return np.array(array)  # a copy: the file's memory is read-only


def dense(sparse) -> np.ndarray:
    """A SparseTensorProto with its zeros."""
    shape = tuple(sparse.dims)
    values, indices = to_array(sparse.values), to_array(sparse.indices)
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
    result = np.zeros(int(np.prod(shape)), values.dtype)
    result[flat] = values
    return result.reshape(shape)
