"""Random numbers.

Note [Random numbers]
All come from Philox (RandomBits in create.py): element i of a draw reads the block whose counter is the generator's offset plus i,
so that the numbers depend on seed, offset and position only, whatever the number of threads, the layout, or the kernel that the
draw is fused into. A draw of n elements moves the generator on by n.
"""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import product
from tandem.ops.complexes import imag_of, real_of
from tandem.ops.create import finish, made_on
from tandem.ops.define import FUNCTIONS, OWN_METHODS, inplace, op, public
from tandem.ops.index import known_shares
from tandem.ops.prepare import (
    as_dtype_value,
    broadcast_shapes,
    cast,
    constant,
    full_expand,
    promote,
    require_fit,
    show,
    show_shape,
    to_float,
)

Generator = _runtime.Generator
default_generator = _runtime.default_generator()


# -- draws inside operators


def uniform_bits(state, shape, dtype: dtypes.DType) -> Value:
    """Uniform floats in [0, 1): 24 random bits in float32 and narrower, 53 in float64. Of complex numbers, both parts."""
    if dtype.is_complex:
        return F.complex(*(uniform_bits(state, shape, dtypes.part_dtype(dtype)) for _ in range(2)))
    offset = state.take(product(shape))
    high = F.RandomBits(tuple(shape), 0)(state.seed, offset)
    if dtype is dtypes.float64:
        low = F.RandomBits(tuple(shape), 1)(state.seed, offset)
        top = cast(F.bitwise_right_shift(high, 5), dtypes.float64) * 2.0**26
        return (top + cast(F.bitwise_right_shift(low, 6), dtypes.float64)) * 2.0**-53
    # As many bits as the type holds exactly, so that rounding never gives 1.
    digits = {dtypes.float16: 11, dtypes.bfloat16: 8}.get(dtype, 24)
    bits = cast(F.bitwise_right_shift(high, 32 - digits), dtypes.float32)
    return cast(bits * 2.0**-digits, dtype)


def normal_bits(state, shape, dtype: dtypes.DType) -> Value:
    """Standard normal floats by Box and Muller's method. Complex ones have variance 1: 1/2 in each part."""
    if dtype.is_complex:
        return F.complex(*(normal_bits(state, shape, dtypes.part_dtype(dtype)) * math.sqrt(0.5) for _ in range(2)))
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    offset = state.take(product(shape))
    lanes = [F.RandomBits(tuple(shape), lane)(state.seed, offset) for lane in range(4 if wide is dtypes.float64 else 2)]
    if wide is dtypes.float64:
        radius, angle = (cast(a, wide) * 2.0**-32 + cast(b, wide) * 2.0**-64 for a, b in (lanes[:2], lanes[2:]))
        radius = radius + 2.0**-65
    else:
        # All 32 bits, so that the tail reaches 6.7 standard deviations; half a unit keeps it above 0.
        radius = (cast(lanes[0], wide) + 0.5) * 2.0**-32
        angle = cast(F.bitwise_right_shift(lanes[1], 8), wide) * 2.0**-24
    return cast(F.sqrt(F.log(radius) * -2) * F.cos(angle * (2 * math.pi)), dtype)


def integer_bits(state, shape) -> Value:
    """64 random bits, uint64."""
    offset = state.take(product(shape))
    high, low = (cast(F.RandomBits(tuple(shape), lane)(state.seed, offset), dtypes.uint64) for lane in (0, 1))
    return F.bitwise_or(F.bitwise_left_shift(high, 32), low)


def _sizes(name: str, shape) -> tuple:
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for d in shape:
        if d < 0:
            raise ShapeError(name, f"size {show(d)} is negative")
    return shape


def _floating(name: str, dtype, or_complex: bool = False) -> dtypes.DType:
    dtype = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    if not dtype.is_floating and not (or_complex and dtype.is_complex):
        raise DTypeError(name, f"dtype is {dtype}; random {name} numbers are floats", fix="use td.randint for integers")
    return dtype


# -- new tensors


@op(name="uniform", hidden=True)
def _uniform(shape: Ints, low: Tensor, high: Tensor, dtype, generator: Generator | None = None):
    dtype = _floating("uniform", dtype)
    return _between(uniform_bits(generator, _sizes("uniform", shape), dtype), low, high)


