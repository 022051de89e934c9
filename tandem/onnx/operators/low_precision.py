"""Casts, quantisation, and products of integers.

Element types that tensors do not have (8-bit floats, 4 bits and fewer) are NumPy arrays on the host, as ml_dtypes has them.
"""

from __future__ import annotations

import math

import numpy as np

import tandem.ops as ops
from tandem import _runtime, dtypes
from tandem.onnx.operators.convolution import convolve, window_pads
from tandem.onnx.registry import onnx_op
from tandem.onnx.types import STRING, code_of, dtype_of, numpy_dtype, to_host, to_tensor
from tandem.tensors.constructors import zeros


def code_of_value(value) -> int:
    """ONNX's number for a value's element type."""
    if isinstance(value, _runtime.Tensor):
        return code_of(value.dtype)
    if value.dtype == object:
        return STRING
    from onnx.helper import np_dtype_to_tensor_dtype

    return np_dtype_to_tensor_dtype(value.dtype)


def cast_value(x, code: int, saturate: bool = True, rounding: str = "up"):
    dtype = dtype_of(code)
    if dtype is not None and isinstance(x, _runtime.Tensor):
        return x.to(dtype)
    x = to_host(x)
    if code == STRING:
        return np.array([_text(v) for v in x.reshape(-1)], object).reshape(x.shape)
    if x.dtype == object:
        x = np.array([float(v) for v in x.reshape(-1)]).reshape(x.shape)
        x = x.astype(np.float32) if dtype is None else x
    wanted = numpy_dtype(code)
    if dtype is None:
        return _narrow(x, wanted, saturate, rounding)
    if x.dtype.name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2")):
        x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        return x.astype(wanted)


def _text(value) -> str:
    if isinstance(value, (bool, np.bool_, str)):
        return str(value)
    if np.issubdtype(type(value), np.integer):
        return str(int(value))
    value = float(value)
    if value != value:
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return str(np.float32(value)) if np.float32(value) == value else str(value)


def _narrow(x: np.ndarray, wanted: np.dtype, saturate: bool, rounding: str) -> np.ndarray:
    """Host elements as a type of few bits."""
    import ml_dtypes

    name = wanted.name
    if name.startswith(("int", "uint")):
        info = ml_dtypes.iinfo(wanted)
        whole = (
            x.astype(np.float32) if x.dtype.kind == "V" or x.dtype.name.startswith(("float8", "float4", "bf")) else x
        )
        bits = np.trunc(whole.astype(np.float64)).astype(np.int64)
        span = info.max - info.min + 1
        return ((bits - info.min) % span + info.min).astype(wanted)
    wide = x.astype(np.float32)
    if name == "float8_e8m0fnu":
        return _power_of_two(wide, wanted, saturate, rounding)
    with np.errstate(all="ignore"):
        result = wide.astype(wanted)
    if name == "float4_e2m1fn":
        return result
    info = ml_dtypes.finfo(wanted)
    largest = float(info.max)
    beyond = np.abs(wide) > largest
    if saturate:
        # what rounds to the largest number is that number, and so is infinity
        clipped = np.clip(wide, -largest, largest).astype(wanted)
        return np.where(np.isnan(wide), result, np.where(beyond, clipped, result)).astype(wanted)
    return result


def _power_of_two(x: np.ndarray, wanted: np.dtype, saturate: bool, rounding: str) -> np.ndarray:
    bits = x.view(np.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(np.int64)
    mantissa = bits & 0x7FFFFF
    if rounding == "up":
        more = mantissa > 0
    elif rounding == "nearest":
        more = mantissa >= 0x400000
    else:
        more = np.zeros(x.shape, bool)
    exponent = exponent + more
    top = 254
    result = np.where(exponent > top, top if saturate else 255, exponent)
    result = np.where(np.isnan(x), 255, np.where(np.isinf(x), top if saturate else 255, result))
    return result.astype(np.uint8).view(wanted)


@onnx_op("BitCast", host=True)
def bit_cast(node, x):
    return np.ascontiguousarray(x).view(numpy_dtype(node["to"])).reshape(x.shape)


def _along(p, x, axis: int, block: int):
    """A scale or zero point, for each element, channel or block of x."""
    if p is None or p.ndim == 0 or (p.size == 1 and not block):
        return p if p is None or p.ndim == 0 else p.reshape(())
    if block:
        return np.repeat(p, block, axis=axis)[tuple(slice(0, n) for n in x.shape)]
    return p.reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])


