"""What every distribution has, and Independent."""

from __future__ import annotations

import math

import tandem as td
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.tensor_methods import Tensor


def parameters(*values) -> list[Tensor]:
    """Parameters as tensors of one floating type and one shape."""
    first = next((v for v in values if isinstance(v, Tensor) and v.dtype.is_inexact), None)
    like = {"dtype": first.dtype, "device": first.device} if first is not None else {"dtype": td.float32}
    made = [v if isinstance(v, Tensor) and v.dtype.is_inexact else td.asarray(v, **like) for v in values]
    return list(td.broadcast_tensors(*made)) if len(made) > 1 else made


class Distribution:
    """A family of distributions, one for each element of `batch_shape`, over values of `event_shape`.

    Subclasses set `batch_shape` and `event_shape` and define `rsample` (or `sample`, where no gradient exists), `log_prob`,
    `entropy`, `mean` and `variance`. `checks` names the parameters that must satisfy a rule: {name: (rule in words, predicate)}.
    """

    has_rsample = False
    checks: dict = {}

    def __init__(self, batch_shape=(), event_shape=(), validate_args: bool | None = None):
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)
        if validate_args:
            for name, (rule, holds) in self.checks.items():
                value = getattr(self, name)
                if not bool(holds(value).all()):
                    raise ValueRangeError(type(self).__name__, f"{name} must be {rule}; it is {value}")

    @property
    def mean(self):
        raise self._missing("mean")

    @property
    def variance(self):
        raise self._missing("variance")

    @property
    def stddev(self):
        return td.sqrt(self.variance)

    def shape_of(self, sample_shape=()) -> tuple:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def sample(self, sample_shape=()):
        """(*sample_shape, *batch_shape, *event_shape), without gradient."""
        with td.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """A sample through which gradients flow to the parameters."""
        raise UnsupportedError(type(self).__name__, "samples have no gradient", fix="use sample() and log_prob()")

    def sample_n(self, n: int):
        return self.sample((n,))

    def log_prob(self, value):
        raise self._missing("log_prob")

    def prob(self, value):
        return td.exp(self.log_prob(value))

    def entropy(self):
        raise self._missing("entropy")

    def perplexity(self):
        return td.exp(self.entropy())

    def cdf(self, value):
        raise self._missing("cdf")

    def icdf(self, value):
        raise self._missing("icdf")

    def _missing(self, what: str):
        return UnsupportedError(type(self).__name__, f"{what} has no closed form here")

    def __repr__(self):
        return f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"


class Independent(Distribution):
    """The last axes of another distribution's batch taken as part of one event: log_prob adds up over them.

    >>> d = td.distributions.Independent(td.distributions.Normal(td.zeros(2, 3), 1.0), 1)
    >>> d.log_prob(td.zeros(2, 3)).shape
    (2,)
    """

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args=None):
        batch, count = base_distribution.batch_shape, int(reinterpreted_batch_ndims)
        if not 0 <= count <= len(batch):
            raise ValueRangeError(
                "Independent", f"reinterpreted_batch_ndims is {count}; the base has a batch of {len(batch)} axes"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, count
        split = len(batch) - count
        super().__init__(batch[:split], batch[split:] + base_distribution.event_shape)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    mean = property(lambda self: self.base_dist.mean)
    variance = property(lambda self: self.base_dist.variance)

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_last(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return sum_last(self.base_dist.entropy(), self.reinterpreted_batch_ndims)


def sum_last(x, count: int):
    """The sum over the last `count` axes."""
    return x.sum(tuple(range(x.ndim - count, x.ndim))) if count else x


LOG_TWO_PI = math.log(2 * math.pi)
POSITIVE = ("positive", lambda x: x > 0)
