"""Distributions over counts and classes, given by probabilities or by logits."""

from __future__ import annotations

import math

import tandem as td
from tandem.distributions import constraints
from tandem.distributions.base import Distribution, ExponentialFamily, parameters
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError


def _exactly_one(name: str, probs, logits):
    if (probs is None) == (logits is None):
        raise ValueRangeError(name, "give either probs or logits")


class _Binary(Distribution):
    """Something given by the probability of success or its log-odds, whichever was given; the other is computed when asked for."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(self, probs=None, logits=None, validate_args=None):
        _exactly_one(type(self).__name__, probs, logits)
        if probs is not None:
            (self._probs,), self._logits = parameters(probs), None
        else:
            (self._logits,), self._probs = parameters(logits), None
        self._given = self._probs if self._logits is None else self._logits
        super().__init__(self._given.shape, (), validate_args)

    def _counted(self, total_count, probs, logits, validate_args):
        """__init__ of distributions that have a number of trials as well."""
        _exactly_one(type(self).__name__, probs, logits)
        given, count = parameters(probs if probs is not None else logits, total_count)
        self.total_count = count.to(given.dtype)
        _Binary.__init__(self, *((given, None) if probs is not None else (None, given)), validate_args=validate_args)

    param_shape = property(lambda self: self._given.shape)

    @property
    def probs(self):
        return self._probs if self._probs is not None else td.sigmoid(self._logits)

    @property
    def logits(self):
        if self._logits is not None:
            return self._logits
        eps = td.finfo(self._probs.dtype).eps
        return td.logit(td.clip(self._probs, eps, 1 - eps))


class Bernoulli(_Binary, ExponentialFamily):
    """1 with probability `probs`, else 0.

    >>> td.distributions.Bernoulli(0.5).entropy()
    tensor(0.6931)
    """

    support = constraints.boolean
    has_enumerate_support = True
    mean = property(lambda self: self.probs)
    mode = property(lambda self: td.where(self.probs == 0.5, math.nan, (self.probs > 0.5).to(self.probs.dtype)))
    _natural_params = property(lambda self: (self.logits,))
    _mean_carrier_measure = 0

    def _log_normalizer(self, x):
        return td.nn.functional.softplus(x)

    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        with td.no_grad():
            return td.bernoulli(self.probs.expand(self.shape_of(sample_shape)))

    def log_prob(self, value):
        logits, value = td.broadcast_tensors(self.logits, self._value(value).to(self._given.dtype))
        return -td.nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return td.nn.functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True):
        values = td.arange(2, dtype=self._given.dtype, device=self._given.device).reshape(
            2, *(1,) * len(self.batch_shape)
        )
        return values.expand(2, *self.batch_shape) if expand else values


class Geometric(_Binary):
    """Failures before the first success."""

    support = constraints.nonnegative_integer
    mode = property(lambda self: td.zeros_like(self._given))
    mean = property(lambda self: 1 / self.probs - 1)
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape=()):
        with td.no_grad():
            u = td.rand(self.shape_of(sample_shape), dtype=self._given.dtype, device=self._given.device)
            return td.floor(td.log1p(-u) / td.log1p(-self.probs))

    def log_prob(self, value):
        value = self._value(value)
        return td.special.xlog1py(value, -self.probs) + td.log(self.probs)

    def entropy(self):
        return td.nn.functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(_Binary):
    """Successes among `total_count` trials."""

    arg_constraints = _Binary.arg_constraints | {"total_count": constraints.nonnegative_integer}
    has_enumerate_support = True

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        self._counted(total_count, probs, logits, validate_args)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: td.minimum(td.floor((self.total_count + 1) * self.probs), self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        shape = self.shape_of(sample_shape)
        with td.no_grad():
            return td.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        n, k = self.total_count, self._value(value).to(self._given.dtype)
        ways = td.lgamma(n + 1) - td.lgamma(k + 1) - td.lgamma(n - k + 1)
        return ways + td.special.xlogy(k, self.probs) + td.special.xlog1py(n - k, -self.probs)

    def _all_counts(self):
        """0 to total_count, which must be one number, along a new first axis."""
        most = int(self.total_count.max().item())
        if int(self.total_count.min().item()) != most:
            raise UnsupportedError("Binomial", "values of different total counts are not enumerated together")
        values = td.arange(most + 1, dtype=self._given.dtype, device=self._given.device)
        return values.reshape(-1, *(1,) * len(self.batch_shape))

    def entropy(self):
        return -(td.exp(each := self.log_prob(self._all_counts())) * each).sum(0)

    def enumerate_support(self, expand: bool = True):
        values = self._all_counts()
        return values.expand(-1, *self.batch_shape) if expand else values


class NegativeBinomial(_Binary):
    """Successes before `total_count` failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        self._counted(total_count, probs, logits, validate_args)

    mean = property(lambda self: self.total_count * td.exp(self.logits))
    mode = property(lambda self: td.clip(td.floor((self.total_count - 1) * td.exp(self.logits)), 0.0))
    variance = property(lambda self: self.mean / td.sigmoid(-self.logits))

    def sample(self, sample_shape=()):
        shape = self.shape_of(sample_shape)
        with td.no_grad():
            rate = td.random.gamma(self.total_count.expand(shape), dtype=self._given.dtype) * td.exp(self.logits)
            return td.poisson(rate)

    def log_prob(self, value):
        n, k = self.total_count, self._value(value).to(self._given.dtype)
        log_probs = n * td.nn.functional.logsigmoid(-self.logits) + k * td.nn.functional.logsigmoid(self.logits)
        return log_probs + td.lgamma(n + k) - td.lgamma(k + 1) - td.lgamma(n)


