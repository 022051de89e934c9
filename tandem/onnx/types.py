"""ONNX's element types and ours."""

from __future__ import annotations

import numpy as np

from tandem import _runtime, dtypes
from tandem.errors import UnsupportedError
from tandem.tensors.constructors import asarray

# By the number that a TensorProto's data_type has; what is missing here exists on the host only (ml_dtypes, strings).
_BY_CODE = {
    1: dtypes.float32, 2: dtypes.uint8, 3: dtypes.int8, 4: dtypes.uint16, 5: dtypes.int16, 6: dtypes.int32, 7: dtypes.int64,
    9: dtypes.bool_, 10: dtypes.float16, 11: dtypes.float64, 12: dtypes.uint32, 13: dtypes.uint64, 14: dtypes.complex64,
    15: dtypes.complex128, 16: dtypes.bfloat16,
}  # fmt: skip
_CODES = {dtype: code for code, dtype in _BY_CODE.items()}
_TENSOR_TYPES = {dtype.numpy for dtype in _BY_CODE.values()}
STRING = 8


def dtype_of(code: int):
    """Our element type for ONNX's number, or None where tensors do not have it."""
    return _BY_CODE.get(code)


def code_of(dtype) -> int:
    """ONNX's number for one of our element types."""
    return _CODES[dtype]


def numpy_dtype(code: int) -> np.dtype:
    """NumPy's element type for ONNX's number; strings are objects."""
    if code == STRING:
        return np.dtype(object)
    from onnx.helper import tensor_dtype_to_np_dtype

    return np.dtype(tensor_dtype_to_np_dtype(code))


def has_tensor_type(array: np.ndarray) -> bool:
    """Whether a tensor can hold the array's elements."""
    return array.dtype in _TENSOR_TYPES


def to_tensor(value):
    """A host value as a tensor; tensors, sequences and None as they are."""
    if isinstance(value, list):
        return [to_tensor(v) for v in value]
    if not isinstance(value, np.ndarray):
        return value
    if not has_tensor_type(value):
        raise UnsupportedError(
            "onnx", f"a tensor cannot hold elements of type {value.dtype.name}; they stay NumPy arrays"
        )
    return asarray(value)


def to_host(value):
    """A value as NumPy has it. Reading a tensor inside a compiled function ends its program."""
    if isinstance(value, list):
        return [to_host(v) for v in value]
    return value.detach().cpu().numpy() if isinstance(value, _runtime.Tensor) else value
