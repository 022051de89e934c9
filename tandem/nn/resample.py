"""Changing the resolution of images and the like, and moving channels into space and back."""

from __future__ import annotations

import functools
import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError
from tandem.ops.define import as_tensor, op
from tandem.ops.prepare import show_shape

_MODES = {
    "nearest": None,
    "nearest-exact": None,
    "area": None,
    "linear": 3,
    "bilinear": 4,
    "bicubic": 4,
    "trilinear": 5,
}


def interpolate(input, size=None, scale_factor=None, mode: str = "nearest", align_corners: bool | None = None,
                recompute_scale_factor: bool | None = None, antialias: bool = False):  # fmt: skip
    """Resizes the spatial axes to `size`, or by scale_factor.

    input: (N, C, *spatial) -> (N, C, *size). mode: "nearest", "nearest-exact", "area", "linear" (one spatial axis), "bilinear" and
    "bicubic" (two), "trilinear" (three). align_corners: the corner elements keep their places; otherwise the borders do.

    >>> td.nn.functional.interpolate(td.tensor([[[1.0, 3.0]]]), scale_factor=2, mode="linear", align_corners=False)
    tensor([[[1.0000, 1.5000, 2.5000, 3.0000]]])
    """
    if mode not in _MODES:
        raise ValueRangeError("interpolate", f"mode is {mode!r}; it must be one of {', '.join(_MODES)}")
    input = as_tensor("interpolate", "input", input)
    axes = input.ndim - 2
    if axes < 1 or (_MODES[mode] is not None and input.ndim != _MODES[mode]):
        needed = "(N, C, *spatial)" if _MODES[mode] is None else f"{_MODES[mode]} axes"
        raise ShapeError("interpolate", f"input is {input.shape}; mode {mode!r} takes {needed}")
    if align_corners is not None and _MODES[mode] is None:
        raise ValueRangeError("interpolate", f"align_corners has no meaning for mode {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueRangeError("interpolate", f"antialias goes with modes 'bilinear' and 'bicubic', not {mode!r}")
    if (size is None) == (scale_factor is None):
        raise ValueRangeError("interpolate", "give either size or scale_factor")
    spatial = input.shape[2:]
    if size is not None:
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,) * axes
        factors = [None] * axes
    else:
        factors = list(scale_factor) if isinstance(scale_factor, (tuple, list)) else [scale_factor] * axes
        sizes = tuple(math.floor(n * f) for n, f in zip(spatial, factors, strict=True))
        if recompute_scale_factor:
            factors = [None] * axes
    if len(sizes) != axes:
        raise ShapeError("interpolate", f"{len(sizes)} sizes were given for the {axes} spatial axes of {input.shape}")
    if mode == "area":
        if not input.dtype.is_inexact:
            raise UnsupportedError(
                "interpolate", f"mode 'area' takes floats, not {input.dtype}", fix="convert the input: x.float()"
            )
        if all(n % m == 0 for n, m in zip(spatial, sizes, strict=True)):  # windows of one size
            pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[axes - 1]
            return pool(input, tuple(n // m for n, m in zip(spatial, sizes, strict=True)))
        pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[axes - 1]
        return pool(input, sizes)
    if mode in ("nearest", "nearest-exact") and all(n and m % n == 0 for n, m in zip(spatial, sizes, strict=True)):
        if all(f is None or f == m // n for n, m, f in zip(spatial, sizes, factors, strict=True)):
            for axis in reversed(range(axes)):  # whole numbers of copies
                if sizes[axis] != spatial[axis]:
                    input = F.repeat_interleave(input, sizes[axis] // spatial[axis], axis + 2)
            return input if sizes != tuple(spatial) else F.clone(input)
    if not input.dtype.is_inexact and input.dtype is not dtypes.uint8 and mode not in ("nearest", "nearest-exact"):
        raise UnsupportedError(
            "interpolate",
            f"mode {mode!r} takes floats, or bytes (uint8), not {input.dtype}",
            fix="convert the input: x.float()",
        )
    kind = "linear" if mode in ("bilinear", "trilinear") else "cubic" if mode == "bicubic" else mode
    steps = [_step(n, m, f, kind, bool(align_corners)) for n, m, f in zip(spatial, sizes, factors, strict=True)]
    if antialias:
        reach = 1.0 if kind == "linear" else 2.0
        # From the last axis: the one whose neighbours lie side by side shrinks first.
        for axis in reversed(range(axes)):
            # Smaller results average over as many elements as they stand for.
            taps = math.ceil(reach * max(steps[axis], 1.0)) * 2 + 1
            input = _average_axis(input, axis + 2, sizes[axis], steps[axis], kind, bool(align_corners), taps)
        return input
    order = reversed(range(axes)) if input.dtype is dtypes.uint8 else range(axes)  # bytes are rounded after each axis
    for axis in order:
        input = _resize_axis(input, axis + 2, sizes[axis], steps[axis], kind, bool(align_corners))
    return input


def _step(n: int, m: int, factor, kind: str, align_corners: bool) -> float:
    """How far apart neighbouring results lie in the input."""
    if align_corners and kind in ("linear", "cubic"):
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return n / m if factor is None else 1.0 / factor


@op(hidden=True, name="interpolate")
def _resize_axis(x: Tensor, axis, size: Int, step: Tensor, kind, align_corners):
    n = x.shape[axis]
    if n == 0 or size <= 0:
        raise ShapeError("interpolate", f"x is {show_shape(x.shape)}; sizes must be positive")
    compute = _precise(x)
    place = F.Iota((size,), 0, compute)()
    step = F.astype(step, compute)
    last = F.astype(F.Size(n, dtypes.int64)(), compute) - 1
    if kind in ("nearest", "nearest-exact"):
        at = F.floor((place + 0.5 if kind == "nearest-exact" else place) * step)
        return F.index_select(x, axis, F.astype(F.minimum(at, last), dtypes.int64))
    at = place * step if align_corners else (place + 0.5) * step - 0.5
    if kind == "linear":
        at = F.maximum(at, 0.0)
    base = F.floor(at)
    t = at - base
    taps = [(0, 1 - t), (1, t)] if kind == "linear" else cubic_weights(t)
    indices = [F.astype(F.clip(base + offset, 0.0, last), dtypes.int64) for offset, _ in taps]
    return _blend(x, axis, indices, [weight for _, weight in taps])


@op(hidden=True, name="interpolate")
def _average_axis(x: Tensor, axis, size: Int, step: Tensor, kind, align_corners, taps):
    """Resizing with a kernel that is stretched by `step` where that is more than 1. taps: how many elements it covers at most."""
    n = x.shape[axis]
    if n == 0 or size <= 0:
        raise ShapeError("interpolate", f"x is {show_shape(x.shape)}; sizes must be positive")
    compute = _precise(x)
    step = F.astype(step, compute)
    stretch = F.maximum(step, 1.0)
    place = F.Iota((size, taps), 0, compute)()
    centre = (place + 0.5) * step
    support = stretch * (1.0 if kind == "linear" else 2.0)
    # Elements from `first` to before `last` are within reach; their centres lie half an element on.
    count = F.astype(F.Size(n, dtypes.int64)(), compute)
    first = F.maximum(F.floor(centre - support + 0.5), 0.0)
    last = F.minimum(F.floor(centre + support + 0.5), count)
    at = first + F.Iota((size, taps), 1, compute)()
    distance = F.abs((at - centre + 0.5) / stretch)
    if kind == "linear":
        weight = F.maximum(1 - distance, 0.0)
    else:
        a = -0.5  # as image libraries have it, unlike the cubic without antialias
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weight = F.where(F.less(distance, 1), near, F.where(F.less(distance, 2), far, 0))
    weight = F.where(F.less(at, last), weight, 0)
    weight = weight / F.sum(weight, 1, keepdims=True)
    index = F.astype(F.clip(at, 0.0, count - 1), dtypes.int64)
    if taps <= 16:
        parts = [[F.reshape(F.slice_axis(v, 1, k, 1), (size,)) for k in range(taps)] for v in (index, weight)]
        return _blend(x, axis, *parts)
    unit = None
    if x.dtype is dtypes.uint8:
        unit = _unit(F.amax(weight))
        weight = _rounded(weight * unit)
    # Many weights are a matrix; the product runs over whole lines.
    matrix = F.Scatter("add")(
        F.full((size, n), 0, dtype=compute), weight, F.Iota((size, taps), 0, dtypes.int64)(), index
    )
    moved = F.moveaxis(x, axis, -1)
    if unit is None:
        return F.moveaxis(F.matmul(moved, F.matrix_transpose(F.astype(matrix, x.dtype))), -1, axis)
    made = F.matmul(F.astype(moved, compute), F.matrix_transpose(matrix))
    return F.moveaxis(_byte(made, unit), -1, axis)


# Note [Resized bytes]
# Bytes are resized as PyTorch and image libraries do it, along the last axis first: weights are rounded to 16 bits, as many of them
# behind the point as the largest weight leaves room for, and each axis gives bytes again, rounded half up. All of this is exact
# in float64.


def _precise(x):
    return dtypes.float64 if x.dtype in (dtypes.float64, dtypes.uint8) else dtypes.float32


def _rounded(x):
    """Halves away from zero."""
    return F.trunc(x + F.where(F.less(x, 0), -0.5, 0.5))


def _unit(largest):
    """What 1 is among the rounded weights of bytes: a power of two."""
    bits = F.ceil(F.log2((2**15 - 0.5) / largest)) - 1
    one = F.full((), 1, dtype=dtypes.int64)
    return F.astype(F.bitwise_left_shift(one, F.astype(F.minimum(bits, 22), dtypes.int64)), dtypes.float64)


def _byte(total, unit):
    return F.astype(F.clip(F.floor(total / unit + 0.5), 0, 255), dtypes.uint8)


def _blend(x, axis, indices, weights):
    """The sum of the elements at each of the indices along axis times its weight."""
    unit = None
    shape = tuple(indices[0].shape[0] if a == axis else 1 for a in range(x.ndim))
    if x.dtype is dtypes.uint8:  # Note [Resized bytes]
        unit = _unit(functools.reduce(F.maximum, [F.amax(w) for w in weights]))
        weights = [_rounded(w * unit) for w in weights]
    total = None
    for index, weight in zip(indices, weights, strict=True):
        chosen = F.index_select(x, axis, index)
        chosen = chosen if unit is None else F.astype(chosen, weight.dtype)
        term = chosen * F.reshape(F.astype(weight, chosen.dtype), shape)
        total = term if total is None else total + term
    return total if unit is None else _byte(total, unit)


def cubic_weights(t, a=-0.75):
    """(offset, weight) of the four neighbours of a place t after the first of the middle two (Keys, 1981)."""

    def near(d):
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d):
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]


upsample = interpolate


def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate with mode "nearest"."""
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with mode "bilinear" and corners that keep their places."""
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


@op(hidden=True)
def pixel_shuffle(x: Tensor, upscale_factor):
    """Channels become space: (*, C * r * r, H, W) -> (*, C, H * r, W * r)."""
    r = upscale_factor
    if x.ndim < 3 or x.shape[-3] % (r * r) != 0:
        raise ShapeError("pixel_shuffle", f"x is {show_shape(x.shape)}; its channels must divide by {r} * {r}")
    lead, (c, h, w) = x.shape[:-3], x.shape[-3:]
    c = c // (r * r)
    k = len(lead)
    x = F.reshape(x, (*lead, c, r, r, h, w))
    x = F.permute(x, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return F.reshape(x, (*lead, c, h * r, w * r))


@op(hidden=True)
def pixel_unshuffle(x: Tensor, downscale_factor):
    """Space becomes channels: (*, C, H * r, W * r) -> (*, C * r * r, H, W)."""
    r = downscale_factor
    if x.ndim < 3 or x.shape[-1] % r != 0 or x.shape[-2] % r != 0:
        raise ShapeError("pixel_unshuffle", f"x is {show_shape(x.shape)}; its last two axes must divide by {r}")
    lead, (c, h, w) = x.shape[:-3], x.shape[-3:]
    k = len(lead)
    x = F.reshape(x, (*lead, c, h // r, r, w // r, r))
    x = F.permute(x, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return F.reshape(x, (*lead, c * r * r, h // r, w // r))


@op(hidden=True)
def channel_shuffle(x: Tensor, groups):
    """Channels of different groups take turns: (N, C, *) -> (N, C, *)."""
    if x.ndim < 3 or x.shape[1] % groups != 0:
        raise ShapeError(
            "channel_shuffle", f"x is {show_shape(x.shape)}; its channels must divide into {groups} groups"
        )
    n, c, rest = x.shape[0], x.shape[1], x.shape[2:]
    x = F.reshape(x, (n, groups, c // groups, *rest))
    return F.reshape(F.permute(x, (0, 2, 1, *range(3, 3 + len(rest)))), (n, c, *rest))
