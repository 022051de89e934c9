"""Values that come from no tensor: constants, index ramps, random bits; and the tensors made of them."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.devices import code_of, is_meta, meta, named, of_meta
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value, call_recorder
from tandem.graph.symbolic import Sym, is_general, maximum
from tandem.ops import rules
from tandem.ops.define import Op, Role, inplace, method, op, public, register
from tandem.ops.prepare import (
    as_dtype_value,
    as_value,
    assigned,
    cast,
    constant,
    full_expand,
    require_fit,
    result_dtype,
    show,
)
from tandem.ops.transfer import moved


@register
class Constant(Op):
    """A 0-d constant."""

    name = "constant"
    fuses = True
    value: object
    dtype: dtypes.DType

    def __init__(self, value, dtype):
        super().__init__(value, dtype)
        # 0.0 and -0.0, 1 and True are equal to Python but not to us; NaN differs from itself
        object.__setattr__(self, "_key", (type(self), repr(value), dtype))

    def infer(self) -> Type:
        return Type(self.dtype, ())

    def rule(self):
        kind, x = self.dtype.kind, self.value
        if isinstance(x, Sym):
            return
        rules.allowed(
            self, isinstance(x, (bool, int, float, complex)), f"value is {str(x)[:60]!r}; it must be a number"
        )
        if isinstance(x, int) and not isinstance(x, bool):
            rules.allowed(self, abs(x) < 2**64, f"value is a number of {x.bit_length()} bits; there are at most 64")
        rules.allowed(self, kind == "complex" or not isinstance(x, complex), f"value is {x}, and its type {self.dtype}")


@register
class Size(Op):
    """A size as a 0-d tensor value."""

    name = "size"
    value: object  # Dim
    dtype: dtypes.DType

    def infer(self) -> Type:
        return Type(self.dtype, ())

    def rule(self):
        rules.size(self, "value", self.value, -(2**63))
        rules.allowed(self, self.dtype.kind != "bool" and not self.dtype.is_complex, f"its type is {self.dtype}")


@register
class Iota(Op):
    """The index along `axis`, of the given shape."""

    name = "iota"
    fuses = True
    shape: tuple
    axis: int
    dtype: dtypes.DType
    axis_of = None

    def infer(self) -> Type:
        return Type(self.dtype, self.shape)

    def rule(self):
        rules.sizes(self, "shape", self.shape)
        rules.inside(self, self.axis, len(self.shape))
        rules.allowed(self, not self.dtype.is_complex, f"its type is {self.dtype}; positions are real")


@register
class RandomBits(Op):
    """Philox4x32-10: lane `lane` (0..3) of the block whose counter is offset + flat row-major index, keyed by seed; uint32.

    seed, offset: 0-d int64.
    """

    name = "random_bits"
    samples = True
    shape: tuple
    lane: int
    takes = "i64[] i64[]"

    def infer(self, seed: Type, offset: Type) -> Type:
        return Type(dtypes.uint32, self.shape)

    def rule(self, seed: Type, offset: Type):
        rules.sizes(self, "shape", self.shape)
        rules.one_of(self, "lane", self.lane, (0, 1, 2, 3))


@register
class Incoming(Op):
    """Stands for the gradient of output `position` while an operator is differentiated."""

    name = "incoming"
    position: int
    type: Type

    def infer(self) -> Type:
        return self.type


# -- functions


class placed:
    """A scope in which operators without tensors among their arguments run on a device (None: where they would anyway). One of
    another task is a scope for nodes of deferred graphs."""

    def __init__(self, device):
        self._device = device
        self._scope = None

    def __enter__(self):
        if self._device is not None and is_meta(self._device):
            self._device = None
        if self._device is not None:
            device = named(self._device) if isinstance(self._device, str) else self._device
            if not getattr(device, "is_local", True) and call_recorder() is not None:
                self._scope = device
                device.__enter__()
            else:
                self._before = _runtime.set_default_device(code_of(self._device))

    def __exit__(self, *exc):
        if self._scope is not None:
            self._scope.__exit__(*exc)
        elif self._device is not None:
            _runtime.set_default_device(self._before)


def made_on(device, function, *args, **kwargs):
    """What an operator function without tensors among its arguments makes on a device."""
    if is_meta(device):
        return of_meta().made(function, *args, **kwargs)
    with placed(device):
        return function(*args, **kwargs)


def finish(made, device, requires_grad: bool):
    """A new tensor with what users asked of it beyond its elements."""
    if not isinstance(made, Value):
        made = on_device(made, device)
    if requires_grad:
        made.requires_grad = True
    return made


def on_device(made, device):
    """A tensor that was just made, on the device that was asked for (None: where it is)."""
    if device is None and not meta.on:
        return made
    if is_meta(device):
        return of_meta().like(made)
    return moved(made, code_of(device))


@op(name="full", hidden=True)
def _full(shape: Ints, fill_value: Tensor, *, dtype=None):
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for d in shape:
        if d < 0:
            raise ShapeError("full", f"size {show(d)} is negative", fix="sizes are counts of elements: 0 or more")
    dtype = dtypes.as_dtype(dtype) if dtype is not None else result_dtype(fill_value)
    return F.Copy()(full_expand(assigned("full", fill_value, dtype), shape, "full"))


@public
def full(shape, fill_value, *, dtype=None, device=None, requires_grad: bool = False):
    """A tensor with one value everywhere.

    >>> td.full((2,), 7.0)
    tensor([7., 7.])
    """
    if dtype is not None:
        require_fit("full", "fill_value", fill_value, dtypes.as_dtype(dtype))
    if device is None and not meta.on:  # where nearly all calls go
        made = _full(shape, fill_value, dtype=dtype)
        if requires_grad:
            made.requires_grad = True
        return made
    made = made_on(device, _full, shape, fill_value, dtype=dtype)
    return finish(made, device, requires_grad)


# The *_like forms write a constant of x's shape; x itself is not read.


@op(name="full_like", hidden=True)
def _full_like(x: Tensor, fill_value: Written, *, dtype=None):
    return F.full(x.shape, fill_value, dtype=dtype or x.dtype)


@op(name="zeros_like", hidden=True)
def _zeros_like(x: Tensor, *, dtype=None):
    return F.full(x.shape, 0, dtype=dtype or x.dtype)


@op(name="ones_like", hidden=True)
def _ones_like(x: Tensor, *, dtype=None):
    return F.full(x.shape, 1, dtype=dtype or x.dtype)


@public(method=True)
def zeros_like(x: Tensor, *, dtype=None, device=None, requires_grad: bool = False):
    """Zeros with the shape and dtype of x.

    >>> td.zeros_like(td.tensor([1.5]))
    tensor([0.])
    """
    return finish(_zeros_like(x, dtype=dtype), device, requires_grad)


@public(method=True)
def ones_like(x: Tensor, *, dtype=None, device=None, requires_grad: bool = False):
    """Ones with the shape and dtype of x.

    >>> td.ones_like(td.tensor([1.5]))
    tensor([1.])
    """
    return finish(_ones_like(x, dtype=dtype), device, requires_grad)


@public(method=True)
def full_like(x: Tensor, fill_value, *, dtype=None, device=None, requires_grad: bool = False):
    """One value with the shape and dtype of x.

    >>> td.full_like(td.tensor([1.5]), 2)
    tensor([2.])
    """
    if dtype is None:
        return finish(_full_like(x, fill_value), device, requires_grad)
    require_fit("full_like", "fill_value", fill_value, dtypes.as_dtype(dtype))
    return finish(_full(x.shape, fill_value, dtype=dtype), device, requires_grad)


@public(method=True)
def empty_like(x: Tensor, *, dtype=None, device=None, requires_grad: bool = False):
    """A tensor with the shape and dtype of x whose elements are not initialised.

    >>> td.empty_like(td.zeros(2, 3)).shape
    (2, 3)
    """
    if isinstance(x, Value):
        return zeros_like(x, dtype=dtype)
    return finish(_empty_like(x, x.shape, dtype, device), device, requires_grad)


def _empty_like(x, shape, dtype, device):
    return uninitialised(shape, dtypes.as_dtype(dtype or x.dtype), x.device if device is None else device)


def uninitialised(shape, dtype, device):
    """Memory as it comes; zeros where the call is captured, as parts of it may then be written."""
    if _runtime.capturing():
        return full(shape, 0, dtype=dtype, device=device)
    if is_meta(device):
        return of_meta().empty(shape, dtype)
    return _runtime.empty(shape, dtype, code_of(device))


inplace(_zeros_like, "zero_")
inplace(_full_like, "fill_", Role(moves=True))


def _same(x, device):
    """The device for a new tensor beside x."""
    return device if device is not None or isinstance(x, Value) else x.device


def _new_shape(sizes, size=None) -> tuple:
    if size is not None:
        return tuple(size)
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes


@method
def new_zeros(
    x, *sizes, size=None, dtype=None, device=None, requires_grad: bool = False, layout=None, pin_memory=False
):
    """Zeros of another shape with x's dtype."""
    return full(
        _new_shape(sizes, size), 0, dtype=dtype or x.dtype, device=_same(x, device), requires_grad=requires_grad
    )


