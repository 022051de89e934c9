"""torch._foreach_*: an operator on every tensor of a list, as packages of optimisers use them.

Arguments that are lists give an element to each tensor; others go to all of them.
"""

from __future__ import annotations

import tandem as td

_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip
_MORE = (
    "add", "addcdiv", "addcmul", "clamp_max", "clamp_min", "div", "lerp", "maximum", "minimum", "mul", "pow", "sub",
)  # fmt: skip


def _each(argument, count: int, is_scalars: bool) -> list:
    if isinstance(argument, (list, tuple)) or (is_scalars and isinstance(argument, td.Tensor) and argument.ndim == 1):
        return list(argument.tolist() if isinstance(argument, td.Tensor) else argument)
    return [argument] * count


def _apply(name: str, tensors, args, kwargs) -> list:
    if not isinstance(tensors, (list, tuple)):  # pow of a number to tensors
        return [tensors**exponent for exponent in args[0]]
    count = len(tensors)
    fused = name.startswith("addc")
    if fused and len(args) == 3:
        kwargs = {**kwargs, "value": args[2]}
        args = args[:2]
    if "scalars" in kwargs:
        kwargs = {**kwargs, "value" if fused else "other": kwargs["scalars"]}
        del kwargs["scalars"]
    by_position = [_each(a, count, False) for a in args]
    by_name = {k: _each(a, count, True) for k, a in kwargs.items()}
    made = []
    for i, tensor in enumerate(tensors):
        given = [a[i] for a in by_position]
        if name in ("maximum", "minimum", "clamp_max", "clamp_min") and not isinstance(given[0], td.Tensor):
            method = "clamp_min" if name in ("maximum", "clamp_min") else "clamp_max"
        else:
            method = {"clamp_max": "minimum", "clamp_min": "maximum"}.get(name, name)
        made.append(getattr(tensor, method)(*given, **{k: v[i] for k, v in by_name.items()}))
    return made


def _make(name: str):
    def call(self, *args, **kwargs):
        return _apply(name, self, args, kwargs)

    def in_place(self, *args, **kwargs):
        for tensor, made in zip(self, _apply(name, self, args, kwargs), strict=True):
            tensor.copy_(made)

    call.__name__, in_place.__name__ = f"_foreach_{name}", f"_foreach_{name}_"
    call.__doc__ = f"{name} of every tensor of a list."
    in_place.__doc__ = f"{name} of every tensor of a list, in its place."
    return {call.__name__: call, in_place.__name__: in_place}


FUNCTIONS: dict = {}
for _name in (*_UNARY, *_MORE):
    FUNCTIONS |= _make(_name)


def _foreach_clone(self, *, memory_format=None):
    return [tensor.clone() for tensor in self]


def _foreach_copy_(self, src, non_blocking: bool = False):
    for tensor, source in zip(self, src, strict=True):
        tensor.copy_(source)


def _foreach_zero_(self):
    for tensor in self:
        tensor.zero_()


def _foreach_max(self):
    return [tensor.max() for tensor in self]


def _foreach_norm(self, ord=2, dtype=None):
    return [td.linalg.vector_norm(tensor, ord, dtype=dtype) for tensor in self]


def _foreach_mm(self, mat2):
    return [a @ b for a, b in zip(self, mat2, strict=True)]


FUNCTIONS |= {
    f.__name__: f for f in (_foreach_clone, _foreach_copy_, _foreach_zero_, _foreach_max, _foreach_norm, _foreach_mm)
}
