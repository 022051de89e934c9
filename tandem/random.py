"""Random numbers: td.random.gamma(2.0, size=(3,)), in the manner of numpy.random, and PyTorch's functions on generators.

All draw from the default generator (td.manual_seed) or the one given, and depend on its seed and offset only.
"""

from __future__ import annotations

import contextlib

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.ops import (
    bernoulli,
    get_rng_state,
    initial_seed,
    manual_seed,
    multinomial,
    normal,
    rand,
    randint,
    randn,
    seed,
    set_rng_state,
    uniform,
)  # fmt: skip
from tandem.ops.random import Generator, default_generator
from tandem.tensors.constructors import asarray

__all__ = [
    "Generator", "bernoulli", "beta", "binomial", "categorical", "cauchy", "choice", "default_generator", "dirichlet",
    "exponential", "fork_rng", "gamma", "geometric", "get_rng_state", "gumbel", "initial_seed", "laplace", "log_normal",
    "manual_seed", "multinomial", "normal", "permutation", "poisson", "rand", "randint", "randn", "seed", "set_rng_state",
    "shuffle", "uniform",
]  # fmt: skip


def _size(size, *parameters):
    """size as a tuple; that of the parameters if it is None."""
    if size is not None:
        return tuple(size) if isinstance(size, (tuple, list)) else (size,)
    shapes = [tuple(p.shape) for p in parameters if hasattr(p, "shape")]
    return tuple(max(shapes, key=len, default=()))


def _blank(size, dtype, *parameters):
    dtype = dtypes.as_dtype(dtype) if dtype is not None else dtypes.default_float()
    return F.empty_like(F.full(_size(size, *parameters), 0.0, dtype=dtype))


def gamma(shape, scale=1.0, size=None, *, dtype=None, generator=None):
    """Gamma-distributed numbers of the given shape and scale, which broadcast to size.

    >>> td.random.gamma(2.0, size=(3,)).shape
    (3,)
    """
    return _typed(F.random_gamma(shape, scale, size, generator), dtype)


def beta(a, b, size=None, *, dtype=None, generator=None):
    """Beta-distributed numbers, between 0 and 1.

    >>> td.random.beta(2.0, 3.0, size=(3,)).shape
    (3,)
    """
    return _typed(F.random_beta(a, b, size, generator), dtype)


def dirichlet(concentration, size=None, *, dtype=None, generator=None):
    """Points whose coordinates are positive and add up to 1. concentration: (*b, k) -> (*size, *b, k)

    >>> td.random.dirichlet(td.ones(3)).shape
    (3,)
    """
    return _typed(F.random_dirichlet(asarray(concentration), size, generator), dtype)


def poisson(rate, size=None, *, dtype=None, generator=None):
    """Poisson-distributed numbers: how many events happen where `rate` are expected.

    >>> td.random.poisson(0.0, (2,))
    tensor([0., 0.])
    """
    wide = dtypes.as_dtype(dtype) if dtype is not None else dtypes.default_float()
    rates = F.full(size, rate, dtype=wide) if size is not None and not hasattr(rate, "shape") else _spread(rate, size)
    return _typed(F.poisson(rates, generator=generator), dtype)


def binomial(n, p, size=None, *, dtype=None, generator=None):
    """Numbers of successes among n trials that each succeed with probability p.

    >>> td.random.binomial(5, 1.0, (2,))
    tensor([5., 5.])
    """
    return _typed(F.binomial(_spread(n, size), _spread(p, size), generator=generator), dtype)


def exponential(scale=1.0, size=None, *, dtype=None, generator=None):
    """Exponentially distributed numbers with mean `scale`.

    >>> td.random.exponential(2.0, (3,)).shape
    (3,)
    """
    return F.exponential_(_blank(size, dtype, scale), generator=generator) * scale


def laplace(loc=0.0, scale=1.0, size=None, *, dtype=None, generator=None):
    """Numbers with Laplace's distribution.

    >>> td.random.laplace(size=(3,)).shape
    (3,)
    """
    u = F.uniform_(_blank(size, dtype, loc, scale), generator=generator) - 0.5
    return loc - scale * F.sign(u) * F.log1p(-F.abs(u) * 2)