@onnx_op("QuantizeLinear", host=False, scoped=True)
def quantize_linear(node, scope, x, scale, zero=None):
    code = node.get("output_dtype", 0) or (2 if zero is None else code_of_value(zero))
    axis, block = node.get("axis", 1), node.get("block_size", 0)
    dtype = dtype_of(code)
    if dtype is None or isinstance(x, np.ndarray):
        return _quantize_host(node, x, scale, zero, code, axis, block)
    scale, zero = (_spread(to_tensor(p), x, axis, block) for p in (scale, zero))
    bits = 8 * dtype.itemsize
    low, high = (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    level = ops.round(x.to(dtypes.float32) / scale.to(dtypes.float32))
    level = level if zero is None else level + zero.to(dtypes.float32)
    return ops.clip(level, low, high).to(dtype)


def _spread(p, x, axis: int, block: int):
    """The same as _along, for tensors."""
    if p is None or p.ndim == 0 or (p.numel() == 1 and not block):
        return p if p is None or p.ndim == 0 else p.reshape(())
    if block:
        spread = ops.repeat_interleave(p, block, axis=axis)
        return ops.narrow(spread, axis, 0, x.shape[axis]) if spread.shape[axis] != x.shape[axis] else spread
    return p.reshape(tuple(-1 if a == axis % x.ndim else 1 for a in range(x.ndim)))


def _quantize_host(node, x, scale, zero, code: int, axis: int, block: int):
    x, scale, zero = to_host(x), to_host(scale), to_host(zero)
    precision = numpy_dtype(node["precision"]) if node.get("precision", 0) else np.float32
    scale = _along(scale, x, axis, block)
    level = x.astype(precision) / scale.astype(precision)
    wanted = numpy_dtype(code)
    if wanted.name.startswith(("float8", "float4")):
        return _narrow(level.astype(np.float32), wanted, bool(node.get("saturate", 1)), "up")
    import ml_dtypes

    level = np.rint(level.astype(np.float32))
    zero = _along(zero, x, axis, block)
    level = level if zero is None else level + zero.astype(np.float32)
    info = ml_dtypes.iinfo(wanted) if wanted.name in ("int4", "uint4", "int2", "uint2") else np.iinfo(wanted)
    return np.clip(level, info.min, info.max).astype(np.int64).astype(wanted)


@onnx_op("DequantizeLinear", scoped=True)
def dequantize_linear(node, scope, x, scale, zero=None):
    axis, block = node.get("axis", 1), node.get("block_size", 0)
    wanted = dtype_of(node.get("output_dtype", 0)) if node.get("output_dtype", 0) else None
    if isinstance(x, np.ndarray):
        host_scale, zero = to_host(scale), to_host(zero)
        level = x.astype(np.float32)
        zero = _along(zero, x, axis, block)
        level = level if zero is None else level - zero.astype(np.float32)
        result = level * _along(host_scale, x, axis, block).astype(np.float32)
        return result.astype(host_scale.dtype if wanted is None else wanted.numpy)
    scale, zero = to_tensor(scale), to_tensor(zero)
    dtype = scale.dtype if wanted is None else wanted
    level = x.to(dtypes.int32) if zero is None else x.to(dtypes.int32) - _spread(zero, x, axis, block).to(dtypes.int32)
    return (level.to(dtypes.float32) * _spread(scale, x, axis, block).to(dtypes.float32)).to(dtype)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(node, x):
    low, high = ops.minimum(ops.amin(x), 0.0), ops.maximum(ops.amax(x), 0.0)
    scale = (high - low) / 255
    zero = ops.clip(ops.round(-low / scale), 0, 255)
    level = ops.clip(ops.round(x / scale) + zero, 0, 255)
    return level.to(dtypes.uint8), scale, zero.to(dtypes.uint8)


def _centred(x, zero, axis: int | None = None):
    """Integers less their zero point, as int32."""
    x = x.to(dtypes.int32)
    if zero is None:
        return x
    zero = zero.to(dtypes.int32)
    if zero.ndim == 1 and zero.numel() > 1 and axis is not None:
        zero = zero.reshape(tuple(-1 if a == axis % x.ndim else 1 for a in range(x.ndim)))
    elif zero.numel() == 1:
        zero = zero.reshape(())
    return x - zero


@onnx_op("MatMulInteger")
def matmul_integer(node, a, b, a_zero=None, b_zero=None):
    return _product(a, b, a_zero, b_zero)


def _product(a, b, a_zero, b_zero):
    """Exact sums in int32."""
    one = a_zero is None or a_zero.numel() == 1
    if not (one and b.ndim == 2 and a.ndim > 1 and a.dtype.itemsize == b.dtype.itemsize == 1):
        return ops.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))
    rows = a.reshape((-1, a.shape[-1], 1))  # a convolution of windows of one element
    columns = ops.broadcast_to(_zero_of(b_zero), (b.shape[1],))
    made = ops.exact_conv(rows, b.mT[..., None], _zero_of(a_zero).reshape(()), columns, stride=(1,), pads=((0, 0),),
                          dilation=(1,))  # fmt: skip
    return made.reshape((*a.shape[:-1], b.shape[1]))


