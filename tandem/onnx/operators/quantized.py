"""Operators of onnxruntime (com.microsoft) that its quantisation tools write: 8 bits between layers, 4-bit weights in blocks."""

from __future__ import annotations

import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.operators.fused import attention, channels_first, channels_last, embed_layer_norm
from tandem.onnx.operators.low_precision import (
    _centred,
    _product,
    dequantize_linear,
    dynamic_quantize_linear,
    qlinear_conv,
    quantize_linear,
)
from tandem.onnx.operators.pooling import average_pool, max_pool
from tandem.onnx.operators.recurrent import lstm
from tandem.onnx.registry import MICROSOFT, onnx_op
from tandem.onnx.types import to_tensor

onnx_op("QuantizeLinear", domain=MICROSOFT, scoped=True)(quantize_linear)
onnx_op("DequantizeLinear", domain=MICROSOFT, scoped=True)(dequantize_linear)


def _numbers(x, scale, zero, axis: int | None = None):
    """What 8-bit numbers stand for."""
    whole = _centred(x, zero, axis).to(dtypes.float32)
    if scale.ndim == 1 and scale.numel() > 1 and axis is not None:
        scale = scale.reshape(tuple(-1 if a == axis % x.ndim else 1 for a in range(x.ndim)))
    elif scale.numel() == 1:
        scale = scale.reshape(())
    return whole * scale


def _levels(x, scale, zero, like):
    """8-bit numbers that stand for x. like: their type, where there is no zero point."""
    dtype = like if zero is None else zero.dtype
    low, high = (0, 255) if dtype is dtypes.uint8 else (-128, 127)
    level = ops.round(x / scale.reshape(()).to(x.dtype))
    level = level if zero is None else level + zero.reshape(()).to(x.dtype)
    return ops.clip(level, low, high).to(dtype)


