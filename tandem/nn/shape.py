"""Layers that rearrange: flattening, padding, patches, resolution."""

from __future__ import annotations

from tandem.nn import functional as F
from tandem.nn.module import Module


class Flatten(Module):
    """Axes start_dim to end_dim as one.

    >>> td.nn.Flatten()(td.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One axis as several.

    >>> td.nn.Unflatten(1, (3, 4))(td.ones(2, 12)).shape
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size):
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input):
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class PixelShuffle(Module):
    """Channels become space: (*, C * r * r, H, W) -> (*, C, H * r, W * r).

    >>> td.nn.PixelShuffle(2)(td.ones(1, 8, 3, 3)).shape
    (1, 2, 6, 6)
    """

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input):
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Space becomes channels: (*, C, H * r, W * r) -> (*, C * r * r, H, W)."""

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input):
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Channels of different groups take turns."""

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Upsample(Module):
    """Resizes the spatial axes; see nn.functional.interpolate.

    >>> td.nn.Upsample(scale_factor=2)(td.ones(1, 1, 3, 3)).shape
    (1, 1, 6, 6)
    """

    def __init__(self, size=None, scale_factor=None, mode: str = "nearest", align_corners: bool | None = None,
                 recompute_scale_factor: bool | None = None):  # fmt: skip
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input):
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        size = f"scale_factor={self.scale_factor}" if self.scale_factor is not None else f"size={self.size}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample of images with mode "nearest"."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample of images with mode "bilinear" and aligned corners."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class Unfold(Module):
    """Patches of images as columns: (N, C, H, W) -> (N, C * kh * kw, number of patches)."""

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input):
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Adds patches up to images, the transpose of Unfold."""

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.output_size, self.kernel_size, self.dilation = output_size, kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input):
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, kernel_size={self.kernel_size}, padding={self.padding}, stride={self.stride}"


class _Pad(Module):
    """Adds elements at the ends of the last axes. padding: one number, or (before, after) of the last axis, then of the others."""

    axes = 0
    mode = "constant"

    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * (2 * self.axes)
        if len(self.padding) != 2 * self.axes:
            raise ValueError(f"{type(self).__name__} takes one number or {2 * self.axes}, not {len(self.padding)}")

    def forward(self, input):
        return F.pad(input, self.padding, mode=self.mode)

    def extra_repr(self) -> str:
        return str(self.padding)


class _ConstantPad(_Pad):
    def __init__(self, padding, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, value=self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


def _pads(base, kind: str, what: str, **attributes):
    """The layers for one, two and three axes."""
    made = []
    for axes in (1, 2, 3):
        doc = (
            f"Adds {what} at the ends of the last {axes} axes."
            if axes > 1
            else f"Adds {what} at the ends of the last axis."
        )
        made.append(
            type(f"{kind}{axes}d", (base,), {"axes": axes, "__doc__": doc, "__module__": __name__, **attributes})
        )
    return made


ConstantPad1d, ConstantPad2d, ConstantPad3d = _pads(_ConstantPad, "ConstantPad", "a constant")
ZeroPad1d, ZeroPad2d, ZeroPad3d = _pads(_Pad, "ZeroPad", "zeros")
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = _pads(
    _Pad, "ReflectionPad", "what is mirrored there", mode="reflect"
)
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = _pads(
    _Pad, "ReplicationPad", "copies of the edge", mode="replicate"
)
CircularPad1d, CircularPad2d, CircularPad3d = _pads(_Pad, "CircularPad", "what is at the other end", mode="circular")
