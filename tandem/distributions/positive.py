"""Continuous distributions of positive numbers."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import Distribution, ExponentialFamily, parameters

EULER = 0.5772156649015329


class Exponential(ExponentialFamily):
    """Of waiting times between events that come at a rate."""

    has_rsample = True
    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, rate, validate_args=None):
        (self.rate,) = parameters(rate)
        super().__init__(self.rate.shape, (), validate_args)

    mean = property(lambda self: 1 / self.rate)
    mode = property(lambda self: td.zeros_like(self.rate))
    stddev = property(lambda self: 1 / self.rate)
    _natural_params = property(lambda self: (-self.rate,))
    _mean_carrier_measure = 0

    def _log_normalizer(self, x):
        return -td.log(-x)

    variance = property(lambda self: 1 / (self.rate * self.rate))

    def rsample(self, sample_shape=()):
        u = td.rand(self.shape_of(sample_shape), dtype=self.rate.dtype, device=self.rate.device)
        return -td.log1p(-u) / self.rate

    def log_prob(self, value):
        value = self._value(value)
        return td.log(self.rate) - self.rate * value

    def entropy(self):
        return 1 - td.log(self.rate)

    def cdf(self, value):
        value = self._value(value)
        return -td.expm1(-self.rate * value)

    def icdf(self, value):
        value = td.asarray(value)
        return -td.log1p(-value) / self.rate


def standard_gamma(concentration):
    """Gamma samples of rate 1, with gradients: the sample moves so that its quantile stays, dx = -(dF/da) / p(x) da, F(a, x)
    being the distribution function."""
    x = td.random.gamma(concentration.detach(), dtype=concentration.dtype)
    x = td.clip(x, td.finfo(x.dtype).tiny)
    if not (concentration.requires_grad and td.is_grad_enabled()):
        return x
    a = concentration.detach()
    density = td.exp((a - 1) * td.log(x) - x - td.lgamma(a))
    quantile = td.special.gammainc(concentration, x)
    return x - (quantile - quantile.detach()) / density


class Gamma(ExponentialFamily):
    """Of sums of waiting times: density proportional to x ** (concentration - 1) * exp(-rate * x)."""

    has_rsample = True
    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = parameters(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: td.clip((self.concentration - 1) / self.rate, 0.0))
    _natural_params = property(lambda self: (self.concentration - 1, -self.rate))
    _mean_carrier_measure = 0

    def _log_normalizer(self, x, y):
        return td.lgamma(x + 1) - (x + 1) * td.log(-y)

    variance = property(lambda self: self.concentration / (self.rate * self.rate))

    def rsample(self, sample_shape=()):
        return standard_gamma(self.concentration.expand(self.shape_of(sample_shape))) / self.rate

    def log_prob(self, value):
        value = self._value(value)
        a, b = self.concentration, self.rate
        return a * td.log(b) + td.special.xlogy(a - 1, value) - b * value - td.lgamma(a)

    def entropy(self):
        a = self.concentration
        return a - td.log(self.rate) + td.lgamma(a) + (1 - a) * td.digamma(a)

    def cdf(self, value):
        value = self._value(value)
        return td.special.gammainc(self.concentration, self.rate * value)


class Chi2(Gamma):
    """Of the sum of df squared standard normal numbers."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df, validate_args=None):
        (self.df,) = parameters(df)
        super().__init__(self.df / 2, td.full_like(self.df, 0.5), validate_args)


class Weibull(Distribution):
    """Of times to failure, at a rate that grows or falls with a power of time: a power of an exponential distribution."""

    has_rsample = True
    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = parameters(scale, concentration)
        super().__init__(self.scale.shape, (), validate_args)

    mean = property(lambda self: self.scale * td.exp(td.lgamma(1 + 1 / self.concentration)))

    @property
    def mode(self):
        power = 1 / self.concentration
        return self.scale * td.clip(1 - power, 0.0) ** power

    @property
    def variance(self):
        second = td.exp(td.lgamma(1 + 2 / self.concentration)) - td.exp(2 * td.lgamma(1 + 1 / self.concentration))
        return self.scale * self.scale * second

    def rsample(self, sample_shape=()):
        u = td.rand(self.shape_of(sample_shape), dtype=self.scale.dtype, device=self.scale.device)
        return self.scale * (-td.log1p(-u)) ** (1 / self.concentration)

    def log_prob(self, value):
        value = self._value(value)
        z = value / self.scale
        return td.log(self.concentration / self.scale) + (self.concentration - 1) * td.log(z) - z**self.concentration

    def entropy(self):
        return EULER * (1 - 1 / self.concentration) + td.log(self.scale / self.concentration) + 1

    def cdf(self, value):
        value = self._value(value)
        return -td.expm1(-((value / self.scale) ** self.concentration))

    def icdf(self, value):
        return self.scale * (-td.log1p(-td.asarray(value))) ** (1 / self.concentration)


