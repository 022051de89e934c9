"""Operators that work element by element, with NumPy's broadcasting."""

from __future__ import annotations

import functools
import operator

import numpy as np

import tandem.nn.functional as F
import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.registry import onnx_op
from tandem.onnx.types import to_tensor
from tandem.tensors.constructors import asarray

_SAME_NAME = {
    "Abs": ops.abs, "Acos": ops.acos, "Acosh": ops.acosh, "Asin": ops.asin, "Asinh": ops.asinh, "Atan": ops.atan,
    "Atanh": ops.atanh, "BitwiseNot": ops.bitwise_not, "Ceil": ops.ceil, "Cos": ops.cos, "Cosh": ops.cosh, "Erf": ops.erf,
    "Exp": ops.exp, "Floor": ops.floor, "IsNaN": ops.isnan, "Log": ops.log, "Neg": ops.negative, "Not": ops.logical_not,
    "Reciprocal": ops.reciprocal, "Relu": ops.relu, "Round": ops.round, "Sigmoid": ops.sigmoid, "Sign": ops.sign,
    "Sin": ops.sin, "Sinh": ops.sinh, "Softplus": F.softplus, "Softsign": F.softsign, "Sqrt": ops.sqrt, "Tan": ops.tan,
    "Tanh": ops.tanh, "Mish": F.mish, "HardSwish": F.hardswish,
}  # fmt: skip
for _name, _function in _SAME_NAME.items():
    onnx_op(_name)(lambda node, x, f=_function: f(x))

_BINARY = {
    "And": ops.logical_and, "Or": ops.logical_or, "Xor": ops.logical_xor, "BitwiseAnd": ops.bitwise_and,
    "BitwiseOr": ops.bitwise_or, "BitwiseXor": ops.bitwise_xor, "Greater": ops.greater,
    "GreaterOrEqual": ops.greater_equal, "Less": ops.less, "LessOrEqual": ops.less_equal,
}  # fmt: skip
for _name, _function in _BINARY.items():
    onnx_op(_name, since=7)(lambda node, a, b, f=_function: f(a, b))

_ARITHMETIC = {"Add": ops.add, "Sub": ops.subtract, "Mul": ops.multiply}
for _name, _function in _ARITHMETIC.items():
    onnx_op(_name, since=7)(lambda node, a, b, f=_function: f(a, b))


def _aligned(node, a, b):
    """Operands of operator sets before 7: b's axes stand at `axis` of a's, where broadcast is asked for."""
    axis = node.get("axis")
    if node.get("broadcast", 0) and axis is not None and b.ndim:
        b = b.reshape((*b.shape, *(1 for _ in range(a.ndim - axis % a.ndim - b.ndim))))
    return a, b


for _name, _function in {**_BINARY, **_ARITHMETIC, "Div": ops.divide, "Pow": ops.pow, "Equal": ops.equal}.items():
    onnx_op(_name, since=1)(lambda node, a, b, f=_function: f(*_aligned(node, a, b)))


@onnx_op("Equal", since=7, scoped=True)
def equal(node, scope, a, b):
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):  # strings too
        return np.asarray(a == b)
    return ops.equal(to_tensor(a), to_tensor(b))


@onnx_op("Div", since=7)
def div(node, a, b):
    return ops.div(a, b, rounding_mode="trunc") if a.dtype.is_integer else a / b


@onnx_op("Pow", since=7)
def power(node, a, b):
    if a.dtype.is_integer:
        return ops.trunc(ops.pow(a.to(dtypes.float64), b)).to(a.dtype) if b.dtype.is_inexact else _integer_power(a, b)
    return ops.pow(a, b.to(a.dtype))


def _integer_power(a, b):
    if b.dtype.kind == "uint" or a.dtype is b.dtype:
        return ops.pow(a, b.to(a.dtype))
    return ops.pow(a.to(dtypes.int64), b.to(dtypes.int64)).to(a.dtype)


@onnx_op("Mod")
def mod(node, a, b):
    return ops.fmod(a, b) if node.get("fmod", 0) else ops.remainder(a, b)


@onnx_op("BitShift")
def bit_shift(node, a, b):
    return ops.bitwise_left_shift(a, b) if node["direction"] == "LEFT" else ops.bitwise_right_shift(a, b)