@onnx_op("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(node, a, a_scale, a_zero, b, b_scale, b_zero, scale, zero=None):
    x, y = _numbers(a, a_scale, a_zero), _numbers(b, b_scale, b_zero)
    return _levels(x + y if node.op == "QLinearAdd" else x * y, scale, zero, a.dtype)


@onnx_op("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=MICROSOFT)
def qlinear_unary(node, x, x_scale, x_zero, scale, zero=None):
    wide = _numbers(x, x_scale, x_zero)
    if node.op == "QLinearSigmoid":
        made = ops.sigmoid(wide)
    elif node.op == "QLinearLeakyRelu":
        made = ops.where(wide < 0, node.get("alpha", 0.01) * wide, wide)
    elif node["opset"] >= 13:
        made = ops.softmax(wide, axis=node.get("axis", -1))
    else:  # all axes from one on together
        axis = node.get("axis", -1) % x.ndim
        made = ops.softmax(wide.reshape((*wide.shape[:axis], -1)), axis=-1).reshape(wide.shape)
    return _levels(made, scale, zero, x.dtype)


@onnx_op("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_pool(node, x, x_scale, x_zero, scale, zero=None):
    wide = _numbers(x, x_scale, x_zero)
    wide = channels_first(wide) if node.get("channels_last", 0) else wide
    if node.op == "QLinearAveragePool":
        made = average_pool(node, wide)
    else:
        made = ops.mean(wide, axis=tuple(range(2, wide.ndim)), keepdims=True)
    made = channels_last(made) if node.get("channels_last", 0) else made
    return _levels(made, scale, zero, x.dtype)


@onnx_op("QLinearReduceMean", domain=MICROSOFT)
def qlinear_mean(node, x, x_scale, x_zero, scale, zero=None):
    axes = node.get("axes") or range(x.ndim)
    wide = ops.mean(_numbers(x, x_scale, x_zero), axis=tuple(axes), keepdims=bool(node.get("keepdims", 1)))
    return _levels(wide, scale, zero, x.dtype)


@onnx_op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node, scale, zero, *parts):
    wide = [_numbers(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return _levels(ops.concat(wide, axis=node["axis"]), scale, zero, parts[0].dtype)


@onnx_op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(node, condition, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero):
    chosen = ops.where(condition, _numbers(x, x_scale, x_zero), _numbers(y, y_scale, y_zero))
    return _levels(chosen, scale, zero, x.dtype)


@onnx_op("QLinearConv", domain=MICROSOFT)
def channels_last_conv(node, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None):
    last = node.get("channels_last", 0)
    x = channels_first(x) if last else x
    y = qlinear_conv(node, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias)
    return channels_last(y) if last else y


@onnx_op("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(node, x):
    made = max_pool(node, channels_first(x.to(dtypes.float32)))
    return channels_last(made[0] if isinstance(made, tuple) else made).to(x.dtype)


@onnx_op("QGemm", domain=MICROSOFT)
def qgemm(node, a, a_scale, a_zero, b, b_scale, b_zero, c=None, y_scale=None, y_zero=None):
    a = a.mT if node.get("transA", 0) else a
    b = b.mT if node.get("transB", 0) else b
    total = _product(a, b, a_zero, b_zero)
    total = total if c is None else total + c
    scale = node.get("alpha", 1.0) * a_scale.reshape(()) * (b_scale.reshape(()) if b_scale.numel() == 1 else b_scale)
    made = total.to(dtypes.float32) * scale
    return made if y_scale is None else _levels(made, y_scale, y_zero, a.dtype)


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node, a, b, a_scale, b_scale, a_zero=None, b_zero=None, bias=None):
    total = _product(a, b, a_zero, b_zero).to(dtypes.float32)
    made = total * a_scale * b_scale
    return made if bias is None else made + bias


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(node, a, b, b_scale, b_zero=None, bias=None):
    levels, scale, zero = dynamic_quantize_linear(node, a)
    return matmul_integer_to_float(node, levels, b, scale, b_scale, zero, b_zero, bias)


@onnx_op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_lstm(
    node, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None, w_scale=None, w_zero=None, r_scale=None, r_zero=None
):
    """Weights of 8 bits, (directions, inputs, 4 * hidden). The input is rounded as onnxruntime does; states stay floats here."""
    w, r = (_of_directions(*given) for given in ((w, w_scale, w_zero), (r, r_scale, r_zero)))
    levels, scale, zero = dynamic_quantize_linear(node, x)
    return lstm(node, (levels.to(dtypes.float32) - zero.to(dtypes.float32)) * scale, w, r, b, lengths, h0, c0, p)


def _of_directions(weight, scale, zero):
    """(directions, inputs, outputs) numbers as floats (directions, outputs, inputs). scale: one, or one for each output."""
    shape = (weight.shape[0], 1, -1)
    whole = (
        weight.to(dtypes.float32)
        if zero is None
        else weight.to(dtypes.float32) - zero.to(dtypes.float32).reshape(shape)
    )
    return (whole * scale.reshape(shape)).mT


def _halves(packed, bits: int, count: int):
    """Bytes of the last axis as numbers of `bits` bits, the low ones first."""
    if bits == 8:
        return packed[..., :count].to(dtypes.float32)
    parts = [ops.bitwise_and(ops.bitwise_right_shift(packed, k), 2**bits - 1) for k in range(0, 8, bits)]
    return ops.stack(parts, -1).reshape((*packed.shape[:-1], -1))[..., :count].to(dtypes.float32)


def _blocks(node, data, scales, zeros, rows: int, count: int):
    """(rows, blocks, bytes) -> (rows, count) floats."""
    bits, size = node.get("bits", 4), node.get("block_size", 128)
    blocks = -(-count // size)
    numbers = _halves(data.reshape((rows, blocks, -1)), bits, size)
    if zeros is None:
        numbers = numbers - float(2 ** (bits - 1))
    elif zeros.dtype is dtypes.uint8:
        numbers = numbers - _halves(zeros.reshape((rows, -1)), bits, blocks)[..., None]
    else:
        numbers = numbers - zeros.reshape((rows, blocks, 1)).to(dtypes.float32)
    whole = numbers * scales.reshape((rows, blocks, 1)).to(dtypes.float32)
    return whole.reshape((rows, -1))[:, :count]


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(node, x, data, scales, zeros=None, groups=None, bias=None):
    weight = _blocks(node, data, scales, zeros, node["N"], node["K"]).to(x.dtype)
    y = ops.matmul(x, weight.mT)
    return y if bias is None else y + bias


@onnx_op("GatherBlockQuantized", domain=MICROSOFT, scoped=True)
def gather_blocks(node, scope, data, indices, scales, zeros=None):
    data, scales, zeros = (to_tensor(v) for v in (data, scales, zeros))
    axis, bits = node.get("gather_axis", 0), node.get("bits", 4)
    if axis != 0 or data.ndim != 2 or node.get("quantize_axis", 1) % 2 != 1:
        raise ValueError("rows of a matrix are gathered, whose blocks are along its last axis")
    count = int(data.shape[1]) * 8 // bits
    at = to_tensor(indices)
    flat = at.reshape((-1,)).to(dtypes.int64)
    pick = lambda t: None if t is None else ops.index_select(t, 0, flat)
    made = _blocks(node, pick(data), pick(scales), pick(zeros), int(flat.shape[0]), count)
    return made.to(scales.dtype).reshape((*at.shape, count))


@onnx_op("QAttention", domain=MICROSOFT)
def qattention(node, x, weight, bias, x_scale, w_scale, mask=None, x_zero=None, w_zero=None, past=None):
    return attention(node, _numbers(x, x_scale, x_zero), _numbers(weight, w_scale, w_zero, -1), bias, mask, past)


@onnx_op("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_norm(node, ids, segments, words, places, kinds, scale, shift, mask, *steps):
    scales, zeros = steps[:5], steps[5:]
    tables = [None if t is None else _numbers(t, s, z)
              for t, s, z in zip((words, places, kinds, scale, shift), scales, zeros, strict=True)]  # fmt: skip
    return embed_layer_norm(node, ids, segments, *tables, mask)[:2]
