"""Results whose size depends on the data. The size is counted first and comes back to Python; then it is a number like others."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import ShapeError, UnsupportedError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import LibraryOp, method, op, public, register


@register
class Nonzero(LibraryOp):
    """Positions of the `count` elements of x that are not zero, in row-major order: (count, ndim) int64."""

    name = "nonzero"
    takes_complex = True
    routine = "nonzero"
    count: object  # Dim
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return Type(dtypes.int64, (self.count, x.ndim))

    def rule(self, x: Type):
        rules.size(self, "count", self.count)


@op(name="nonzero", hidden=True)
def _nonzero(x: Tensor, count: Int):
    return Nonzero(count)(x)


@public
def nonzero(x: Tensor, *, as_tuple: bool = True):
    """Positions of the elements that are not zero, in row-major order: one tensor per axis, as the Array API has it. The method
    x.nonzero() and as_tuple=False are PyTorch's: one row for each position.

    x: (*s) -> ndim times (count) int64, or (count, ndim) int64

    >>> td.nonzero(td.tensor([0, 5, 7]))
    (tensor([1, 2]),)
    """
    if as_tuple and x.ndim == 0:
        raise ShapeError("nonzero", "x has no axes, so that there are no positions", fix="use x.reshape(1)")
    return _positions(x, as_tuple)


@method(name="nonzero")
def _nonzero_method(x, *, as_tuple: bool = False):
    """As in PyTorch: positions of the elements that are not zero, one row each; with as_tuple, one tensor per axis."""
    return _positions(x, as_tuple)


def _positions(x, as_tuple: bool):
    if isinstance(x, Value):
        raise UnsupportedError(
            "nonzero",
            "how many positions there are depends on values, and sizes in a graph must not",
            fix="choose with td.where(mask, x, 0) and reduce, or call td.py_func",
        )
    made = _runtime.nonzero(x, as_tuple)
    if made is not None:
        return made
    rows = _nonzero(x, int(F.count_nonzero(x)))
    return tuple(rows[:, i] for i in range(x.ndim)) if as_tuple else rows


@public(method=True)
def argwhere(x: Tensor):
    """Positions of the elements that are not zero, one row each.

    >>> td.argwhere(td.tensor([[0, 1], [2, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return _positions(x, False)


def _masked(x, mask):
    """x at a mask of its shape, in one call where that is possible; None elsewhere."""
    if isinstance(x, Value) or isinstance(mask, Value) or mask.shape != x.shape:
        return None
    return _runtime.masked_select(x, mask)


@public(method=True)
def masked_select(x: Tensor, mask: Tensor):
    """The elements of x where mask holds, as a 1-d tensor; both broadcast.

    >>> td.masked_select(td.tensor([1, 2, 3]), td.tensor([True, False, True]))
    tensor([1, 3])
    """
    made = _masked(x, mask)
    if made is not None:
        return made
    x, mask = F.broadcast_tensors(x, mask)
    if x.ndim == 0:
        x, mask = x.reshape((1,)), mask.reshape((1,))
    return F.gather_at(x, list(nonzero(mask)), tuple(range(x.ndim)))
