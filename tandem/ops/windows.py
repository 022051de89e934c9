"""What convolution and pooling share: numbers per spatial axis, layouts, inputs without a batch axis."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import Dim
from tandem.ops.prepare import show_shape


def per_axis(name: str, what: str, value, spatial: int, least: int = 1) -> tuple[int, ...]:
    """One number for all spatial axes, or one for each."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(values) == 1:
        values = values * spatial
    if len(values) != spatial:
        raise ValueRangeError(name, f"{what} is {value}; it must be a number or {spatial} numbers")
    values = tuple(int(v) for v in values)
    if any(v < least for v in values):
        raise ValueRangeError(name, f"{what} is {value}; it must be at least {least}")
    return values


def channels_last_strides(shape) -> tuple[Dim, ...]:
    """Strides of (N, C, spatial...) with channels innermost."""
    strides: list[Dim] = [0] * len(shape)
    step: Dim = 1
    for axis in (1, *reversed(range(2, len(shape))), 0):
        strides[axis] = step
        step = step * shape[axis]
    return tuple(strides)


def is_channels_last(buffer) -> bool:
    """Whether the channels of a buffer (tandem/codegen/buffer.py) lie side by side."""
    return buffer.unit == 1 and not (buffer.order is not None and buffer.order == tuple(range(len(buffer.shape))))


def strides_like(buffer, type: Type) -> tuple[Dim, ...] | None:
    """Channels-last strides for an output if an input has them; None for row-major."""
    return channels_last_strides(type.shape) if is_channels_last(buffer) else None


def with_batch(name: str, x: Value, spatial: int) -> tuple[Value, bool]:
    """x as (N, C, spatial...), and whether the batch axis was added."""
    if x.ndim == spatial + 1:
        return F.Reshape((1, *x.shape))(x), True
    if x.ndim != spatial + 2:
        raise ShapeError(
            name, f"x is {show_shape(x.shape)}; it must be (N, C, ...) or (C, ...) with {spatial} spatial axes"
        )
    return x, False


def without_batch(x: Value, added: bool) -> Value:
    return F.Reshape(x.shape[1:])(x) if added else x
