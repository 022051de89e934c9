"""Values that come from no tensor: constants, index ramps, random bits."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type
from tandem.ops.define import Op, op, public, register
from tandem.ops.prepare import as_dtype_value, cast, full_expand, result_dtype


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


@register
class Incoming(Op):
    """Stands for the gradient of output `position` while an operator is differentiated."""

    name = "incoming"
    position: int
    type: Type

    def infer(self) -> Type:
        return self.type


# -- functions


@op
def full(shape: Ints, value: Tensor, *, dtype=None):
    """A tensor with one value everywhere.

    >>> td.full((2,), 7.0)
    tensor([7., 7.])
    """
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for d in shape:
        if d < 0:
            raise ShapeError("full", f"size {d} is negative")
    dtype = dtypes.as_dtype(dtype) if dtype is not None else result_dtype(value)
    return F.Copy()(full_expand(as_dtype_value(value, dtype), shape))


@op
def zeros_like(x: Tensor, *, dtype=None):
    """Zeros with the shape and dtype of x.

    >>> td.zeros_like(td.tensor([1.5]))
    tensor([0.])
    """
    return F.full(x.shape, 0, dtype=dtype or x.dtype)


@op
def ones_like(x: Tensor, *, dtype=None):
    """Ones with the shape and dtype of x.

    >>> td.ones_like(td.tensor([1.5]))
    tensor([1.])
    """
    return F.full(x.shape, 1, dtype=dtype or x.dtype)


@op
def full_like(x: Tensor, value: Tensor, *, dtype=None):
    """One value with the shape and dtype of x.

    >>> td.full_like(td.tensor([1.5]), 2)
    tensor([2.])
    """
    return F.full(x.shape, value, dtype=dtype or x.dtype)


@op
def ramp(start: Tensor, step: Tensor, size: Int, *, dtype):
    """start + step * i for i below size.

    >>> td.ramp(1, 2, 3, dtype=td.int64)
    tensor([1, 3, 5])
    """
    dtype = dtypes.as_dtype(dtype)
    wide = dtype if not dtype.is_floating else dtypes.float64
    index = F.Iota((size,), 0, wide)()
    return cast(as_dtype_value(start, wide) + index * as_dtype_value(step, wide), dtype)


@public
def arange(start, stop=None, step=1, *, dtype=None, device=None, requires_grad: bool = False):
    """Evenly spaced numbers from start (0 by default) up to, not including, stop.

    >>> td.arange(3)
    tensor([0, 1, 2])
    """
    from tandem.constructors import check_device

    check_device(device)
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueRangeError("arange", "step is 0")
    if dtype is None:
        dtype = dtypes.int64 if all(isinstance(v, int) for v in (start, stop, step)) else dtypes.float32
    size = max(0, math.ceil((stop - start) / step))
    result = F.ramp(start, step, size, dtype=dtypes.as_dtype(dtype))
    if requires_grad:
        result.requires_grad = True
    return result