@method
def new_ones(x, *sizes, size=None, dtype=None, device=None, requires_grad: bool = False, layout=None, pin_memory=False):
    """Ones of another shape with x's dtype."""
    return full(
        _new_shape(sizes, size), 1, dtype=dtype or x.dtype, device=_same(x, device), requires_grad=requires_grad
    )


@method
def new_full(
    x, size, fill_value, *, dtype=None, device=None, requires_grad: bool = False, layout=None, pin_memory=False
):
    """One value in another shape with x's dtype."""
    return full(size, fill_value, dtype=dtype or x.dtype, device=_same(x, device), requires_grad=requires_grad)


@method
def new_empty(
    x, *sizes, size=None, dtype=None, device=None, requires_grad: bool = False, layout=None, pin_memory=False
):
    """Elements that are not initialised, of another shape with x's dtype."""
    return finish(_empty_like(x, _new_shape(sizes, size), dtype, device), device, requires_grad)


@method
def new_tensor(x, data, *, dtype=None, device=None, requires_grad: bool = False, pin_memory=False):
    """A new tensor of the data with x's dtype."""
    return F.from_data.tensor(data, dtype=dtype or x.dtype, device=_same(x, device), requires_grad=requires_grad)


# -- evenly spaced numbers


@op(internal=True)
def ramp(start: Tensor, step: Tensor, size: Int, *, dtype):
    """start + step * i for i below size."""
    dtype = dtypes.as_dtype(dtype)
    wide = dtype if not dtype.is_floating else dtypes.float64
    index = F.Iota((size,), 0, wide)()
    return cast(as_dtype_value(start, wide) + index * as_dtype_value(step, wide), dtype)


