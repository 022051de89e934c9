"""Convolutions and transposed convolutions over one, two and three axes.

Note [Convolution]
y = conv(x, w) is linear in x and in w, so three primitives with one set of attributes are enough for derivatives of any order:
forward (x, w) -> y, backward_data (g, w) -> x, backward_weight (x, g) -> w. Each one's gradients are the other two. A transposed
convolution is backward_data called on purpose.
"""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.complexes import bilinear
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.prepare import require_float, show, show_shape, with_weights
from tandem.ops.windows import per_axis, strides_like, with_batch, without_batch


class _Convolution(LibraryOp):
    takes_complex = True
    low_precision = True
    stride: tuple
    pad_low: tuple
    pad_high: tuple
    dilation: tuple
    groups: int

    def _geometry_fits(self, spatial, kernel, out):
        """Sizes of the image, of the kernel and of what forward makes of them (None: whatever it makes)."""
        axes = len(spatial)
        rules.allowed(self, 1 <= axes <= 3, f"there are {axes} spatial axes; there may be 1 to 3")
        for name, least in (("stride", 1), ("dilation", 1), ("pad_low", 0), ("pad_high", 0)):
            rules.sizes(self, name, getattr(self, name), axes, least)
        rules.sizes(self, "the kernel", kernel, axes, 1)
        geometry = zip(self.stride, self.pad_low, self.pad_high, self.dilation, strict=True)
        made = tuple(output_size(n, k, *rest) for n, k, rest in zip(spatial, kernel, geometry, strict=True))
        fits = all(m >= 0 for m in made) and (out is None or all(a == b for a, b in zip(made, out, strict=True)))
        rules.need(
            self, fits, f"windows of {kernel} on {spatial} elements give {made}" + (f", not {out}" if out else "")
        )

    def _groups_fit(self, channels, per_group, outputs):
        rules.allowed(self, self.groups >= 1, f"groups is {self.groups}; there must be at least one")
        text = f"{self.groups} groups do not divide {channels} channels by {per_group}, and {outputs}"
        rules.need(self, channels == per_group * self.groups and outputs % self.groups == 0, text)

    def attributes(self, *types):
        return (len(self.stride), *self.stride, *self.pad_low, *self.pad_high, *self.dilation, self.groups), ()

    def split_complex(self, x, y, *bias):
        out = bilinear(self, x, y)
        return F.add(out, F.Reshape((*bias[0].shape, *(1,) * len(self.stride)))(bias[0])) if bias else out

    @property
    def geometry(self) -> tuple:
        return (self.stride, self.pad_low, self.pad_high, self.dilation, self.groups)

    def output_strides(self, types, buffers):
        """Channels-last if either operand is."""
        made = self.infer(*types)
        return strides_like(buffers[0], made) or strides_like(buffers[1], made)


@register
class ConvForward(_Convolution):
    """x: (N, C, *s), w: (O, C / groups, *k), bias: (O) if given -> (N, O, *out)"""

    name = "conv_forward"
    routine = "conv_forward"
    cuda_library = "cudnn"
    takes = "T[n,c,*s] T[o,g,*k] T[o]?"

    def infer(self, x: Type, w: Type, *bias: Type) -> Type:
        spatial = tuple(
            output_size(n, k, *rest)
            for n, k, *rest in zip(
                x.shape[2:], w.shape[2:], self.stride, self.pad_low, self.pad_high, self.dilation, strict=True
            )
        )
        return x.with_shape((x.shape[0], w.shape[0], *spatial))

    def operations(self, inputs, outputs) -> int:
        return 2 * math.prod(outputs[0]) * math.prod(inputs[1][1:])

    def rule(self, x: Type, w: Type, *bias: Type):
        rules.need(self, x.ndim == w.ndim, f"x is {x!r} and w is {w!r}; they must have as many axes")
        self._geometry_fits(x.shape[2:], w.shape[2:], None)
        self._groups_fit(x.shape[1], w.shape[1], w.shape[0])

    def grad(self, g, x, w, *bias):
        gx = ConvBackwardData(*self.geometry, x.shape[2:])(g, w)
        gw = ConvBackwardWeight(*self.geometry, w.shape[2:])(x, g)
        if not bias:
            return gx, gw
        axes = (0, *range(2, g.ndim))
        return gx, gw, F.Reshape(bias[0].shape)(F.Reduce("sum", axes)(g))


@register
class ConvBackwardData(_Convolution):
    """g: (N, O, *out), w: (O, C / groups, *k) -> (N, C, *size)"""

    name = "conv_backward_data"
    routine = "conv_backward_data"
    cuda_library = "cudnn"
    size: tuple
    takes = "T[n,o,*out] T[o,g,*k]"

    def infer(self, g: Type, w: Type) -> Type:
        return g.with_shape((g.shape[0], w.shape[1] * self.groups, *self.size))

    def operations(self, inputs, outputs) -> int:  # as forward, whose products it takes in another order
        return 2 * math.prod(inputs[0]) * math.prod(inputs[1][1:])

    def rule(self, g: Type, w: Type):
        rules.need(self, g.ndim == w.ndim, f"g is {g!r} and w is {w!r}; they must have as many axes")
        rules.sizes(self, "size", self.size, g.ndim - 2)
        self._geometry_fits(self.size, w.shape[2:], g.shape[2:])
        self._groups_fit(w.shape[1] * self.groups, w.shape[1], w.shape[0])

    def grad(self, gx, g, w):
        return ConvForward(*self.geometry)(gx, w), ConvBackwardWeight(*self.geometry, w.shape[2:])(gx, g)


