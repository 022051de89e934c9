"""Layers that compute with whole numbers: weights of 8 or 4 bits, activations rounded to 8."""

from __future__ import annotations

import math

import tandem as td
from tandem import nn
from tandem.ops.integer_products import integer_conv, integer_linear, integer_linear4, unpacked, unpacked_int4
from tandem.quantization.packing import packed, packed_int4
from tandem.quantization.rounding import groups_of, rounded, scales_of

DEFAULT_GROUP = 32  # of 4-bit weights, where none is given


class _Integer(nn.Module):
    """weight: packed; scale, sums of the weights of an output, bias: buffers.

    x_scale: a step of activations; 0: each row has one.
    """

    def __init__(self, layer, weight, bits: int, group: int | None, x_scale: float):
        super().__init__()
        self.bits, self.shape, self.x_scale = bits, tuple(layer.weight.shape), float(x_scale)
        weight = weight.detach().to(td.float32)
        grouped = groups_of(weight, bits, (group or DEFAULT_GROUP) if bits == 4 else None)
        scale = scales_of(grouped, bits)
        numbers = rounded(grouped, scale, bits)
        if bits == 8:
            flat = numbers.reshape(weight.shape[0], -1)
            self.register_buffer("weight", packed(flat.to(td.int8)))
            self.register_buffer("scale", scale.reshape(-1).contiguous())
            self.register_buffer("sums", flat.sum(1).to(td.int32))
        else:
            self.register_buffer("weight", packed_int4(numbers))
            self.register_buffer("scale", scale.T.contiguous())
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().to(td.float32))

    def extra_repr(self) -> str:
        step = (
            f"step {self.x_scale:.3g}" if self.x_scale else "a step for each " + ("group" if self.bits == 4 else "row")
        )
        return f"{self.shape}, bits={self.bits}, activations: 8 bits, {step}"


class IntegerLinear(_Integer):
    """A Linear layer with weights of 8 or 4 bits on activations of 8."""

    def __init__(self, layer, bits: int, group: int | None, x_scale: float = 0.0):
        super().__init__(layer, layer.weight, bits, group, x_scale)

    def dequantized(self):
        """The weights as floats, in the shape of the layer they come from."""
        outputs, k = self.shape
        if self.bits == 8:
            return unpacked(self.weight, outputs, k) * self.scale[:, None]
        return (unpacked_int4(self.weight, outputs) * self.scale.T[..., None]).reshape(outputs, k)

    def forward(self, x):
        if self.bits == 4:
            return integer_linear4(x, self.weight, self.scale, self.bias)
        return integer_linear(x, self.weight, self.scale, self.sums, self.bias, x_scale=self.x_scale)


class IntegerConv(_Integer):
    """A convolution with weights of 8 bits on activations of 8."""

    def __init__(self, layer, bits: int, group: int | None, x_scale: float = 0.0):
        axes = layer.axes
        super().__init__(layer, layer.weight.permute(0, *range(2, axes + 2), 1).contiguous(), 8, None, x_scale)
        flat = layer._pads()  # of the last axis first
        self.pads = tuple((flat[2 * d], flat[2 * d + 1]) for d in reversed(range(axes)))
        self.kernel, self.stride, self.dilation = layer.kernel_size, layer.stride, layer.dilation

    @staticmethod
    def fits(layer) -> bool:
        return layer.groups == 1 and layer.padding_mode == "zeros"

    def dequantized(self):
        outputs, channels, *kernel = self.shape
        flat = unpacked(self.weight, outputs, channels * math.prod(kernel)) * self.scale[:, None]
        return flat.reshape(outputs, *kernel, channels).permute(0, len(kernel) + 1, *range(1, len(kernel) + 1))

    def forward(self, x):
        single = x.ndim == len(self.kernel) + 1
        made = integer_conv(
            x[None] if single else x, self.weight, self.scale, self.sums, self.bias, kernel=self.kernel, stride=self.stride,
            pads=self.pads, dilation=self.dilation, x_scale=self.x_scale,
        )  # fmt: skip
        return made[0] if single else made
