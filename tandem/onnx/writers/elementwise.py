"""Elementwise primitives."""

from __future__ import annotations

from tandem import dtypes
from tandem.onnx.writers.expressions import expression
from tandem.onnx.writers.kernels import has_kernel, wider
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
_ARITHMETIC = frozenset(("Neg", "Add", "Sub", "Mul", "Div", "Equal", "Less", "LessOrEqual", "Max", "Min"))
_OF_BOOLEANS = {"Add": "Or", "Max": "Or", "Mul": "And", "Min": "And", "BitwiseNot": "Not"}


def _same(op: str):
    """The operator of ONNX, where a kernel takes the type or a wider one; floor of integers is something else."""

    def write(w, node, *xs):
        dtype = node.inputs[0].dtype
        if _is_bool(node) and op in _OF_BOOLEANS:
            return w.emit(_OF_BOOLEANS[op], xs)
        plain = has_kernel(op, dtype) or (dtype.is_floating and wider(op, dtype) is not None) or op in _ARITHMETIC
        return w.emit(op, xs) if plain else expression(w, node, xs)

    return write


for _name, _op in _SAME.items():
    writes(_name)(_same(_op))


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
    return w.cast(x, node.op.dtype)


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


@writes("isfinite")
def isfinite(w, node, x):
    return w.emit("Not", [w.emit("Or", [w.emit("IsNaN", [x]), w.emit("IsInf", [x])])])


@writes("gelu")
def gelu(w, node, x):
    return w.emit("Gelu", [x]) if node.inputs[0].dtype is not dtypes.float64 else w.compose(node, [x])
