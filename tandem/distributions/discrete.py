"""Distributions over counts and classes, given by probabilities or by logits."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions.base import POSITIVE, Distribution, parameters
from tandem.errors import ShapeError, ValueRangeError

IN_UNIT = ("in [0, 1]", lambda p: td.logical_and(p >= 0, p <= 1))


def _exactly_one(name: str, probs, logits):
    if (probs is None) == (logits is None):
        raise ValueRangeError(name, "give either probs or logits")


class _Binary(Distribution):
    """Something given by the probability of success or its log-odds, whichever was given; the other is computed when asked for."""

    checks = {"probs": IN_UNIT}

    def __init__(self, probs=None, logits=None, validate_args=None):
        _exactly_one(type(self).__name__, probs, logits)
        if probs is not None:
            (self._probs,), self._logits = parameters(probs), None
        else:
            (self._logits,), self._probs = parameters(logits), None
        self._given = self._probs if self._logits is None else self._logits
        super().__init__(self._given.shape, (), validate_args)

    @property
    def probs(self):
        return self._probs if self._probs is not None else td.sigmoid(self._logits)

    @property
    def logits(self):
        if self._logits is not None:
            return self._logits
        eps = td.finfo(self._probs.dtype).eps
        return td.logit(td.clip(self._probs, eps, 1 - eps))


class Bernoulli(_Binary):
    """1 with probability `probs`, else 0.

    >>> td.distributions.Bernoulli(0.5).entropy()
    tensor(0.6931)
    """

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        with td.no_grad():
            return td.bernoulli(self.probs.expand(self.shape_of(sample_shape)))

    def log_prob(self, value):
        logits, value = td.broadcast_tensors(self.logits, td.asarray(value, dtype=self._given.dtype))
        return -td.nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return td.nn.functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True):
        values = td.arange(2, dtype=self._given.dtype).reshape(2, *(1,) * len(self.batch_shape))
        return values.expand(2, *self.batch_shape) if expand else values


class Geometric(_Binary):
    """Failures before the first success."""

    mean = property(lambda self: 1 / self.probs - 1)
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape=()):
        with td.no_grad():
            u = td.rand(self.shape_of(sample_shape), dtype=self._given.dtype, device=self._given.device)
            return td.floor(td.log1p(-u) / td.log1p(-self.probs))

    def log_prob(self, value):
        return td.special.xlog1py(value, -self.probs) + td.log(self.probs)

    def entropy(self):
        return td.nn.functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(_Binary):
    """Successes among `total_count` trials."""

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        super().__init__(probs, logits, validate_args)
        count, _ = parameters(total_count, self._given)
        self.total_count = count
        self.batch_shape = tuple(count.shape)

    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        shape = self.shape_of(sample_shape)
        with td.no_grad():
            return td.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        n, k = self.total_count, td.asarray(value, dtype=self._given.dtype)
        ways = td.lgamma(n + 1) - td.lgamma(k + 1) - td.lgamma(n - k + 1)
        return ways + td.special.xlogy(k, self.probs) + td.special.xlog1py(n - k, -self.probs)


class NegativeBinomial(_Binary):
    """Successes before `total_count` failures."""

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        super().__init__(probs, logits, validate_args)
        self.total_count, _ = parameters(total_count, self._given)
        self.batch_shape = tuple(self.total_count.shape)

    mean = property(lambda self: self.total_count * td.exp(self.logits))
    variance = property(lambda self: self.mean / td.sigmoid(-self.logits))

    def sample(self, sample_shape=()):
        shape = self.shape_of(sample_shape)
        with td.no_grad():
            rate = td.random.gamma(self.total_count.expand(shape), dtype=self._given.dtype) * td.exp(self.logits)
            return td.poisson(rate)

    def log_prob(self, value):
        n, k = self.total_count, td.asarray(value, dtype=self._given.dtype)
        log_probs = n * td.nn.functional.logsigmoid(-self.logits) + k * td.nn.functional.logsigmoid(self.logits)
        return log_probs + td.lgamma(n + k) - td.lgamma(k + 1) - td.lgamma(n)


class Poisson(Distribution):
    checks = {"rate": ("at least 0", lambda r: r >= 0)}

    def __init__(self, rate, validate_args=None):
        (self.rate,) = parameters(rate)
        super().__init__(self.rate.shape, (), validate_args)

    mean = property(lambda self: self.rate)
    variance = property(lambda self: self.rate)

    def sample(self, sample_shape=()):
        with td.no_grad():
            return td.poisson(self.rate.expand(self.shape_of(sample_shape)))

    def log_prob(self, value):
        value = td.asarray(value, dtype=self.rate.dtype)
        return td.special.xlogy(value, self.rate) - self.rate - td.lgamma(value + 1)


class Categorical(Distribution):
    """One class of several: the last axis of `probs` (which need not add up to 1) or `logits`.

    >>> td.distributions.Categorical(probs=td.tensor([0.25, 0.75])).log_prob(td.tensor(1))
    tensor(-0.2877)
    """

    checks = {"probs": IN_UNIT}

    def __init__(self, probs=None, logits=None, validate_args=None):
        _exactly_one("Categorical", probs, logits)
        (given,) = parameters(probs if probs is not None else logits)
        if given.ndim < 1:
            raise ShapeError(
                "Categorical",
                f"{'probs' if probs is not None else 'logits'} must have an axis of classes; it is a number",
            )
        self._probs = given / given.sum(-1, keepdims=True) if probs is not None else None
        self._logits = given - td.logsumexp(given, -1, keepdims=True) if probs is None else None
        super().__init__(given.shape[:-1], (), validate_args)
        self._num_events = given.shape[-1]

    @property
    def probs(self):
        return self._probs if self._probs is not None else td.exp(self._logits)

    @property
    def logits(self):
        """Normalised: logarithms of probabilities."""
        if self._logits is not None:
            return self._logits
        eps = td.finfo(self._probs.dtype).eps
        return td.log(td.clip(self._probs, eps, 1 - eps))

    mean = property(lambda self: td.full(self.batch_shape, math.nan))
    variance = property(lambda self: td.full(self.batch_shape, math.nan))
    mode = property(lambda self: self.probs.argmax(-1))

    def sample(self, sample_shape=()):
        with td.no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            count = math.prod(sample_shape)
            drawn = td.multinomial(rows, count, replacement=True)
            return drawn.mT.reshape(self.shape_of(sample_shape))

    def log_prob(self, value):
        value = td.asarray(value).to(td.int64)
        shape = td.broadcast_shapes(value.shape, self.batch_shape)
        logits = self.logits.expand(*shape, self._num_events)
        return td.take_along_axis(logits, value.expand(shape)[..., None], -1)[..., 0]

    def entropy(self):
        smallest = td.finfo(self.logits.dtype).min  # -inf * 0 is no entropy
        return -(td.clip(self.logits, smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True):
        values = td.arange(self._num_events).reshape(-1, *(1,) * len(self.batch_shape))
        return values.expand(-1, *self.batch_shape) if expand else values


class OneHotCategorical(Categorical):
    """Categorical with classes written as one-hot vectors."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        super().__init__(probs, logits, validate_args)
        self.event_shape = (self._num_events,)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        index = Categorical(probs=self.probs).sample(sample_shape)
        return td.nn.functional.one_hot(index, self._num_events).to(self.probs.dtype)

    def log_prob(self, value):
        return super().log_prob(td.asarray(value).argmax(-1))

    def enumerate_support(self, expand: bool = True):
        raise self._missing("enumerate_support")


