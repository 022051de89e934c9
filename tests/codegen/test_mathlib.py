"""Every math function against a wider reference: on random bit patterns, dense ranges and all special values.

Each is evaluated twice: by NumPy, operation for operation, and by a compiled kernel.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.special

from tandem import dtypes
from tandem.codegen import mathlib
from tests.codegen.compiled import instructions, kernel_of, run_kernel
from tests.codegen.numpy_builder import ApproximatingBuilder, NumpyBuilder

wide = np.longdouble
# Where long double is no wider than float64 the reference has errors of its own.
SLACK = 0.0 if np.finfo(wide).nmant > 60 else 1.0
TYPES = {np.float32: dtypes.float32, np.float64: dtypes.float64}
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, 10.0, 100.0, 1e4]


@dataclass
class Case:
    """A function, its reference in long double, and the units in the last place it may be off in float32 and float64."""

    name: str
    reference: Any
    ulps: tuple[float, float]
    arguments: int = 1
    largest: float = math.inf  # larger finite arguments are not tested
    absolute: bool = False  # errors are against 1 where the value is smaller


def sigmoid(x):
    return np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-abs(x)))


def on_float64(function):
    vectorized = np.vectorize(function, otypes=[np.float64])
    return lambda x: vectorized(x.astype(np.float64)).astype(wide)


# SciPy's own are off in places: the sign of zero, denormal numbers, next to the poles of digamma.
def erfinv(x):
    return np.copysign(on_float64(scipy.special.erfinv)(x), x)


def lgamma(x):
    y = on_float64(scipy.special.gammaln)(x)
    return np.where(np.abs(x) < 1e-300, -np.log(np.abs(x)), np.where(np.isinf(x), np.inf, y))


def digamma(x):
    mirrored = on_float64(scipy.special.digamma)(np.where(x < 0, 1 - x, x))
    fraction = x - np.rint(x)
    pole = np.where(
        fraction == 0, np.nan, wide("3.14159265358979323846") / np.tan(wide("3.14159265358979323846") * fraction)
    )
    return np.where(x < 0, mirrored - pole, np.where(x == 0, -1 / x, mirrored))


def floor_divide(x, y):
    """As the Array API standard has it: NumPy's, but the quotient where an operand is infinite."""
    return np.where(np.isinf(x) | np.isinf(y), x / y, np.floor_divide(x, y))


CASES = [
    Case("exp", np.exp, (1.0, 1.0)),
    Case("exp2", np.exp2, (1.0, 1.0)),
    Case("expm1", np.expm1, (1.5, 2.0)),
    Case("sigmoid", sigmoid, (2.4, 2.4)),
    Case("log", np.log, (1.0, 1.0)),
    Case("log2", np.log2, (1.1, 0.6)),
    Case("log10", np.log10, (1.1, 0.6)),
    Case("log1p", np.log1p, (1.6, 1.6)),
    Case("softplus", lambda x: np.logaddexp(x, wide(0)), (2.0, 2.0)),
    Case("logaddexp", np.logaddexp, (2.0, 2.0), arguments=2, absolute=True),
    Case("sin", np.sin, (1.7, 1.7), largest=2.0**48),
    Case("cos", np.cos, (1.8, 1.8), largest=2.0**48),
    Case("tan", np.tan, (3.0, 3.0), largest=2.0**48),
    Case("asin", np.arcsin, (1.8, 1.8)),
    Case("acos", np.arccos, (1.3, 1.3)),
    Case("atan", np.arctan, (2.0, 2.0)),
    Case("atan2", np.arctan2, (2.0, 2.0), arguments=2),
    Case("sinh", np.sinh, (1.8, 1.8)),
    Case("cosh", np.cosh, (1.5, 1.5)),
    Case("tanh", np.tanh, (2.5, 2.5)),
    Case("asinh", np.arcsinh, (2.0, 2.0)),
    Case("acosh", np.arccosh, (2.0, 2.0)),
    Case("atanh", np.arctanh, (2.2, 2.2)),
    Case("erf", on_float64(math.erf), (1.6, 2.1)),
    Case("erfc", on_float64(math.erfc), (1.2, 3.6)),
    Case("erfinv", erfinv, (3.0, 6.0)),
    Case("lgamma", lgamma, (1.0, 16.0), absolute=True),
    Case("digamma", digamma, (1.0, 16.0), absolute=True),
    Case("pow", np.power, (0.6, 1.1), arguments=2),
    Case("cbrt", np.cbrt, (0.6, 0.6)),
    Case("rsqrt", lambda x: 1 / np.sqrt(x), (1.5, 1.5)),
    Case("hypot", np.hypot, (0.6, 0.6), arguments=2),
]
EXACT = [  # bit for bit
    Case("fmod", np.fmod, (0, 0), arguments=2),
    Case("mod_float", np.remainder, (0, 0), arguments=2),
    Case("floordiv_float", floor_divide, (0, 0), arguments=2),
    Case("nextafter", np.nextafter, (0, 0), arguments=2),
    Case("sign", np.sign, (0, 0)),
]