def _between(unit: Value, low, high) -> Value:
    if unit.dtype.is_complex:  # both parts between the same limits
        return F.complex(*(_between(part, low, high) for part in (real_of(unit), imag_of(unit))))
    low, high = as_dtype_value(low, unit.dtype), as_dtype_value(high, unit.dtype)
    # Rounding may reach high itself, which does not belong to the interval.
    out = unit * (high - low) + low
    return F.where(F.logical_and(F.greater_equal(out, high), F.less(low, high)), low, out)


@op(name="rand", hidden=True)
def _rand(shape: Ints, dtype, generator: Generator | None = None):
    return uniform_bits(generator, _sizes("rand", shape), _floating("uniform", dtype, or_complex=True))


@op(name="randn", hidden=True)
def _randn(shape: Ints, dtype, generator: Generator | None = None):
    return normal_bits(generator, _sizes("randn", shape), _floating("normal", dtype, or_complex=True))


@op(name="randint", hidden=True)
def _randint(low: Tensor, high: Tensor, shape: Ints, dtype, generator: Generator | None = None):
    return cast(_integers(generator, _sizes("randint", shape), low, high), dtypes.as_dtype(dtype))


def _integers(state, shape, low, high) -> Value:
    low, high = as_dtype_value(low, dtypes.int64), as_dtype_value(high, dtypes.int64)
    span = cast(high - low, dtypes.uint64)
    return cast(F.remainder(integer_bits(state, shape), span), dtypes.int64) + low


def _shape(sizes, size) -> tuple:
    if size is not None:
        return tuple(size)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        return tuple(sizes[0])
    return sizes


@public
def rand(*sizes, size=None, dtype=None, device=None, requires_grad: bool = False, generator=None):
    """Uniform random numbers in [0, 1).

    >>> td.rand(2, 3).shape
    (2, 3)
    """
    made = made_on(device, _rand, _shape(sizes, size), dtype, generator)
    return finish(made, device, requires_grad)


@public
def randn(*sizes, size=None, dtype=None, device=None, requires_grad: bool = False, generator=None):
    """Random numbers from the standard normal distribution.

    >>> td.randn(2, 3).shape
    (2, 3)
    """
    made = made_on(device, _randn, _shape(sizes, size), dtype, generator)
    return finish(made, device, requires_grad)


