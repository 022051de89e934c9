"""Operators that the ONNX standard defines by other operators, and functions that a file brings along."""

from __future__ import annotations

import numpy as np

from tandem import _runtime
from tandem.errors import UnsupportedError
from tandem.onnx.check import schema_of
from tandem.onnx.read import read_function
from tandem.onnx.types import code_of


def has_body(node) -> bool:
    """Whether the standard says what an operator is made of."""
    schema = schema_of(node)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def function_body(node, given: list):
    """The graph that the standard gives for an operator, for operands of these types."""
    import onnx

    schema = schema_of(node)
    proto = None
    if schema is not None and schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
        types = [_type_proto(v) for v in given]
        text = schema.get_context_dependent_function_with_opset_version(
            max(versions, default=schema.since_version), node.attributes["__proto__"].SerializeToString(), types
        )
        proto = onnx.FunctionProto.FromString(text) if text else None
    elif schema is not None and schema.has_function:
        proto = schema.function_body
    if proto is None or not proto.node:
        raise UnsupportedError(
            f"onnx {node.op}",
            f"the operator {node.domain or 'ai.onnx'}.{node.op} of version {node.version} is not offered",
        )
    return read_function(proto, node)


def _type_proto(value) -> bytes:
    from onnx import helper

    if value is None:
        return b""
    if isinstance(value, _runtime.Tensor):
        return helper.make_tensor_type_proto(code_of(value.dtype), tuple(value.shape)).SerializeToString()
    if isinstance(value, np.ndarray):
        code = 8 if value.dtype == object else helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_type_proto(code, value.shape).SerializeToString()
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)).SerializeToString()
