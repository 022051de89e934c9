"""Continuous distributions of one number."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions.base import LOG_TWO_PI, POSITIVE, Distribution, parameters

EULER = 0.5772156649015329


class _LocationScale(Distribution):
    """loc + scale * (a standard variable)."""

    has_rsample = True
    checks = {"scale": POSITIVE}

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = parameters(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    def _uniform(self, sample_shape):
        """In (0, 1): neither end, so that logarithms and quantiles are finite."""
        u = td.rand(self.shape_of(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        tiny = td.finfo(u.dtype).eps / 2
        return u * (1 - 2 * tiny) + tiny

    def _standard(self, value):
        return (value - self.loc) / self.scale

    def rsample(self, sample_shape=()):
        return self.icdf(self._uniform(sample_shape))


class Normal(_LocationScale):
    """The normal distribution.

    >>> td.distributions.Normal(0.0, 1.0).log_prob(td.tensor(0.0))
    tensor(-0.9189)
    """

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: self.scale * self.scale)
    stddev = property(lambda self: self.scale)

    def rsample(self, sample_shape=()):
        return self.loc + self.scale * td.randn(
            self.shape_of(sample_shape), dtype=self.loc.dtype, device=self.loc.device
        )

    def log_prob(self, value):
        z = self._standard(value)
        return -0.5 * z * z - td.log(self.scale) - 0.5 * LOG_TWO_PI

    def entropy(self):
        return 0.5 + 0.5 * LOG_TWO_PI + td.log(self.scale)

    def cdf(self, value):
        return td.special.ndtr(self._standard(value))

    def icdf(self, value):
        return self.loc + self.scale * td.special.ndtri(td.asarray(value))


class LogNormal(Normal):
    """exp of a normal variable with mean `loc` and deviation `scale`."""

    mean = property(lambda self: td.exp(self.loc + self.scale * self.scale / 2))
    mode = property(lambda self: td.exp(self.loc - self.scale * self.scale))

    @property
    def variance(self):
        square = self.scale * self.scale
        return td.expm1(square) * td.exp(2 * self.loc + square)

    stddev = property(lambda self: td.sqrt(self.variance))

    def rsample(self, sample_shape=()):
        return td.exp(super().rsample(sample_shape))

    def log_prob(self, value):
        logarithm = td.log(td.asarray(value))
        return super().log_prob(logarithm) - logarithm

    def entropy(self):
        return super().entropy() + self.loc

    def cdf(self, value):
        return super().cdf(td.log(td.asarray(value)))

    def icdf(self, value):
        return td.exp(super().icdf(value))


class Laplace(_LocationScale):
    mean = property(lambda self: self.loc)
    variance = property(lambda self: 2 * self.scale * self.scale)

    def log_prob(self, value):
        return -td.abs(self._standard(value)) - td.log(2 * self.scale)

    def entropy(self):
        return 1 + td.log(2 * self.scale)

    def cdf(self, value):
        z = self._standard(value)
        return 0.5 - 0.5 * td.sign(z) * td.expm1(-td.abs(z))

    def icdf(self, value):
        centred = td.asarray(value) - 0.5
        return self.loc - self.scale * td.sign(centred) * td.log1p(-2 * td.abs(centred))


class Cauchy(_LocationScale):
    mean = property(lambda self: td.full_like(self.loc, math.nan))
    variance = property(lambda self: td.full_like(self.loc, math.inf))

    def log_prob(self, value):
        z = self._standard(value)
        return -math.log(math.pi) - td.log(self.scale) - td.log1p(z * z)

    def entropy(self):
        return math.log(4 * math.pi) + td.log(self.scale)

    def cdf(self, value):
        return td.atan(self._standard(value)) / math.pi + 0.5

    def icdf(self, value):
        return self.loc + self.scale * td.tan(math.pi * (td.asarray(value) - 0.5))


class Gumbel(_LocationScale):
    mean = property(lambda self: self.loc + EULER * self.scale)
    variance = property(lambda self: (math.pi**2 / 6) * self.scale * self.scale)

    def log_prob(self, value):
        z = self._standard(value)
        return -z - td.exp(-z) - td.log(self.scale)

    def entropy(self):
        return td.log(self.scale) + 1 + EULER

    def cdf(self, value):
        return td.exp(-td.exp(-self._standard(value)))

    def icdf(self, value):
        return self.loc - self.scale * td.log(-td.log(td.asarray(value)))


class Uniform(Distribution):
    """Even on [low, high)."""

    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = parameters(low, high)
        super().__init__(self.low.shape)
        if validate_args and not bool((self.low < self.high).all()):
            from tandem.errors import ValueRangeError

            raise ValueRangeError("Uniform", "low must be less than high everywhere")

    mean = property(lambda self: (self.low + self.high) / 2)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def rsample(self, sample_shape=()):
        u = td.rand(self.shape_of(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value):
        inside = td.logical_and(value >= self.low, value < self.high)
        width = -td.log(self.high - self.low)
        return td.where(inside, width, td.full_like(width, -math.inf))

    def entropy(self):
        return td.log(self.high - self.low)

    def cdf(self, value):
        return td.clip((value - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value):
        return self.low + td.asarray(value) * (self.high - self.low)


class Exponential(Distribution):
    has_rsample = True
    checks = {"rate": POSITIVE}

    def __init__(self, rate, validate_args=None):
        (self.rate,) = parameters(rate)
        super().__init__(self.rate.shape, (), validate_args)

    mean = property(lambda self: 1 / self.rate)
    variance = property(lambda self: 1 / (self.rate * self.rate))

    def rsample(self, sample_shape=()):
        u = td.rand(self.shape_of(sample_shape), dtype=self.rate.dtype, device=self.rate.device)
        return -td.log1p(-u) / self.rate

    def log_prob(self, value):
        return td.log(self.rate) - self.rate * value

    def entropy(self):
        return 1 - td.log(self.rate)

    def cdf(self, value):
        return -td.expm1(-self.rate * value)

    def icdf(self, value):
        return -td.log1p(-td.asarray(value)) / self.rate


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


class Gamma(Distribution):
    has_rsample = True
    checks = {"concentration": POSITIVE, "rate": POSITIVE}

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = parameters(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)

    mean = property(lambda self: self.concentration / self.rate)
    variance = property(lambda self: self.concentration / (self.rate * self.rate))

    def rsample(self, sample_shape=()):
        return standard_gamma(self.concentration.expand(self.shape_of(sample_shape))) / self.rate

    def log_prob(self, value):
        value = td.asarray(value)
        a, b = self.concentration, self.rate
        return a * td.log(b) + td.special.xlogy(a - 1, value) - b * value - td.lgamma(a)

    def entropy(self):
        a = self.concentration
        return a - td.log(self.rate) + td.lgamma(a) + (1 - a) * td.digamma(a)

    def cdf(self, value):
        return td.special.gammainc(self.concentration, self.rate * value)


class Chi2(Gamma):
    def __init__(self, df, validate_args=None):
        (self.df,) = parameters(df)
        super().__init__(self.df / 2, td.full_like(self.df, 0.5), validate_args)


class Beta(Distribution):
    has_rsample = True
    checks = {"concentration1": POSITIVE, "concentration0": POSITIVE}

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = parameters(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    @property
    def _total(self):
        return self.concentration1 + self.concentration0

    mean = property(lambda self: self.concentration1 / self._total)
    variance = property(lambda self: self.concentration1 * self.concentration0 / (self._total**2 * (self._total + 1)))

    def rsample(self, sample_shape=()):
        shape = self.shape_of(sample_shape)
        one, other = (
            standard_gamma(self.concentration1.expand(shape)),
            standard_gamma(self.concentration0.expand(shape)),
        )
        return one / (one + other)

    def log_prob(self, value):
        value = td.asarray(value)
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


class StudentT(Distribution):
    has_rsample = True
    checks = {"df": POSITIVE, "scale": POSITIVE}

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = parameters(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

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
        z = (value - self.loc) / self.scale
        half = (self.df + 1) / 2
        norm = td.log(self.scale) + 0.5 * td.log(self.df * math.pi) + td.lgamma(self.df / 2) - td.lgamma(half)
        return -half * td.log1p(z * z / self.df) - norm

    def entropy(self):
        half, rest = (self.df + 1) / 2, self.df / 2
        spread = 0.5 * td.log(self.df) + td.special.betaln(rest, td.full_like(rest, 0.5)) + td.log(self.scale)
        return half * (td.digamma(half) - td.digamma(rest)) + spread


class HalfNormal(Distribution):
    """The absolute value of a normal variable."""

    has_rsample = True
    checks = {"scale": POSITIVE}

    def __init__(self, scale, validate_args=None):
        (self.scale,) = parameters(scale)
        self._base = Normal(td.zeros_like(self.scale), self.scale)
        super().__init__(self.scale.shape, (), validate_args)

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale * self.scale * (1 - 2 / math.pi))

    def rsample(self, sample_shape=()):
        return td.abs(self._base.rsample(sample_shape))

    def log_prob(self, value):
        value = td.asarray(value)
        inside = self._base.log_prob(value) + math.log(2)
        return td.where(value >= 0, inside, td.full_like(inside, -math.inf))

    def entropy(self):
        return self._base.entropy() - math.log(2)

    def cdf(self, value):
        return 2 * self._base.cdf(value) - 1

    def icdf(self, value):
        return self._base.icdf((td.asarray(value) + 1) / 2)


class HalfCauchy(HalfNormal):
    """The absolute value of a Cauchy variable."""

    def __init__(self, scale, validate_args=None):
        super().__init__(scale, validate_args)
        self._base = Cauchy(td.zeros_like(self.scale), self.scale)

    mean = property(lambda self: td.full_like(self.scale, math.inf))
    variance = property(lambda self: td.full_like(self.scale, math.inf))


class Weibull(Distribution):
    has_rsample = True
    checks = {"scale": POSITIVE, "concentration": POSITIVE}

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = parameters(scale, concentration)
        super().__init__(self.scale.shape, (), validate_args)

    mean = property(lambda self: self.scale * td.exp(td.lgamma(1 + 1 / self.concentration)))

    @property
    def variance(self):
        second = td.exp(td.lgamma(1 + 2 / self.concentration)) - td.exp(2 * td.lgamma(1 + 1 / self.concentration))
        return self.scale * self.scale * second

    def rsample(self, sample_shape=()):
        u = td.rand(self.shape_of(sample_shape), dtype=self.scale.dtype, device=self.scale.device)
        return self.scale * (-td.log1p(-u)) ** (1 / self.concentration)

    def log_prob(self, value):
        z = td.asarray(value) / self.scale
        return td.log(self.concentration / self.scale) + (self.concentration - 1) * td.log(z) - z**self.concentration

    def entropy(self):
        return EULER * (1 - 1 / self.concentration) + td.log(self.scale / self.concentration) + 1

    def cdf(self, value):
        return -td.expm1(-((td.asarray(value) / self.scale) ** self.concentration))


class Pareto(Distribution):
    has_rsample = True
    checks = {"scale": POSITIVE, "alpha": POSITIVE}

    def __init__(self, scale, alpha, validate_args=None):
        self.scale, self.alpha = parameters(scale, alpha)
        super().__init__(self.scale.shape, (), validate_args)

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
        return td.log(self.alpha) + self.alpha * td.log(self.scale) - (self.alpha + 1) * td.log(td.asarray(value))

    def entropy(self):
        return td.log(self.scale / self.alpha) + 1 + 1 / self.alpha

    def cdf(self, value):
        return 1 - (self.scale / value) ** self.alpha