class RelaxedOneHotCategorical(Distribution):
    """One-hot vectors made continuous (Gumbel-softmax), with gradients; sharper the lower the temperature."""

    has_rsample = True
    checks = {"temperature": POSITIVE}

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = Categorical(probs, logits)
        self.probs, self.logits = base.probs, base.logits
        (self.temperature,) = parameters(temperature)
        super().__init__(base.batch_shape, (base._num_events,), validate_args)

    def rsample(self, sample_shape=()):
        u = td.rand(self.shape_of(sample_shape), dtype=self.logits.dtype, device=self.logits.device)
        tiny = td.finfo(u.dtype).eps
        noise = -td.log(-td.log(td.clip(u, tiny, 1 - tiny)))
        return td.softmax((self.logits + noise) / self.temperature, -1)

    def log_prob(self, value):
        classes = self.event_shape[0]
        score = self.logits - self.temperature * td.log(value)
        score = (score - td.logsumexp(score, -1, keepdims=True)).sum(-1)
        return score + math.lgamma(classes) + (classes - 1) * td.log(self.temperature) - td.log(value).sum(-1)


class Multinomial(Distribution):
    """How often each class came up in `total_count` draws."""

    def __init__(self, total_count: int = 1, probs=None, logits=None, validate_args=None):
        self.total_count = int(total_count)
        self._one = Categorical(probs, logits, validate_args)
        super().__init__(self._one.batch_shape, (self._one._num_events,))

    probs = property(lambda self: self._one.probs)
    logits = property(lambda self: self._one.logits)
    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        index = self._one.sample((self.total_count, *sample_shape))
        return td.nn.functional.one_hot(index, self.event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value):
        value = td.asarray(value, dtype=self.probs.dtype)
        ways = td.lgamma(value.sum(-1) + 1) - td.lgamma(value + 1).sum(-1)
        return ways + td.special.xlogy(value, self.probs).sum(-1)
