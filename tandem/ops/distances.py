"""Distances between points, and tensors shortened to a norm."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type
from tandem.graph.symbolic import is_general
from tandem.ops.define import LibraryOp, inplace, op, public, register
from tandem.ops.precision import in_float32
from tandem.ops.prepare import cast, normalize_axis, promote, show_shape, to_float
from tandem.ops.statistics import _root

_MODES = (
    "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist",
)  # fmt: skip


def norm_of(x, p: float, axis: int):
    """The p-norm along an axis, whose gradient at zero is zero."""
    if p == 0:  # by signs, whose gradient is zero
        return F.sum(F.where(F.isnan(x), 1, F.abs(F.sign(x))), axis)
    return F.vector_norm(x, p, axis)


@op
@in_float32
def cdist(x1: Tensor, x2: Tensor, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """Distances of every point of x1 to every point of x2 by the p-norm.

    x1: (*b, m, d), x2: (*b, n, d) -> (*b, m, n). compute_mode: whether Euclidean distances come from a matrix product, which is
    quicker and less exact; by default, if there are more than 25 points.

    >>> td.cdist(td.tensor([[0.0, 0.0]]), td.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5., 1.]])
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            "cdist",
            f"x1 is {show_shape(x1.shape)} and x2 {show_shape(x2.shape)}; they must be (*b, m, d) and (*b, n, d)",
        )
    if p < 0:
        raise ValueRangeError("cdist", f"p is {p}; it must not be negative")
    if compute_mode is None or compute_mode in (0, 1, 2):
        compute_mode = _MODES[compute_mode or 0]
    if compute_mode not in _MODES:
        raise ValueRangeError("cdist", f"compute_mode is {compute_mode!r}; it must be one of {', '.join(_MODES)}")
    x1, x2 = (to_float(v) for v in promote(x1, x2))
    product = p == 2 and compute_mode == _MODES[1]
    if p == 2 and compute_mode == _MODES[0]:
        points = x1.shape[-2], x2.shape[-2]
        product = not is_general(*points) and any(n > 25 for n in points)
    if product:
        # |a - b|^2 = |a|^2 - 2 a b + |b|^2, all of it in one product
        squares = [F.sum(v * v, -1, keepdims=True) for v in (x1, x2)]
        total = F.matmul(x1 * -2, F.matrix_transpose(x2)) + squares[0] + F.matrix_transpose(squares[1])
        return _root(F.relu(total))
    return norm_of(F.unsqueeze(x1, -2) - F.unsqueeze(x2, -3), p, -1)


@op(name="pdist", hidden=True)
def _pairs(n: Int, count: Int):
    """(first, second) of all pairs in order, from their number k: first rows of n - 1, n - 2, ... pairs."""
    k = F.Iota((count,), 0, dtypes.float64)()
    edge = F.astype(F.Size(n, dtypes.int64)(), dtypes.float64) - 0.5
    row = F.floor(edge - F.sqrt(F.maximum(edge * edge - k * 2, 0)))

    def before(row):  # pairs in earlier rows
        return row * (edge * 2 - row) * 0.5

    # Rounding of the root may be off by one.
    row = F.where(F.greater(before(row), k), row - 1, row)
    row = F.where(F.less_equal(before(row + 1), k), row + 1, row)
    return cast(row, dtypes.int64), cast(k - before(row) + row + 1, dtypes.int64)


@register
class Pdist(LibraryOp):
    """Distances of all pairs of rows of x (n, d) by the p-norm."""

    name = "pdist"
    routine = "pdist"
    only_on = "cpu"
    p: float
    takes = "F[n,d]"

    def infer(self, x: Type) -> Type:
        n = x.shape[0]
        return x.with_shape((n * (n - 1) // 2,))

    def attributes(self, x):
        return (), (self.p,)

    def grad(self, g, x, *, vjp):
        return vjp(self.composed, [x], [g])[0]

    def composed(self, x):
        n = x.shape[0]
        first, second = _pairs(n, n * (n - 1) // 2)
        return norm_of(F.Gather()(x, first) - F.Gather()(x, second), self.p, -1)


@op(name="pdist", hidden=True)
@in_float32
def _pdist(x: Tensor, p):
    return Pdist(p)(to_float(x))


@public
def pdist(x: Tensor, p=2.0):
    """Distances of all pairs of points by the p-norm, in the order (0, 1), (0, 2), ..., (1, 2), ...

    x: (n, d) -> (n * (n - 1) / 2)

    >>> td.pdist(td.tensor([[0.0], [1.0], [3.0]]))
    tensor([1., 3., 2.])
    """
    if x.ndim != 2:
        raise ShapeError("pdist", f"x is {show_shape(x.shape)}; it must be (n, d)")
    if p < 0:
        raise ValueRangeError("pdist", f"p is {p}; it must not be negative")
    return _pdist(x, float(p))


@op
@in_float32
def dist(x: Tensor, y: Tensor, p=2):
    """The p-norm of x - y over all elements.

    >>> td.dist(td.tensor([3.0, 4.0]), td.zeros(2))
    tensor(5.)
    """
    x, y = (to_float(v) for v in promote(x, y))
    return F.vector_norm(x - y, p)


@op
@in_float32
def renorm(x: Tensor, p, axis, maxnorm):
    """x whose slices along an axis are shortened to a p-norm of at most maxnorm.

    >>> td.renorm(td.tensor([[3.0, 4.0], [0.0, 1.0]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.0000, 1.0000]])
    """
    if p <= 0 or maxnorm < 0:
        raise ValueRangeError("renorm", f"p is {p} and maxnorm {maxnorm}; p must be positive, maxnorm not negative")
    if x.ndim < 2:
        raise ShapeError("renorm", f"x has {x.ndim} axes; slices along one need at least 2")
    axis = normalize_axis("renorm", axis, x.ndim)
    others = tuple(a for a in range(x.ndim) if a != axis)
    norms = F.vector_norm(x, math.inf if p == math.inf else p, others, True)
    return F.where(F.greater(norms, maxnorm), x * (maxnorm / (norms + 1e-7)), x)


inplace(renorm)
