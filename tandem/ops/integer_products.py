"""Products of whole numbers: activations rounded to 8 bits with packed weights of 8 or 4 (Note [Integer products] in
src/library/gemm_int8.h). Results are float32. Gradients pass as if activations were not rounded."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.conv import output_size
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.windows import channels_last_strides

PANEL, SMALL_PANEL = 32, 16  # outputs whose weights lie side by side, of 8 and of 4 bits


def rounded(x: Value, scale: float, axes) -> tuple[Value, Value]:
    """x in whole numbers from -127 to 127, and what they are multiplied with: `scale`, or where it is 0 the largest over axes."""
    if scale:
        step = F.full((1,) * x.ndim, scale, dtype=dtypes.float32)
    else:
        largest = F.amax(F.abs(x), axes, True)
        step = F.where(largest == 0, F.full((), 1.0, dtype=dtypes.float32), largest / 127.0)
    return F.clip(F.round(x / step), -127.0, 127.0), step


def unpacked(weight: Value, outputs, k) -> Value:
    """(panels, k / 4, 32, 4) int8 -> (outputs, k) float32"""
    panels, fours = weight.shape[:2]
    rows = F.reshape(F.permute(weight, (0, 2, 1, 3)), (panels * PANEL, fours * 4))
    return F.astype(rows[:outputs, :k], dtypes.float32)


def unpacked_int4(weight: Value, outputs) -> Value:
    """(panels, groups, g / 8, 16, 4) uint8 -> (outputs, groups, g) float32"""
    panels, groups, eighths = weight.shape[:3]
    low, high = F.bitwise_and(weight, 15), F.bitwise_right_shift(weight, 4)
    halves = F.stack([low, high], 2)  # panels, groups, half, g / 8, 16, 4
    rows = F.reshape(F.permute(halves, (0, 4, 1, 2, 3, 5)), (panels * SMALL_PANEL, groups, eighths * 8))
    return F.astype(rows[:outputs], dtypes.float32) - 8.0


class _Integers(LibraryOp):
    only_on = "cpu"

    def grad(self, g, x, weight, scale, *others, vjp):
        (gx,) = vjp(lambda v: self.formula(v, weight, scale, *others, rounds=False), [x], [g])
        return (gx, None, None, *(None for _ in others))

    def composed(self, x, weight, scale, *others):
        return self.formula(x, weight, scale, *others, rounds=True)


@register
class LinearInt8(_Integers):
    """x: (m, k), weight: (panels, k / 4, 32, 4) int8, scale: (n), sums of an output's weights: (n), bias: (n) if given -> (m, n)

    x_scale: what one step of an activation is; 0: each row has its own, its largest over 127.
    """

    name = "linear_int8"
    routine = "linear_int8"
    x_scale: float
    takes = "f32[m,k] i8[p,q,a,b] f32[n] i32[n] f32[n]?"

    def infer(self, x: Type, weight: Type, scale: Type, sums: Type, *bias: Type) -> Type:
        return x.with_shape((x.shape[0], scale.shape[0]))

    def rule(self, x: Type, weight: Type, scale: Type, sums: Type, *bias: Type):
        k, n = x.shape[1], scale.shape[0]
        wanted = ((n + PANEL - 1) // PANEL, (k + 3) // 4, PANEL, 4)
        fits = all(a == b for a, b in zip(weight.shape, wanted, strict=True))
        rules.need(self, fits, f"weights of {k} by {n} are packed as {wanted}, not {weight.shape}")
        rules.allowed(self, 0 <= self.x_scale < float("inf"), f"x_scale is {self.x_scale}")

    def attributes(self, *types):
        return (), (self.x_scale,)

    def formula(self, x, weight, scale, sums, *bias, rounds: bool):
        q, step = rounded(x, self.x_scale, -1) if rounds else (x, 1.0)
        y = F.matmul(q, F.transpose(unpacked(weight, scale.shape[0], x.shape[1]), 0, 1)) * scale * step
        return y + bias[0] if bias else y


@register
class LinearInt4(_Integers):
    """x: (m, k), weight: (panels, groups, g / 8, 16, 4) uint8, scale: (groups, n), bias: (n) if given -> (m, n)

    Every group of a row has a scale of its own, its largest over 127.
    """

    name = "linear_int4"
    routine = "linear_int4"
    takes = "f32[m,k] u8[p,g,q,a,b] f32[g,n] f32[n]?"

    def infer(self, x: Type, weight: Type, scale: Type, *bias: Type) -> Type:
        return x.with_shape((x.shape[0], scale.shape[1]))

    def rule(self, x: Type, weight: Type, scale: Type, *bias: Type):
        k, (groups, n) = x.shape[1], scale.shape
        wanted = ((n + SMALL_PANEL - 1) // SMALL_PANEL, groups, k // groups // 8, SMALL_PANEL, 4)
        fits = all(a == b for a, b in zip(weight.shape, wanted, strict=True)) and k % groups == 0
        rules.need(
            self, fits and k // groups % 8 == 0, f"weights of {k} by {n} are packed as {wanted}, not {weight.shape}"
        )

    def attributes(self, x: Type, weight: Type, *types):
        return (weight.shape[2] * 8,), ()

    def formula(self, x, weight, scale, *bias, rounds: bool):
        groups, outputs = scale.shape
        parts = F.reshape(x, (x.shape[0], groups, -1))
        q, step = rounded(parts, 0.0, -1) if rounds else (parts, 1.0)
        each = F.einsum("mgk,ogk->mgo", q, unpacked_int4(weight, outputs))
        y = F.sum(each * scale * step, 1)
        return y + bias[0] if bias else y


@register
class ConvInt8(_Integers):
    """x: (N, C, *s), weight: packed (*kernel, C) by O, scale: (O), sums: (O), bias: (O) if given -> (N, O, *out)"""

    name = "conv_int8"
    routine = "conv_int8"
    kernel: tuple
    stride: tuple
    pad_low: tuple
    pad_high: tuple
    dilation: tuple
    x_scale: float
    takes = "f32[n,c,*s] i8[p,q,a,b] f32[o] i32[o] f32[o]?"

    def infer(self, x: Type, weight: Type, scale: Type, sums: Type, *bias: Type) -> Type:
        return x.with_shape(_windowed(self, x.shape, scale.shape[0]))

    def rule(self, x: Type, weight: Type, scale: Type, sums: Type, *bias: Type):
        _check_windows(self, x, weight, scale.shape[0])
        rules.allowed(self, 0 <= self.x_scale < float("inf"), f"x_scale is {self.x_scale}")

    def attributes(self, *types):
        return (*self.kernel, *self.stride, *self.pad_low, *self.dilation), (self.x_scale,)

    def output_strides(self, types, buffers):
        return channels_last_strides(self.infer(*types).shape)

    def formula(self, x, weight, scale, sums, *bias, rounds: bool):
        q, step = rounded(x, self.x_scale, tuple(range(x.ndim))) if rounds else (x, 1.0)
        outputs, channels, axes = scale.shape[0], x.shape[1], x.ndim - 2
        count = channels
        for size in self.kernel:
            count = count * size
        w = F.reshape(unpacked(weight, outputs, count), (outputs, *self.kernel, channels))
        w = F.permute(w, (0, axes + 1, *range(1, axes + 1)))
        y = F.ConvForward(self.stride, self.pad_low, self.pad_high, self.dilation, 1)(q, F.contiguous(w))
        y = y * F.reshape(scale, (outputs, *(1,) * axes)) * step
        return y + F.reshape(bias[0], (outputs, *(1,) * axes)) if bias else y


@register
class ConvInteger(LibraryOp):
    """x: (N, C, *s) bytes, weight: packed (*kernel, C) by O, sums of its outputs: (O), zero points: of x (), of weights (O) ->
    (N, O, *out) int32, the sums of (x - its zero point) * (w - its zero point) over windows, exactly."""

    name = "conv_integer"
    routine = "conv_integer"
    only_on = "cpu"
    kernel: tuple
    stride: tuple
    pad_low: tuple
    pad_high: tuple
    dilation: tuple
    takes = "u8[n,c,*s] i8[p,q,a,b] i32[o] i32[] i32[o]"

    def infer(self, x: Type, weight: Type, sums: Type, *zeros: Type) -> Type:
        return Type(dtypes.int32, _windowed(self, x.shape, sums.shape[0]))

    def rule(self, x: Type, weight: Type, sums: Type, *zeros: Type):
        _check_windows(self, x, weight, sums.shape[0])

    def attributes(self, *types):
        return (*self.kernel, *self.stride, *self.pad_low, *self.dilation), ()

    def output_strides(self, types, buffers):
        return channels_last_strides(self.infer(*types).shape)

    def composed(self, x, weight, sums, x_zero, w_zero):
        outputs, channels, axes = sums.shape[0], x.shape[1], x.ndim - 2
        rows = unpacked(weight, outputs, _product(self.kernel, channels)) - F.reshape(w_zero, (outputs, 1))
        w = F.permute(F.reshape(rows, (outputs, *self.kernel, channels)), (0, axes + 1, *range(1, axes + 1)))
        wide, w = (F.astype(v, dtypes.float64) for v in (F.astype(x, dtypes.int32) - x_zero, w))
        y = F.ConvForward(self.stride, self.pad_low, self.pad_high, self.dilation, 1)(wide, F.contiguous(w))
        return F.astype(y, dtypes.int32)


def _product(sizes, count):
    for size in sizes:
        count = count * size
    return count


def _windowed(op, shape: tuple, outputs) -> tuple:
    geometry = zip(shape[2:], op.kernel, op.stride, op.pad_low, op.pad_high, op.dilation, strict=True)
    return (shape[0], outputs, *(output_size(*g) for g in geometry))


def _check_windows(op, x: Type, weight: Type, outputs):
    axes = x.ndim - 2
    rules.allowed(op, 1 <= axes <= 3, f"there are {axes} spatial axes; there may be 1 to 3")
    for name, least in (("kernel", 1), ("stride", 1), ("dilation", 1), ("pad_low", 0), ("pad_high", 0)):
        rules.sizes(op, name, getattr(op, name), axes, least)
    k = _product(op.kernel, x.shape[1])
    wanted = ((outputs + PANEL - 1) // PANEL, (k + 3) // 4, PANEL, 4)
    fits = all(a == b for a, b in zip(weight.shape, wanted, strict=True))
    rules.need(op, fits, f"weights of {k} by {outputs} are packed as {wanted}, not {weight.shape}")
    made = _windowed(op, x.shape, outputs)[2:]
    rules.need(op, all(m >= 0 for m in made), f"windows of {op.kernel} on {x.shape[2:]} elements give {made}")


@op(internal=True)
def integer_linear(x: Tensor, weight: Tensor, scale: Tensor, sums: Tensor, bias: Tensor | None = None, *, x_scale=0.0):
    """LinearInt8 on the last axis of x."""
    rows = F.contiguous(F.reshape(x, (-1, x.shape[-1])))
    more = [] if bias is None else [bias]
    made = LinearInt8(float(x_scale))(rows, weight, scale, sums, *more)
    return F.reshape(made, (*x.shape[:-1], scale.shape[0]))


@op(internal=True)
def integer_linear4(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None):
    """LinearInt4 on the last axis of x."""
    rows = F.contiguous(F.reshape(x, (-1, x.shape[-1])))
    more = [] if bias is None else [bias]
    made = LinearInt4()(rows, weight, scale, *more)
    return F.reshape(made, (*x.shape[:-1], scale.shape[1]))


@op(internal=True)
def integer_conv(x: Tensor, weight: Tensor, scale: Tensor, sums: Tensor, bias: Tensor | None = None, *, kernel=(), stride=(),
                 pads=(), dilation=(), x_scale=0.0):  # fmt: skip
    """ConvInt8. pads: before and after each axis."""
    low, high = tuple(a for a, _ in pads), tuple(b for _, b in pads)
    made = ConvInt8(tuple(kernel), tuple(stride), low, high, tuple(dilation), float(x_scale))
    return made(x, weight, scale, sums, *([] if bias is None else [bias]))


@op(internal=True)
def exact_conv(x: Tensor, weight: Tensor, x_zero: Tensor, w_zero: Tensor, *, stride=(), pads=(), dilation=()):
    """The sums of (x - x_zero) * (w - w_zero) over windows, as int32. x: (N, C, *s) and weight: (O, C, *k) of 8 bits, x_zero: ()
    and w_zero: (O) int32. pads: before and after each axis, where x is x_zero."""
    outputs, kernel = weight.shape[0], tuple(int(n) for n in weight.shape[2:])
    if x.dtype is dtypes.int8:
        x, x_zero = F.astype(F.astype(x, dtypes.int32) + 128, dtypes.uint8), x_zero + 128
    if weight.dtype is dtypes.uint8:
        weight, w_zero = F.astype(F.astype(weight, dtypes.int32) - 128, dtypes.int8), w_zero - 128
    k = _product(kernel, weight.shape[1])
    rows = F.reshape(F.moveaxis(weight, 1, -1), (outputs, k))
    sums = F.astype(F.sum(F.astype(rows, dtypes.int32), -1), dtypes.int32)
    low, high = tuple(a for a, _ in pads), tuple(b for _, b in pads)
    made = ConvInteger(kernel, tuple(stride), low, high, tuple(dilation))
    return made(x, packed_rows(rows), sums, x_zero, F.contiguous(w_zero))


def packed_rows(rows: Value) -> Value:
    """(n, k) int8 -> (panels, k / 4, 32, 4), zeros where there are none."""
    n, k = rows.shape
    panels, fours = (n + PANEL - 1) // PANEL, (k + 3) // 4
    whole = F.Embed((0, 0), (1, 1), (panels * PANEL, fours * 4))(rows)
    return F.contiguous(F.permute(F.reshape(whole, (panels, PANEL, fours, 4)), (0, 2, 1, 3)))