def gumbel(loc=0.0, scale=1.0, size=None, *, dtype=None, generator=None):
    """Numbers with Gumbel's distribution, that of the largest of many.

    >>> td.random.gumbel(size=(3,)).shape
    (3,)
    """
    waits = F.exponential_(_blank(size, dtype, loc, scale), generator=generator)
    return loc - scale * F.log(waits + 1e-37)


def cauchy(median=0.0, sigma=1.0, size=None, *, dtype=None, generator=None):
    """Numbers with Cauchy's distribution.

    >>> td.random.cauchy(size=(3,)).shape
    (3,)
    """
    return F.cauchy_(_blank(size, dtype, median, sigma), generator=generator) * sigma + median


def log_normal(mean=0.0, std=1.0, size=None, *, dtype=None, generator=None):
    """Numbers whose logarithms are normal with the given mean and deviation.

    >>> td.random.log_normal(size=(3,)).shape
    (3,)
    """
    return F.exp(F.normal_(_blank(size, dtype, mean, std), generator=generator) * std + mean)


def geometric(p, size=None, *, dtype=None, generator=None):
    """How many trials it takes until the first that succeeds with probability p: 1, 2, ...

    >>> td.random.geometric(1.0, (2,))
    tensor([1., 1.])
    """
    return F.geometric_(_blank(size, dtype, p), p, generator=generator)


def categorical(logits, axis=-1, size=None, *, generator=None):
    """Positions along an axis, drawn with probabilities softmax(logits). (*b, k) -> (*size, *b) int64

    >>> td.random.categorical(td.tensor([0.0, 1000.0]))
    tensor(1)
    """
    return F.random_categorical(asarray(logits), axis, size, generator)


def permutation(x, axis=0, *, generator=None):
    """x with its slices along an axis in random order; of a number n, the integers below n.

    >>> td.random.permutation(3).sort().values
    tensor([0, 1, 2])
    """
    if isinstance(x, int):
        return F.randperm(x, generator=generator)
    x = asarray(x)
    if x.ndim == 0:
        raise ShapeError("permutation", "x has no axes; it must be a number of elements or have slices to move")
    return F.index_select(x, axis, F.randperm(x.shape[axis], generator=generator))


def shuffle(x, axis=0, *, generator=None):
    """Puts the slices of x along an axis into random order, in place.

    >>> x = td.arange(3)
    >>> td.random.shuffle(x)
    >>> x.sum()
    tensor(3)
    """
    F.copy_(x, permutation(x, axis, generator=generator))


def choice(x, size=None, replace=True, p=None, *, generator=None):
    """Elements of a 1-d tensor (or of the integers below x) drawn at random, with probabilities p if given.

    >>> td.random.choice(5, (2, 3)).shape
    (2, 3)
    """
    line = F.arange(x) if isinstance(x, int) else asarray(x)
    if line.ndim != 1:
        raise ShapeError("choice", f"x is {line.shape}; it must have one axis")
    shape = _size(size)
    count = 1
    for n in shape:
        count *= n
    if not replace and count > line.shape[0]:
        raise ValueRangeError("choice", f"{count} draws without replacement from {line.shape[0]} elements")
    if p is not None:
        index = F.multinomial(asarray(p), count, replace, generator=generator)
    elif replace:
        index = F.randint(0, line.shape[0], (count,), generator=generator)
    else:
        index = F.randperm(line.shape[0], generator=generator)[:count]
    return F.reshape(F.index_select(line, 0, index), shape)


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True):
    """A context after which the default generator is as it was before.

    >>> _ = td.manual_seed(1)
    >>> with td.random.fork_rng():
    ...     _ = td.rand(3)
    >>> td.get_rng_state()
    (1, 0)
    """
    state = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)


def _spread(value, size):
    value = value if hasattr(value, "shape") else F.full((), float(value))
    return value if size is None else F.expand(value, _size(size))


def _typed(made, dtype):
    return made if dtype is None else F.astype(made, dtypes.as_dtype(dtype), copy=False)