def samples(dtype, count, seed):
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    edges = [info.max, info.tiny, info.smallest_subnormal, info.tiny - info.smallest_subnormal, info.eps]
    special = np.array(SPECIAL + edges + [-e for e in edges] + [1 + info.eps, 1 - info.epsneg], dtype)
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    bits = rng.integers(0, np.iinfo(unsigned).max, count, unsigned).view(dtype)
    exponents = 120 if dtype is np.float32 else 760
    parts = [rng.uniform(-1, 1, count), rng.uniform(-10, 10, count), rng.uniform(-exponents, exponents, count)]
    parts.append(10 ** rng.uniform(-7, 7, count) * rng.choice([-1, 1], count))
    return special, np.concatenate([bits, *[p.astype(dtype) for p in parts]])


def arguments(case, dtype):
    if case.arguments == 1:
        return [np.concatenate(samples(dtype, 6000 if dtype is np.float32 else 3000, 1))]
    special, x = samples(dtype, 4000 if dtype is np.float32 else 2000, 2)
    _, y = samples(dtype, 4000 if dtype is np.float32 else 2000, 3)
    y = np.random.default_rng(4).permutation(y)
    grid = np.meshgrid(special, special)
    return [np.concatenate([grid[0].ravel(), x]), np.concatenate([grid[1].ravel(), y])]


def by_numpy(function, *arrays):
    b = NumpyBuilder()
    return function(b, *[b.value(a) for a in arrays]).array


def by_kernel(function, *arrays):
    return run_kernel(kernel_of(function, *[TYPES[a.dtype.type] for a in arrays]), *arrays)


def ulps_off(got, expected, absolute):
    """How far `got` is from `expected`, a long double, in units of the last place of got's type."""
    info = np.finfo(got.dtype)
    rounded = expected.astype(got.dtype)
    size = np.maximum(np.abs(expected), 1.0 if absolute else wide(info.tiny))
    unit = np.ldexp(wide(1), np.frexp(np.where(np.isfinite(size), size, 1))[1] - 1 - info.nmant)
    off = np.abs(got.astype(wide) - expected) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    off = np.where(np.isfinite(got) & np.isfinite(rounded), off, np.where(same, 0, np.inf))
    # Rounding to infinity: the largest number is one unit away from it.
    edge = np.isinf(rounded) & np.isfinite(expected) & (np.abs(got) == info.max)
    return np.where(edge, 0.5, off)


