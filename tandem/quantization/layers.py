"""Layers whose weights are whole numbers, and layers that train as if theirs were."""

from __future__ import annotations

import copy

import tandem as td
from tandem import nn
from tandem.nn import functional as F
from tandem.ops.quantized import int4_linear, int8_linear, unpack_int4
from tandem.quantization.rounding import groups_of, rounded, scales_of

# Rows up to which weights are read as they are stored: each row reads them once. More are a product with weights made floats.
FEW_ROWS = 4


class _Quantized(nn.Module):
    """weight, scale: buffers. bits 8: int8 (o, k); bits 4: two to a byte, (o, g, k / 2g)."""

    def __init__(self, layer, bits: int, group: int | None):
        super().__init__()
        self.bits, self.shape = bits, tuple(layer.weight.shape)
        grouped = groups_of(layer.weight.detach(), bits, group)
        scale = scales_of(grouped, bits)
        numbers = rounded(grouped, scale, bits)
        if bits == 8:
            packed = numbers.to(td.int8).reshape(self.shape[0], -1)
        else:
            half = numbers.shape[-1] // 2
            low, high = ((n + 8).to(td.uint8) for n in (numbers[..., :half], numbers[..., half:]))
            packed = low | (high << 4)
        self.register_buffer("weight", packed)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach())

    def dequantized(self):
        """The weights as floats, in the shape of the layer they come from."""
        if self.bits == 4:
            numbers = unpack_int4(self.weight, self.scale.dtype)
        else:
            numbers = self.weight.to(self.scale.dtype).reshape(*self.scale.shape, -1)
        return (numbers * self.scale[..., None]).reshape(self.shape)

    def extra_repr(self) -> str:
        return f"{self.shape}, bits={self.bits}, {self.scale.shape[1]} groups"


class QuantizedLinear(_Quantized):
    """A Linear layer with weights of 8 or 4 bits. Few rows read them as they are stored."""

    def forward(self, x):
        rows = x.reshape(-1, self.shape[1])
        if rows.shape[0] > FEW_ROWS:
            return F.linear(x, self.dequantized(), self.bias)
        made = (int8_linear if self.bits == 8 else int4_linear)(rows, self.weight, self.scale)
        made = made if self.bias is None else made + self.bias
        return made.reshape(*x.shape[:-1], self.shape[0])


class QuantizedConv(_Quantized):
    """A convolution whose weights are stored with 8 or 4 bits, and are floats while it runs."""

    def __init__(self, layer, bits: int, group: int | None):
        super().__init__(layer, bits, group)
        geometry = copy.deepcopy(layer)
        geometry.weight = geometry.bias = None
        self.layer = [geometry]  # in a list, so that it is no part of this module

    def forward(self, x):
        return self.layer[0]._conv_forward(x, self.dequantized(), self.bias)


class FakeQuantized(nn.Module):
    """A layer that computes with rounded weights, and trains the weights themselves: gradients pass as if nothing was rounded."""

    def __init__(self, layer, bits: int, group: int | None):
        super().__init__()
        self.layer, self.bits, self.group = layer, bits, group

    def rounded(self):
        weight = self.layer.weight
        grouped = groups_of(weight.detach(), self.bits, self.group)
        scale = scales_of(grouped, self.bits)
        exact = (rounded(grouped, scale, self.bits) * scale[..., None]).reshape(weight.shape)
        return weight + (exact - weight.detach())

    def forward(self, x):
        if isinstance(self.layer, nn.Linear):
            return F.linear(x, self.rounded(), self.layer.bias)
        return self.layer._conv_forward(x, self.rounded(), self.layer.bias)
