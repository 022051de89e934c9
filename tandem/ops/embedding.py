"""Rows of a table by index, and indices as unit vectors."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type
from tandem.ops.define import Composite, op, public, register
from tandem.ops.index import scatter_sum
from tandem.ops.prepare import cast, constant, full_expand, show, show_shape


@register
class Rows(Composite):
    """weight[index], whose gradient leaves out row `padding` (-1 for none)."""

    name = "rows"
    takes_complex = True
    holomorphic = False
    padding: int
    takes = "T[n,*rest] i64[*i]"

    def infer(self, weight: Type, index: Type) -> Type:
        return weight.with_shape(index.shape + weight.shape[1:])

    def bounds(self, weight: Type, index: Type):
        return {1: (weight.shape[0], 0)}

    def expand(self, weight, index):
        return F.Gather()(weight, index)

    def grad(self, g, weight, index):
        if self.padding >= 0:
            kept = F.NotEqual()(index, constant(self.padding, dtypes.int64))
            g = F.Where()(full_expand(F.Reshape((*index.shape, 1))(kept), g.shape), g, constant(0, g.dtype))
        return scatter_sum(F.zeros_like(weight), g, index), None


@op(method=False)
def embedding(x: Tensor, weight: Tensor, padding_idx=None):
    """Rows of weight by index. padding_idx: a row that takes no part in gradients.

    x: (*s) integers; weight: (V, D) -> (*s, D)

    >>> td.embedding(td.tensor([1, 0]), td.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    if not x.dtype.is_integer:
        raise DTypeError("embedding", f"x is {x.dtype}; it must hold integers", fix="convert it: x.to(td.int64)")
    if weight.ndim != 2:
        raise ShapeError("embedding", f"weight is {show_shape(weight.shape)}; it must be (rows, features)")
    index = cast(F.CheckIndex(weight.shape[0], 0, False)(x), dtypes.int64)
    if padding_idx is None:
        padding_idx = -1
    elif not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise ValueRangeError("embedding", f"padding_idx is {padding_idx}; weight has {show(weight.shape[0])} rows")
    elif padding_idx < 0:
        padding_idx = int(weight.shape[0] + padding_idx)
    return Rows(padding_idx)(weight, index)


@op(name="one_hot", hidden=True)
def _one_hot(x: Tensor, num_classes: Int):
    if not x.dtype.is_integer:
        raise DTypeError("one_hot", f"x is {x.dtype}; it must hold integers", fix="convert it: x.to(td.int64)")
    index = cast(F.CheckIndex(num_classes, x.ndim, False)(x), dtypes.int64)
    shape = (*x.shape, num_classes)
    index = full_expand(F.Reshape((*x.shape, 1))(index), shape)
    return cast(F.Equal()(F.Iota(shape, x.ndim, dtypes.int64)(), index), dtypes.int64)


@public
def one_hot(x: Tensor, num_classes: int = -1):
    """1 at the position that each index gives, 0 elsewhere, along a new last axis. -1: as many classes as x needs.

    x: (*s) integers -> (*s, num_classes) int64

    >>> td.one_hot(td.tensor([1, 0]), 3)
    tensor([[0, 1, 0],
            [1, 0, 0]])
    """
    if num_classes == -1:
        if x.numel() == 0:
            raise ShapeError(
                "one_hot", "x has no elements, so the number of classes is unknown", fix="pass num_classes"
            )
        num_classes = int(F.amax(x)) + 1
    if num_classes < 0:
        raise ValueRangeError("one_hot", f"num_classes is {num_classes}; it must be -1 or not negative")
    return _one_hot(x, num_classes)
