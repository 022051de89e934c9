"""Continuous stand-ins for discrete variables, with gradients; sharper the lower the temperature."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import Distribution, parameters
from tandem.distributions.discrete import Categorical, OneHotCategorical, _Binary
from tandem.distributions.transformed import TransformedDistribution
from tandem.distributions.transforms import SigmoidTransform


class LogitRelaxedBernoulli(_Binary):
    """The log-odds of a RelaxedBernoulli."""

    has_rsample = True
    support = constraints.real

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        (self._temperature,) = parameters(temperature)
        super().__init__(probs, logits, validate_args)
        self._temperature = self._temperature.to(self._given.dtype)

    temperature = property(lambda self: self._temperature)

    def expand(self, batch_shape, _instance=None):
        made = super().expand(batch_shape)
        made._temperature = self._temperature
        return made

    def rsample(self, sample_shape=()):
        u = self._uniform(sample_shape, self._given)
        return (td.log(u) - td.log1p(-u) + self.logits) / self.temperature

    def log_prob(self, value):
        gap = self.logits - self._value(value) * self.temperature
        return td.log(self.temperature) + gap - 2 * td.nn.functional.softplus(gap)


class RelaxedBernoulli(TransformedDistribution):
    """A Bernoulli variable made continuous on (0, 1) (Maddison et al., 2017; Jang et al., 2017)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits, validate_args), SigmoidTransform())

    temperature = property(lambda self: self.base_dist.temperature)
    probs = property(lambda self: self.base_dist.probs)
    logits = property(lambda self: self.base_dist.logits)


class RelaxedOneHotCategorical(Distribution):
    """One-hot vectors made continuous (Gumbel-softmax), with gradients."""

    has_rsample = True
    arg_constraints = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
        "temperature": constraints.positive,
    }
    support = constraints.simplex

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self._one = Categorical(probs, logits, validate_args)
        (self.temperature,) = parameters(temperature)
        super().__init__(self._one.batch_shape, (self._one._num_events,), validate_args)

    probs = property(lambda self: self._one.probs)
    logits = property(lambda self: self._one.logits)

    def expand(self, batch_shape, _instance=None):
        made = super().expand(batch_shape)
        made.temperature = self.temperature
        return made

    def rsample(self, sample_shape=()):
        noise = -td.log(-td.log(self._uniform(sample_shape, self.logits)))
        return td.softmax((self.logits + noise) / self.temperature, -1)

    def log_prob(self, value):
        value = self._value(value)
        classes = self.event_shape[0]
        score = self.logits - self.temperature * td.log(value)
        score = (score - td.logsumexp(score, -1, keepdims=True)).sum(-1)
        return score + math.lgamma(classes) + (classes - 1) * td.log(self.temperature) - td.log(value).sum(-1)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot samples whose gradient is that of the probabilities (Bengio et al., 2013)."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())