class Pareto(Distribution):
    """Of numbers above scale, with a tail that falls as a power: density proportional to x ** -(alpha + 1)."""

    has_rsample = True
    arg_constraints = {"scale": constraints.positive, "alpha": constraints.positive}

    def __init__(self, scale, alpha, validate_args=None):
        self.scale, self.alpha = parameters(scale, alpha)
        super().__init__(self.scale.shape, (), validate_args)

    mode = property(lambda self: self.scale)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self):
        value = self.scale * self.alpha / (self.alpha - 1)
        return td.where(self.alpha > 1, value, td.full_like(value, math.inf))

    @property
    def variance(self):
        value = self.scale**2 * self.alpha / ((self.alpha - 1) ** 2 * (self.alpha - 2))
        return td.where(self.alpha > 2, value, td.full_like(value, math.inf))

    def rsample(self, sample_shape=()):
        u = td.rand(self.shape_of(sample_shape), dtype=self.scale.dtype, device=self.scale.device)
        return self.scale * td.exp(-td.log1p(-u) / self.alpha)

    def log_prob(self, value):
        value = self._value(value)
        return td.log(self.alpha) + self.alpha * td.log(self.scale) - (self.alpha + 1) * td.log(value)

    def entropy(self):
        return td.log(self.scale / self.alpha) + 1 + 1 / self.alpha

    def cdf(self, value):
        value = self._value(value)
        return 1 - (self.scale / value) ** self.alpha

    def icdf(self, value):
        return self.scale * td.exp(-td.log1p(-td.asarray(value)) / self.alpha)


class FisherSnedecor(Distribution):
    """The ratio of two Chi2 variables, each over its degrees of freedom."""

    has_rsample = True
    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive

    def __init__(self, df1, df2, validate_args=None):
        self.df1, self.df2 = parameters(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)

    mean = property(lambda self: td.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan))

    @property
    def mode(self):
        value = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return td.where(self.df1 > 2, value, math.nan)

    @property
    def variance(self):
        value = 2 * self.df2**2 * (self.df1 + self.df2 - 2) / (self.df1 * (self.df2 - 2) ** 2 * (self.df2 - 4))
        return td.where(self.df2 > 4, value, math.nan)

    def rsample(self, sample_shape=()):
        shape = self.shape_of(sample_shape)
        above, below = (standard_gamma((df / 2).expand(shape)) / df for df in (self.df1, self.df2))
        tiny = td.finfo(above.dtype).tiny
        return td.clip(above / td.clip(below, tiny), tiny)

    def log_prob(self, value):
        value = self._value(value)
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        inside = a * td.log(ratio) + (a - 1) * td.log(value) - (a + b) * td.log1p(ratio * value)
        return inside - td.special.betaln(a, b)


class GeneralizedPareto(Distribution):
    """Excesses over a high threshold: tails that end (concentration < 0), fall exponentially (0) or by a power (> 0)."""

    has_rsample = True
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}

    def __init__(self, loc, scale, concentration, validate_args=None):
        self.loc, self.scale, self.concentration = parameters(loc, scale, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        ends = self.concentration < 0
        end = self.loc - self.scale / td.where(ends, self.concentration, 1.0)
        return constraints.interval(self.loc, td.where(ends, end, math.inf))

    def _tail(self):
        """Where the concentration is 0, and it elsewhere, so that one may divide."""
        flat = td.abs(self.concentration) < 1e-8
        return flat, td.where(flat, 1.0, self.concentration)

    @property
    def mean(self):
        finite = self.concentration < 1
        return td.where(finite, self.loc + self.scale / (1 - td.where(finite, self.concentration, 0.5)), math.nan)

    @property
    def variance(self):
        finite = self.concentration < 0.5
        c = td.where(finite, self.concentration, 0.25)
        return td.where(finite, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    mode = property(lambda self: self.loc)

    def rsample(self, sample_shape=()):
        return self.icdf(self._uniform(sample_shape, self.loc))

    def log_survival_function(self, value):
        """log P(X > value)."""
        z = (self._value(value) - self.loc) / self.scale
        flat, c = self._tail()
        return td.where(flat, -z, -td.log1p(c * z) / c)

    def log_prob(self, value):
        z = (self._value(value) - self.loc) / self.scale
        flat, c = self._tail()
        return -td.log(self.scale) - td.where(flat, z, (1 / c + 1) * td.log1p(c * z))

    def log_cdf(self, value):
        return td.log1p(-td.exp(self.log_survival_function(value)))

    def cdf(self, value):
        return -td.expm1(self.log_survival_function(value))

    def icdf(self, value):
        logarithm = td.log1p(-td.asarray(value))
        flat, c = self._tail()
        return self.loc + self.scale * td.where(flat, -logarithm, td.expm1(-c * logarithm) / c)

    def entropy(self):
        return td.log(self.scale) + self.concentration + 1
