"""Reductions of nested tensors, and what works along one axis (Note [Nested tensors] in tensor.py).

Along an axis of rows it is done to rows; along the ragged one within each tensor of the batch, and where that axis goes the rest is
dense.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.nested.forms import FORMS, _call, _first, _inner, _rows, form
from tandem.nested.tensor import NestedTensor, owners_of
from tandem.ops.prepare import normalize_axis


@form("softmax")
def _softmax(x, axis=-1, dtype=None):
    inner = _inner("softmax", x, axis)
    if inner is not None:
        return x.with_values(F.softmax(x._values_part, inner, dtype))
    if normalize_axis("softmax", axis, x.ndim) != x._ragged:
        return NotImplemented
    return x.with_values(F.segment_softmax(_converted(x._values_part, dtype), owners_of(x), x.shape[0]))


@form("log_softmax")
def _log_softmax(x, axis=-1, dtype=None):
    inner = _inner("log_softmax", x, axis)
    if inner is not None:
        return x.with_values(F.log_softmax(x._values_part, inner, dtype))
    if normalize_axis("log_softmax", axis, x.ndim) != x._ragged:
        return NotImplemented
    values, owner = _converted(x._values_part, dtype), owners_of(x)
    shifted = values - _of_owner(F.segment_max(F.stop_gradient(values), owner, x.shape[0]), owner)
    total = F.segment_sum(F.exp(shifted), owner, x.shape[0])
    return x.with_values(shifted - _of_owner(F.log(total), owner))


def _of_owner(made, owner):
    return F.index_select(made, 0, owner)


def _converted(values, dtype):
    return values if dtype is None else F.converted(values, dtype)


def _along_rows(name: str):
    """A function that works along one axis, where that is an axis of rows."""
    function = getattr(F, name)

    def apply(x, axis=-1, *settings):
        inner = None if axis is None else _inner(name, x, axis)
        return NotImplemented if inner is None else x.with_values(_call(function, [x._values_part, inner, *settings]))

    FORMS[name] = apply


for _name in ("cumsum", "cumprod", "glu"):
    _along_rows(_name)


@form("normalize")
def _normalize(x, p=2.0, axis=1, eps=1e-12):
    inner = _inner("normalize", x, axis) if isinstance(axis, int) else None
    return NotImplemented if inner is None else x.with_values(F.normalize(x._values_part, p, inner, eps))


@form("cosine_similarity")
def _cosine_similarity(x1, x2, axis=1, eps=1e-8):
    like = _first((x1, x2))
    inner = _inner("cosine_similarity", like, axis)
    if inner is None:
        return NotImplemented
    rows = [_rows("cosine_similarity", like, x) for x in (x1, x2)]
    return like.with_values(F.cosine_similarity(*rows, inner, eps), _ragged_without(like, axis))


# -- reductions


def _reduction(name: str, segments):
    """A reduction of rows. segments: (values, owners, B) -> (B, *rest), the same along the ragged axis; None: there is none."""
    function = getattr(F, name)

    def apply(x, axis=None, *settings):
        given = dict(zip((p.name for p in function.parameters[2:]), settings, strict=False))
        if axis is None:
            return function(x._values_part, None, **given)
        if not isinstance(axis, int):
            if len(axis) != 1:
                return NotImplemented
            axis = axis[0]
        inner = _inner(name, x, axis)
        keepdims = given.pop("keepdims", False)
        if inner is not None:
            made = function(x._values_part, inner, keepdims=bool(keepdims), **given)
            return x.with_values(made, None if keepdims else _ragged_without(x, axis))
        if segments is None or normalize_axis(name, axis, x.ndim) != x._ragged:
            return NotImplemented
        values = _converted(x._values_part, given.pop("dtype", None))
        if any(v is not None for v in given.values()):
            return NotImplemented
        made = segments(values, owners_of(x), x.shape[0])
        return F.unsqueeze(made, x._ragged) if keepdims else made

    FORMS[name] = apply


def _ragged_without(x: NestedTensor, axis: int) -> int:
    """Which axis is ragged once this one has gone."""
    return x._ragged - (normalize_axis("axis", axis, x.ndim) < x._ragged)


def _summed(values, owner, count):
    wide = values if values.dtype.is_inexact else F.converted(values, F.sum(values[:0]).dtype)
    return F.segment_sum(wide, owner, count)


def _any(values, owner, count):
    return F.segment_max(F.not_equal(values, 0), owner, count)


def _all(values, owner, count):
    return F.logical_not(F.segment_max(F.equal(values, 0), owner, count))


for _name, _segments in {
    "sum": _summed, "mean": F.segment_mean, "amax": F.segment_max, "amin": F.segment_min, "any": _any, "all": _all,
    "prod": None, "var": None, "std": None, "logsumexp": None, "argmax": None, "argmin": None, "count_nonzero": None,
}.items():  # fmt: skip
    _reduction(_name, _segments)


@form("vector_norm", "norm")
def _norm(x, p=2, axis=None, keepdims=False, *settings):
    p = 2 if p == "fro" else p
    if any(s is not None for s in settings):
        return NotImplemented
    if axis is None:
        return F.vector_norm(x._values_part, p)
    inner = _inner("norm", x, axis) if isinstance(axis, int) else None
    if inner is None:
        return NotImplemented
    made = F.vector_norm(x._values_part, p, inner, bool(keepdims))
    return x.with_values(made, None if keepdims else _ragged_without(x, axis))


def _with_positions(name: str):
    """Largest or smallest elements along an axis, and where they are: positions within each tensor along the ragged one."""
    extreme, segments = (F.amax, F.segment_max) if name == "max" else (F.amin, F.segment_min)
    position = F.argmax if name == "max" else F.argmin

    def apply(x, axis, keepdims=False):
        values, inner = x._values_part, _inner(name, x, axis)
        if inner is not None:
            ragged = None if keepdims else _ragged_without(x, axis)
            made = extreme(values, inner, keepdims), position(values, inner, keepdims)
            return tuple(x.with_values(m, ragged) for m in made)
        if normalize_axis(name, axis, x.ndim) != x._ragged:
            return NotImplemented
        owner, n = owners_of(x), values.shape[0]
        found = segments(values, owner, x.shape[0])
        place = F.arange(n, device=values.device) - F.index_select(x._offsets_part, 0, owner)
        place = F.reshape(place, (n, *(1,) * (values.ndim - 1)))
        at = F.where(F.equal(values, _of_owner(found, owner)), place, n)  # the first of equal ones
        made = found, F.segment_min(at, owner, x.shape[0])
        return tuple(F.unsqueeze(m, x._ragged) for m in made) if keepdims else made

    FORMS[name] = apply


_with_positions("max")
_with_positions("min")
