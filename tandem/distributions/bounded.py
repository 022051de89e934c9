"""Continuous distributions on [0, 1]: Beta, ContinuousBernoulli."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import ExponentialFamily, parameters
from tandem.distributions.discrete import _Binary
from tandem.distributions.positive import standard_gamma


class Beta(ExponentialFamily):
    """Of numbers between 0 and 1, with density proportional to x ** (concentration1 - 1) * (1 - x) ** (concentration0 - 1)."""

    has_rsample = True
    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = parameters(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    @property
    def _total(self):
        return self.concentration1 + self.concentration0

    mean = property(lambda self: self.concentration1 / self._total)
    _natural_params = property(lambda self: (self.concentration1, self.concentration0))
    _mean_carrier_measure = property(
        lambda self: (
            -((td.digamma(self.concentration1) + td.digamma(self.concentration0)) - 2 * td.digamma(self._total))
        )
    )

    def _log_normalizer(self, x, y):
        return td.special.betaln(x, y)

    @property
    def mode(self):
        a, b = td.clip(self.concentration1 - 1, 0.0), td.clip(self.concentration0 - 1, 0.0)
        both = (self.concentration1 < 1) & (self.concentration0 < 1)  # two peaks, at 0 and 1: the higher
        higher = (self.concentration1 > self.concentration0).to(a.dtype)
        return td.where(both, higher, a / td.where(both, 1.0, a + b))

    variance = property(lambda self: self.concentration1 * self.concentration0 / (self._total**2 * (self._total + 1)))

    def rsample(self, sample_shape=()):
        shape = self.shape_of(sample_shape)
        one, other = (
            standard_gamma(self.concentration1.expand(shape)),
            standard_gamma(self.concentration0.expand(shape)),
        )
        return one / (one + other)

    def log_prob(self, value):
        value = self._value(value)
        a, b = self.concentration1, self.concentration0
        return td.special.xlogy(a - 1, value) + td.special.xlog1py(b - 1, -value) - td.special.betaln(a, b)

    def entropy(self):
        a, b, total = self.concentration1, self.concentration0, self._total
        return (
            td.special.betaln(a, b)
            - (a - 1) * td.digamma(a)
            - (b - 1) * td.digamma(b)
            + (total - 2) * td.digamma(total)
        )


class ContinuousBernoulli(_Binary, ExponentialFamily):
    """On [0, 1], with density in proportion to probs**x * (1 - probs)**(1 - x): for decoders of intensities
    (Loaiza-Ganem and Cunningham, 2019).

    lims: between these, where the formulas lose precision, they are replaced by their series at 1/2.
    """

    has_rsample = True
    support = constraints.unit_interval

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        self._lims = lims
        super().__init__(probs, logits, validate_args)

    def _inner(self):
        """probs away from 0 and 1, whether they are away from 1/2 too, and the same with those that are not replaced."""
        eps = td.finfo(self._given.dtype).eps
        p = td.clip(self.probs, eps, 1 - eps)
        away = (p <= self._lims[0]) | (p > self._lims[1])
        return p, away, td.where(away, p, self._lims[0])

    def _log_norm(self):
        p, away, cut = self._inner()
        gap = td.log(td.abs(td.log1p(-cut) - td.log(cut))) - td.log(td.abs(1 - 2 * cut))
        x = (p - 0.5) ** 2
        return td.where(away, gap, math.log(2) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self):
        p, away, cut = self._inner()
        x = p - 0.5
        near = 0.5 + (1 / 3 + 16 / 45 * x * x) * x
        return td.where(away, cut / (2 * cut - 1) + 1 / (td.log1p(-cut) - td.log(cut)), near)

    @property
    def variance(self):
        p, away, cut = self._inner()
        x = (p - 0.5) ** 2
        value = cut * (cut - 1) / (1 - 2 * cut) ** 2 + 1 / (td.log1p(-cut) - td.log(cut)) ** 2
        return td.where(away, value, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def rsample(self, sample_shape=()):
        return self.icdf(self._uniform(sample_shape, self._given))

    def log_prob(self, value):
        value = self._value(value)
        logits, value = td.broadcast_tensors(self.logits, value.to(self._given.dtype))
        loss = td.nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._log_norm() - loss

    def cdf(self, value):
        value = self._value(value)
        _, away, cut = self._inner()
        inside = (cut**value * (1 - cut) ** (1 - value) + cut - 1) / (2 * cut - 1)
        return td.where(value <= 0, 0.0, td.where(value >= 1, 1.0, td.where(away, inside, value)))

    def icdf(self, value):
        value = td.asarray(value)
        _, away, cut = self._inner()
        inside = (td.log1p(-cut + value * (2 * cut - 1)) - td.log1p(-cut)) / (td.log(cut) - td.log1p(-cut))
        return td.where(away, inside, value)

    def entropy(self):
        p, _, _ = self._inner()
        none, one = td.log1p(-p), td.log(p)
        return self.mean * (none - one) - self._log_norm() - none
