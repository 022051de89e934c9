"""Integrals and derivatives of sampled functions; covariances of samples."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.ops.define import alias, as_tensor, op, public
from tandem.ops.precision import in_float32
from tandem.ops.prepare import cast, normalize_axis, show, show_shape, to_float


def _steps(name: str, y, x, axis: int):
    """Distances between neighbouring samples, shaped to meet the differences along `axis`."""
    if x.ndim == 1:
        if x.shape[0] != y.shape[axis]:
            raise ShapeError(name, f"x has {show(x.shape[0])} samples and y {show_shape(y.shape)} on axis {axis}")
        steps = F.diff(x)
        return F.Reshape((*steps.shape, *(1,) * (y.ndim - 1 - axis)))(steps)
    return F.diff(x, 1, axis - y.ndim)


def _areas(name: str, y, x, dx, axis):
    y = to_float(y)
    if y.ndim == 0:
        raise ShapeError(name, "y has no axes; samples need one")
    axis = normalize_axis(name, axis, y.ndim)
    n = y.shape[axis]
    if n == 0:
        return y, axis
    sums = (F.slice_axis(y, axis, 1, n - 1) + F.slice_axis(y, axis, 0, n - 1)) * 0.5
    return F.multiply(sums, dx if x is None else _steps(name, y, x, axis)), axis


@op
@in_float32
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Tensor = 1, axis=-1):
    """The integral of y along an axis by the trapezoidal rule: sampled at x, or dx apart.

    >>> td.trapezoid(td.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    """
    areas, axis = _areas("trapezoid", y, x, dx, axis)
    return F.sum(areas, axis)


@op
@in_float32
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Tensor = 1, axis=-1):
    """The integral of y along an axis up to each sample but the first.

    >>> td.cumulative_trapezoid(td.tensor([1.0, 2.0, 3.0]))
    tensor([1.5000, 4.0000])
    """
    areas, axis = _areas("cumulative_trapezoid", y, x, dx, axis)
    return F.cumsum(areas, axis)


@op(name="gradient", hidden=True)
def _slope(x: Tensor, places: Tensor | None, step: Tensor, axis, edge_order):
    """Second-order differences inside, of edge_order at the ends; samples lie at `places`, or `step` apart."""
    x = to_float(x)
    axis = normalize_axis("gradient", axis, x.ndim)
    n = x.shape[axis]
    if n < edge_order + 1:
        raise ShapeError(
            "gradient", f"axis {axis} has {show(n)} samples; edge_order {edge_order} needs {edge_order + 1}"
        )

    def part(start, size):
        return F.slice_axis(x, axis, start, size)

    if places is not None:
        if places.ndim != 1 or places.shape[0] != n:
            raise ShapeError(
                "gradient", f"coordinates are {show_shape(places.shape)}; axis {axis} has {show(n)} samples"
            )
        h = F.Reshape((n - 1, *(1,) * (x.ndim - 1 - axis)))(F.diff(places))

        def gap(start, size):
            return F.slice_axis(h, 0, start, size)

        a, b = gap(0, n - 2), gap(1, n - 2)
        middle = (
            part(2, n - 2) * (a / (b * (a + b)))
            + part(1, n - 2) * ((b - a) / (a * b))
            - part(0, n - 2) * (b / (a * (a + b)))
        )
        ends = [(gap(0, 1), None), (gap(n - 2, 1), None)]
        if edge_order == 2:
            ends = [(gap(0, 1), gap(1, 1)), (gap(n - 2, 1), gap(n - 3, 1))]
    else:
        middle = (part(2, n - 2) - part(0, n - 2)) / (step * 2)
        ends = [(step, step), (step, step)]
    if edge_order == 1:
        first = (part(1, 1) - part(0, 1)) / ends[0][0]
        last = (part(n - 1, 1) - part(n - 2, 1)) / ends[1][0]
    else:

        def edge(p0, p1, p2, a, b):  # the parabola through three samples, at the first
            return -p0 * ((a * 2 + b) / (a * (a + b))) + p1 * ((a + b) / (a * b)) - p2 * (a / (b * (a + b)))

        first = edge(part(0, 1), part(1, 1), part(2, 1), *ends[0])
        last = -edge(part(n - 1, 1), part(n - 2, 1), part(n - 3, 1), *ends[1])
    return F.concat([cast(part, x.dtype) for part in (first, middle, last)], axis)


@public(method=True)
def gradient(x: Tensor, *, spacing=1, axis=None, edge_order=1):
    """Derivatives of a sampled function along axes (all by default), one tensor each: differences of second order inside, of
    edge_order (1 or 2) at the ends. spacing: a distance, one for each axis, or a 1-d tensor of coordinates for each axis.

    >>> td.gradient(td.tensor([1.0, 4.0, 9.0]))
    (tensor([3., 4., 5.]),)
    """
    if edge_order not in (1, 2):
        raise ValueRangeError("gradient", f"edge_order is {edge_order}; it must be 1 or 2")
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    given = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    if len(given) != len(axes):
        raise ValueRangeError("gradient", f"{len(given)} spacings were given for {len(axes)} axes")
    made = []
    for a, s in zip(axes, given, strict=True):
        s = s if isinstance(s, (int, float)) else as_tensor("gradient", "spacing", s)
        along = not isinstance(s, (int, float)) and s.ndim > 0
        made.append(_slope(x, s if along else None, 1 if along else s, a, edge_order))
    return tuple(made)


@op
@in_float32
def cov(x: Tensor, *, correction=1, fweights: Tensor | None = None, aweights: Tensor | None = None):
    """Covariances of variables, whose samples are the columns of x. fweights: how often each sample counts, aweights: how much.

    x: (variables, samples) -> (variables, variables); a vector is one variable, whose variance has no axes

    >>> td.cov(td.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if x.ndim > 2:
        raise ShapeError("cov", f"x has {x.ndim} axes; at most 2 are possible")
    x = to_float(x)
    x = F.Reshape((1, x.type.numel))(x) if x.ndim < 2 else x
    single = x.shape[0] == 1
    n = x.shape[1]
    weights, real = None, dtypes.part_dtype(x.dtype)
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        if w is None:
            continue
        if w.ndim != 1 or w.shape[0] != n:
            raise ShapeError(
                "cov", f"{name} is {show_shape(w.shape)}; it must have one number for each of {show(n)} samples"
            )
        if name == "fweights" and not w.dtype.is_integer:
            raise DTypeError("cov", f"fweights are {w.dtype}; they say how often samples count: integers")
        w = F.astype(w, real)
        weights = w if weights is None else weights * w
    if weights is None:
        distance = x - F.mean(x, 1, keepdims=True)
        count = F.astype(F.Size(n, dtypes.int64)(), real) - correction
        weighted = distance
    else:
        total = F.sum(weights)
        distance = x - F.sum(x * weights, 1, keepdims=True) / total
        weighted = distance * weights
        less = total if aweights is None else F.sum(weights * F.astype(aweights, real))
        count = total - correction * (1 if aweights is None else less / total)
    made = F.matmul(weighted, F.matrix_transpose(F.conj(distance))) / F.maximum(count, 0)
    return F.Reshape(())(made) if single else made


@op
@in_float32
def corrcoef(x: Tensor):
    """Pearson's correlations of variables, whose samples are the columns of x: covariances over deviations.

    >>> td.corrcoef(td.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    c = F.cov(x)
    if c.ndim == 0:
        return c / c
    deviation = F.sqrt(F.real(F.diagonal(c)))
    made = c / F.unsqueeze(deviation, 1) / F.unsqueeze(deviation, 0)
    if made.dtype.is_complex:
        return F.Complex()(*(F.clip(part, -1.0, 1.0) for part in (F.real(made), F.imag(made))))
    return F.clip(made, -1.0, 1.0)


alias("trapz", trapezoid)
