"""Values that come from no tensor: constants, index ramps, random bits."""

from __future__ import annotations

from tandem import dtypes
from tandem.graph.ir import Type
from tandem.ops.define import Op, register


@register
class Constant(Op):
    """A 0-d constant."""

    name = "constant"
    value: object
    dtype: dtypes.DType

    def __init__(self, value, dtype):
        super().__init__(value, dtype)
        # 0.0 and -0.0, 1 and True are equal to Python but not to us; NaN differs from itself
        object.__setattr__(self, "_key", (type(self), repr(value), dtype))

    def infer(self) -> Type:
        return Type(self.dtype, ())


@register
class Size(Op):
    """A size as a 0-d tensor value."""

    name = "size"
    value: object  # Dim
    dtype: dtypes.DType

    def infer(self) -> Type:
        return Type(self.dtype, ())


@register
class Iota(Op):
    """The index along `axis`, of the given shape."""

    name = "iota"
    shape: tuple
    axis: int
    dtype: dtypes.DType

    def infer(self) -> Type:
        return Type(self.dtype, self.shape)


@register
class RandomBits(Op):
    """Philox4x32-10: lane `lane` (0..3) of the block whose counter is offset + flat row-major index, keyed by seed; uint32.

    seed, offset: 0-d int64.
    """

    name = "random_bits"
    shape: tuple
    lane: int

    def infer(self, seed: Type, offset: Type) -> Type:
        return Type(dtypes.uint32, self.shape)
