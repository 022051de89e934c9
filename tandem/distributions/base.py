"""What every distribution has, exponential families, and Independent."""

from __future__ import annotations

import copy
import math

import tandem as td
from tandem import promotion
from tandem.distributions import constraints
from tandem.distributions.transform_base import sum_last
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.tensors.methods import Tensor

LOG_TWO_PI = math.log(2 * math.pi)


def parameters(*values) -> list[Tensor]:
    """Parameters as tensors of one floating type and one shape."""
    first = next((v for v in values if isinstance(v, Tensor) and v.dtype.is_inexact), None)
    like = {"dtype": first.dtype, "device": first.device} if first is not None else {"dtype": td.float32}
    made = [v if isinstance(v, Tensor) and v.dtype.is_inexact else td.asarray(v, **like) for v in values]
    return list(td.broadcast_tensors(*made)) if len(made) > 1 else made


class Distribution:
    """A family of distributions, one for each element of `batch_shape`, over values of `event_shape`.

    Subclasses give `batch_shape` and `event_shape` to `__init__` and define `rsample` (or `sample`, where no gradient exists),
    `log_prob`, `entropy`, `mean` and `variance`. `arg_constraints` says what parameters must be, `support` where samples lie: both
    are looked at if validate_args is True, parameters when an instance is made, values by log_prob and cdf. Where it is not given,
    programs that follow PyTorch (those that import tandem.torch) get it, and others do not.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: dict = {}
    _validate_args: bool | None = None  # None: as the program that makes an instance

    def __init__(self, batch_shape=(), event_shape=(), validate_args: bool | None = None):
        self._batch_shape, self._event_shape = td.Size(batch_shape), td.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        elif self._validate_args is None:
            self._validate_args = promotion.axes_first()
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                if not constraints.is_dependent(constraint) and self._is_given(name):
                    self._check(name, getattr(self, name), constraint)

    batch_shape = property(
        lambda self: self._batch_shape, doc="The shape of the parameters: one distribution for each."
    )
    event_shape = property(lambda self: self._event_shape, doc="The shape of one value.")

    @staticmethod
    def set_default_validate_args(value: bool):
        """Whether distributions check their parameters and values where validate_args is not given."""
        Distribution._validate_args = bool(value)

    def _is_given(self, name: str) -> bool:
        """Whether a parameter is one that was given, not one that is computed from others when asked for."""
        return name in self.__dict__ or self.__dict__.get("_" + name) is not None

    def _check(self, name: str, value, constraint):
        if not bool(constraint.check(value).all()):
            raise ValueRangeError(type(self).__name__, f"{name} must be {constraint.words()}; it is {value}")

    def _value(self, value) -> Tensor:
        """A value whose probability is asked for, as a tensor."""
        if not isinstance(value, Tensor):
            like = next((v for v in self.__dict__.values() if isinstance(v, Tensor) and v.dtype.is_inexact), None)
            value = td.asarray(value) if like is None else td.asarray(value, dtype=like.dtype, device=like.device)
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value):
        shape, event = tuple(value.shape), len(self.event_shape)
        if event and shape[len(shape) - event :] != self.event_shape:
            raise ValueRangeError(
                type(self).__name__, f"values are {shape}; they must end in the event's shape {self.event_shape}"
            )
        td.broadcast_shapes(shape, self.batch_shape + self.event_shape)
        self._check("the value", value, self.support)

    support: constraints.Constraint | None = constraints.dependent

    @property
    def mean(self):
        """The expected value: (*batch_shape, *event_shape)."""
        raise self._missing("mean")

    @property
    def mode(self):
        """The most likely value: (*batch_shape, *event_shape)."""
        raise self._missing("mode")

    @property
    def variance(self):
        """The expected square of the distance from the mean: (*batch_shape, *event_shape)."""
        raise self._missing("variance")

    @property
    def stddev(self):
        """The square root of the variance."""
        return td.sqrt(self.variance)

    def shape_of(self, sample_shape=()) -> td.Size:
        """The shape of so many samples."""
        return td.Size((*sample_shape, *self.batch_shape, *self.event_shape))

    _extended_shape = shape_of

    def _get_checked_instance(self, cls, _instance=None):
        """An object of this class without its constructor, which expand() of a subclass fills; or the one that is given."""
        if _instance is None and type(self).__init__ is not cls.__init__:
            raise UnsupportedError(
                f"{type(self).__name__}.expand",
                f"{type(self).__name__} has a constructor of its own, and the expand of {cls.__name__}",
                fix="define expand(self, batch_shape, _instance=None) in the class",
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def expand(self, batch_shape, _instance=None):
        """The same distribution with a larger batch: parameters are expanded, not copied."""
        batch, old = tuple(batch_shape), len(self.batch_shape)
        made = copy.copy(self) if _instance is None else _instance
        made.__dict__.update({k: v for k, v in self.__dict__.items() if k not in made.__dict__})
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor) and tuple(value.shape[:old]) == self.batch_shape:
                made.__dict__[name] = value.expand((*batch, *value.shape[old:]))
            elif isinstance(value, Distribution) and value.batch_shape[:old] == self.batch_shape:
                made.__dict__[name] = value.expand((*batch, *value.batch_shape[old:]))
        made._batch_shape = td.Size(batch)
        return made

    def sample(self, sample_shape=()):
        """(*sample_shape, *batch_shape, *event_shape), without gradient."""
        with td.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """A sample through which gradients flow to the parameters."""
        raise UnsupportedError(type(self).__name__, "samples have no gradient", fix="use sample() and log_prob()")

    def sample_n(self, n: int):
        """n samples along a new first axis."""
        return self.sample((n,))

    def log_prob(self, value):
        """The logarithm of the density, or of the probability, of a value: (*sample_shape, *batch_shape)."""
        raise self._missing("log_prob")

    def prob(self, value):
        """The density, or the probability, of a value."""
        return td.exp(self.log_prob(value))

    def entropy(self):
        """The expected negative logarithm of the density: (*batch_shape)."""
        raise self._missing("entropy")

    def perplexity(self):
        """The exponential of the entropy."""
        return td.exp(self.entropy())

    def cdf(self, value):
        """The probability of values up to this one."""
        raise self._missing("cdf")

    def icdf(self, value):
        """The value up to which values have this probability: the inverse of cdf."""
        raise self._missing("icdf")

    def enumerate_support(self, expand: bool = True):
        """All values of a discrete distribution, along a new first axis."""
        raise self._missing("enumerate_support")

    def _uniform(self, sample_shape, like):
        """In (0, 1): neither end, so that logarithms and quantiles are finite."""
        u = td.rand(self.shape_of(sample_shape), dtype=like.dtype, device=like.device)
        tiny = td.finfo(u.dtype).eps / 2
        return u * (1 - 2 * tiny) + tiny

    def _missing(self, what: str):
        return UnsupportedError(type(self).__name__, f"{what} has no closed form here")

    def __repr__(self):
        return f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"


class ExponentialFamily(Distribution):
    """p(x) = exp(<t(x), eta> - F(eta) + k(x)): a subclass gives eta as `_natural_params`, F as `_log_normalizer` and the
    expectation of k as `_mean_carrier_measure`; entropy and the divergence of two of its members follow by differentiating F."""

    @property
    def _natural_params(self) -> tuple:
        raise self._missing("_natural_params")

    def _log_normalizer(self, *natural_params):
        raise self._missing("_log_normalizer")

    @property
    def _mean_carrier_measure(self):
        raise self._missing("_mean_carrier_measure")

    def _normalizer(self):
        """eta, F(eta) and its gradient, which is the expectation of t(x)."""
        params = [p if p.requires_grad else p.detach().requires_grad_() for p in self._natural_params]
        with td.enable_grad():
            value = self._log_normalizer(*params)
            return params, value, td.autograd.grad(value.sum(), params, create_graph=True)

    def entropy(self):
        params, value, means = self._normalizer()
        result = value - self._mean_carrier_measure
        for p, m in zip(params, means, strict=True):
            result = result - sum_last(p * m, p.ndim - len(self.batch_shape))
        return result


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
        super().__init__(batch[:split], batch[split:] + base_distribution.event_shape, validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    has_enumerate_support = property(
        lambda self: self.base_dist.has_enumerate_support and not self.reinterpreted_batch_ndims
    )
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    @constraints.dependent_property
    def support(self):
        count = self.reinterpreted_batch_ndims
        return constraints.independent(self.base_dist.support, count) if count else self.base_dist.support

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_last(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return sum_last(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True):
        if self.reinterpreted_batch_ndims:
            raise UnsupportedError("Independent", "the values of several axes together are not enumerated")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self):
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
