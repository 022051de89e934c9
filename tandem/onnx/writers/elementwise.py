"""Elementwise primitives."""

from __future__ import annotations

import math

from tandem import dtypes
from tandem.onnx.types import code_of
from tandem.onnx.writers.registry import writes
from tandem.passes.activations import activations

_SAME = {
    "abs": "Abs", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "sign": "Sign", "relu": "Relu", "reciprocal": "Reciprocal", "isnan": "IsNaN", "isinf": "IsInf", "logical_not": "Not",
    "copy": "Identity", "stop_gradient": "Identity", "no_derivative": "Identity", "contiguous": "Identity",
    "bit_not": "BitwiseNot", "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "equal": "Equal", "less": "Less",
    "less_equal": "LessOrEqual", "maximum": "Max", "minimum": "Min",
}  # fmt: skip
_OF_BOOLEANS = {"Add": "Or", "Max": "Or", "Mul": "And", "Min": "And", "BitwiseNot": "Not"}
for _name, _op in _SAME.items():
    writes(_name)(lambda w, node, *xs, op=_op: w.emit(_OF_BOOLEANS.get(op, op) if _is_bool(node) else op, xs))


@writes("where")
def where(w, node, condition, a, b):
    for x, name, low, high in activations(node):
        if name == "clip":
            dtype = node.outputs[0].dtype
            return w.emit("Clip", [w.name_of(x), w.scalar(low, dtype), w.scalar(high, dtype)])
    if _is_bool(node):  # onnxruntime has no Where of booleans
        kept, other = w.emit("And", [condition, a]), w.emit("And", [w.emit("Not", [condition]), b])
        return w.emit("Or", [kept, other])
    return w.emit("Where", [condition, a, b])


def _is_bool(node) -> bool:
    return node.outputs[0].dtype is dtypes.bool_


@writes("cast")
def cast(w, node, x):
    return w.emit("Cast", [x], to=code_of(node.op.dtype))


@writes("not_equal")
def not_equal(w, node, a, b):
    return w.emit("Not", [w.emit("Equal", [a, b])])


@writes("pow")
def power(w, node, a, b):
    return w.emit("Pow", [a, b])


def _bitwise(whole: str, truth: str):
    def write(w, node, a, b):
        return w.emit(truth if node.inputs[0].dtype is dtypes.bool_ else whole, [a, b])

    return write


writes("bit_and")(_bitwise("BitwiseAnd", "And"))
writes("bit_or")(_bitwise("BitwiseOr", "Or"))
writes("bit_xor")(_bitwise("BitwiseXor", "Xor"))


def _dtype(node):
    return node.outputs[0].dtype


def _number(w, node, value):
    return w.scalar(value, _dtype(node))


@writes("rsqrt")
def rsqrt(w, node, x):
    return w.emit("Reciprocal", [w.emit("Sqrt", [x])])


@writes("exp2")
def exp2(w, node, x):
    return w.emit("Pow", [_number(w, node, 2), x])


@writes("expm1")
def expm1(w, node, x):
    """2 exp(x/2) sinh(x/2) keeps the digits that exp(x) - 1 loses near zero."""
    half = w.emit("Mul", [x, _number(w, node, 0.5)])
    product = w.emit("Mul", [w.emit("Exp", [half]), w.emit("Sinh", [half])])
    return w.emit("Mul", [product, _number(w, node, 2)])


@writes("log1p")
def log1p(w, node, x):
    """2 atanh(x / (2 + x)), which keeps its digits near zero."""
    quotient = w.emit("Div", [x, w.emit("Add", [x, _number(w, node, 2)])])
    return w.emit("Mul", [w.emit("Atanh", [quotient]), _number(w, node, 2)])


@writes("log2")
def log2(w, node, x):
    return w.emit("Mul", [w.emit("Log", [x]), _number(w, node, 1 / math.log(2))])


@writes("log10")
def log10(w, node, x):
    return w.emit("Mul", [w.emit("Log", [x]), _number(w, node, 1 / math.log(10))])


@writes("cbrt")
def cbrt(w, node, x):
    root = w.emit("Pow", [w.emit("Abs", [x]), _number(w, node, 1 / 3)])
    return w.emit("Mul", [w.emit("Sign", [x]), root])


@writes("erfc")
def erfc(w, node, x):
    return w.emit("Sub", [_number(w, node, 1), w.emit("Erf", [x])])


@writes("trunc")
def trunc(w, node, x):
    return w.emit("Mul", [w.emit("Sign", [x]), w.emit("Floor", [w.emit("Abs", [x])])])


@writes("isfinite")
def isfinite(w, node, x):
    return w.emit("Not", [w.emit("Or", [w.emit("IsNaN", [x]), w.emit("IsInf", [x])])])


@writes("softplus")
def softplus(w, node, x):
    return w.emit("Softplus", [x])


@writes("logaddexp")
def logaddexp(w, node, a, b):
    difference = w.emit("Neg", [w.emit("Abs", [w.emit("Sub", [a, b])])])
    return w.emit("Add", [w.emit("Max", [a, b]), w.emit("Softplus", [difference])])


@writes("hypot")
def hypot(w, node, a, b):
    squares = [w.emit("Mul", [x, x]) for x in (a, b)]
    return w.emit("Sqrt", [w.emit("Add", squares)])


@writes("floor_divide")
def floor_divide(w, node, a, b):
    if not _dtype(node).is_integer:
        return w.emit("Floor", [w.emit("Div", [a, b])])
    rest = w.emit("Mod", [a, b])
    return w.emit("Div", [w.emit("Sub", [a, rest]), b])


@writes("remainder")
def remainder(w, node, a, b):
    if _dtype(node).is_integer:
        return w.emit("Mod", [a, b])
    return w.emit("Sub", [a, w.emit("Mul", [b, w.emit("Floor", [w.emit("Div", [a, b])])])])


@writes("fmod")
def fmod(w, node, a, b):
    return w.emit("Mod", [a, b], fmod=1)


@writes("atan2")
def atan2(w, node, y, x):
    """By quadrants, from atan(y / x)."""
    zero, pi, half = (_number(w, node, v) for v in (0, math.pi, math.pi / 2))
    base = w.emit("Atan", [w.emit("Div", [y, x])])
    left = w.emit("Where", [w.emit("Less", [y, zero]), w.emit("Sub", [base, pi]), w.emit("Add", [base, pi])])
    inside = w.emit("Where", [w.emit("Less", [x, zero]), left, base])
    upright = w.emit("Mul", [w.emit("Sign", [y]), half])
    return w.emit("Where", [w.emit("Equal", [x, zero]), upright, inside])


@writes("gelu")
def gelu(w, node, x):
    return w.emit("Gelu", [x])