def _number(v):
    """A Python number for a number, a 0-d tensor or a NumPy scalar."""
    return v if isinstance(v, (int, float, complex, Sym)) else v.item() if hasattr(v, "item") else v


@public
def arange(start=0, stop=None, step=1, *, end=None, dtype=None, device=None, requires_grad: bool = False):
    """Evenly spaced numbers from start (0 by default) up to, not including, stop.

    >>> td.arange(3)
    tensor([0, 1, 2])
    >>> td.arange(1.0, 2.0, 0.25)
    tensor([1.0000, 1.2500, 1.5000, 1.7500])
    """
    if (
        dtype is device is end is None
        and type(start) is type(step) is int
        and step == 1
        and not (requires_grad or meta.on)
    ):
        # Integers one after the other: most calls, which need none of what follows.
        if stop is None:
            return ramp(0, 1, start if start > 0 else 0, dtype=dtypes.int64)
        if type(stop) is int:
            return ramp(start, 1, stop - start if stop > start else 0, dtype=dtypes.int64)
    start, stop, step = _number(start), _number(stop if end is None else end), _number(step)
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueRangeError("arange", "step is 0")
    whole = all(isinstance(v, (int, Sym)) for v in (start, stop, step))
    if dtype is None:
        dtype = dtypes.int64 if whole else dtypes.default_float()
    size = -((start - stop) // step) if whole else math.ceil((stop - start) / step)
    size = size if size > 0 else 0
    dtype = dtypes.as_dtype(dtype)
    if not dtype.is_floating and not whole:  # NumPy's rule: the step is rounded as the second element is
        first = math.trunc(start)
        start, step = first, math.trunc(start + step) - first
    made = made_on(device, F.ramp, start, step, size, dtype=dtype)
    return finish(made, device, requires_grad)


@op(name="linspace", hidden=True)
def _linspace(start: Tensor, stop: Tensor, num: Int, dtype, endpoint):
    if num < 0:
        raise ValueRangeError("linspace", f"num is {num}; it must not be negative")
    dtype = dtypes.as_dtype(dtype) if dtype is not None else None
    ends = [as_value(v) for v in (start, stop)]
    if any(v.dtype.is_complex for v in ends) or (dtype is not None and dtype.is_complex):
        if dtype is not None and not dtype.is_complex:
            raise DTypeError("linspace", f"start or stop is complex and dtype is {dtype}", fix="use a complex dtype")
        ends = [as_dtype_value(v, dtypes.complex128) for v in (start, stop)]
        line = F.complex(*(_spaced(*(part(v) for v in ends), num, endpoint) for part in (F.real, F.imag)))
        return cast(line, dtype or dtypes.complex64)
    return cast(_spaced(start, stop, num, endpoint), dtype or dtypes.default_float())


def _spaced(start, stop, num, endpoint: bool) -> Value:
    wide = dtypes.float64
    start, stop = as_dtype_value(start, wide), as_dtype_value(stop, wide)
    index = F.Iota((num,), 0, wide)()
    last = num - 1 if endpoint else num
    if is_general(num):
        last = maximum(last, 1)  # the end is not one of them then
    elif last <= 0:
        return F.add(F.multiply(index, 0), start)
    # From both ends, so that both are exact and the middle is symmetric.
    step = (stop - start) / constant(last, wide)
    upper = stop - (constant(last, wide) - index) * step
    return F.where(F.less(index * 2, constant(last, wide)), start + index * step, upper)


@public
def linspace(
    start,
    stop=None,
    num=100,
    *,
    end=None,
    steps=None,
    dtype=None,
    device=None,
    requires_grad: bool = False,
    endpoint: bool = True,
):
    """num numbers evenly spaced from start to stop, both included (without stop if endpoint is False).

    >>> td.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    stop, num = (stop if end is None else end), (num if steps is None else steps)
    if dtype is not None:
        require_fit("linspace", "start", start, dtypes.as_dtype(dtype))
        require_fit("linspace", "stop", stop, dtypes.as_dtype(dtype))
    made = _linspace(_number(start), _number(stop), num, dtype, endpoint)
    return finish(made, device, requires_grad)


@public
def logspace(
    start, stop=None, num=100, base=10.0, *, end=None, steps=None, dtype=None, device=None, requires_grad: bool = False
):
    """num numbers from base ** start to base ** stop, evenly spaced on a logarithmic scale.

    >>> td.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    exponents = linspace(start, stop, num, end=end, steps=steps, dtype=dtypes.float64)
    made = F.power(float(base), exponents)
    return finish(F.astype(made, dtypes.as_dtype(dtype or dtypes.default_float())), device, requires_grad)