@pytest.mark.parametrize("dtype", TYPES, ids=["f32", "f64"])
@pytest.mark.parametrize("evaluate", [by_numpy, by_kernel], ids=["numpy", "kernel"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_good_to_the_last_places(case, evaluate, dtype):
    arrays = arguments(case, dtype)
    usable = ~np.any([np.isfinite(a) & (np.abs(a) > case.largest) for a in arrays], axis=0)
    arrays = [a[usable] for a in arrays]
    with np.errstate(all="ignore"):
        expected = case.reference(*[a.astype(wide) for a in arrays])
        got = evaluate(getattr(mathlib, case.name), *arrays)
        off = ulps_off(got, expected, case.absolute)
    worst = np.argmax(off)
    allowed = case.ulps[0] if dtype is np.float32 else case.ulps[1] + SLACK
    at = [a[worst] for a in arrays]
    assert off[worst] <= allowed, (
        f"{case.name}{at} = {got[worst]!r}, expected {expected[worst]!r}, {off[worst]:.2f} ulps off"
    )
    if not case.absolute:
        with np.errstate(all="ignore"):
            zeros = (got == 0) & (expected == 0)
        np.testing.assert_array_equal(np.signbit(expected[zeros]), np.signbit(got[zeros]))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh"])
def test_devices_that_approximate_lose_few_places(name):
    case = next(c for c in CASES if c.name == name)
    (x,) = arguments(case, np.float32)
    b = ApproximatingBuilder()
    with np.errstate(all="ignore"):
        got = getattr(mathlib, name)(b, b.value(x)).array
        expected = case.reference(x.astype(wide))
        off = ulps_off(got, expected, False)
    normal = ~(np.abs(expected) < np.finfo(np.float32).tiny)  # powers come without denormal numbers on some
    worst = np.argmax(np.where(normal, off, 0))
    assert off[worst] <= 6, f"{name}({x[worst]}) = {got[worst]!r}, expected {expected[worst]!r}"


@pytest.mark.parametrize("dtype", TYPES, ids=["f32", "f64"])
@pytest.mark.parametrize("evaluate", [by_numpy, by_kernel], ids=["numpy", "kernel"])
@pytest.mark.parametrize("case", EXACT, ids=lambda case: case.name)
def test_functions_are_exact(case, evaluate, dtype):
    arrays = arguments(case, dtype)
    with np.errstate(all="ignore"):
        expected = case.reference(*arrays)
    got = evaluate(getattr(mathlib, case.name), *arrays)
    np.testing.assert_array_equal(expected, got)
    signs = ~np.isnan(expected)
    if case.name != "sign":  # NumPy's gives +0 for -0
        np.testing.assert_array_equal(np.signbit(expected[signs]), np.signbit(got[signs]))


@pytest.mark.parametrize("dtype", TYPES, ids=["f32", "f64"])
def test_exact_arguments_give_exact_results(dtype):
    f = lambda name, *arrays: by_kernel(getattr(mathlib, name), *[np.asarray(a, dtype) for a in arrays])
    n = np.arange(-20, 21)
    np.testing.assert_array_equal(2.0**n, f("exp2", n))
    np.testing.assert_array_equal(n, f("log2", 2.0**n))
    np.testing.assert_array_equal(np.arange(11), f("log10", 10.0 ** np.arange(11)))
    np.testing.assert_array_equal(n, f("cbrt", n**3.0))
    for power in range(5):
        np.testing.assert_array_equal(n.astype(float) ** power, f("pow", n, np.full(n.shape, power)))
    np.testing.assert_array_equal([1, 1, 0, 0.5], [*f("exp", [0.0, -0.0]), *f("log", [1.0]), *f("sigmoid", [0.0])])
    np.testing.assert_array_equal(
        [0, 1, 1, 1], [*f("sin", [0.0]), *f("cos", [0.0]), *f("cosh", [0.0]), *f("erfc", [0.0])]
    )
    np.testing.assert_array_equal([5, 13], f("hypot", [3, 5], [4, 12]))


@pytest.mark.parametrize("dtype", TYPES, ids=["f32", "f64"])
def test_frexp_and_ldexp(dtype):
    x = np.concatenate(samples(dtype, 2000, 5))
    b = NumpyBuilder()
    m, e = (part.array for part in mathlib.frexp(b, b.value(x)))
    expected_m, expected_e = np.frexp(x)
    np.testing.assert_array_equal(expected_m, m)
    np.testing.assert_array_equal(np.where(np.isfinite(x), expected_e, 0), e)
    n = np.random.default_rng(6).integers(-2200, 2200, x.size)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.ldexp(x, n), by_kernel(mathlib.ldexp, x, n.astype(dtype)))


@pytest.mark.parametrize("dtype", TYPES, ids=["f32", "f64"])
def test_trigonometry_stays_in_range_for_huge_arguments(dtype):
    x = np.array([2.0**48, 2.0**49, 1e30, -1e30, np.finfo(dtype).max], dtype)
    for name in ("sin", "cos"):
        assert np.all(np.abs(by_kernel(getattr(mathlib, name), x)) <= 1)
    assert np.all(np.isfinite(by_kernel(mathlib.tan, x)))
    near_one = np.linspace(-10, 10, 100_001).astype(dtype)
    for name in ("sin", "cos", "tanh", "erf", "sigmoid"):
        assert np.max(np.abs(by_kernel(getattr(mathlib, name), near_one))) <= 1


@pytest.mark.parametrize("name", [name for name in mathlib.__all__ if name != "frexp"])
def test_kernels_call_nothing_outside(name):
    function = getattr(mathlib, name)
    count = next((case.arguments for case in CASES + EXACT if case.name == name), 2 if name == "ldexp" else 1)
    for dtype in TYPES.values():
        code = instructions(kernel_of(function, *[dtype] * count))
        calls = [line for line in code if line.startswith(("call", "bl\t", "blr"))]
        assert not [line for line in calls if "far_angle" not in line]


def test_sixteen_bit_floats_are_not_taken():
    b = NumpyBuilder()
    with pytest.raises(TypeError, match="float32 and float64"):
        mathlib.exp(b, b.value(np.zeros(1, np.float16)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tanh_of_opposite_numbers_is_opposite(dtype):
    x = np.concatenate(
        [np.random.default_rng(3).uniform(0, 11, 100_000), [0.0, 1e-40, 1e-8, 30.0, 1e30, np.inf]]
    ).astype(dtype)
    there, back = by_kernel(mathlib.tanh, x), by_kernel(mathlib.tanh, -x)
    np.testing.assert_array_equal(np.signbit(back), np.ones(len(x), bool))
    np.testing.assert_array_equal(there, -back)