@public
def uniform(low=0.0, high=1.0, size=(), *, dtype=None, device=None, requires_grad: bool = False, generator=None):
    """Uniform random numbers in [low, high).

    >>> td.uniform(-1.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    made = made_on(device, _uniform, size, low, high, dtype, generator)
    return finish(made, device, requires_grad)


@public
def randint(low=None, high=None, size=None, *, dtype=None, device=None, requires_grad: bool = False, generator=None):
    """Random integers from low (0 if one bound is given) up to, not including, high.

    >>> td.randint(5, 6, (3,))
    tensor([5, 5, 5])
    """
    if isinstance(high, (tuple, list)):  # randint(high, size)
        high, size = None, high
    if high is None or low is None:
        low, high = 0, low if high is None else high
    if size is None:
        size = ()
    if not low < high:
        raise ValueRangeError("randint", f"there are no integers from {low} up to, not including, {high}")
    if dtype is not None:
        _require_bounds("randint", low, high, dtype)
    made = made_on(device, _randint, low, high, size, dtype or dtypes.int64, generator)
    return finish(made, device, requires_grad)


@op(name="randperm", hidden=True)
def _randperm(n: Int, dtype, generator: Generator | None = None):
    if n < 0:
        raise ShapeError("randperm", f"size {show(n)} is negative")
    # In the order of 64 random bits: by the low half first, then, keeping the order of equals, by the high half. Two sorts of short
    # keys are quicker than one of long keys.
    offset = generator.take(n)
    high, low = (F.RandomBits((n,), lane)(generator.seed, offset) for lane in (0, 1))
    order = F.argsort(low)
    order = F.Gather()(order, F.argsort(F.Gather()(high, order)))
    return cast(order, dtypes.as_dtype(dtype))


@public
def randperm(n, *, dtype=None, device=None, requires_grad: bool = False, generator=None):
    """The integers below n in random order.

    >>> td.randperm(4).sort().values
    tensor([0, 1, 2, 3])
    """
    return finish(_randperm(n, dtype or dtypes.int64, generator), device, requires_grad)


@op(name="normal", hidden=True)
def _normal(mean: Tensor, std: Tensor, shape: Ints | None, dtype, generator: Generator | None = None):
    if dtype is None:
        mean, std = (to_float(v) for v in promote(mean, std))
    else:
        mean, std = (as_dtype_value(v, _floating("normal", dtype)) for v in (mean, std))
    shape = broadcast_shapes("normal", mean.shape, std.shape) if shape is None else _sizes("normal", shape)
    return F.add(F.multiply(normal_bits(generator, shape, mean.dtype), std), mean)


@public
def normal(mean=0.0, std=1.0, size=None, *, dtype=None, device=None, requires_grad: bool = False, generator=None):
    """Normal random numbers. mean and std are numbers or tensors; gradients flow to both.

    >>> td.normal(0.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    made = made_on(device, _normal, mean, std, size, dtype, generator)
    return finish(made, device, requires_grad)


# -- of the shape of another tensor, and in place


def _like_dtype(x: Value, dtype) -> dtypes.DType:
    return x.dtype if dtype is None else dtypes.as_dtype(dtype)


@op(name="rand_like", hidden=True)
def _rand_like(x: Tensor, dtype, generator: Generator | None = None):
    return uniform_bits(generator, x.shape, _floating("uniform", _like_dtype(x, dtype), or_complex=True))


@op(name="randn_like", hidden=True)
def _randn_like(x: Tensor, dtype, generator: Generator | None = None):
    return normal_bits(generator, x.shape, _floating("normal", _like_dtype(x, dtype), or_complex=True))


@op(name="randint_like", hidden=True)
def _randint_like(x: Tensor, low: Tensor, high: Tensor, dtype, generator: Generator | None = None):
    return cast(_integers(generator, x.shape, low, high), _like_dtype(x, dtype))


@public(method=True)
def rand_like(x: Tensor, *, dtype=None, device=None, requires_grad: bool = False, generator=None):
    """Uniform random numbers in [0, 1) with the shape and dtype of x.

    >>> td.rand_like(td.zeros(2, 3)).shape
    (2, 3)
    """
    return finish(_rand_like(x, dtype, generator), device, requires_grad)


@public(method=True)
def randn_like(x: Tensor, *, dtype=None, device=None, requires_grad: bool = False, generator=None):
    """Standard normal random numbers with the shape and dtype of x.

    >>> td.randn_like(td.zeros(2, 3)).shape
    (2, 3)
    """
    return finish(_randn_like(x, dtype, generator), device, requires_grad)


@public(method=True)
def randint_like(
    x: Tensor, low=None, high=None, *, dtype=None, device=None, requires_grad: bool = False, generator=None
):
    """Random integers from low (0 if one bound is given) up to, not including, high, with the shape and dtype of x.

    >>> td.randint_like(td.zeros(2), 3, 4)
    tensor([3., 3.])
    """
    low, high = (0, low if high is None else high) if high is None or low is None else (low, high)
    _require_bounds("randint_like", low, high, dtype or x.dtype)
    return finish(_randint_like(x, low, high, dtype, generator), device, requires_grad)


def _require_bounds(op: str, low, high, dtype):
    """Both ends of what is drawn fit the type."""
    dtype = dtypes.as_dtype(dtype)
    require_fit(op, "low", low, dtype)
    if isinstance(high, int):
        require_fit(op, "high - 1", high - 1, dtype)


@op
def bernoulli(x: Tensor, p: Tensor | None = None, *, generator: Generator | None = None):
    """1 with the probability that x (or p, if given) says, 0 otherwise; of x's shape and dtype.

    >>> td.bernoulli(td.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    chance = to_float(x) if p is None else to_float(p)
    wide = dtypes.float64 if chance.dtype is dtypes.float64 else dtypes.float32
    unit = uniform_bits(generator, x.shape, wide)
    chance = known_shares(cast(chance, wide))
    return cast(F.less(unit, full_expand(chance, x.shape, "bernoulli")), x.dtype)


@op(name="uniform", hidden=True)
def _uniform_of(x: Tensor, low: Tensor = 0.0, high: Tensor = 1.0, *, generator: Generator | None = None):
    return _between(uniform_bits(generator, x.shape, _floating("uniform", x.dtype, or_complex=True)), low, high)


@op(name="normal", hidden=True)
def _normal_of(x: Tensor, mean: Tensor = 0.0, std: Tensor = 1.0, *, generator: Generator | None = None):
    unit = normal_bits(generator, x.shape, _floating("normal", x.dtype, or_complex=True))
    return unit * as_dtype_value(std, x.dtype) + as_dtype_value(mean, x.dtype)


@op(name="exponential", hidden=True)
def _exponential_of(x: Tensor, lambd: Tensor = 1.0, *, generator: Generator | None = None):
    unit = uniform_bits(generator, x.shape, _floating("exponential", x.dtype))
    return F.log1p(-unit) / -as_dtype_value(lambd, x.dtype)


@op(name="random", hidden=True)
def _random_of(x: Tensor, low: Tensor, high: Tensor, *, generator: Generator | None = None):
    return cast(_integers(generator, x.shape, low, high), x.dtype)


@op(name="bernoulli", hidden=True)
def _bernoulli_of(x: Tensor, p: Tensor = 0.5, *, generator: Generator | None = None):
    return F.bernoulli(F.stop_gradient(x), p, generator=generator)


@op(name="log_normal", hidden=True)
def _log_normal_of(x: Tensor, mean: Tensor = 1.0, std: Tensor = 2.0, *, generator: Generator | None = None):
    unit = normal_bits(generator, x.shape, _floating("normal", x.dtype))
    return F.exp(unit * as_dtype_value(std, x.dtype) + as_dtype_value(mean, x.dtype))


@op(name="cauchy", hidden=True)
def _cauchy_of(x: Tensor, median: Tensor = 0.0, sigma: Tensor = 1.0, *, generator: Generator | None = None):
    unit = uniform_bits(generator, x.shape, _floating("cauchy", x.dtype))
    return F.tan((unit - 0.5) * math.pi) * as_dtype_value(sigma, x.dtype) + as_dtype_value(median, x.dtype)


@op(name="geometric", hidden=True)
def _geometric_of(x: Tensor, p: Tensor, *, generator: Generator | None = None):
    wide = x.dtype if x.dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
    unit = uniform_bits(generator, x.shape, wide)
    waited = F.log1p(-unit) / F.log1p(-as_dtype_value(p, wide))
    return cast(F.maximum(F.ceil(waited), 1), x.dtype)


inplace(_uniform_of)
inplace(_log_normal_of)
inplace(_cauchy_of)
inplace(_geometric_of)
inplace(_normal_of)
inplace(_exponential_of)
inplace(_bernoulli_of)
inplace(_random_of)


def _checked(name: str, parameter: str, position: int, default: float, fits, rule: str):
    """The in-place form of a sampler with its parameter checked where it is a number."""
    unchecked = FUNCTIONS[name]

    def sample(x, *args, **kwargs):
        value = args[position] if len(args) > position else kwargs.get(parameter, default)
        if isinstance(value, (int, float)) and not fits(value):
            raise ValueRangeError(name, f"{parameter} is {value}; it must be {rule}")
        return unchecked(x, *args, **kwargs)

    sample.__name__ = sample.__qualname__ = name
    sample.__doc__ = unchecked.__doc__
    OWN_METHODS[name] = FUNCTIONS[name] = sample


_integers_into = FUNCTIONS["random_"]


def random_(x, *bounds, generator=None, **named):
    """Integers in [0, to) or [from, to) in place of the elements; without bounds all that the dtype holds exactly, from 0 on.

    >>> td.zeros(3).random_(1)
    tensor([0., 0., 0.])
    """
    if not isinstance(x, _runtime.Tensor):
        raise DTypeError("random_", f"x is a {type(x).__name__}; it must be a tensor to write to")
    low = named.pop("from", named.pop("from_", named.pop("low", 0)))
    high = named.pop("to", named.pop("high", None))
    if named or len(bounds) > 2:
        raise TypeError(f"random_() takes from, to and generator; it got {', '.join(named) or bounds}")
    if bounds:
        low, high = (bounds[0], high if len(bounds) == 1 else bounds[1])
        if len(bounds) == 1 and high is None:
            low, high = 0, bounds[0]
    if high is None:
        digits = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}
        bits = 1 if x.dtype.kind == "bool" else 8 * x.dtype.itemsize - (x.dtype.kind == "int")
        high = 2 ** digits[x.dtype] + 1 if x.dtype in digits else min(2**bits, 2**63 - 1)
    if not low < high:
        raise ValueRangeError("random_", f"from is {low} and to {high}; from must be smaller")
    _require_bounds("random_", low, high, x.dtype)
    return _integers_into(x, low, high, generator=generator)


FUNCTIONS["random_"] = OWN_METHODS["random_"] = random_
for _name, _parameter, _position, _default in (
    ("exponential_", "lambd", 0, 1.0), ("log_normal_", "std", 1, 2.0), ("cauchy_", "sigma", 1, 1.0)
):  # fmt: skip
    _checked(_name, _parameter, _position, _default, lambda v: v > 0, "greater than 0")
_checked("normal_", "std", 1, 1.0, lambda v: v >= 0, "0 or greater")
_checked("geometric_", "p", 0, 0.5, lambda v: 0 < v <= 1, "greater than 0 and at most 1")


@op
def multinomial(x: Tensor, num_samples: Int, replacement=False, *, generator: Generator | None = None):
    """Positions drawn along the last axis with the probabilities, up to a factor, that x gives.

    x: (n) or (m, n) -> (num_samples) or (m, num_samples) int64

    >>> td.multinomial(td.tensor([0.0, 1.0, 0.0]), 2, replacement=True)
    tensor([1, 1])
    """
    if x.ndim not in (1, 2):
        raise ShapeError("multinomial", f"x is {show_shape(x.shape)}; it must have 1 or 2 axes")
    if num_samples < 1:
        raise ValueRangeError("multinomial", f"num_samples is {show(num_samples)}; it must be at least 1")
    if not x.dtype.is_floating:
        raise DTypeError("multinomial", f"x is {x.dtype}; probabilities are floating point numbers", fix="x.float()")
    wide = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    x = cast(x, wide)
    lead, size = x.shape[:-1], x.shape[-1]
    if size == 0:
        raise ShapeError("multinomial", f"x is {show_shape(x.shape)}; there is nothing to sample from")
    faults = _weight_faults(x)
    if replacement:
        sums = F.cumsum(x, -1)
        total = F.slice_axis(sums, -1, size - 1, 1)
        unit = uniform_bits(generator, (*lead, num_samples), wide) * total
        found = F.searchsorted(sums, unit, right=True)
        return F.minimum(found, constant(size - 1, dtypes.int64)) + faults
    if num_samples > size:
        raise ValueRangeError(
            "multinomial", f"{show(num_samples)} samples without replacement from {show(size)} elements"
        )
    # The smallest of exponential waiting times with rates x come in the order of draws without replacement.
    wait = F.log1p(-uniform_bits(generator, x.shape, wide)) * -1
    return F.TopK(x.ndim - 1, num_samples, True)(x / (wait + 1e-37))[1] + faults


def _weight_faults(x):
    """0 for every row of weights, once it is known that they are some; what is made with it cannot be had otherwise."""
    wrong = F.logical_not(F.logical_and(x >= 0, F.less(x, constant(math.inf, x.dtype))))
    some = F.any(wrong, -1, keepdims=True)
    none = F.logical_not(F.any(x > 0, -1, keepdims=True))
    code = F.where(some, constant(1, dtypes.int64), cast(none, dtypes.int64) * 2)
    return F.CheckWeights()(code)


# -- state


@public
def manual_seed(seed):
    """Starts the default generator again from this seed, and returns it.

    >>> td.manual_seed(0)
    Generator(seed=0, offset=0)
    """
    return _runtime.default_generator().manual_seed(seed)


@public
def seed() -> int:
    """Starts the default generator again from a seed nobody can foresee, and returns that seed.

    >>> td.seed() == td.initial_seed()
    True
    """
    return _runtime.default_generator().seed()


@public
def initial_seed() -> int:
    """The seed that the default generator started from.

    >>> _ = td.manual_seed(7)
    >>> td.initial_seed()
    7
    """
    return _runtime.default_generator().initial_seed()


@public
def get_rng_state() -> tuple[int, int]:
    """(seed, offset) of the default generator: all that later numbers depend on.

    >>> _ = td.manual_seed(7)
    >>> td.get_rng_state()
    (7, 0)
    """
    return _runtime.default_generator().get_state()


@public
def set_rng_state(state):
    """Puts the default generator back to what get_rng_state gave.

    >>> state = td.get_rng_state()
    >>> x = td.rand(3)
    >>> td.set_rng_state(state)
    >>> td.array_equal(x, td.rand(3))
    True
    """
    _runtime.default_generator().set_state(tuple(state))