@onnx_op("Sum")
def add_all(node, *xs):
    return functools.reduce(operator.add, xs)


@onnx_op("Mean")
def mean_of(node, *xs):
    return functools.reduce(operator.add, xs) / len(xs)


@onnx_op("Max")
def maximum(node, *xs):
    return functools.reduce(ops.maximum, xs)


@onnx_op("Min")
def minimum(node, *xs):
    return functools.reduce(ops.minimum, xs)


@onnx_op("Where")
def where(node, condition, a, b):
    return ops.where(condition, a, b)


@onnx_op("IsInf")
def is_inf(node, x):
    up, down = node.get("detect_positive", 1), node.get("detect_negative", 1)
    if up and down:
        return ops.isinf(x)
    if up or down:
        return ops.isposinf(x) if up else ops.isneginf(x)
    return ops.zeros_like(x, dtype=dtypes.bool_)


@onnx_op("Clip", since=1)
def clip_attributes(node, x):
    return ops.clip(x, node.get("min"), node.get("max"))


@onnx_op("Clip", since=11)
def clip(node, x, low=None, high=None):
    # the upper bound wins where the bounds cross
    x = x if low is None else ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


@onnx_op("LeakyRelu")
def leaky_relu(node, x):
    return F.leaky_relu(x, node.get("alpha", 0.01))


@onnx_op("Elu")
def elu(node, x):
    return F.elu(x, node.get("alpha", 1.0))


@onnx_op("Celu")
def celu(node, x):
    return F.celu(x, node.get("alpha", 1.0))


@onnx_op("Selu")
def selu(node, x):
    alpha, gamma = node.get("alpha", 1.6732632423543772), node.get("gamma", 1.0507009873554805)
    return gamma * ops.where(x > 0, x, alpha * ops.expm1(x))


@onnx_op("ThresholdedRelu")
def thresholded_relu(node, x):
    return ops.where(x > node.get("alpha", 1.0), x, 0)


@onnx_op("HardSigmoid")
def hard_sigmoid(node, x):
    return ops.clip(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1)


@onnx_op("Shrink")
def shrink(node, x):
    bias, bound = node.get("bias", 0.0), node.get("lambd", 0.5)
    shrunk = ops.where(x < -bound, x + bias, ops.where(x > bound, x - bias, ops.zeros_like(x)))
    return shrunk.to(x.dtype)


@onnx_op("PRelu")
def prelu(node, x, slope):
    if node.version < 7 and slope.ndim == 1 and slope.shape[0] > 1:
        slope = slope.reshape((slope.shape[0], *(1 for _ in range(x.ndim - 2))))
    return ops.where(x < 0, slope * x, x)


@onnx_op("Gelu")
def gelu(node, x):
    return F.gelu(x, approximate=node.get("approximate", "none"))


@onnx_op("Swish")
def swish(node, x):
    return x * ops.sigmoid(node.get("alpha", 1.0) * x)


@onnx_op("Identity")
def identity(node, x):
    return x


@onnx_op("Dropout", since=1)
def dropout_attributes(node, x):
    return _dropout(node, x, node.get("ratio", 0.5), node.version < 7 and not node.get("is_test", 0))


@onnx_op("Dropout", since=12, static=(1, 2))
def dropout(node, x, ratio=None, training=None):
    ratio = 0.5 if ratio is None else float(ratio)
    return _dropout(node, x, ratio, training is not None and bool(training))


def _dropout(node, x, ratio: float, training: bool):
    if not training or ratio == 0:
        return (x, ops.ones_like(x, dtype=dtypes.bool_)) if node.has_output(1) else x
    kept = ops.rand_like(x, dtype=dtypes.float32) >= ratio
    scale = 0.0 if ratio == 1 else 1 / (1 - ratio)
    return (ops.where(kept, x * scale, 0), kept)


@onnx_op("Constant")
def constant(node):
    """One whose value is an attribute of the function around it."""
    for name, dtype in (
        ("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64), ("value_ints", np.int64),
    ):  # fmt: skip
        if node.get(name) is not None:
            return asarray(np.asarray(node[name], dtype))
    return asarray(np.asarray(node["value"]))
