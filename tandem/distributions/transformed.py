"""Distributions of transformed values: TransformedDistribution, and families that are made so."""

from __future__ import annotations

import copy
import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import Distribution, Independent, parameters
from tandem.distributions.continuous import Normal, Uniform
from tandem.distributions.positive import EULER, Gamma
from tandem.distributions.transform_base import ComposeTransform, Transform, sum_last
from tandem.distributions.transforms import (
    AffineTransform,
    ExpTransform,
    PowerTransform,
    StickBreakingTransform,
)
from tandem.errors import ShapeError


class TransformedDistribution(Distribution):
    """The distribution of transforms(x), x being distributed as base_distribution.

    >>> log_normal = td.distributions.TransformedDistribution(td.distributions.Normal(0.0, 1.0), td.distributions.ExpTransform())
    >>> log_normal.log_prob(td.tensor(1.0))
    tensor(-0.9189)
    """

    def __init__(self, base_distribution: Distribution, transforms, validate_args=None):
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for t in self.transforms:
            if not isinstance(t, Transform):
                raise TypeError(f"transforms must be Transforms; there is a {type(t).__name__}")
        whole = ComposeTransform(self.transforms)
        base, event = base_distribution, len(base_distribution.event_shape)
        shape = base.batch_shape + base.event_shape
        if len(shape) < whole.domain.event_dim:
            raise ShapeError(
                "TransformedDistribution",
                f"the base has values of shape {shape}; the transform is of {whole.domain.event_dim} axes",
            )
        after = whole.forward_shape(shape)
        needed = whole.inverse_shape(after)  # larger where the transform's own settings have a batch
        if needed != shape:
            base = base.expand(needed[: len(needed) - event])
        more = whole.domain.event_dim - event
        self.base_dist = Independent(base, more) if more > 0 else base
        split = len(after) - (whole.codomain.event_dim + max(event - whole.domain.event_dim, 0))
        super().__init__(after[:split], after[split:], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property(is_discrete=False)
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        own = self.transforms[-1].codomain
        more = len(self.event_shape) - own.event_dim
        return constraints.independent(own, more) if more > 0 else own

    def expand(self, batch_shape, _instance=None):
        batch, made = tuple(batch_shape), super().expand(batch_shape)
        shape = ComposeTransform(self.transforms).inverse_shape(batch + self.event_shape)
        made.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        made.transforms = [copy.copy(t) for t in self.transforms]
        return made

    def sample(self, sample_shape=()):
        with td.no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=()):
        return self._through(self.base_dist.rsample(sample_shape))

    def _through(self, x):
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value):
        y = self._value(value)
        total, event = 0.0, len(self.event_shape)
        for t in reversed(self.transforms):
            x = t.inv(y)
            event += t.domain.event_dim - t.codomain.event_dim
            total = total - sum_last(t.log_abs_det_jacobian(x, y), event - t.domain.event_dim)
            y = x
        return total + sum_last(self.base_dist.log_prob(y), event - len(self.base_dist.event_shape))

    def _monotone(self, value):
        """A probability, counted from the other end where the transforms turn the order round."""
        sign = 1
        for t in self.transforms:
            sign = sign * t.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value):
        value = self._value(value)
        for t in reversed(self.transforms):
            value = t.inv(value)
        return self._monotone(self.base_dist.cdf(value))

    def icdf(self, value):
        return self._through(self.base_dist.icdf(self._monotone(td.asarray(value))))


class LogNormal(TransformedDistribution):
    """exp of a normal variable with mean `loc` and deviation `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: td.exp(self.loc + self.scale * self.scale / 2))
    mode = property(lambda self: td.exp(self.loc - self.scale * self.scale))

    @property
    def variance(self):
        square = self.scale * self.scale
        return td.expm1(square) * td.exp(2 * self.loc + square)

    def entropy(self):
        return self.base_dist.entropy() + self.loc


class InverseGamma(TransformedDistribution):
    """1 over a Gamma variable."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration, rate, validate_args=None):
        base = Gamma(concentration, rate, validate_args)
        super().__init__(
            base, PowerTransform(td.tensor(-1.0, dtype=base.rate.dtype, device=base.rate.device)), validate_args
        )

    concentration = property(lambda self: self.base_dist.concentration)
    rate = property(lambda self: self.base_dist.rate)
    mode = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def mean(self):
        return td.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def variance(self):
        a = self.concentration
        return td.where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)

    def entropy(self):
        a = self.concentration
        return a + td.log(self.rate) + td.lgamma(a) - (1 + a) * td.digamma(a)


class Kumaraswamy(TransformedDistribution):
    """On [0, 1], much like Beta, with a distribution function of closed form: 1 - (1 - x**concentration1)**concentration0."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = a, b = parameters(concentration1, concentration0)
        flips = [PowerTransform(1 / b), AffineTransform(1.0, -1.0), PowerTransform(1 / a)]
        super().__init__(Uniform(td.zeros_like(a), td.ones_like(a)), flips, validate_args)

    def expand(self, batch_shape, _instance=None):
        a, b = (c.expand(tuple(batch_shape)) for c in (self.concentration1, self.concentration0))
        return Kumaraswamy(a, b, self._validate_args)

    def _moment(self, n: int):
        more = 1 + n / self.concentration1
        return self.concentration0 * td.exp(td.special.betaln(more, self.concentration0))

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self._moment(1) ** 2)

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & (a * b > 1)
        value = (td.where(inside, a - 1, 1.0) / td.where(inside, a * b - 1, 1.0)) ** (1 / a)
        return td.where(inside, value, math.nan)

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        return (1 - 1 / b) + (1 - 1 / a) * (td.digamma(b + 1) + EULER) - td.log(a) - td.log(b)


class LogisticNormal(TransformedDistribution):
    """Normal numbers made probabilities by breaking a stick: events have one element more than loc and scale."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform(), validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)
