"""16-bit floats are types to store: what adds many of them up computes in float32, and rounds its result once."""

from __future__ import annotations

from functools import wraps

from tandem import dtypes
from tandem.graph.ir import Value
from tandem.ops.define import tracing
from tandem.ops.prepare import cast, is_number, result_dtype

NARROW = (dtypes.float16, dtypes.bfloat16)


def wide_dtype(dtype: dtypes.DType) -> dtypes.DType:
    """The dtype of sums, counts, means and variances of `dtype`."""
    return dtypes.float32 if dtype in NARROW else dtype


def widen(x: Value) -> Value:
    return cast(x, dtypes.float32) if x.dtype in NARROW else x


def round_loss(y: Value, dtype: dtypes.DType) -> Value:
    """A loss computed in float32 as one of `dtype`; it stays where td.autocast is on."""
    return y if dtype not in NARROW or tracing.autocast_dtype is not None else cast(y, dtype)


def _narrow_values(args) -> list[Value]:
    return [x for x in args if isinstance(x, Value) and x.dtype in NARROW and not x.type.weak]


def _is_factor(x) -> bool:
    """A Python number, or a float without axes that adapts as one does."""
    return is_number(x) or (isinstance(x, Value) and (x.type.weak or (not x.shape and x.dtype.is_floating)))


def with_exact_factors(fn):
    """Makes a product of 16-bit floats with a number be that with the number itself, not with what 16 bits hold of it: 0.998 is
    1 in bfloat16. The result alone is rounded.
    """

    @wraps(fn)
    def body(x, y, **kwargs):
        if _is_factor(x) == _is_factor(y) or (dtype := result_dtype(x, y)) not in NARROW:
            return fn(x, y, **kwargs)
        x, y = (v if is_number(v) else cast(v, dtypes.float32) for v in (x, y))
        return cast(fn(x, y, **kwargs), dtype)

    return body


def in_float32(fn=None, *, loss: bool = False):
    """Makes the body of an operator function see float32 where its arguments have 16 bits; what it gives is rounded to what the
    arguments promote to. A loss stays in float32 where td.autocast is on.
    """
    if fn is None:
        return lambda f: in_float32(f, loss=loss)

    @wraps(fn)
    def body(*args, **kwargs):
        narrow = _narrow_values((*args, *kwargs.values()))
        if not narrow:
            return fn(*args, **kwargs)
        dtype = narrow[0].dtype
        for x in (*args, *kwargs.values()):
            if isinstance(x, Value) and x.dtype.is_inexact and not x.type.weak:
                dtype = dtypes.promote(dtype, x.dtype)
        chosen = {id(x): widen(x) for x in narrow}
        replace = lambda x: chosen.get(id(x), x)
        made = fn(*map(replace, args), **{k: replace(v) for k, v in kwargs.items()})
        if dtype not in NARROW or (loss and tracing.autocast_dtype is not None):
            return made
        round_once = lambda y: cast(y, dtype) if y.dtype is dtypes.float32 else y
        return tuple(map(round_once, made)) if isinstance(made, tuple) else round_once(made)

    return body