_EXACT = 2**24  # whole numbers up to this are float32 numbers


@onnx_op("ConvInteger")
def conv_integer(node, x, w, x_zero=None, w_zero=None):
    """Exact sums in int32."""
    bytes_ = x.dtype.itemsize == w.dtype.itemsize == 1
    if bytes_ and node.get("group", 1) == 1 and (x_zero is None or x_zero.numel() == 1) and x.ndim > 2:
        return _integer_conv(node, x, w, x_zero, w_zero)
    terms = math.prod(int(n) for n in w.shape[1:])
    wide = dtypes.float32 if bytes_ and terms * 255 * 255 < _EXACT else dtypes.float64
    return convolve(node, _centred(x, x_zero).to(wide), _centred(w, w_zero, 0).to(wide)).to(dtypes.int32)


def _integer_conv(node, x, w, x_zero, w_zero):
    count, outputs = x.ndim - 2, w.shape[0]
    stride, dilation = (tuple(node.get(name, [1] * count)) for name in ("strides", "dilations"))
    pads = window_pads(node, x.shape[2:], w.shape[2:], stride, dilation)
    return ops.exact_conv(x, w, _zero_of(x_zero).reshape(()), ops.broadcast_to(_zero_of(w_zero), (outputs,)), stride=stride,
                          pads=tuple(pads), dilation=dilation)  # fmt: skip


def _zero_of(zero):
    """A zero point as int32, of one axis."""
    return zeros((1,), dtype=dtypes.int32) if zero is None else zero.to(dtypes.int32).reshape((-1,))


def _requantize(total, scale, zero, like):
    level = ops.round(total * scale) + zero.to(total.dtype)
    bits = 8 * like.itemsize
    low, high = (0, 2**bits - 1) if like.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return ops.clip(level, low, high).to(like)


@onnx_op("QLinearMatMul", scoped=True)
def qlinear_matmul(node, scope, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    values = [a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero]
    if any(isinstance(v, np.ndarray) and dtype_of(code_of_value(v)) is None for v in values):
        values = [to_host(v).astype(np.float32) for v in values]
        a, a_scale, a_zero, b, b_scale, b_zero, _, _ = values
        product = (a - a_zero) * a_scale @ ((b - b_zero) * b_scale)
        return _narrow(product / values[6], to_host(y_zero).dtype, True, "up")
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (to_tensor(v) for v in values)
    total = _product(a, b, a_zero, b_zero).to(dtypes.float64)
    rows = lambda s: s.reshape((-1, 1)) if s.ndim == 1 and s.numel() > 1 else s
    scale = rows(a_scale).to(dtypes.float64) * b_scale.to(dtypes.float64) / y_scale.to(dtypes.float64)
    return _requantize(total, scale, y_zero, y_zero.dtype)


@onnx_op("QLinearConv")
def qlinear_conv(node, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None):
    total = conv_integer(node, x, w, x_zero, w_zero).to(dtypes.float64)
    shape = (1, -1, *(1 for _ in range(x.ndim - 2)))
    if bias is not None:
        total = total + bias.to(dtypes.float64).reshape(shape)
    scale = x_scale.to(dtypes.float64) * w_scale.to(dtypes.float64) / y_scale.to(dtypes.float64)
    scale = scale.reshape(shape) if scale.ndim and scale.numel() > 1 else scale.reshape(())
    return _requantize(total, scale, y_zero, y_zero.dtype)
