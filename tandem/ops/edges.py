"""Sums over the edges of a graph, and over other groups of rows: products with sparse matrices that make no entry per edge.

Note [Edges]
The edges of a graph (the entries of a sparse matrix) are given row by row, as compressed sparse rows: `start` (n + 1) says where
the edges of each row begin, `column` (m) which row of the other operand they read, `order` (m) the number of the edge, by which
weights are kept. Every primitive is given the transposed matrix as well, in the same form: what is a sum over rows forward is a sum
over columns backward. So spmm and sddmm are each other's gradients to any order, nothing is scattered, and sums are made in one
order whatever the number of threads. `tandem/sparse/structure.py` makes both forms, once for a graph.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.define import Composite, LibraryOp, op, register
from tandem.ops.index import CheckIndex, Gather, Scatter, checked, scatter_sum
from tandem.ops.movement import Reshape
from tandem.ops.prepare import cast, full_expand


def owners(start, edges):
    """The row of every edge: how many rows end at or before it."""
    rows = start.shape[0] - 1
    ends = F.slice_axis(start, 0, 1, rows)
    marks = Scatter("add")(
        F.full((edges + 1,), 0, dtype=dtypes.int64), F.full((rows,), 1, dtype=dtypes.int64), F.clip(ends, 0, edges)
    )
    return F.cumsum(F.slice_axis(marks, 0, 0, edges), 0)


@register
class GroupIndex(LibraryOp):
    """index (m), values below bound -> start (bound + 1), order (m): positions by the value that they hold, equal ones in order."""

    name = "group_index"
    routine = "group_index"
    only_on = "cpu"
    may_fail = True
    bound: object  # Dim
    takes = "i64[m]"

    def infer(self, index: Type):
        return index.with_shape((self.bound + 1,)), index

    def rule(self, index: Type):
        rules.size(self, "bound", self.bound)

    def bounds(self, index: Type):
        return {0: (self.bound, 0)}

    def attributes(self, index):
        return (self.bound,), ()

    def composed(self, index):
        ones = F.full(index.shape, 1, dtype=dtypes.int64)
        # Shifted by one place, so that the running sum says where groups begin.
        counts = Scatter("add")(F.full((self.bound + 1,), 0, dtype=dtypes.int64), ones, index + 1)
        return F.cumsum(counts, 0), F.argsort(index, stable=True)


@register
class CoalesceRows(LibraryOp):
    """index (m), values (m, *r) -> rows (m), sums (m, *r), count (): values of each row added up, by rising row.

    Behind the first `count` results the last is repeated: writing all of them to their rows writes nothing wrong.
    """

    name = "coalesce_rows"
    routine = "coalesce_rows"
    only_on = "cpu"
    takes_complex = True
    holomorphic = False
    sparse_grads = True
    takes = "i64[m] ?[m,*r]"

    def infer(self, index: Type, values: Type):
        return index, values, Type(dtypes.int64, ())

    def composed(self, index, values):
        m = index.shape[0]
        order, run, last = _runs(index)
        place = F.minimum(F.Iota((m,), 0, dtypes.int64)(), full_expand(last, (m,)))
        named = Scatter("set")(index, Gather()(index, order), run)
        sums = scatter_sum(F.zeros_like(values), Gather()(values, order), run)
        return Gather()(named, place), Gather()(sums, place), last + 1

    def grad(self, g, index, values):
        g = g[1]
        if g is None:
            return None, None
        m = index.shape[0]
        order, run, last = _runs(index)
        place = F.minimum(F.Iota((m,), 0, dtypes.int64)(), full_expand(last, (m,)))
        by_run = scatter_sum(F.zeros_like(g), g, place)
        return None, Scatter("set")(F.zeros_like(values), Gather()(by_run, run), order)


def _runs(index):
    """Positions by rising index, the number of distinct indices before each of them, and the last of those numbers."""
    m = index.shape[0]
    order = F.argsort(index, stable=True)
    ordered = Gather()(index, order)
    before = F.concat([F.slice_axis(ordered, 0, 0, 1) - 1, F.slice_axis(ordered, 0, 0, m - 1)], 0)
    run = F.cumsum(cast(F.not_equal(ordered, before), dtypes.int64), 0) - 1
    return order, run, Reshape(())(F.slice_axis(run, 0, m - 1, 1))


def _fits(op, x: Type, start: Type, column: Type, *more: Type):
    for t in (start, column, *more):
        rules.allowed(
            op, t.dtype is dtypes.int64 and t.ndim == 1, f"edges are given by {t!r}; they must be int64 vectors"
        )
    rules.allowed(op, x.dtype in (dtypes.float32, dtypes.float64), f"x is {x.dtype}; it must be float32 or float64")
    rules.need(op, x.ndim == 3, f"x is {x!r}; it must have 3 axes")


@register
class Spmm(LibraryOp):
    """x (k, h, d)[, values (m, h)], edges -> (n, h, d): sums over the edges of a row of x[column] times their value.

    Edges are start, column and order, and the same of the transposed matrix.
    """

    name = "spmm"
    routine = "spmm"
    weighted: bool

    def infer(self, x: Type, *rest: Type) -> Type:
        return x.with_shape((rest[-6].shape[0] - 1, *x.shape[1:]))

    def rule(self, x: Type, *rest: Type):
        rules.need(self, len(rest) == 6 + self.weighted, f"there are {len(rest)} operands besides x")
        _fits(self, x, *rest[-6:])
        if self.weighted:
            values, m, h = rest[0], rest[-5].shape[0], x.shape[1]
            fits = values.ndim == 2 and values.shape[0] == m and values.shape[1] == h and values.dtype is x.dtype
            rules.need(self, fits, f"values are {values!r} and x is {x!r}, with {m} edges")

    def bounds(self, x: Type, *rest: Type):
        first, m = 1 + self.weighted, rest[-5].shape[0]
        n = rest[-6].shape[0] - 1
        return {
            first: (m + 1, 0), first + 1: (x.shape[0], 0), first + 2: (m, 0),
            first + 3: (m + 1, 0), first + 4: (n, 0), first + 5: (m, 0),
        }  # fmt: skip

    def grad(self, g, x, *rest):
        values, edges = rest[:-6], rest[-6:]
        gx = Spmm(self.weighted)(g, *values, *edges[3:], *edges[:3])
        gv = (Sddmm()(g, x, *edges),) if values else ()
        return (gx, *gv, *(None,) * 6)


@register
class Sddmm(LibraryOp):
    """a (n, h, d), x (k, h, d), edges -> (m, h): the dot products of row and column of every edge."""

    name = "sddmm"
    routine = "sddmm"

    def infer(self, a: Type, x: Type, *edges: Type) -> Type:
        return a.with_shape((edges[1].shape[0], a.shape[1]))

    def rule(self, a: Type, x: Type, *edges: Type):
        rules.need(self, len(edges) == 6, f"there are {len(edges)} operands besides a and x")
        _fits(self, x, *edges)
        fits = a.ndim == 3 and a.shape[1] == x.shape[1] and a.shape[2] == x.shape[2] and a.dtype is x.dtype
        rules.need(self, fits and a.shape[0] == edges[0].shape[0] - 1, f"a is {a!r} and x is {x!r}")

    def bounds(self, a: Type, x: Type, *edges: Type):
        m = edges[1].shape[0]
        return {
            2: (m + 1, 0), 3: (x.shape[0], 0), 4: (m, 0), 5: (m + 1, 0), 6: (a.shape[0], 0), 7: (m, 0),
        }  # fmt: skip

    def grad(self, g, a, x, *edges):
        return (
            Spmm(True)(x, g, *edges),
            Spmm(True)(a, g, *edges[3:], *edges[:3]),
            *(None,) * 6,
        )


@register
class EdgeGather(Composite):
    """x (n, *r), index (m), start (n + 1), order (m) -> x[index] (m, *r), where start and order group the edges by index."""

    name = "edge_gather"
    takes = "?[n,*r] i64[m] i64[s] i64[m]"

    def infer(self, x: Type, index: Type, start: Type, order: Type) -> Type:
        return x.with_shape((index.shape[0], *x.shape[1:]))

    def bounds(self, x: Type, index: Type, start: Type, order: Type):
        m = index.shape[0]
        return {1: (x.shape[0], 0), 2: (m + 1, 0), 3: (m, 0)}

    def expand(self, x, index, start, order):
        return Gather()(x, index)

    def grad(self, g, x, index, start, order):
        return EdgeSum()(g, index, start, order), None, None, None


@register
class EdgeSum(LibraryOp):
    """x (m, *r), index (m), start (n + 1), order (m) -> (n, *r): the sum of the rows of each group, in order."""

    name = "edge_sum"
    routine = "spmm"
    takes = "?[m,*r] i64[m] i64[s] i64[m]"

    def infer(self, x: Type, index: Type, start: Type, order: Type) -> Type:
        return x.with_shape((start.shape[0] - 1, *x.shape[1:]))

    def bounds(self, x: Type, index: Type, start: Type, order: Type):
        m = index.shape[0]
        return {1: (start.shape[0] - 1, 0), 2: (m + 1, 0), 3: (m, 0)}

    def grad(self, g, x, index, start, order):
        return EdgeGather()(g, index, start, order), None, None, None

    def made_of(self, kind, inputs):
        if inputs and inputs[0].dtype not in (dtypes.float32, dtypes.float64):
            return self.scattered
        return super().made_of(kind, inputs)

    def scattered(self, x, index, start, order):
        return scatter_sum(F.full((start.shape[0] - 1, *x.shape[1:]), 0, dtype=x.dtype), x, index)


@register
class SegmentSoftmax(LibraryOp):
    """x (m, h), start (n + 1) -> (m, h): softmax over the rows of each segment, head by head."""

    name = "segment_softmax"
    routine = "segment_softmax"
    takes = "F[m,h] i64[s]"

    def infer(self, x: Type, start: Type) -> Type:
        return x

    def bounds(self, x: Type, start: Type):
        return {1: (x.shape[0] + 1, 0)}

    def grad(self, g, x, start, *, out):
        return SegmentSoftmaxBackward()(out, g, start), None


@register
class SegmentSoftmaxBackward(LibraryOp):
    """y (m, h), g (m, h), start (n + 1) -> y times (g less the sum of y g over its segment)."""

    name = "segment_softmax_backward"
    routine = "segment_softmax_backward"
    takes = "F[m,h] F[m,h] i64[s]"

    def infer(self, y: Type, g: Type, start: Type) -> Type:
        return y

    def bounds(self, y: Type, g: Type, start: Type):
        return {2: (y.shape[0] + 1, 0)}

    def grad(self, g, y, g_y, start, *, vjp):
        return (*vjp(lambda a, b: self.formula(a, b, start), [y, g_y], [g]), None)

    def formula(self, y, g, start):
        n, m = start.shape[0] - 1, y.shape[0]
        owner = owners(start, m)
        total = Scatter("add")(F.full((n, y.shape[1]), 0, dtype=y.dtype), y * g, owner)
        return y * (g - Gather()(total, owner))


# -- as operator functions, for edges that were prepared (tandem/sparse/structure.py)


@op(hidden=True)
def group_index(index: Tensor, bound: Int):
    """index: (m) -> start (bound + 1), order (m): positions by the value that they hold"""
    return GroupIndex(bound)(checked(index, bound, 0, "group_index", negative=False))


@op(name="dynamic_partition", hidden=True)
def group_parts(index: Tensor, bound: Int):
    """The same where what the index holds are numbers of parts."""
    return GroupIndex(bound)(checked(index, bound, 0, "dynamic_partition", negative=False))


@op(name="embedding_lookup", hidden=True)
def check_ids(ids: Tensor, bound: Int):
    """ids as int64, once it is known that they are numbers of rows, of which there are `bound`"""
    return checked(ids, bound, 0, "embedding_lookup", negative=False)


@op(name="sparse_coo_tensor", hidden=True)
def check_coo(index: Tensor, bound: Int, axis):
    """index: places along a sparse axis, once it is known that they are below bound"""
    return CheckIndex(bound, axis, False)(index)


@op(name="sparse_csr_tensor", hidden=True)
def check_csr(index: Tensor, bound: Int, axis):
    return CheckIndex(bound, axis, False)(index)


@op(hidden=True)
def coalesce_rows(index: Tensor, values: Tensor):
    """index: (m), values: (m, *r) -> rows (m), sums (m, *r), count ()"""
    return CoalesceRows()(index, values)


def _wide(x):
    return x if x.dtype in (dtypes.float32, dtypes.float64) else cast(x, dtypes.float32)


@op(hidden=True)
def spmm(x: Tensor, values: Tensor | None, edges: Tensors):
    """x: (k, h, d), values: (m, h) or None, edges: start, column, order and the same transposed -> (n, h, d)"""
    weights = () if values is None else (_wide(values),)
    return cast(Spmm(values is not None)(_wide(x), *weights, *edges), x.dtype)


@op(hidden=True)
def sddmm(a: Tensor, x: Tensor, edges: Tensors):
    """a: (n, h, d), x: (k, h, d) -> (m, h)"""
    return cast(Sddmm()(_wide(a), _wide(x), *edges), x.dtype)


@op(hidden=True)
def edge_gather(x: Tensor, index: Tensor, start: Tensor, order: Tensor):
    """x: (n, *r), index: (m) -> (m, *r)"""
    return EdgeGather()(x, index, start, order)


@op(hidden=True)
def edge_sum(x: Tensor, index: Tensor, start: Tensor, order: Tensor):
    """x: (m, *r), index: (m) -> (n, *r)"""
    return cast(EdgeSum()(_wide(x) if x.dtype.is_floating else x, index, start, order), x.dtype)


@op(hidden=True)
def edge_softmax(x: Tensor, start: Tensor):
    """x: (m, h) -> (m, h), over the rows that start divides"""
    return cast(SegmentSoftmax()(_wide(x), start), x.dtype)
