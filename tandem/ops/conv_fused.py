"""A convolution with what follows it, for inference: bias, a residual that is added, an activation."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.conv import ConvForward, _Convolution
from tandem.ops.define import register
from tandem.ops.windows import channels_last_strides, strides_like

# Numbers of the enum Activation in src/library/conv_impl.h, and what each computes of x, alpha and beta.
ACTIVATIONS = {
    "none": lambda x, alpha, beta: x,
    "relu": lambda x, alpha, beta: F.relu(x),
    "clip": lambda x, alpha, beta: F.clip(x, alpha, beta),
    "silu": lambda x, alpha, beta: F.silu(x),
    "sigmoid": lambda x, alpha, beta: F.sigmoid(x),
    "hardswish": lambda x, alpha, beta: F.hardswish(x),
    "leaky_relu": lambda x, alpha, beta: F.leaky_relu(x, alpha),
    "gelu": lambda x, alpha, beta: F.gelu(x),
}
_CODES = {name: code for code, name in enumerate(ACTIVATIONS)}


@register
class ConvFused(_Convolution):
    """x: (N, C, *s), w: (O, C / groups, *k), bias: (O), residual: (N, O, *out) if given -> (N, O, *out)

    activation(conv(x, w) + bias + residual), float32. Programs whose weights are constant are made of these
    (tandem/passes/fuse_convolutions.py). Where an element is NaN, relu and clip may give their lower bound.
    """

    name = "conv_fused"
    routine = "conv_fused"
    only_on = "cpu"
    takes_complex = False
    activation: str
    alpha: float
    beta: float
    takes = "f32[n,c,*s] f32[o,g,*k] f32[o] f32[n,o,*out]?"

    def infer(self, x: Type, w: Type, bias: Type, *residual: Type) -> Type:
        return ConvForward(*self.geometry).infer(x, w)

    def rule(self, x: Type, w: Type, bias: Type, *residual: Type):
        ConvForward(*self.geometry).rule(x, w)
        rules.allowed(self, self.activation in ACTIVATIONS, f"activation is {self.activation!r}")
        rules.allowed(self, math.isfinite(self.alpha), f"alpha is {self.alpha}; it must be finite")
        made = self.infer(x, w, bias).shape
        fits = all(
            len(r.shape) == len(made) and all(a == b for a, b in zip(r.shape, made, strict=True)) for r in residual
        )
        rules.need(self, fits, f"the residual is {residual}; it must have the shape of the result, {made}")

    def attributes(self, *types):
        ints, _ = super().attributes(*types)
        return (1 + 2 * (len(types) == 4), _CODES[self.activation], *ints), (self.alpha, self.beta)

    def output_strides(self, types, buffers):
        made = self.infer(*types)
        if made.ndim == 4 and types[0].shape[1] == 1:  # lies either way, and what follows is best with channels last
            return channels_last_strides(made.shape)
        return strides_like(buffers[0], made)

    def composed(self, x, w, bias, *residual):
        y = ConvForward(*self.geometry)(x, w, bias)
        for r in residual:
            y = F.Add()(y, r)
        return ACTIVATIONS[self.activation](y, self.alpha, self.beta)

    def grad(self, g, *inputs, vjp):
        return tuple(vjp(self.composed, list(inputs), [g]))
