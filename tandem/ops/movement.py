"""Rearranging elements: reshape, permute, broadcast, slice, pad and what is built from them.

Note [Movement]
Each movement primitive is a map from output index to input index. On a tensor in memory most of them are views (strides and an
offset); inside a fused kernel they are index arithmetic. `Pad` and some reshapes cannot be views and are then computed.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Type
from tandem.ops.define import Movement, register


@register
class Reshape(Movement):
    """The same elements in row-major order under another shape. The caller has made sizes agree."""

    name = "reshape"
    shape: tuple

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.shape)

    def grad(self, g, x):
        return Reshape(x.shape)(g)


@register
class Permute(Movement):
    """Axis i of the output is axis axes[i] of the input."""

    name = "permute"
    axes: tuple

    def infer(self, x: Type) -> Type:
        return x.with_shape(tuple(x.shape[a] for a in self.axes))

    def grad(self, g, x):
        inverse = [0] * len(self.axes)
        for i, a in enumerate(self.axes):
            inverse[a] = i
        return Permute(tuple(inverse))(g)


@register
class Expand(Movement):
    """Repeats axes of size 1; the rank stays. Which axes: those where the input has 1 and `shape` is something else."""

    name = "expand"
    shape: tuple

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.shape)

    def grad(self, g, x):
        axes = tuple(i for i, (a, b) in enumerate(zip(x.shape, self.shape, strict=True)) if a is not b and a == 1)
        return F.Reduce("sum", axes)(g) if axes else g


@register
class Slice(Movement):
    """out[i] = x[start + i * step] on every axis, with `sizes` elements each; steps may be negative or 0... never out of range."""

    name = "slice"
    starts: tuple
    steps: tuple
    sizes: tuple

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.sizes)

    def grad(self, g, x):
        return Embed(self.starts, self.steps, x.shape)(g)


@register
class Embed(Movement):
    """The transpose of Slice: zeros of `shape`, with x[i] at start + i * step on every axis."""

    name = "embed"
    starts: tuple
    steps: tuple
    shape: tuple

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.shape)

    def grad(self, g, x):
        return Slice(self.starts, self.steps, x.shape)(g)
