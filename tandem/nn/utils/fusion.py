"""Batch normalisation folded into the layer before it, for inference."""

from __future__ import annotations

import copy

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.nn.parameter import Parameter


def _scale_and_bias(bias, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """The factor of every channel, and the new bias."""
    factor = F.rsqrt(bn_rv + bn_eps)
    factor = factor if bn_w is None else factor * bn_w
    moved = -bn_rm if bias is None else bias - bn_rm
    return factor, moved * factor if bn_b is None else moved * factor + bn_b


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose: bool = False):
    """Weight and bias of a convolution that does what the given one and a batch normalisation after it do: two parameters."""
    with no_grad():
        factor, bias = _scale_and_bias(conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
        axis = 1 if transpose else 0
        shape = [1] * conv_w.ndim
        shape[axis] = -1
        weight = conv_w * factor.reshape(*shape)
    return _parameters((weight, conv_w), (bias, conv_b if conv_b is not None else conv_w))


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """Weight and bias of a linear layer that does what the given one and a batch normalisation after it do: two parameters."""
    with no_grad():
        factor, bias = _scale_and_bias(linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
        weight = linear_w * factor[:, None]
    return _parameters((weight, linear_w), (bias, linear_b if linear_b is not None else linear_w))


def _parameters(*pairs):
    return tuple(Parameter(value.to(like.dtype), like.requires_grad) for value, like in pairs)


def _check(name: str, layer, bn):
    if layer.training or bn.training:
        raise ValueError(f"{name} is for layers in evaluation: call eval() on both first")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(f"{name} needs a batch normalisation with running statistics")


def fuse_conv_bn_eval(conv, bn, transpose: bool = False):
    """A convolution that does what conv and then bn do, both in evaluation.

    >>> conv, bn = td.nn.Conv2d(3, 4, 3).eval(), td.nn.BatchNorm2d(4).eval()
    >>> x = td.randn(1, 3, 5, 5)
    >>> bool((td.nn.utils.fuse_conv_bn_eval(conv, bn)(x) - bn(conv(x))).abs().max() < 1e-5)
    True
    """
    _check("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear, bn):
    """A linear layer that does what linear and then bn do, both in evaluation."""
    _check("fuse_linear_bn_eval", linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise ValueError(f"linear gives {linear.out_features} features, bn takes {bn.num_features}")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        linear.weight, linear.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
