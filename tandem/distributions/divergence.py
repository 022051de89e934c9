"""kl_divergence(p, q), by the pair of families."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import continuous as c
from tandem.distributions import discrete as d
from tandem.distributions import multivariate as m
from tandem.distributions.base import Distribution, Independent, sum_last
from tandem.errors import UnsupportedError, ValueRangeError

_RULES: dict = {}


def register_kl(type_p: type, type_q: type):
    """Decorates a rule fn(p, q) for a pair of families and what is derived from them."""

    def decorate(rule):
        _RULES[type_p, type_q] = rule
        return rule

    return decorate


def kl_divergence(p: Distribution, q: Distribution):
    """The expectation under p of log p - log q: the shape of the batch.

    >>> normal = td.distributions.Normal
    >>> td.distributions.kl_divergence(normal(0.0, 1.0), normal(1.0, 1.0))
    tensor(0.5000)
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _RULES:
                return _RULES[a, b](p, q)
    raise UnsupportedError(
        "kl_divergence",
        f"no rule for {type(p).__name__} and {type(q).__name__}",
        fix="register one: @td.distributions.register_kl(P, Q)",
    )


@register_kl(c.Normal, c.Normal)
def _normal(p, q):
    ratio, gap = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + gap - 1 - td.log(ratio))


@register_kl(c.LogNormal, c.Normal)
@register_kl(c.Normal, c.LogNormal)
def _other_support(p, q):
    raise UnsupportedError("kl_divergence", f"no rule for {type(p).__name__} and {type(q).__name__}")


@register_kl(c.LogNormal, c.LogNormal)
def _log_normal(p, q):
    return _normal(p, q)


@register_kl(c.Laplace, c.Laplace)
def _laplace(p, q):
    gap, ratio = td.abs(p.loc - q.loc), p.scale / q.scale
    return -td.log(ratio) + gap / q.scale + ratio * td.exp(-gap / p.scale) - 1


@register_kl(c.Exponential, c.Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - td.log(ratio) - 1


@register_kl(c.Gamma, c.Gamma)
def _gamma(p, q):
    a, b = p.concentration, q.concentration
    first = b * td.log(p.rate / q.rate) + td.lgamma(b) - td.lgamma(a)
    return first + (a - b) * td.digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(c.Beta, c.Beta)
def _beta(p, q):
    a, b, total = p.concentration1, p.concentration0, p.concentration1 + p.concentration0
    norm = td.special.betaln(q.concentration1, q.concentration0) - td.special.betaln(a, b)
    first = (a - q.concentration1) * td.digamma(a) + (b - q.concentration0) * td.digamma(b)
    return norm + first + (q.concentration1 + q.concentration0 - total) * td.digamma(total)


@register_kl(c.Uniform, c.Uniform)
def _uniform(p, q):
    value = td.log((q.high - q.low) / (p.high - p.low))
    inside = td.logical_and(q.low <= p.low, p.high <= q.high)
    return td.where(inside, value, td.full_like(value, math.inf))


@register_kl(d.Bernoulli, d.Bernoulli)
def _bernoulli(p, q):
    softplus = td.nn.functional.softplus
    yes = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    return yes + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))


@register_kl(d.Categorical, d.Categorical)
def _categorical(p, q):
    each = p.probs * (p.logits - q.logits)
    each = td.where(q.probs == 0, td.full_like(each, math.inf), each)
    return td.where(p.probs == 0, td.zeros_like(each), each).sum(-1)


@register_kl(d.Poisson, d.Poisson)
def _poisson(p, q):
    return p.rate * (td.log(p.rate) - td.log(q.rate)) - (p.rate - q.rate)


@register_kl(d.Geometric, d.Geometric)
def _geometric(p, q):
    return -p.entropy() - td.log1p(-q.probs) / p.probs - q.logits


@register_kl(m.Dirichlet, m.Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    norm = td.lgamma(a.sum(-1)) - td.lgamma(b.sum(-1)) + (td.lgamma(b) - td.lgamma(a)).sum(-1)
    return norm + ((a - b) * (td.digamma(a) - td.digamma(a.sum(-1, keepdims=True)))).sum(-1)


@register_kl(m.MultivariateNormal, m.MultivariateNormal)
def _multivariate_normal(p, q):
    if p.event_shape != q.event_shape:
        raise ValueRangeError("kl_divergence", f"events of {p.event_shape} and {q.event_shape}; they must be equal")
    z = td.linalg.solve_triangular(q.scale_tril, p.scale_tril.expand(q.scale_tril.shape), upper=False)
    trace = (z * z).sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (trace + q.mahalanobis(p.loc) - p.event_shape[0])


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise UnsupportedError("kl_divergence", "the two reinterpret different numbers of axes")
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