class Poisson(ExponentialFamily):
    """Of counts of independent events that come at a rate."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    mode = property(lambda self: td.floor(self.rate))
    entropy = Distribution.entropy  # the expectation of log(x!) has no closed form
    _natural_params = property(lambda self: (td.log(self.rate),))

    def _log_normalizer(self, x):
        return td.exp(x)

    def __init__(self, rate, validate_args=None):
        (self.rate,) = parameters(rate)
        super().__init__(self.rate.shape, (), validate_args)

    mean = property(lambda self: self.rate)
    variance = property(lambda self: self.rate)

    def sample(self, sample_shape=()):
        with td.no_grad():
            return td.poisson(self.rate.expand(self.shape_of(sample_shape)))

    def log_prob(self, value):
        value = self._value(value).to(self.rate.dtype)
        return td.special.xlogy(value, self.rate) - self.rate - td.lgamma(value + 1)


class Categorical(Distribution):
    """One class of several: the last axis of `probs` (which need not add up to 1) or `logits`.

    >>> td.distributions.Categorical(probs=td.tensor([0.25, 0.75])).log_prob(td.tensor(1))
    tensor(-0.2877)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

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
        self._num_events, self.param_shape = given.shape[-1], given.shape
        super().__init__(given.shape[:-1], (), validate_args)

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

    mean = property(lambda self: td.full_like(self.probs[..., 0], math.nan))
    variance = property(lambda self: td.full_like(self.probs[..., 0], math.nan))
    mode = property(lambda self: self.probs.argmax(-1))

    def sample(self, sample_shape=()):
        with td.no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            count = math.prod(sample_shape)
            drawn = td.multinomial(rows, count, replacement=True)
            return drawn.mT.reshape(self.shape_of(sample_shape))

    def log_prob(self, value):
        return self._log_prob_of(self._value(value).to(td.int64))

    def _log_prob_of(self, value):
        shape = td.broadcast_shapes(value.shape, self.batch_shape)
        logits = self.logits.expand(*shape, self._num_events)
        return td.take_along_axis(logits, value.expand(shape)[..., None], -1)[..., 0]

    def entropy(self):
        smallest = td.finfo(self.logits.dtype).min  # -inf * 0 is no entropy
        return -(td.clip(self.logits, smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True):
        values = td.arange(self._num_events, device=self.logits.device).reshape(-1, *(1,) * len(self.batch_shape))
        return values.expand(-1, *self.batch_shape) if expand else values


class OneHotCategorical(Categorical):
    """Categorical with classes written as one-hot vectors."""

    support = constraints.one_hot
    mode = property(lambda self: td.nn.functional.one_hot(self.probs.argmax(-1), self._num_events).to(self.probs.dtype))

    def __init__(self, probs=None, logits=None, validate_args=None):
        super().__init__(probs, logits, validate_args)
        self._event_shape = td.Size((self._num_events,))

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        index = Categorical(probs=self.probs).sample(sample_shape)
        return td.nn.functional.one_hot(index, self._num_events).to(self.probs.dtype)

    def log_prob(self, value):
        return self._log_prob_of(self._value(value).argmax(-1))

    def enumerate_support(self, expand: bool = True):
        values = td.eye(self._num_events, dtype=self.probs.dtype, device=self.probs.device)
        values = values.reshape(self._num_events, *(1,) * len(self.batch_shape), self._num_events)
        return values.expand(-1, *self.batch_shape, -1) if expand else values


class Multinomial(Distribution):
    """How often each class came up in `total_count` draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    def __init__(self, total_count: int = 1, probs=None, logits=None, validate_args=None):
        self.total_count = int(total_count)
        self._one = Categorical(probs, logits, validate_args)
        super().__init__(self._one.batch_shape, (self._one._num_events,), validate_args)

    probs = property(lambda self: self._one.probs)
    logits = property(lambda self: self._one.logits)
    param_shape = property(lambda self: self._one.param_shape)
    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        index = self._one.sample((self.total_count, *sample_shape))
        return td.nn.functional.one_hot(index, self.event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value):
        value = self._value(value).to(self.probs.dtype)
        ways = td.lgamma(value.sum(-1) + 1) - td.lgamma(value + 1).sum(-1)
        return ways + td.special.xlogy(value, self.probs).sum(-1)

    def entropy(self):
        n = td.tensor(float(self.total_count), dtype=self.probs.dtype, device=self.probs.device)
        each = Binomial(self.total_count, probs=self.probs)
        counts = each._all_counts()[1:]
        repeated = (td.exp(each.log_prob(counts)) * td.lgamma(counts + 1)).sum((0, -1))
        return self.total_count * self._one.entropy() - td.lgamma(n + 1) + repeated
