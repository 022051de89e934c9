"""Where the entries of a sparse matrix are, by rows and by columns (Note [Edges] in tandem/ops/edges.py)."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.ops import astype, index_select
from tandem.ops.edges import edge_gather, edge_softmax, edge_sum, group_index, sddmm, spmm

Tensor = _runtime.Tensor


class Structure(NamedTuple):
    """Entries of an (n, k) matrix. Entry number e is in row[e] and column[e]; the other fields list entries by row, and by column.

    start: (n + 1), where the entries of each row begin; order: (m), their numbers; reads: (m), the column of each. The same with
    `_t` by columns.
    """

    row: Tensor
    column: Tensor
    start: Tensor
    order: Tensor
    reads: Tensor
    start_t: Tensor
    order_t: Tensor
    reads_t: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.start.shape[0] - 1, self.start_t.shape[0] - 1

    @property
    def T(self) -> Structure:
        return Structure(
            self.column, self.row, self.start_t, self.order_t, self.reads_t, self.start, self.order, self.reads
        )

    @property
    def edges(self) -> tuple:
        return self.start, self.reads, self.order, self.start_t, self.reads_t, self.order_t

    def matmul(self, values, x):
        """The matrix with these values (m, h), or ones, times x (k, h, d) -> (n, h, d)"""
        return spmm(x, values, self.edges)

    def dots(self, a, x):
        """a (n, h, d), x (k, h, d) -> (m, h): the product a x^T at the entries"""
        return sddmm(a, x, self.edges)

    def of_rows(self, x):
        """x (n, *r) -> (m, *r): what the row of every entry has"""
        return edge_gather(x, self.row, self.start, self.order)

    def of_columns(self, x):
        """x (k, *r) -> (m, *r): what the column of every entry has"""
        return edge_gather(x, self.column, self.start_t, self.order_t)

    def sum_rows(self, x):
        """x (m, *r) -> (n, *r): sums over the entries of each row"""
        return edge_sum(x, self.row, self.start, self.order)

    def softmax(self, x):
        """x (m, h) -> (m, h): softmax over the entries of each row; they must be listed by row"""
        return edge_softmax(x, self.start)


def structure(row, column, rows: int, columns: int) -> Structure:
    """Of entries given by their rows (m) and columns (m), in any order."""
    with no_grad():
        row, column = astype(row, dtypes.int64, copy=False), astype(column, dtypes.int64, copy=False)
        start, order = group_index(row, rows)
        start_t, order_t = group_index(column, columns)
        return Structure(
            row, column, start, order, index_select(column, 0, order), start_t, order_t, index_select(row, 0, order_t)
        )


def at_once(*tensors):
    """A scope in which what depends on these tensors is computed at once, even in a compiled function, unless they are deferred."""
    if _runtime.capturing() and not _runtime.in_body() and not any(_runtime.pending(t) for t in tensors):
        return _runtime.PauseCapture()
    return contextlib.nullcontext()
