"""Convolutions and transposed convolutions over one, two and three axes."""

from __future__ import annotations

import math

from tandem.nn import functional as F
from tandem.nn import init
from tandem.nn.linear import empty_parameter
from tandem.nn.module import Module


def per_axis(value, count: int) -> tuple:
    """One number for each of `count` axes."""
    if isinstance(value, (tuple, list)):
        if len(value) != count:
            raise ValueError(f"{value} has {len(value)} numbers; one or {count} are expected")
        return tuple(value)
    return (value,) * count


class _Convolution(Module):
    """What all convolutions share. Weights are (out, in / groups, *kernel), of transposed ones (in, out / groups, *kernel)."""

    axes = 0
    transposed = False

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        output_padding,
        groups,
        bias,
        padding_mode,
        device,
        dtype,
    ):
        super().__init__()
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{in_channels} input and {out_channels} output channels do not divide into {groups} groups"
            )
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(
                f"padding_mode is {padding_mode!r}; it must be 'zeros', 'reflect', 'replicate' or 'circular'"
            )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"padding is {padding!r}; it must be 'same', 'valid' or numbers")
        self.in_channels, self.out_channels, self.groups, self.padding_mode = (
            in_channels,
            out_channels,
            groups,
            padding_mode,
        )
        self.kernel_size, self.stride, self.dilation = (per_axis(v, self.axes) for v in (kernel_size, stride, dilation))
        self.padding = padding if isinstance(padding, str) else per_axis(padding, self.axes)
        self.output_padding = per_axis(output_padding, self.axes)
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ValueError(f"padding='same' keeps sizes only with stride 1, not {self.stride}")
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = empty_parameter(first, second // groups, *self.kernel_size, device=device, dtype=dtype)
        self.register_parameter("bias", empty_parameter(out_channels, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in = math.prod(self.weight.shape[1:])
        if self.bias is not None and fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.axes:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.axes:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self.axes:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Forward(_Convolution):
    def __init__(self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, dilation=1, groups: int = 1,
                 bias: bool = True, padding_mode: str = "zeros", device=None, dtype=None):  # fmt: skip
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input, weight, bias):
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.axes - 1]
        if self.padding_mode == "zeros":
            return convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._pads(), mode=self.padding_mode)
        return convolve(padded, weight, bias, self.stride, 0, self.dilation, self.groups)

    def _pads(self) -> tuple:
        """(before, after) of the last axis, then of the one before it, as F.pad takes them."""
        if self.padding == "valid":
            return (0, 0) * self.axes
        pads = []
        for k, d, p in zip(reversed(self.kernel_size), reversed(self.dilation), reversed(self._numbers()), strict=True):
            total = d * (k - 1)
            pads += [p, p] if self.padding != "same" else [total // 2, total - total // 2]
        return tuple(pads)

    def _numbers(self) -> tuple:
        return (0,) * self.axes if isinstance(self.padding, str) else self.padding


class Conv1d(_Forward):
    """Convolution (cross-correlation) over one axis.

    input: (N, in_channels, L) or (in_channels, L) -> (N, out_channels, L') or (out_channels, L')
    padding: numbers, "same" or "valid"; padding_mode: "zeros", "reflect", "replicate", "circular"

    >>> td.nn.Conv1d(2, 4, 3, padding=1)(td.ones(1, 2, 8)).shape
    (1, 4, 8)
    """

    axes = 1


class Conv2d(_Forward):
    """Convolution (cross-correlation) over two axes.

    input: (N, in_channels, H, W) or (in_channels, H, W) -> (N, out_channels, H', W') or (out_channels, H', W')
    padding: numbers, "same" or "valid"; padding_mode: "zeros", "reflect", "replicate", "circular"

    >>> td.nn.Conv2d(3, 8, 3, stride=2)(td.ones(1, 3, 9, 9)).shape
    (1, 8, 4, 4)
    """

    axes = 2


class Conv3d(_Forward):
    """Convolution (cross-correlation) over three axes.

    input: (N, in_channels, D, H, W) or (in_channels, D, H, W) -> the same with out_channels
    padding: numbers, "same" or "valid"; padding_mode: "zeros", "reflect", "replicate", "circular"

    >>> td.nn.Conv3d(1, 2, 3)(td.ones(1, 1, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    axes = 3


class _Transposed(_Convolution):
    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, output_padding=0, groups: int = 1,
                 bias: bool = True, dilation=1, padding_mode: str = "zeros", device=None, dtype=None):  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f"{type(self).__name__} has padding_mode 'zeros' only, not {padding_mode!r}")
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input, output_size=None):
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.axes - 1]
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _extra(self, input, output_size) -> tuple:
        """The output padding that leads to output_size."""
        sizes = tuple(output_size)[-self.axes :]
        result = []
        for i, (wanted, n) in enumerate(zip(sizes, input.shape[-self.axes :], strict=True)):
            least = (n - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
            if not least <= wanted < least + self.stride[i]:
                raise ValueError(
                    f"output_size {sizes}: axis {i} can be {least} to {least + self.stride[i] - 1} for input {input.shape}"
                )
            result.append(wanted - least)
        return tuple(result)


class ConvTranspose1d(_Transposed):
    """The transpose of Conv1d: spreads each element over a window.

    input: (N, in_channels, L) or (in_channels, L) -> (N, out_channels, L') or (out_channels, L')

    >>> td.nn.ConvTranspose1d(2, 1, 4, stride=2, padding=1)(td.ones(1, 2, 5)).shape
    (1, 1, 10)
    """

    axes = 1


class ConvTranspose2d(_Transposed):
    """The transpose of Conv2d: spreads each element over a window.

    input: (N, in_channels, H, W) or (in_channels, H, W) -> the same with out_channels

    >>> td.nn.ConvTranspose2d(2, 1, 4, stride=2, padding=1)(td.ones(1, 2, 5, 5)).shape
    (1, 1, 10, 10)
    """

    axes = 2


class ConvTranspose3d(_Transposed):
    """The transpose of Conv3d: spreads each element over a window.

    input: (N, in_channels, D, H, W) or (in_channels, D, H, W) -> the same with out_channels

    >>> td.nn.ConvTranspose3d(1, 1, 2, stride=2)(td.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3
