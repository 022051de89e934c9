"""Continuous distributions of any number, and Uniform."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import LOG_TWO_PI, Distribution, ExponentialFamily, parameters
from tandem.distributions.positive import EULER, standard_gamma
from tandem.errors import ValueRangeError


class _LocationScale(Distribution):
    """loc + scale * (a standard variable)."""

    has_rsample = True
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = parameters(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    def _standard(self, value):
        return (value - self.loc) / self.scale

    def rsample(self, sample_shape=()):
        return self.icdf(self._uniform(sample_shape, self.loc))


class Normal(_LocationScale, ExponentialFamily):
    """The normal distribution.

    >>> td.distributions.Normal(0.0, 1.0).log_prob(td.tensor(0.0))
    tensor(-0.9189)
    """

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: self.scale * self.scale)
    stddev = property(lambda self: self.scale)
    _natural_params = property(lambda self: (self.loc / self.scale**2, -0.5 / self.scale**2))
    _mean_carrier_measure = 0

    def _log_normalizer(self, x, y):
        return -0.25 * x * x / y + 0.5 * td.log(-math.pi / y)

    def rsample(self, sample_shape=()):
        return self.loc + self.scale * td.randn(
            self.shape_of(sample_shape), dtype=self.loc.dtype, device=self.loc.device
        )

    def log_prob(self, value):
        value = self._value(value)
        z = self._standard(value)
        return -0.5 * z * z - td.log(self.scale) - 0.5 * LOG_TWO_PI

    def entropy(self):
        return 0.5 + 0.5 * LOG_TWO_PI + td.log(self.scale)

    def cdf(self, value):
        value = self._value(value)
        return td.special.ndtr(self._standard(value))

    def icdf(self, value):
        value = td.asarray(value)
        return self.loc + self.scale * td.special.ndtri(value)


class Laplace(_LocationScale):
    """Two exponential distributions back to back: density exp(-|x - loc| / scale) / (2 * scale)."""

    mode = property(lambda self: self.loc)
    mean = property(lambda self: self.loc)
    variance = property(lambda self: 2 * self.scale * self.scale)

    def log_prob(self, value):
        value = self._value(value)
        return -td.abs(self._standard(value)) - td.log(2 * self.scale)

    def entropy(self):
        return 1 + td.log(2 * self.scale)

    def cdf(self, value):
        value = self._value(value)
        z = self._standard(value)
        return 0.5 - 0.5 * td.sign(z) * td.expm1(-td.abs(z))

    def icdf(self, value):
        value = td.asarray(value)
        centred = value - 0.5
        return self.loc - self.scale * td.sign(centred) * td.log1p(-2 * td.abs(centred))


class Cauchy(_LocationScale):
    """Heavy tails, without a mean: density proportional to 1 / (1 + ((x - loc) / scale) ** 2)."""

    mode = property(lambda self: self.loc)
    mean = property(lambda self: td.full_like(self.loc, math.nan))
    variance = property(lambda self: td.full_like(self.loc, math.inf))

    def log_prob(self, value):
        value = self._value(value)
        z = self._standard(value)
        return -math.log(math.pi) - td.log(self.scale) - td.log1p(z * z)

    def entropy(self):
        return math.log(4 * math.pi) + td.log(self.scale)

    def cdf(self, value):
        value = self._value(value)
        return td.atan(self._standard(value)) / math.pi + 0.5

    def icdf(self, value):
        value = td.asarray(value)
        return self.loc + self.scale * td.tan(math.pi * (value - 0.5))


class Gumbel(_LocationScale):
    """Of the largest of many samples: the cumulative distribution is exp(-exp(-(x - loc) / scale))."""

    mode = property(lambda self: self.loc)
    mean = property(lambda self: self.loc + EULER * self.scale)
    variance = property(lambda self: (math.pi**2 / 6) * self.scale * self.scale)

    def log_prob(self, value):
        value = self._value(value)
        z = self._standard(value)
        return -z - td.exp(-z) - td.log(self.scale)

    def entropy(self):
        return td.log(self.scale) + 1 + EULER

    def cdf(self, value):
        value = self._value(value)
        return td.exp(-td.exp(-self._standard(value)))

    def icdf(self, value):
        value = td.asarray(value)
        return self.loc - self.scale * td.log(-td.log(value))


class Uniform(Distribution):
    """Even on [low, high)."""

    has_rsample = True
    arg_constraints = {"low": constraints.dependent, "high": constraints.dependent}

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = parameters(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ValueRangeError("Uniform", "low must be less than high everywhere")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(self.low, self.high)

    mean = property(lambda self: (self.low + self.high) / 2)
    mode = property(lambda self: td.full_like(self.low, math.nan))
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def rsample(self, sample_shape=()):
        u = td.rand(self.shape_of(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value):
        value = self._value(value)
        inside = td.logical_and(value >= self.low, value < self.high)
        width = -td.log(self.high - self.low)
        return td.where(inside, width, td.full_like(width, -math.inf))

    def entropy(self):
        return td.log(self.high - self.low)

    def cdf(self, value):
        value = self._value(value)
        return td.clip((value - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value):
        value = td.asarray(value)
        return self.low + value * (self.high - self.low)


class StudentT(Distribution):
    """Student's t-distribution with df degrees of freedom, moved by loc and stretched by scale."""

    has_rsample = True
    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = parameters(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    mode = property(lambda self: self.loc)
    mean = property(lambda self: td.where(self.df > 1, self.loc, td.full_like(self.loc, math.nan)))

    @property
    def variance(self):
        spread = self.scale * self.scale * self.df / (self.df - 2)
        infinite = td.where(self.df > 1, td.full_like(spread, math.inf), td.full_like(spread, math.nan))
        return td.where(self.df > 2, spread, infinite)

    def rsample(self, sample_shape=()):
        shape = self.shape_of(sample_shape)
        normal = td.randn(shape, dtype=self.df.dtype, device=self.df.device)
        chi2 = 2 * standard_gamma((self.df / 2).expand(shape))
        return self.loc + self.scale * normal * td.rsqrt(chi2 / self.df)

    def log_prob(self, value):
        value = self._value(value)
        z = (value - self.loc) / self.scale
        half = (self.df + 1) / 2
        norm = td.log(self.scale) + 0.5 * td.log(self.df * math.pi) + td.lgamma(self.df / 2) - td.lgamma(half)
        return -half * td.log1p(z * z / self.df) - norm

    def entropy(self):
        half, rest = (self.df + 1) / 2, self.df / 2
        spread = 0.5 * td.log(self.df) + td.special.betaln(rest, td.full_like(rest, 0.5)) + td.log(self.scale)
        return half * (td.digamma(half) - td.digamma(rest)) + spread


class _Half(Distribution):
    """The absolute value of a variable around 0."""

    has_rsample = True
    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, scale, validate_args=None):
        (self.scale,) = parameters(scale)
        self.base_dist = self.base(td.zeros_like(self.scale), self.scale)
        super().__init__(self.scale.shape, (), validate_args)

    mode = property(lambda self: td.zeros_like(self.scale))

    def rsample(self, sample_shape=()):
        return td.abs(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        value = self._value(value)
        return td.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)

    def cdf(self, value):
        value = self._value(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value):
        value = td.asarray(value)
        return self.base_dist.icdf((value + 1) / 2)


class HalfNormal(_Half):
    """The absolute value of a normal variable."""

    base = Normal
    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale * self.scale * (1 - 2 / math.pi))


class HalfCauchy(_Half):
    """The absolute value of a Cauchy variable."""

    base = Cauchy
    mean = property(lambda self: td.full_like(self.scale, math.inf))
    variance = property(lambda self: td.full_like(self.scale, math.inf))
