"""kl_divergence(p, q), by the pair of families."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import (
    bounded,
    continuous,
    cross_entropy,
    discrete,
    multivariate,
    positive,
    transformed,
)
from tandem.distributions.base import Distribution, ExponentialFamily, Independent
from tandem.distributions.transform_base import sum_last
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


@register_kl(continuous.Normal, continuous.Normal)
def _normal(p, q):
    ratio, gap = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + gap - 1 - td.log(ratio))


@register_kl(continuous.Laplace, continuous.Laplace)
def _laplace(p, q):
    gap, ratio = td.abs(p.loc - q.loc), p.scale / q.scale
    return -td.log(ratio) + gap / q.scale + ratio * td.exp(-gap / p.scale) - 1


@register_kl(positive.Exponential, positive.Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - td.log(ratio) - 1


@register_kl(positive.Gamma, positive.Gamma)
def _gamma(p, q):
    a, b = p.concentration, q.concentration
    first = b * td.log(p.rate / q.rate) + td.lgamma(b) - td.lgamma(a)
    return first + (a - b) * td.digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(bounded.Beta, bounded.Beta)
def _beta(p, q):
    a, b, total = p.concentration1, p.concentration0, p.concentration1 + p.concentration0
    norm = td.special.betaln(q.concentration1, q.concentration0) - td.special.betaln(a, b)
    first = (a - q.concentration1) * td.digamma(a) + (b - q.concentration0) * td.digamma(b)
    return norm + first + (q.concentration1 + q.concentration0 - total) * td.digamma(total)


@register_kl(continuous.Uniform, continuous.Uniform)
def _uniform(p, q):
    value = td.log((q.high - q.low) / (p.high - p.low))
    inside = td.logical_and(q.low <= p.low, p.high <= q.high)
    return td.where(inside, value, math.inf)


@register_kl(discrete.Bernoulli, discrete.Bernoulli)
def _bernoulli(p, q):
    softplus = td.nn.functional.softplus
    yes = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    no = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    yes = td.where(p.probs == 0, 0.0, td.where(q.probs == 0, math.inf, yes))
    return yes + td.where(p.probs == 1, 0.0, td.where(q.probs == 1, math.inf, no))


@register_kl(discrete.Categorical, discrete.Categorical)
def _categorical(p, q):
    each = p.probs * (p.logits - q.logits)
    return td.where(p.probs == 0, 0.0, td.where(q.probs == 0, math.inf, each)).sum(-1)


@register_kl(discrete.Poisson, discrete.Poisson)
def _poisson(p, q):
    return p.rate * (td.log(p.rate) - td.log(q.rate)) - (p.rate - q.rate)


@register_kl(discrete.Geometric, discrete.Geometric)
def _geometric(p, q):
    return -p.entropy() - td.log1p(-q.probs) / p.probs - q.logits


@register_kl(multivariate.Dirichlet, multivariate.Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    norm = td.lgamma(a.sum(-1)) - td.lgamma(b.sum(-1)) + (td.lgamma(b) - td.lgamma(a)).sum(-1)
    return norm + ((a - b) * (td.digamma(a) - td.digamma(a.sum(-1, keepdims=True)))).sum(-1)


_VECTORS = multivariate.MultivariateNormal, multivariate.LowRankMultivariateNormal


@register_kl(_VECTORS[0], _VECTORS[0])
@register_kl(_VECTORS[0], _VECTORS[1])
@register_kl(_VECTORS[1], _VECTORS[0])
@register_kl(_VECTORS[1], _VECTORS[1])
def _multivariate_normal(p, q):
    if p.event_shape != q.event_shape:
        raise ValueRangeError("kl_divergence", f"events of {p.event_shape} and {q.event_shape}; they must be equal")
    trace = _trace_of_ratio(p, q)
    return q._half_log_det() - p._half_log_det() + 0.5 * (trace + q.mahalanobis(p.loc) - p.event_shape[0])


def _trace_of_ratio(p, q):
    """The trace of p's covariance times the inverse of q's, from factors f of p's: sums of squares of q^(-1/2) f."""
    low_rank = isinstance(p, multivariate.LowRankMultivariateNormal)
    factors = [p.cov_factor, td.diag_embed(td.sqrt(p.cov_diag))] if low_rank else [p.scale_tril]
    total = 0.0
    for f in factors:
        if isinstance(q, multivariate.LowRankMultivariateNormal):
            away = q.whitened(q.cov_diag, f)
            total = total + (f * f / q.cov_diag[..., None]).sum((-2, -1)) - (away * away).sum((-2, -1))
        else:
            batch = td.broadcast_shapes(q.scale_tril.shape[:-2], f.shape[:-2])
            factor, f = q.scale_tril.expand(*batch, *q.scale_tril.shape[-2:]), f.expand(*batch, *f.shape[-2:])
            z = td.linalg.solve_triangular(factor, f, upper=False)
            total = total + (z * z).sum((-2, -1))
    return total


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise UnsupportedError("kl_divergence", "the two reinterpret different numbers of axes")
    return sum_last(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(discrete.Binomial, discrete.Binomial)
def _binomial(p, q):
    if bool((p.total_count < q.total_count).any()):
        raise UnsupportedError("kl_divergence", "q has more trials than p")
    each = p.probs * (p.logits - q.logits) + td.log1p(-p.probs) - td.log1p(-q.probs)
    return td.where(p.total_count > q.total_count, math.inf, p.total_count * each)


@register_kl(bounded.ContinuousBernoulli, bounded.ContinuousBernoulli)
def _continuous_bernoulli(p, q):
    norms = p._log_norm() + td.log1p(-p.probs) - q._log_norm() - td.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + norms


@register_kl(continuous.Gumbel, continuous.Gumbel)
def _gumbel(p, q):
    ratio, gap = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return gap - td.log(ratio) + ratio * positive.EULER + td.exp(td.lgamma(1 + ratio) - gap) - (1 + positive.EULER)


@register_kl(continuous.HalfNormal, continuous.HalfNormal)
def _half_normal(p, q):
    return _normal(p.base_dist, q.base_dist)


@register_kl(continuous.HalfCauchy, continuous.HalfCauchy)
def _half_cauchy(p, q):
    return _cauchy(p.base_dist, q.base_dist)


@register_kl(continuous.Cauchy, continuous.Cauchy)
def _cauchy(p, q):
    return td.log((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) - td.log(4 * p.scale * q.scale)


@register_kl(positive.Pareto, positive.Pareto)
def _pareto(p, q):
    ratio = q.alpha / p.alpha
    value = q.alpha * td.log(p.scale / q.scale) - td.log(ratio) + ratio - 1
    return td.where(p.scale < q.scale, math.inf, value)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    """F(q) - F(p) less the difference of parameters times the gradient of F at p."""
    if type(p) is not type(q):
        raise UnsupportedError("kl_divergence", f"no rule for {type(p).__name__} and {type(q).__name__}")
    params, value, means = p._normalizer()
    result = q._log_normalizer(*q._natural_params) - value
    for a, b, m in zip(params, q._natural_params, means, strict=True):
        result = result - sum_last((b - a) * m, a.ndim - len(p.batch_shape))
    return result


@register_kl(transformed.TransformedDistribution, transformed.TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise UnsupportedError("kl_divergence", "the two are transformed differently")
    return kl_divergence(p.base_dist, q.base_dist)


cross_entropy.register(register_kl)