@register
class ConvBackwardWeight(_Convolution):
    """x: (N, C, *s), g: (N, O, *out) -> (O, C / groups, *kernel)"""

    name = "conv_backward_weight"
    routine = "conv_backward_weight"
    cuda_library = "cudnn"
    kernel: tuple
    takes = "T[n,c,*s] T[n,o,*out]"

    def infer(self, x: Type, g: Type) -> Type:
        return x.with_shape((g.shape[1], x.shape[1] // self.groups, *self.kernel))

    def operations(self, inputs, outputs) -> int:
        return 2 * math.prod(inputs[1]) * math.prod(outputs[0][1:])

    def rule(self, x: Type, g: Type):
        rules.need(self, x.ndim == g.ndim, f"x is {x!r} and g is {g!r}; they must have as many axes")
        rules.sizes(self, "kernel", self.kernel, g.ndim - 2, 1)
        self._geometry_fits(x.shape[2:], self.kernel, g.shape[2:])
        self._groups_fit(x.shape[1], x.shape[1] // max(self.groups, 1), g.shape[1])

    def grad(self, gw, x, g):
        return ConvBackwardData(*self.geometry, x.shape[2:])(g, gw), ConvForward(*self.geometry)(x, gw)

    def output_strides(self, types, buffers):
        return None


def output_size(n, kernel, stride: int, low, high, dilation: int):
    return (n + low + high - dilation * (kernel - 1) - 1) // stride + 1


# -- functions


def _operands(name: str, x: Value, weight: Value, bias: Value | None, spatial: int):
    require_float(name, x)
    x, weight, bias = with_weights(name, x, weight, bias)
    x, added = with_batch(name, x, spatial)
    if weight.ndim != spatial + 2:
        raise ShapeError(name, f"weight is {show_shape(weight.shape)}; it must have {spatial + 2} axes")
    return x, weight, bias, added


def _check_bias(name: str, bias: Value | None, channels):
    if bias is not None and (bias.ndim != 1 or bias.shape[0] != channels):
        raise ShapeError(
            name,
            f"bias is {show_shape(bias.shape)} and must have one element for each of the {show(channels)} output channels",
        )


def _paddings(name: str, padding, kernel, stride, dilation) -> tuple[tuple, tuple]:
    spatial = len(stride)
    if padding == "valid":
        return (0,) * spatial, (0,) * spatial
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ValueRangeError(name, f"padding='same' needs stride 1; stride is {stride}")
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        low = tuple(t // 2 for t in total)
        return low, tuple(t - half for t, half in zip(total, low, strict=True))
    if isinstance(padding, str):
        raise ValueRangeError(name, f"padding is {padding!r}; words for it are 'valid' and 'same'")
    both = per_axis(name, "padding", padding, spatial, 0)
    return both, both


def convolve(name: str, spatial: int, x, weight, bias, stride, padding, dilation, groups) -> Value:
    x, weight, bias, added = _operands(name, x, weight, bias, spatial)
    stride, dilation = per_axis(name, "stride", stride, spatial), per_axis(name, "dilation", dilation, spatial)
    if groups < 1 or weight.shape[1] * groups != x.shape[1] or weight.shape[0] % groups != 0:
        raise ShapeError(
            name,
            f"x is {show_shape(x.shape)} and weight is {show_shape(weight.shape)} with groups={groups}; x must have "
            f"weight.shape[1] * groups = {show(weight.shape[1] * groups)} channels, and groups must divide weight.shape[0]",
        )
    _check_bias(name, bias, weight.shape[0])
    low, high = _paddings(name, padding, weight.shape[2:], stride, dilation)
    for n, k, lo, hi, d in zip(x.shape[2:], weight.shape[2:], low, high, dilation, strict=True):
        if k < 1 or n + lo + hi < d * (k - 1) + 1:
            raise ShapeError(
                name,
                f"a kernel of {show_shape(weight.shape[2:])} with dilation {dilation} does not fit into x, "
                f"{show_shape(x.shape)}, with padding {padding}",
            )
    primitive = ConvForward(stride, low, high, dilation, groups)
    return without_batch(primitive(x, weight) if bias is None else primitive(x, weight, bias), added)


@op(method=False)
def conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution (cross-correlation) over one axis. padding: a number, "same" or "valid".

    x: (N, C, L) or (C, L); weight: (O, C / groups, K); bias: (O) -> (N, O, out)

    >>> td.conv1d(td.tensor([[[1.0, 2.0, 3.0]]]), td.tensor([[[1.0, 1.0]]]))
    tensor([[[3., 5.]]])
    """
    return convolve("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


@op(method=False)
def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution (cross-correlation) over two axes. padding: a number, one for each axis, "same" or "valid".

    x: (N, C, H, W) or (C, H, W); weight: (O, C / groups, KH, KW); bias: (O) -> (N, O, out_h, out_w), channels-last if x is

    >>> td.conv2d(td.ones((1, 1, 3, 3)), td.ones((1, 1, 2, 2)))
    tensor([[[[4., 4.],
              [4., 4.]]]])
    """
    return convolve("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


@op(method=False)
def conv3d(x: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution (cross-correlation) over three axes. padding: a number, one for each axis, "same" or "valid".

    x: (N, C, D, H, W) or (C, D, H, W); weight: (O, C / groups, KD, KH, KW); bias: (O) -> (N, O, ...), channels-last if x is

    >>> td.conv3d(td.ones((1, 1, 2, 2, 2)), td.ones((1, 1, 2, 2, 2)))
    tensor([[[[[8.]]]]])
    """
    return convolve("conv3d", 3, x, weight, bias, stride, padding, dilation, groups)


def convolve_transposed(
    name: str, spatial: int, x, weight, bias, stride, padding, output_padding, groups, dilation
) -> Value:
    x, weight, bias, added = _operands(name, x, weight, bias, spatial)
    stride, dilation = per_axis(name, "stride", stride, spatial), per_axis(name, "dilation", dilation, spatial)
    padding = per_axis(name, "padding", padding, spatial, 0)
    extra = per_axis(name, "output_padding", output_padding, spatial, 0)
    if groups < 1 or weight.shape[0] != x.shape[1] or x.shape[1] % groups != 0:
        raise ShapeError(
            name,
            f"x is {show_shape(x.shape)} and weight is {show_shape(weight.shape)} with groups={groups}; weight.shape[0] must be "
            "x's number of channels, and groups must divide it",
        )
    _check_bias(name, bias, weight.shape[1] * groups)
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if e >= max(s, d):
            raise ValueRangeError(
                name, f"output_padding {extra} must be smaller than stride {stride} or dilation {dilation}"
            )
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, s, p, d, k, e in zip(x.shape[2:], stride, padding, dilation, weight.shape[2:], extra, strict=True)
    )
    if any(n < 1 for n in size):
        raise ShapeError(
            name, f"the output would be {show_shape(size)}: x {show_shape(x.shape)} is too small for padding {padding}"
        )
    y = _spread(x, weight, stride, padding, dilation, groups, size, extra)
    if bias is not None:
        y = y + F.Reshape((1, bias.shape[0]) + (1,) * spatial)(bias)
    return without_batch(y, added)


def _spread(x: Value, weight: Value, stride, padding, dilation, groups, size, extra) -> Value:
    """The convolution of `size` elements whose gradient this is must have as many results as x has elements. Whole strides of
    output_padding would give it more: they come off its padding at the end, and what is left of them are zeros."""
    whole = tuple(e - e % s for e, s in zip(extra, stride, strict=True))
    high = tuple(max(p - w, 0) for p, w in zip(padding, whole, strict=True))
    zeros = tuple(max(w - p, 0) for p, w in zip(padding, whole, strict=True))
    inner = tuple(n - z for n, z in zip(size, zeros, strict=True))
    y = ConvBackwardData(stride, padding, high, dilation, groups, inner)(x, weight)
    if not any(zeros):
        return y
    return F.Embed((0,) * y.ndim, (1,) * y.ndim, (*y.shape[:2], *size))(y)


@op(method=False)
def conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
):
    """The transpose (gradient) of conv1d: spreads each element of x over a window.

    x: (N, C, L) or (C, L); weight: (C, O / groups, K); bias: (O) -> (N, O, out)

    >>> td.conv_transpose1d(td.tensor([[[1.0, 2.0]]]), td.tensor([[[1.0, 1.0]]]))
    tensor([[[1., 3., 2.]]])
    """
    return convolve_transposed(
        "conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


@op(method=False)
def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
):
    """The transpose (gradient) of conv2d: spreads each element of x over a window.

    x: (N, C, H, W) or (C, H, W); weight: (C, O / groups, KH, KW); bias: (O) -> (N, O, out_h, out_w)

    >>> td.conv_transpose2d(td.ones((1, 1, 1, 2)), td.ones((1, 1, 2, 2)))
    tensor([[[[1., 2., 1.],
              [1., 2., 1.]]]])
    """
    return convolve_transposed(
        "conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


@op(method=False)
def conv_transpose3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
):
    """The transpose (gradient) of conv3d: spreads each element of x over a window.

    x: (N, C, D, H, W) or (C, D, H, W); weight: (C, O / groups, KD, KH, KW); bias: (O) -> (N, O, ...)

    >>> td.conv_transpose3d(td.ones((1, 1, 1, 1, 1)), td.ones((1, 1, 1, 1, 2)))
    tensor([[[[[1., 1.]]]]])
    """
    return convolve_transposed(
        "conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding, groups, dilation
    )
