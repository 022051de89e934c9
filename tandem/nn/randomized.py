"""Activations that draw random numbers."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import ValueRangeError
from tandem.ops.define import op
from tandem.ops.random import uniform_bits


@op(hidden=True, name="rrelu")
def _rrelu(x: Tensor, lower, upper, training, generator: Generator | None = None):
    if not training:
        return F.leaky_relu(x, (lower + upper) / 2)
    slope = uniform_bits(generator, x.shape, x.dtype) * (upper - lower) + lower
    return F.where(F.less(x, 0), x * slope, x)


def rrelu(
    input,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    generator=None,
):
    """x where positive, elsewhere x times a slope drawn from [lower, upper) for each element; their mean when not training."""
    if lower > upper:
        raise ValueRangeError("rrelu", f"lower is {lower} and upper {upper}; lower must not be greater")
    made = _rrelu(input, float(lower), float(upper), bool(training), generator)
    return F.copy_(input, made) if inplace else made


def rrelu_(input, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, *, generator=None):
    """In-place form of rrelu."""
    return rrelu(input, lower, upper, training, True, generator=generator)


@op(hidden=True, name="gumbel_softmax")
def _gumbel_softmax(logits: Tensor, tau, axis, generator: Generator | None = None):
    uniform = F.clip(uniform_bits(generator, logits.shape, logits.dtype), 1e-20, 1.0)
    noise = -F.log(F.maximum(-F.log(uniform), 1e-20))
    return F.softmax((logits + noise) / tau, axis)


def gumbel_softmax(logits, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1, *, generator=None):
    """A sample of the relaxed categorical distribution. hard: one-hot, with the gradient of the soft sample."""
    soft = _gumbel_softmax(logits, float(tau), dim, generator)
    if not hard:
        return soft
    one_hot = F.full_like(soft, 0.0).scatter(dim, F.argmax(soft, dim, True), 1.0)
    return F.stop_gradient(one_hot - soft) + soft
