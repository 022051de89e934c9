"""Memory formats: in which order the axes of a tensor lie in memory."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.errors import DTypeError, ShapeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import LibraryOp, op, public, register
from tandem.ops.prepare import show_shape


class MemoryFormat:
    """An order of axes in memory. `order`: from the slowest to the fastest; None for row-major, or for what a tensor has."""

    __slots__ = ("name", "order")

    def __init__(self, name: str, order: tuple[int, ...] | None = None):
        self.name, self.order = name, order

    def __repr__(self):
        return f"tandem.{self.name}"

    def __reduce__(self):
        return self.name  # a constant of this module

    def order_for(self, op_name: str, shape) -> tuple[int, ...]:
        if self.order is None:
            return tuple(range(len(shape)))
        if len(shape) != len(self.order):
            raise ShapeError(
                op_name, f"{self.name} is for tensors with {len(self.order)} axes; this one is {show_shape(shape)}"
            )
        return self.order


contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last", (0, 2, 3, 1))
channels_last_3d = MemoryFormat("channels_last_3d", (0, 2, 3, 4, 1))
FORMATS = {f.name: f for f in (contiguous_format, preserve_format, channels_last, channels_last_3d)}


@register
class Arrange(LibraryOp):
    """A copy whose axes lie in memory in `order`, from the slowest to the fastest."""

    name = "arrange"
    takes_complex = True
    holomorphic = False
    routine = "copy"
    order: tuple
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return Type(x.dtype, x.shape)

    def rule(self, x: Type):
        rules.allowed(self, sorted(self.order) == list(range(x.ndim)), f"order is {self.order}, and x is {x!r}")

    def output_strides(self, types, buffers):
        shape, strides, step = types[0].shape, [0] * len(self.order), 1
        for axis in reversed(self.order):
            strides[axis] = step
            step = step * shape[axis]
        return tuple(strides)

    def grad(self, g, x):
        return g


@op(name="contiguous", hidden=True)
def _arranged(x: Tensor, order):
    return Arrange(order)(x)


_lies_row_major = _runtime.Tensor.is_contiguous


def _check_format(name: str, memory_format):
    if not isinstance(memory_format, MemoryFormat):
        raise DTypeError(
            name, f"memory_format is a {type(memory_format).__name__}, not a memory format such as td.channels_last"
        )


@public(method=True)
def is_contiguous(x: Tensor, memory_format=contiguous_format) -> bool:
    """Whether elements lie in memory without gaps, in row-major order or in that of memory_format.

    >>> td.zeros(2, 3).is_contiguous()
    True
    """
    _check_format("is_contiguous", memory_format)
    if memory_format is contiguous_format:
        return _lies_row_major(x)
    if memory_format is preserve_format:
        order = sorted(range(x.ndim), key=lambda a: -x.strides[a])
    else:
        order = memory_format.order_for("is_contiguous", x.shape)
    step = 1
    for axis in reversed(order):
        if x.shape[axis] != 1 and x.strides[axis] != step:
            return False
        step *= x.shape[axis]
    return True


@public(method=True)
def contiguous(x: Tensor, memory_format=contiguous_format):
    """x itself if its elements lie in memory without gaps in the given order, row-major by default; otherwise a copy that does.

    >>> td.contiguous(td.zeros((2, 3)).T).is_contiguous()
    True
    """
    _check_format("contiguous", memory_format)
    if memory_format is preserve_format or (isinstance(x, _runtime.Tensor) and is_contiguous(x, memory_format)):
        return x
    if memory_format is contiguous_format:
        return F.row_major(x)
    return _arranged(x, memory_format.order_for("contiguous", x.shape))


def in_format(result, memory_format):
    """A result in the memory format that was asked for."""
    kept = memory_format is None or memory_format is preserve_format or isinstance(result, Value)
    return result if kept else contiguous(result, memory_format)
