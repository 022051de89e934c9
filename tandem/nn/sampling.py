"""Reading images at computed places: affine_grid, grid_sample, and pools whose regions are drawn at random."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.nn.resample import cubic_weights
from tandem.ops.define import as_tensor, op
from tandem.ops.prepare import cast, constant, show_shape
from tandem.ops.random import uniform_bits
from tandem.ops.taps import TapSum


@op(hidden=True, name="affine_grid")
def _affine_grid(theta: Tensor, sizes: Ints, align_corners):
    spatial = len(sizes)
    coordinates = []
    for k in reversed(range(spatial)):  # x first, as grid_sample reads them
        n = sizes[k]
        place = cast(F.Iota(tuple(sizes), k, dtypes.int64)(), theta.dtype)
        count = constant(n, theta.dtype)
        if align_corners:
            unit = place * (2 / F.maximum(count - 1, 1)) - 1 if n != 1 else place * 0
        else:
            unit = (place * 2 + 1) / count - 1
        coordinates.append(unit)
    coordinates.append(F.full(tuple(sizes), 1, dtype=theta.dtype))
    total = 1
    for n in sizes:
        total = total * n
    points = F.reshape(F.stack(coordinates, -1), (total, spatial + 1))
    made = F.matmul(points, F.matrix_transpose(theta))
    return F.reshape(made, (theta.shape[0], *sizes, spatial))


def affine_grid(theta, size, align_corners=None):
    """Places to read for an affine map of images: what grid_sample takes.

    theta: (N, 2, 3), size: (N, C, H, W) -> (N, H, W, 2); or (N, 3, 4) and five sizes -> (N, D, H, W, 3). Coordinates run from -1
    to 1: over the centres of the corner elements with align_corners, over their outer edges without.

    >>> td.nn.functional.affine_grid(td.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
    tensor([[[[-0.5000,  0.0000],
              [ 0.5000,  0.0000]]]])
    """
    theta, size = as_tensor("affine_grid", "theta", theta), tuple(size)
    spatial = len(size) - 2
    if spatial not in (2, 3) or theta.ndim != 3 or tuple(theta.shape[1:]) != (spatial, spatial + 1):
        raise ShapeError(
            "affine_grid",
            f"theta is {show_shape(theta.shape)} and size {size}; they must be (N, 2, 3) and (N, C, H, W), or (N, 3, 4) and "
            "five sizes",
        )
    return _affine_grid(theta, size[2:], bool(align_corners))


_MODES, _PADDING = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Images read at the places that grid gives, between elements by interpolation.

    input: (N, C, H, W), grid: (N, h, w, 2) of (x, y) from -1 to 1 -> (N, C, h, w); or (N, C, D, H, W) and (N, d, h, w, 3).
    mode: "bilinear" (three axes: trilinear), "nearest" or "bicubic". padding_mode says what lies outside: "zeros", "border" (the
    nearest element) or "reflection". align_corners: whether -1 and 1 are the centres of the corner elements or their outer edges.

    >>> image = td.arange(4.0).reshape(1, 1, 2, 2)
    >>> td.nn.functional.grid_sample(image, td.zeros(1, 1, 1, 2), align_corners=False)
    tensor([[[[1.5000]]]])
    """
    input, grid = as_tensor("grid_sample", "input", input), as_tensor("grid_sample", "grid", grid)
    spatial = input.ndim - 2
    if mode not in _MODES or padding_mode not in _PADDING:
        raise ValueRangeError(
            "grid_sample",
            f"mode is {mode!r} and padding_mode {padding_mode!r}; they must be of {', '.join(_MODES)} and {', '.join(_PADDING)}",
        )
    if spatial not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != spatial or grid.shape[0] != input.shape[0]:
        raise ShapeError(
            "grid_sample",
            f"input is {show_shape(input.shape)} and grid {show_shape(grid.shape)}; they must be (N, C, H, W) and (N, h, w, 2), or "
            "(N, C, D, H, W) and (N, d, h, w, 3)",
        )
    if mode == "bicubic" and spatial == 3:
        raise ShapeError("grid_sample", f"bicubic reads images of two axes; input is {show_shape(input.shape)}")
    # Two operators: where to read is the same for all channels and is worked out once.
    places = _places(grid, tuple(input.shape[2:]), mode, padding_mode, bool(align_corners))
    places = list(places) if isinstance(places, (tuple, list)) else [places]
    each = {"nearest": 1, "bilinear": 2, "bicubic": 4}[mode]
    return _blend(input, places[: each**spatial], places[each**spatial :], each)


@op(hidden=True, name="grid_sample")
def _places(grid: Tensor, sizes: Ints, mode, padding_mode, corners):
    """Offsets of the elements to read, -1 for those outside, of all combinations of taps along the axes; then their weights in the
    same order, unless all are 1."""
    spatial = len(sizes)
    axes, total = [], 1
    for k, size in enumerate(sizes):  # the last coordinate belongs to the first axis
        unit = F.squeeze(F.slice_axis(grid, -1, spatial - 1 - k, 1), -1)
        n = constant(size, grid.dtype)
        place = (unit + 1) * ((n - 1) * 0.5) if corners else ((unit + 1) * n - 1) * 0.5
        if mode != "bicubic":
            place = _folded(place, size, padding_mode, corners)
        taps = []
        for at, weight in _taps(place, mode):
            if mode == "bicubic":
                at = _folded(at, size, padding_mode, corners)
            last = constant(size, at.dtype) - 1
            # Places that are NaN still need an index, which counts for nothing.
            safe = F.stop_gradient(F.clip(F.where(F.isnan(at), 0, at), 0, last))
            there = F.logical_and(F.greater_equal(at, 0), F.less_equal(at, last)) if padding_mode == "zeros" else None
            taps.append((safe, there, weight))
        axes.append(taps)
        total = total * size
    index = dtypes.int32 if total < 2**31 else dtypes.int64
    offsets, weights = [], []
    for combination in _products(axes):
        flat = inside = weight = None
        for (at, there, part), n in zip(combination, sizes, strict=True):
            at = cast(at, index)
            flat = at if flat is None else flat * constant(n, index) + at
            if there is not None:
                inside = there if inside is None else F.logical_and(inside, there)
            if part is not None:
                weight = part if weight is None else weight * part
        flat = flat if inside is None else F.where(inside, flat, constant(-1, index))
        offsets.append(flat)
        if weight is not None:
            weights.append(weight)
    return (*offsets, *weights)


@op(hidden=True, name="grid_sample")
def _blend(x: Tensor, offsets: Tensors, weights: Tensors, run):
    """Weighted sums of elements of x (N, C, *sizes) at offsets (N, *out) into its planes."""
    total, points = 1, 1
    for n in x.shape[2:]:
        total = total * n
    out = offsets[0].shape
    for n in out[1:]:
        points = points * n
    dtype = x.dtype if x.dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
    planes = F.reshape(cast(x, dtype), (*x.shape[:2], total))
    lists = [*offsets, *(cast(w, dtype) for w in weights)]
    made = TapSum(len(offsets), run)(planes, *(F.reshape(v, (out[0], points)) for v in lists))
    return F.reshape(cast(made, x.dtype), (*x.shape[:2], *out[1:]))


def _taps(place, mode: str):
    """(position, weight) of the elements that are read along one axis."""
    if mode == "nearest":
        return [(F.round(place), None)]
    base = F.stop_gradient(F.floor(place))
    t = place - base
    if mode == "bilinear":
        return [(base, 1 - t), (base + 1, t)]
    return [(base + offset, weight) for offset, weight in cubic_weights(t)]


def _products(axes):
    """All combinations of one item of each list."""
    made = [()]
    for items in axes:
        made = [(*first, item) for first in made for item in items]
    return made


def _folded(place, n, padding_mode: str, corners: bool):
    """Places outside brought back in, for the two modes that do so."""
    if padding_mode == "zeros":
        return place
    last = constant(n, place.dtype) - 1
    if padding_mode == "reflection":
        low, span = (0.0, last) if corners else (-0.5, last + 1)
        span = F.where(F.equal(span, 0), 1, span)
        away = F.abs(place - low)
        turns = F.stop_gradient(F.floor(away / span))
        rest = away - turns * span
        even = F.equal(F.remainder(turns, 2), 0)
        place = F.where(even, rest + low, span - rest + low)
        if corners:
            place = F.where(F.equal(last, 0), 0, place)
    return F.clip(place, 0, last)


# -- fractional pooling (Graham, 2014): regions of varying size, drawn at random


def _starts(samples, size: int, out: int, window: int):
    """First elements of `out` regions along an axis of `size`, from numbers in [0, 1): (..., out) int64."""
    lead = tuple(samples.shape)
    samples = F.unsqueeze(samples, -1)
    place = F.Iota((*lead, out), len(lead), samples.dtype)()
    if out == 1:
        return F.full((*lead, 1), size - window, dtype=dtypes.int64)
    step = (size - window) / (out - 1)
    begin = F.floor((place + samples) * step) - F.floor(samples * step)
    begin = F.where(F.equal(place, out - 1), float(size - window), begin)
    return cast(begin, dtypes.int64)


@op(hidden=True, name="fractional_max_pool")
def _fractional(x: Tensor, samples: Tensor, kernel, out):
    spatial = len(kernel)
    sizes = tuple(int(n) for n in x.shape[2:])
    n, c = x.shape[:2]
    indices = []
    for k in range(spatial):
        # As PyTorch counts its samples: of two axes, the first is that of the width.
        own = F.squeeze(F.slice_axis(samples, -1, 1 - k if spatial == 2 else k, 1), -1)
        starts = _starts(own, sizes[k], out[k], kernel[k])
        shape = [n, c] + [1] * (2 * spatial)
        shape[2 + k] = out[k]
        inner = [1] * (2 + 2 * spatial)
        inner[2 + spatial + k] = kernel[k]
        indices.append(
            F.reshape(starts, tuple(shape)) + F.reshape(F.Iota((kernel[k],), 0, dtypes.int64)(), tuple(inner))
        )
    flat = None
    for k, index in enumerate(indices):
        flat = index if flat is None else flat * sizes[k] + index
    area, count = math.prod(kernel), math.prod(out)
    whole = (n, c, *out, *kernel)
    flat = F.reshape(F.expand(flat, whole), (n, c, count, area))
    line = F.reshape(x, (n, c, math.prod(sizes)))
    at = [F.Iota(flat.shape, a, dtypes.int64)() for a in (0, 1)]
    read = F.Gather()(line, *at, flat)
    best = F.argmax(F.stop_gradient(read), -1, True)
    position = F.take_along_axis(flat, best, -1)
    values = F.take_along_axis(read, best, -1)
    return F.reshape(values, (n, c, *out)), F.reshape(position, (n, c, *out))


@op(hidden=True, name="fractional_max_pool")
def _samples(x: Tensor, count, generator: Generator | None = None):
    wide = x.dtype if x.dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
    return uniform_bits(generator, (*x.shape[:2], count), wide)


def _fractional_pool(spatial: int):
    name = f"fractional_max_pool{spatial}d"

    def pool(
        input,
        kernel_size,
        output_size=None,
        output_ratio=None,
        return_indices=False,
        _random_samples=None,
        *,
        generator=None,
    ):
        input = as_tensor(name, "input", input)
        single = input.ndim == spatial + 1
        x = F.unsqueeze(input, 0) if single else input
        if x.ndim != spatial + 2:
            raise ShapeError(
                name, f"input is {show_shape(input.shape)}; it must be (N, C, ...) with {spatial} spatial axes"
            )
        kernel = tuple(kernel_size) if isinstance(kernel_size, (tuple, list)) else (kernel_size,) * spatial
        if (output_size is None) == (output_ratio is None):
            raise ValueRangeError(name, "give either output_size or output_ratio")
        if output_size is not None:
            out = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * spatial
        else:
            ratio = tuple(output_ratio) if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * spatial
            if any(not 0 < r < 1 for r in ratio):
                raise ValueRangeError(name, f"output_ratio is {output_ratio}; it must lie between 0 and 1")
            out = tuple(int(n * r) for n, r in zip(x.shape[2:], ratio, strict=True))
        for n, k, o in zip(x.shape[2:], kernel, out, strict=True):
            if o < 1 or o + k - 1 > n:
                raise ShapeError(
                    name, f"{o} regions of {k} elements do not fit into {n}: input is {show_shape(input.shape)}"
                )
        samples = _samples(x, spatial, generator) if _random_samples is None else _random_samples
        values, indices = _fractional(x, samples, kernel, out)
        if single:
            values, indices = F.squeeze(values, 0), F.squeeze(indices, 0)
        return (values, indices) if return_indices else values

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = f"""Largest elements of regions of varying size, drawn at random (Graham, 2014).

    input: (N, C, {", ".join("DHW"[-spatial:])}) -> (N, C, *output_size), or output_ratio times the sizes

    >>> td.nn.functional.{name}(td.zeros(1, 1, {", ".join("6" * spatial)}), 2, output_size=3).shape
    (1, 1, {", ".join("3" * spatial)})
    """
    return pool


fractional_max_pool2d, fractional_max_pool3d = _fractional_pool(2), _fractional_pool(3)
