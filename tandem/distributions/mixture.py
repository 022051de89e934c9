"""Mixtures of distributions of one family."""

from __future__ import annotations

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import Distribution
from tandem.distributions.discrete import Categorical
from tandem.errors import ShapeError


class MixtureSameFamily(Distribution):
    """One of the components, the last axis of their batch, chosen by a Categorical.

    >>> mix = td.distributions.Categorical(probs=td.tensor([0.5, 0.5]))
    >>> d = td.distributions.MixtureSameFamily(mix, td.distributions.Normal(td.tensor([-1.0, 1.0]), 1.0))
    >>> d.mean
    tensor(0.)
    """

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args=None):
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        batch, count = component_distribution.batch_shape, mixture_distribution.probs.shape[-1]
        if not batch or batch[-1] != count:
            raise ShapeError(
                "MixtureSameFamily", f"{count} weights need components whose batch ends in {count}; it is {batch}"
            )
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    def expand(self, batch_shape, _instance=None):
        count = self.component_distribution.batch_shape[-1]
        mixture = self.mixture_distribution
        mixture = mixture.expand(batch_shape) if mixture.batch_shape else mixture
        return MixtureSameFamily(
            mixture, self.component_distribution.expand((*batch_shape, count)), self._validate_args
        )

    def _weights(self):
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *(1,) * len(self.event_shape))

    def _axis(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self):
        return (self._weights() * self.component_distribution.mean).sum(self._axis())

    @property
    def variance(self):
        mean, variance = self.component_distribution.mean, self.component_distribution.variance
        gap = mean - td.unsqueeze(self.mean, self._axis())
        return (self._weights() * (variance + gap * gap)).sum(self._axis())

    def sample(self, sample_shape=()):
        with td.no_grad():
            chosen = self.mixture_distribution.sample(sample_shape)
            values = self.component_distribution.sample(sample_shape)
            chosen = chosen.expand(*sample_shape, *self.batch_shape)
            index = chosen.reshape(*chosen.shape, *(1,) * (1 + len(self.event_shape)))
            index = index.expand(*chosen.shape, 1, *self.event_shape)
            return td.take_along_axis(values, index, self._axis()).squeeze(self._axis())

    def log_prob(self, x):
        value = self._value(x)
        each = self.component_distribution.log_prob(td.unsqueeze(value, self._axis()))
        return td.logsumexp(each + self.mixture_distribution.logits, -1)

    def cdf(self, x):
        each = self.component_distribution.cdf(td.unsqueeze(self._value(x), self._axis()))
        return (each * self.mixture_distribution.probs).sum(-1)
