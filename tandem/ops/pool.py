"""Maxima and averages over windows of one, two and three axes."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import Sym, product
from tandem.ops import define, rules
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.prepare import constant, require_float, show_shape
from tandem.ops.windows import (
    channels_last_strides,
    is_channels_last,
    per_axis,
    strides_like,
    with_batch,
    without_batch,
)


def _windows_fit(op, windows: tuple, spatial: tuple, out: tuple):
    """Whether each of the `out` windows begins at an element of the padded image and has one of it."""
    axes = len(spatial)
    rules.allowed(op, 1 <= axes <= 3, f"there are {axes} spatial axes; there may be 1 to 3")
    rules.allowed(op, len(windows) == 4, f"windows are {windows}")
    for name, dims, least in zip(("kernel", "stride", "padding", "dilation"), windows, (1, 1, 0, 1), strict=True):
        rules.sizes(op, name, dims, axes, least)
    rules.sizes(op, "size", out, axes)
    rules.sizes(op, "size of the image", spatial, axes)
    for n, m, k, stride, padding, dilation in zip(spatial, out, *windows, strict=True):
        text = f"{m} windows of {k} at every {stride} with {padding} around do not lie on {n} elements"
        rules.need(op, 2 * padding <= k * dilation and (m == 0 or (m - 1) * stride < n + padding), text)


def _adaptive_fit(op, spatial: tuple, size: tuple):
    rules.allowed(op, 1 <= len(spatial) <= 3, f"there are {len(spatial)} spatial axes; there may be 1 to 3")
    rules.sizes(op, "size", size, len(spatial))


class _Windows(LibraryOp):
    """Attributes of windows; `size` is the spatial shape of the result."""

    kernel: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    size: tuple
    takes = "T[n,c,*s]"

    def attributes(self, *types):
        return (len(self.kernel), *self.kernel, *self.stride, *self.padding, *self.padding, *self.dilation), ()

    def infer(self, x: Type) -> Type:
        return x.with_shape((*x.shape[:2], *self.size))

    def rule(self, x: Type):
        _windows_fit(self, (self.kernel, self.stride, self.padding, self.dilation), x.shape[2:], self.size)

    def output_strides(self, types, buffers):
        return strides_like(buffers[0], self.infer(*types))


class _Maxima(LibraryOp):
    """values and int64 indices: positions in the flattened spatial axes of x."""

    sparse_grads = True
    takes = "T[n,c,*s]"

    def infer(self, x: Type):
        shape = (*x.shape[:2], *self.size)
        return x.with_shape(shape), Type(dtypes.int64, shape)

    def rule(self, x: Type):
        _adaptive_fit(self, x.shape[2:], self.size)

    def output_strides(self, types, buffers):
        if not is_channels_last(buffers[0]):
            return None
        strides = channels_last_strides(self.infer(*types)[0].shape)
        return strides, strides

    def grad(self, g, x, *, out):
        return None if g[0] is None else MaxBackward(x.shape[2:], self.windows)(g[0], out[1])

    windows = ()


@register
class PoolMax(_Windows):
    name = "pool_max"
    batching = "first"
    routine = "pool_max"
    sparse_grads = True
    infer, output_strides, grad = _Maxima.infer, _Maxima.output_strides, _Maxima.grad

    @property
    def windows(self) -> tuple:
        return self.kernel, self.stride, self.padding, self.dilation


@register
class PoolMaxValues(_Windows):
    """The values of PoolMax alone, for programs that nobody asks for positions (tandem/passes/split_pools.py)."""

    name = "pool_max_values"
    batching = "first"
    routine = "pool_max_values"
    only_on = "cpu"

    def composed(self, x):
        return PoolMax(self.kernel, self.stride, self.padding, self.dilation, self.size)(x)[0]

    def grad(self, g, x, *, vjp):
        return vjp(self.composed, [x], [g])


@register
class PoolAdaptiveMax(_Maxima):
    name = "pool_adaptive_max"
    batching = "first"
    routine = "pool_adaptive_max"
    size: tuple

    def attributes(self, x):
        return (len(self.size),), ()


@register
class MaxBackward(LibraryOp):
    """Zeros of spatial shape `size`, with g added at indices of the flattened spatial axes; both (N, C, *out).

    windows: (kernel, stride, padding, dilation) if the indices come from such windows; () if they may be anywhere.
    """

    name = "pool_max_backward"
    batching = "first"
    routine = "pool_max_backward"
    size: tuple
    windows: tuple = ()
    takes = "T[n,c,*s] i64[n,c,*s]"

    def infer(self, g: Type, indices: Type) -> Type:
        return g.with_shape((*g.shape[:2], *self.size))

    def rule(self, g: Type, indices: Type):
        rules.sizes(self, "size", self.size, g.ndim - 2)
        if self.windows:
            _windows_fit(self, self.windows, self.size, g.shape[2:])

    def bounds(self, g: Type, indices: Type):
        return {1: (product(self.size), 0)}

    def output_strides(self, types, buffers):
        return strides_like(buffers[1], self.infer(*types))

    def grad(self, g, updates, indices):
        return take_positions(g, indices), None


# Note [Taps]
# Positions are int64, four times the size of 16-bit maxima. Where nobody asks for them, calls on CUDA devices note which element of
# its window a maximum was, in a byte; steps compiled there come to the same (codegen/cuda/pool_taps.py). Elements of a window are
# numbered row by row.


@register
class PoolMaxTaps(LibraryOp):
    """Maxima, and the number of the element within the window that each is, as uint8."""

    name = "pool_max_taps"
    batching = "first"
    routine = "pool_max_taps"
    sparse_grads = True
    windows: tuple  # (kernel, stride, padding, dilation)
    size: tuple
    takes = "T[n,c,*s]"

    def infer(self, x: Type):
        shape = (*x.shape[:2], *self.size)
        return x.with_shape(shape), Type(dtypes.uint8, shape)

    def rule(self, x: Type):
        _windows_fit(self, self.windows, x.shape[2:], self.size)

    output_strides = _Maxima.output_strides

    def grad(self, g, x, *, out):
        return None if g[0] is None else MaxTapsBackward(x.shape[2:], self.windows)(g[0], out[1])


@register
class MaxTapsBackward(LibraryOp):
    """Zeros of spatial shape `size` with g added at the elements that taps say."""

    name = "pool_max_taps_backward"
    batching = "first"
    routine = "pool_max_taps_backward"
    size: tuple
    windows: tuple
    takes = "T[n,c,*s] u8[n,c,*s]"

    def infer(self, g: Type, taps: Type) -> Type:
        return g.with_shape((*g.shape[:2], *self.size))

    def rule(self, g: Type, taps: Type):
        _windows_fit(self, self.windows, self.size, g.shape[2:])

    def output_strides(self, types, buffers):
        return strides_like(buffers[1], self.infer(*types))

    def grad(self, g, updates, taps):
        return take_positions(g, positions_of(taps, self.windows, self.size)), None


def positions_of(taps: Value, windows: tuple, size: tuple) -> Value:
    """Where the elements that taps say lie in the flattened spatial axes."""
    kernel, stride, padding, dilation = windows
    rest, step = F.astype(taps, dtypes.int64), 1
    total = None
    for k in reversed(range(len(kernel))):
        within, rest = F.remainder(rest, kernel[k]), F.floor_divide(rest, kernel[k])
        start = F.Iota(taps.shape, 2 + k, dtypes.int64)() * stride[k] - padding[k]
        place = (start + within * dilation[k]) * (F.Size(step, dtypes.int64)() if isinstance(step, Sym) else step)
        total = place if total is None else total + place
        step = step * size[k]
    return total


def take_positions(x: Value, indices: Value) -> Value:
    """x (N, C, *s) at indices (N, C, *out) of its flattened spatial axes."""
    flat = F.Reshape((*x.shape[:2], product(x.shape[2:])))(x)
    return F.Gather()(flat, F.Iota(indices.shape, 0, dtypes.int64)(), F.Iota(indices.shape, 1, dtypes.int64)(), indices)


@register
class PoolAverage(_Windows):
    """Mean over windows; include_pad: padding counts as zeros, otherwise not at all."""

    name = "pool_avg"
    batching = "first"
    routine = "pool_avg"
    include_pad: bool

    def attributes(self, x):
        return (*super().attributes(x)[0], int(self.include_pad)), ()

    def grad(self, g, x):
        return PoolAverageBackward(
            self.kernel, self.stride, self.padding, self.dilation, x.shape[2:], self.include_pad
        )(g)


@register
class PoolAverageBackward(_Windows):
    name = "pool_avg_backward"
    batching = "first"
    routine = "pool_avg_backward"
    include_pad: bool

    def rule(self, g: Type):
        _windows_fit(self, (self.kernel, self.stride, self.padding, self.dilation), self.size, g.shape[2:])

    takes = "T[n,c,*s]"

    def attributes(self, g):
        return (*super().attributes(g)[0], int(self.include_pad)), ()

    def grad(self, g, x):
        return PoolAverage(self.kernel, self.stride, self.padding, self.dilation, x.shape[2:], self.include_pad)(g)


class _AdaptiveAverage(LibraryOp):
    size: tuple
    takes = "T[n,c,*s]"

    def attributes(self, x):
        return (len(self.size),), ()

    def infer(self, x: Type) -> Type:
        return x.with_shape((*x.shape[:2], *self.size))

    def rule(self, x: Type):
        _adaptive_fit(self, x.shape[2:], self.size)

    def output_strides(self, types, buffers):
        return strides_like(buffers[0], self.infer(*types))


@register
class PoolAdaptiveAverage(_AdaptiveAverage):
    name = "pool_adaptive_avg"
    batching = "first"
    routine = "pool_adaptive_avg"

    def grad(self, g, x):
        return PoolAdaptiveAverageBackward(x.shape[2:])(g)


@register
class PoolAdaptiveAverageBackward(_AdaptiveAverage):
    name = "pool_adaptive_avg_backward"
    batching = "first"
    routine = "pool_adaptive_avg_backward"

    def grad(self, g, x):
        return PoolAdaptiveAverage(x.shape[2:])(g)


# -- functions


def _output_size(n, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool):
    reach = n + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return reach // stride + 1
    out = (reach + stride - 1) // stride + 1
    # The last window must start inside the input or its left padding.
    return out - 1 if (out - 1) * stride >= n + padding else out


def _windows(name: str, spatial: int, x: Value, kernel_size, stride, padding, dilation, ceil_mode):
    x, added = with_batch(name, x, spatial)
    if x.shape[1] == 0:
        raise ShapeError(name, f"x is {show_shape(x.shape[1:] if added else x.shape)}: it has no channels")
    kernel = per_axis(name, "kernel_size", kernel_size, spatial)
    stride = kernel if stride is None or stride in ((), []) else per_axis(name, "stride", stride, spatial)
    padding = per_axis(name, "padding", padding, spatial, 0)
    dilation = per_axis(name, "dilation", dilation, spatial)
    for p, k in zip(padding, kernel, strict=True):
        if 2 * p > k:
            raise ValueRangeError(name, f"padding {padding} must be at most half of kernel_size {kernel}")
    size = tuple(
        _output_size(n, *rest, ceil_mode)
        for n, *rest in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    )
    if any(n < 1 for n in size):
        raise ShapeError(name, f"windows of {kernel} do not fit into x, {show_shape(x.shape)}, with padding {padding}")
    return x, added, (kernel, stride, padding, dilation, size)


def _has_elements(n, kernel: int, stride: int, padding: int, dilation: int, size) -> bool:
    """Whether each window has an element of the n: with a dilation above n it may step over all of them."""
    if dilation == 1 or n >= dilation:
        return True
    starts = (window * stride - padding for window in range(int(size)))
    return all(any(0 <= start + tap * dilation < n for tap in range(kernel)) for start in starts)


def _pool_max(name, spatial, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    x, added, windows = _windows(name, spatial, x, kernel_size, stride, padding, dilation, ceil_mode)
    if not all(map(_has_elements, x.shape[2:], *windows)):
        kernel, _, padding, dilation, _ = windows
        text = f"a window of {kernel} with dilation {dilation} and padding {padding} has no element of x"
        raise ShapeError(
            name, f"{text}, {show_shape(x.shape)}", fix="choose a dilation of at most the size of its axis"
        )
    if define.tracing.on_device and not return_indices and product(windows[0]) <= 256:  # see Note [Taps]
        return without_batch(PoolMaxTaps(windows[:4], windows[4])(x)[0], added)
    values, indices = PoolMax(*windows)(x)
    values = without_batch(values, added)
    return (values, without_batch(indices, added)) if return_indices else values


@op(method=False)
def max_pool1d(x: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of each window; stride is kernel_size by default.

    x: (N, C, L) or (C, L) -> (N, C, out), and with return_indices the positions in L

    >>> td.max_pool1d(td.tensor([[[1.0, 3.0, 2.0, 5.0]]]), 2)
    tensor([[[3., 5.]]])
    """
    return _pool_max("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@op(method=False)
def max_pool2d(x: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of each window; stride is kernel_size by default.

    x: (N, C, H, W) or (C, H, W) -> (N, C, out_h, out_w), and with return_indices the positions in the flattened (H, W)

    >>> td.max_pool2d(td.reshape(td.arange(16.0), (1, 1, 4, 4)), 2)
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """
    return _pool_max("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@op(method=False)
def max_pool3d(x: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of each window; stride is kernel_size by default.

    x: (N, C, D, H, W) or (C, D, H, W) -> (N, C, ...), and with return_indices the positions in the flattened (D, H, W)

    >>> td.max_pool3d(td.reshape(td.arange(8.0), (1, 1, 2, 2, 2)), 2)
    tensor([[[[[7.]]]]])
    """
    return _pool_max("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _pool_average(name, spatial, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    require_float(name, x)
    if divisor_override is not None and divisor_override == 0:
        raise ValueRangeError(name, "divisor_override is 0")
    x, added, windows = _windows(name, spatial, x, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is None:
        return without_batch(PoolAverage(*windows, bool(count_include_pad))(x), added)
    return without_batch(_pool_sum(x, windows) / constant(divisor_override, x.dtype), added)


def _pool_sum(x: Value, windows) -> Value:
    kernel, stride, padding, dilation, size = windows
    # Zeros around x, enough for windows that ceil_mode lets reach out: then every window has all its elements.
    high = tuple((n - 1) * s + k - p for n, s, k, p in zip(size, stride, kernel, padding, strict=True))
    shape = (*x.shape[:2], *(p + (h if h > d else d) for p, h, d in zip(padding, high, x.shape[2:], strict=True)))
    x = F.Embed((0, 0, *padding), (1,) * x.ndim, shape)(x)
    average = PoolAverage(kernel, stride, (0,) * len(kernel), dilation, size, False)(x)
    return average * constant(math.prod(kernel), x.dtype)


@op(method=False)
def avg_pool1d(
    x: Tensor, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """The mean of each window; stride is kernel_size by default. divisor_override: what to divide the sum by instead.

    x: (N, C, L) or (C, L) -> (N, C, out)

    >>> td.avg_pool1d(td.tensor([[[1.0, 3.0, 2.0, 5.0]]]), 2)
    tensor([[[2.0000, 3.5000]]])
    """
    return _pool_average(
        "avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@op(method=False)
def avg_pool2d(
    x: Tensor, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """The mean of each window; stride is kernel_size by default. divisor_override: what to divide the sum by instead.

    x: (N, C, H, W) or (C, H, W) -> (N, C, out_h, out_w)

    >>> td.avg_pool2d(td.reshape(td.arange(4.0), (1, 1, 2, 2)), 2)
    tensor([[[[1.5000]]]])
    """
    return _pool_average(
        "avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@op(method=False)
def avg_pool3d(
    x: Tensor, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """The mean of each window; stride is kernel_size by default. divisor_override: what to divide the sum by instead.

    x: (N, C, D, H, W) or (C, D, H, W) -> (N, C, ...)

    >>> td.avg_pool3d(td.reshape(td.arange(8.0), (1, 1, 2, 2, 2)), 2)
    tensor([[[[[3.5000]]]]])
    """
    return _pool_average(
        "avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _adaptive(name: str, spatial: int, x: Value, output_size):
    """x with a batch axis, and the spatial output shape; None keeps a size."""
    x, added = with_batch(name, x, spatial)
    sizes = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * spatial
    if len(sizes) != spatial:
        raise ValueRangeError(name, f"output_size is {output_size}; it must be a number or {spatial} numbers")
    sizes = tuple(n if s is None else s for s, n in zip(sizes, x.shape[2:], strict=True))
    if any(s < 1 for s in sizes) or any(n < 1 for n in x.shape[2:]):
        raise ShapeError(
            name, f"output_size {output_size} over x of shape {show_shape(x.shape)}: sizes must be positive"
        )
    return x, added, sizes


def _adaptive_average(name, spatial, x, output_size):
    require_float(name, x)
    x, added, sizes = _adaptive(name, spatial, x, output_size)
    if all(isinstance(s, int) and s == 1 for s in sizes):  # plain means fuse with what is around them
        return without_batch(F.mean(x, tuple(range(2, x.ndim)), keepdims=True), added)
    return without_batch(PoolAdaptiveAverage(sizes)(x), added)


def _adaptive_max(name, spatial, x, output_size, return_indices):
    x, added, sizes = _adaptive(name, spatial, x, output_size)
    values, indices = PoolAdaptiveMax(sizes)(x)
    values = without_batch(values, added)
    return (values, without_batch(indices, added)) if return_indices else values


@op(method=False)
def adaptive_avg_pool1d(x: Tensor, output_size):
    """Means over output_size windows that divide the axis as evenly as possible.

    x: (N, C, L) or (C, L) -> (N, C, output_size)

    >>> td.adaptive_avg_pool1d(td.tensor([[[1.0, 3.0, 2.0, 4.0]]]), 2)
    tensor([[[2., 3.]]])
    """
    return _adaptive_average("adaptive_avg_pool1d", 1, x, output_size)


@op(method=False)
def adaptive_avg_pool2d(x: Tensor, output_size):
    """Means over windows that divide both axes as evenly as possible into output_size; None keeps a size.

    x: (N, C, H, W) or (C, H, W) -> (N, C, *output_size)

    >>> td.adaptive_avg_pool2d(td.reshape(td.arange(4.0), (1, 1, 2, 2)), 1)
    tensor([[[[1.5000]]]])
    """
    return _adaptive_average("adaptive_avg_pool2d", 2, x, output_size)


@op(method=False)
def adaptive_avg_pool3d(x: Tensor, output_size):
    """Means over windows that divide the three axes as evenly as possible into output_size; None keeps a size.

    x: (N, C, D, H, W) or (C, D, H, W) -> (N, C, *output_size)

    >>> td.adaptive_avg_pool3d(td.ones((1, 1, 2, 2, 2)), (1, 1, 2))
    tensor([[[[[1., 1.]]]]])
    """
    return _adaptive_average("adaptive_avg_pool3d", 3, x, output_size)


@op(method=False)
def adaptive_max_pool1d(x: Tensor, output_size, return_indices=False):
    """Maxima over output_size windows that divide the axis as evenly as possible.

    x: (N, C, L) or (C, L) -> (N, C, output_size)

    >>> td.adaptive_max_pool1d(td.tensor([[[1.0, 3.0, 2.0, 4.0]]]), 2)
    tensor([[[3., 4.]]])
    """
    return _adaptive_max("adaptive_max_pool1d", 1, x, output_size, return_indices)


@op(method=False)
def adaptive_max_pool2d(x: Tensor, output_size, return_indices=False):
    """Maxima over windows that divide both axes as evenly as possible into output_size; None keeps a size.

    x: (N, C, H, W) or (C, H, W) -> (N, C, *output_size)

    >>> td.adaptive_max_pool2d(td.reshape(td.arange(4.0), (1, 1, 2, 2)), 1)
    tensor([[[[3.]]]])
    """
    return _adaptive_max("adaptive_max_pool2d", 2, x, output_size, return_indices)


@op(method=False)
def adaptive_max_pool3d(x: Tensor, output_size, return_indices=False):
    """Maxima over windows that divide the three axes as evenly as possible into output_size; None keeps a size.

    x: (N, C, D, H, W) or (C, D, H, W) -> (N, C, *output_size)

    >>> td.adaptive_max_pool3d(td.reshape(td.arange(8.0), (1, 1, 2, 2, 2)), 1)
    tensor([[[[[7.]]]]])
    """
    return _adaptive_max("adaptive_max_pool3d", 3, x, output_size, return_indices)
