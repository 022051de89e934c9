"""Divergences between two families: less the entropy of p, less the expectation under p of log q.

log q of most families is linear in x, x**2, log x, log(1 - x) or exp(-t x), whose expectations p knows.
"""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions.base import LOG_TWO_PI, Distribution
from tandem.distributions.bounded import Beta, ContinuousBernoulli
from tandem.distributions.continuous import Gumbel, Laplace, Normal, Uniform
from tandem.distributions.discrete import Bernoulli, Binomial, Poisson
from tandem.distributions.positive import EULER, Exponential, Gamma, Pareto

# -- expectations under p


def _mean_log(p: Distribution):
    """E[log x]."""
    if isinstance(p, Beta):
        return td.digamma(p.concentration1) - td.digamma(p._total)
    if isinstance(p, Exponential):
        return -EULER - td.log(p.rate)
    if isinstance(p, Pareto):
        return td.log(p.scale) + 1 / p.alpha
    return _mean_log_between(p.low, p.high)


def _mean_log_between(low, high):
    """E[log x] of an even distribution; 0 log 0 is 0."""
    return (td.special.xlogy(high, high) - td.special.xlogy(low, low)) / (high - low) - 1


def _mean_exp(p: Distribution, t):
    """E[exp(-t x)]."""
    if isinstance(p, Normal):
        return td.exp(-t * p.loc + 0.5 * (t * p.scale) ** 2)
    if isinstance(p, Exponential):
        return p.rate / (p.rate + t)
    if isinstance(p, Gamma):
        return (1 + t / p.rate) ** -p.concentration
    return (td.exp(-t * p.low) - td.exp(-t * p.high)) / (t * (p.high - p.low))


# -- expectations of log q


def _of_normal(p, q):
    square = p.variance + (p.mean - q.loc) ** 2
    return -0.5 * square / q.scale**2 - td.log(q.scale) - 0.5 * LOG_TWO_PI


def _of_exponential(p, q):
    return td.log(q.rate) - q.rate * p.mean


def _of_gamma(p, q):
    a = q.concentration
    return a * td.log(q.rate) - td.lgamma(a) + (a - 1) * _mean_log(p) - q.rate * p.mean


def _of_gumbel(p, q):
    z = (p.mean - q.loc) / q.scale
    return -z - td.exp(q.loc / q.scale) * _mean_exp(p, 1 / q.scale) - td.log(q.scale)


def _of_laplace(p, q):
    """For a normal p: E|x - loc| is that of a folded normal variable."""
    gap = p.loc - q.loc
    z = gap / p.scale
    folded = math.sqrt(2 / math.pi) * p.scale * td.exp(-0.5 * z * z) + gap * td.erf(z * math.sqrt(0.5))
    return -folded / q.scale - td.log(2 * q.scale)


def _of_beta(p, q):
    """For an even p."""
    a, b = q.concentration1, q.concentration0
    one, other = _mean_log_between(p.low, p.high), _mean_log_between(1 - p.high, 1 - p.low)
    return (a - 1) * one + (b - 1) * other - td.special.betaln(a, b)


def _of_continuous_bernoulli(p, q):
    return p.mean * q.logits + td.log1p(-q.probs) + q._log_norm()


def _of_pareto(p, q):
    return td.log(q.alpha) + q.alpha * td.log(q.scale) - (q.alpha + 1) * _mean_log(p)


def _of_uniform(p, q):
    return -td.log(q.high - q.low)


def _of_poisson(p, q):
    """For p of 0 and 1, whose factorials are 1."""
    return p.mean * td.log(q.rate) - q.rate


_RULES = [
    (Normal, _of_normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform)),
    (Exponential, _of_exponential, (Beta, ContinuousBernoulli, Gamma, Pareto, Uniform)),
    (Gamma, _of_gamma, (Beta, Exponential, Pareto, Uniform)),
    (Gumbel, _of_gumbel, (Exponential, Gamma, Normal, Uniform)),
    (Laplace, _of_laplace, (Normal,)),
    (Beta, _of_beta, (Uniform,)),
    (ContinuousBernoulli, _of_continuous_bernoulli, (Beta, Uniform)),
    (Pareto, _of_pareto, (Uniform,)),
    (Uniform, _of_uniform, (Beta, ContinuousBernoulli)),
    (Poisson, _of_poisson, (Bernoulli,)),
]

# p reaches where q does not, whatever the parameters.
_INFINITE = {
    (Beta, ContinuousBernoulli): (Pareto,),
    (Exponential, Gamma): (Beta, ContinuousBernoulli, Pareto, Uniform),
    (Gumbel, Laplace, Normal): (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    (Pareto,): (Beta, ContinuousBernoulli, Uniform),
    (Poisson,): (Bernoulli, Binomial),
}


def _bounds(p):
    """The ends of where p lies, where they depend on its parameters or are 0 and 1."""
    return (p.low, p.high) if isinstance(p, Uniform) else (0.0, 1.0)


def _within(p, q):
    """Whether p lies where q does, for the pairs that need a look."""
    if isinstance(p, Uniform) and isinstance(q, (Exponential, Gamma)):
        return p.low >= 0
    if isinstance(p, Uniform) and isinstance(q, Pareto):
        return p.low >= q.scale
    if (isinstance(p, Uniform) and isinstance(q, (Beta, ContinuousBernoulli))) or isinstance(q, Uniform):
        (low, high), (lowest, highest) = _bounds(p), _bounds(q)
        return td.logical_and(lowest <= low, high <= highest)
    return None


def _rule(of_log):
    def divergence(p, q):
        value = -p.entropy() - of_log(p, q)
        within = _within(p, q)
        return value if within is None else td.where(within, value, math.inf)

    return divergence


def _infinite(p, q):
    shape = td.broadcast_shapes(p.batch_shape, q.batch_shape)
    like = p.mean
    return td.full(shape, math.inf, dtype=like.dtype, device=like.device)


def register(register_kl):
    """Enters all pairs with kl_divergence."""
    for q, rule, families in _RULES:
        for p in families:
            register_kl(p, q)(_rule(rule))
    for of, others in _INFINITE.items():
        for p in of:
            for q in others:
                register_kl(p, q)(_infinite)
