"""Elementwise operators without a counterpart: their scalar expressions, as nodes on whole tensors."""

from __future__ import annotations

import math
import struct

from tandem import dtypes
from tandem.codegen import mathlib
from tandem.codegen.expr import topological
from tandem.export.scalars import FileScalars, complex_too
from tandem.onnx.writers.kernels import has_kernel

_NATIVE = {
    "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "sigmoid": "Sigmoid",
    "erf": "Erf", "softplus": "Softplus", "sign": "Sign",
}  # fmt: skip
_SAME = {
    "neg": "Neg", "sqrt": "Sqrt", "floor": "Floor", "ceil": "Ceil", "round": "Round", "abs": "Abs", "add": "Add", "sub": "Sub",
    "mul": "Mul", "div": "Div", "min": "Min", "max": "Max", "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "not": "Not",
    "isnan": "IsNaN", "where": "Where", "idiv": "Div", "imod": "Mod", "mod": "Mod",
}  # fmt: skip
_SWAPPED = {"gt": "Less", "ge": "LessOrEqual"}
_BITWISE = {"and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor")}


class _Scalars(FileScalars):
    NATIVE = _NATIVE

    def pow(self, x, y):
        return self.native("Pow", x, y)

    def expm1(self, x):
        """tanh(x / 2) (e^x + 1) keeps the digits that e^x - 1 loses near zero."""
        x = self.widen(x)
        return self.tanh(x * 0.5) * (self.exp(x) + 1.0)

    def log1p(self, x):
        """log(1 + x), times x over what 1 + x has of it."""
        x = self.widen(x)
        u = x + 1.0
        return self.where((u == 1.0) | (x == math.inf), x, self.log(u) * (x / (u - 1.0)))

    def fmod(self, x, y):
        x, y = self.widen(x), self.widen(y)
        return self.make("fmod", (x, y), x.dtype)


def _method(name: str, theirs: str):
    """The runtime's function where it takes the type; else a formula of others."""
    formula = getattr(FileScalars, name, None) or getattr(mathlib, name)

    def call(self, x):
        x = self.widen(x)
        return self.native(theirs, x) if has_kernel(theirs, x.dtype) else formula(self, x)

    return call


for _name, _theirs in _NATIVE.items():
    setattr(_Scalars, _name, _method(_name, _theirs))
complex_too(_Scalars)


def expression(w, node, operands) -> str:
    """The operator's scalar expression, with tensors for scalars."""
    builder = _Scalars()
    made = {}
    leaves = []
    for v, name in zip(node.inputs, operands, strict=True):
        leaf = builder.make("var", (), v.dtype, len(leaves))
        leaves.append(leaf)
        made[leaf.id] = name
    root = builder.cast(node.op.body(builder, *leaves), node.outputs[0].dtype)
    for e in topological([root]):
        if e.id not in made:
            made[e.id] = _scalar_op(w, node, e, [made[a.id] for a in e.args])
    if root.op == "const":  # whatever its operands are
        return w.emit("Expand", [made[root.id], w.shape(node.outputs[0].shape)])
    return made[root.id]


def _scalar_op(w, node, e, args: list[str]) -> str:
    dtype = e.dtype
    if e.op == "const":
        return w.scalar(_value(e), dtype)
    if e.op == "cast":
        return w.cast(args[0], dtype)
    if e.op == "native":
        return w.emit(e.attr, args)
    if e.op in _SAME:
        return w.emit(_SAME[e.op], args)
    if e.op in _SWAPPED:
        return w.emit(_SWAPPED[e.op], args[::-1])
    if e.op in _BITWISE:
        return w.emit(_BITWISE[e.op][dtype is not dtypes.bool_], args)
    if e.op == "ne":
        return w.emit("Not", [w.emit("Equal", args)])
    if e.op == "fmod":
        return w.emit("Mod", args, fmod=1)
    if e.op == "fma":
        return w.emit("Add", [w.emit("Mul", args[:2]), args[2]])
    if e.op == "rarely":
        condition, usual, slow = args
        return w.emit("Where", [condition, slow, usual])
    if e.op == "trunc":
        whole = w.emit("Floor", [w.emit("Abs", args)])
        return w.emit("Mul", [w.emit("Sign", args), whole])
    if e.op == "copysign":
        size = w.emit("Abs", [args[0]])
        return w.emit("Where", [_is_negative(w, args[1], dtype), w.emit("Neg", [size]), size])
    if e.op == "near_angle":
        return args[0]
    if e.op == "floordiv":
        return _floor_divide(w, *args, dtype)
    if e.op in ("shl", "shr"):
        return _shift(w, e.op, args[0], w.cast(args[1], dtypes.int64), dtype)
    return w.refuse(node, f"the scalar operation {e.op}")


def _floor_divide(w, a: str, b: str, dtype) -> str:
    """Of integers: Div rounds toward zero, and one less is the floor where the remainder's sign is not the divisor's. What is
    subtracted before dividing would wrap around near the least number."""
    quotient = w.emit("Div", [a, b])
    if dtype.numpy.kind == "u":
        return quotient
    zero = w.scalar(0, dtype)
    rest = w.emit("Sub", [a, w.emit("Mul", [quotient, b])])
    other_sign = w.emit("Xor", [w.emit("Less", [rest, zero]), w.emit("Less", [b, zero])])
    less = w.emit("And", [other_sign, w.emit("Not", [w.emit("Equal", [rest, zero])])])
    return w.emit("Sub", [quotient, w.cast(less, dtype)])


def _shift(w, op: str, x: str, count: str, dtype) -> str:
    """By powers of two; in two halves, as 2^63 is no number of int64."""
    two = w.scalar(2, dtypes.int64)
    first = w.emit("Div", [count, two])
    wide = dtypes.uint64 if dtype is dtypes.uint64 else dtypes.int64
    x = w.cast(x, wide)
    for n in (first, w.emit("Sub", [count, first])):
        power = w.cast(w.emit("Pow", [two, n]), wide)
        x = w.emit("Mul", [x, power]) if op == "shl" else _floor_divide(w, x, power, wide)
    return w.cast(x, dtype)


def _is_negative(w, x: str, dtype) -> str:
    """Whether the sign is minus, also of zero."""
    zero = w.scalar(0, dtype)
    inverse = w.emit("Less", [w.emit("Reciprocal", [x]), zero])
    return w.emit("Or", [w.emit("Less", [x, zero]), inverse])


def _value(e):
    if e.dtype is dtypes.float32:
        return struct.unpack("<f", struct.pack("<I", e.attr))[0]
    if e.dtype is dtypes.float64:
        return struct.unpack("<d", struct.pack("<Q", e.attr))[0]
    return e.attr
