"""Dropout: elements zeroed at random. The mask is drawn again in the backward pass from seed and offset, never stored."""

from __future__ import annotations

import math
import warnings

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import product
from tandem.ops.define import ends_inplace, op
from tandem.ops.prepare import broadcast, constant, full_expand, require_float, show_shape

# What a very negative input of selu becomes.
_SELU_FLOOR = -1.7580993408473766


def _check(name: str, x: Value, p: float):
    require_float(name, x)
    if not 0.0 <= p <= 1.0:
        raise ValueRangeError(name, f"p is {p}; a probability lies between 0 and 1")


def _kept(state, shape, p: float) -> Value:
    """True with probability 1 - p, independently for each element of shape."""
    bits = F.RandomBits(tuple(shape), 0)(state.seed, state.take(product(shape)))
    return F.LessEqual()(constant(dropout_limit(p), dtypes.uint32), bits)


def dropout_limit(p: float) -> int:
    """Random bits below it drop an element."""
    return min(round(p * 2**32), 2**32 - 1)


def _drop(name: str, x: Value, p: float, training: bool, state, mask_shape) -> Value:
    _check(name, x, p)
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * 0
    kept = full_expand(_kept(state, mask_shape, p), x.shape)
    return F.Where()(*broadcast(name, kept, x * (1.0 / (1.0 - p)), constant(0, x.dtype)))


@op(method=False)
def dropout(x: Tensor, p=0.5, training=True, *, generator: Generator | None = None):
    """Zeroes each element with probability p and scales the others by 1 / (1 - p); x itself when not training.

    >>> td.dropout(td.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """
    return _drop("dropout", x, p, training, generator, x.shape)


def _channels(name: str, x: Value, spatial: int) -> tuple:
    """The shape of a mask with one element per channel."""
    if x.ndim not in (spatial + 1, spatial + 2):
        raise ShapeError(
            name, f"x is {show_shape(x.shape)}; it must be (N, C, ...) or (C, ...) with {spatial} spatial axes"
        )
    return x.shape[: x.ndim - spatial] + (1,) * spatial


@op(method=False)
def dropout1d(x: Tensor, p=0.5, training=True, *, generator: Generator | None = None):
    """dropout of whole channels.

    x: (N, C, L) or (C, L)

    >>> td.dropout1d(td.ones(1, 1, 2), 0.5, training=False)
    tensor([[[1., 1.]]])
    """
    return _drop("dropout1d", x, p, training, generator, _channels("dropout1d", x, 1))


@op(method=False)
def dropout2d(x: Tensor, p=0.5, training=True, *, generator: Generator | None = None):
    """dropout of whole channels.

    x: (N, C, H, W), or as in PyTorch (N, C, L); with (N, C) it warns, and is dropout

    >>> td.dropout2d(td.ones(1, 1, 1, 2), 0.5, training=False)
    tensor([[[[1., 1.]]]])
    """
    if x.ndim == 2:
        warnings.warn(
            f"dropout2d: x is {show_shape(x.shape)}, which has no channels of several elements; use dropout",
            stacklevel=2,
        )
    mask = x.shape if x.ndim == 2 else _channels("dropout2d", x, 2 if x.ndim == 4 else 1)
    return _drop("dropout2d", x, p, training, generator, mask)


@op(method=False)
def dropout3d(x: Tensor, p=0.5, training=True, *, generator: Generator | None = None):
    """dropout of whole channels.

    x: (N, C, D, H, W) or (C, D, H, W)

    >>> td.dropout3d(td.ones(1, 1, 1, 1, 2), 0.5, training=False)
    tensor([[[[[1., 1.]]]]])
    """
    return _drop("dropout3d", x, p, training, generator, _channels("dropout3d", x, 3))


def _alpha(name: str, x: Value, p: float, training: bool, state, mask_shape) -> Value:
    _check(name, x, p)
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return x * 0
    scale = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * _SELU_FLOOR**2))
    kept = full_expand(_kept(state, mask_shape, p), x.shape)
    return F.Where()(*broadcast(name, kept, x, constant(_SELU_FLOOR, x.dtype))) * scale - scale * _SELU_FLOOR * p


@op(method=False)
def alpha_dropout(x: Tensor, p=0.5, training=False, *, generator: Generator | None = None):
    """dropout for selu: dropped elements take selu's lowest value, and mean and variance are kept.

    >>> td.alpha_dropout(td.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """
    return _alpha("alpha_dropout", x, p, training, generator, x.shape)


@op(method=False)
def feature_alpha_dropout(x: Tensor, p=0.5, training=False, *, generator: Generator | None = None):
    """alpha_dropout of whole channels.

    x: (N, C, *s)

    >>> td.feature_alpha_dropout(td.ones(1, 1, 2), 0.5, training=False)
    tensor([[[1., 1.]]])
    """
    if not training or p == 0:
        return x
    if x.ndim < 2:
        raise ShapeError("feature_alpha_dropout", f"x is {show_shape(x.shape)}; it must be (N, C, *s)")
    return _alpha("feature_alpha_dropout", x, p, training, generator, x.shape[:2] + (1,) * (x.ndim - 2))


ends_inplace(dropout, dropout1d, dropout2d, dropout3d, alpha_dropout, feature_alpha_dropout)
