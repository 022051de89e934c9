"""Methods and Python operators of tensors, for the eager Tensor and for symbolic Values alike."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.errors import ShapeError
from tandem.graph.ir import Value
from tandem.ops.getitem import getitem, setitem

# Operator of Tensor (src/bindings/tensor_operators.cc) -> (Python's name for it, our function)
_BINARY = {
    "add": ("add", "add"),
    "subtract": ("sub", "subtract"),
    "multiply": ("mul", "multiply"),
    "true_divide": ("truediv", "true_divide"),
    "floor_divide": ("floordiv", "floor_divide"),
    "remainder": ("mod", "remainder"),
    "power": ("pow", "power"),
    "matrix_multiply": ("matmul", "matmul"),
    "lshift": ("lshift", "bitwise_left_shift"),
    "rshift": ("rshift", "bitwise_right_shift"),
    "and": ("and", "bitwise_and"),
    "or": ("or", "bitwise_or"),
    "xor": ("xor", "bitwise_xor"),
}
_UNARY = {
    "negative": ("neg", "negative"),
    "positive": ("pos", "positive"),
    "absolute": ("abs", "abs"),
    "invert": ("invert", "bitwise_invert"),
}
_COMPARISONS = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}


FEW = 16  # parts that are taken out of a tensor at once


def _iterate(x):
    """The parts of x along its first axis. A few that gradients flow through are one operator: q, k, v = x has one backward."""
    if x.requires_grad and len(x) <= FEW:
        return iter(F.FUNCTIONS["unbind"](x))
    return map(x.__getitem__, range(len(x)))


def attach():
    for slot, (python, name) in _BINARY.items():
        function = F.FUNCTIONS.get(name)
        if function is None:
            continue
        _runtime.set_operator(slot, function)
        setattr(Value, f"__{python}__", _forward(function))
        setattr(Value, f"__r{python}__", _backward(function))
        if name + "_" in F.FUNCTIONS:
            _runtime.set_operator(f"inplace_{slot}", F.FUNCTIONS[name + "_"])
    for slot, (python, name) in _UNARY.items():
        if name in F.FUNCTIONS:
            _runtime.set_operator(slot, F.FUNCTIONS[name])
            setattr(Value, f"__{python}__", _alone(F.FUNCTIONS[name]))
    for name, python in _COMPARISONS.items():
        _runtime.set_operator(name, F.FUNCTIONS[name])
        if python not in ("eq", "ne"):  # Values are keys of dicts; use F.equal on them
            setattr(Value, f"__{python}__", _forward(F.FUNCTIONS[name]))
    _runtime.set_operator("inplace_matrix_multiply", _matmul_inplace)
    _runtime.set_operator("getitem", getitem)
    _runtime.set_operator("setitem", setitem)
    _runtime.set_operator("iter", _iterate)
    _runtime.set_operator("contains", lambda x, value: bool(F.any(F.equal(x, value))))
    Value.__getitem__ = getitem
    for name, function in ({name: F.FUNCTIONS[name] for name in F.METHODS} | F.OWN_METHODS).items():
        setattr(_runtime.Tensor, name, function)
        if name not in Value.__slots__:  # x.type(dtype) is a tensor's only
            setattr(Value, name, function)


def _matmul_inplace(x, y):
    """x @= y: the product is complete before it goes into x, which it is made from."""
    product = F.matmul(x, y)
    if product.shape != x.shape:
        raise ShapeError(
            "matmul",
            f"x @= y: the product has the shape {product.shape} and x {x.shape}, which cannot change in place",
            fix="use x = x @ y",
        )
    return F.copy_(x, product)


def _forward(function):
    return lambda a, b: function(a, b)


def _backward(function):
    return lambda a, b: function(b, a)


def _alone(function):
    return lambda a: function(a)
