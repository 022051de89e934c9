"""Math functions against a wider reference: on random bit patterns, dense ranges and all special values.

Each is evaluated twice: by NumPy, operation for operation, and by a compiled kernel.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tandem import dtypes
from tandem.codegen import mathlib
from tests.codegen.compiled import kernel_of, run_kernel
from tests.codegen.numpy_builder import NumpyBuilder

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


def on_float64(function):
    vectorized = np.vectorize(function, otypes=[np.float64])
    return lambda x: vectorized(x.astype(np.float64)).astype(wide)


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


BOTH_TYPES = pytest.mark.parametrize("dtype", TYPES, ids=["f32", "f64"])
BOTH_WAYS = pytest.mark.parametrize("evaluate", [by_numpy, by_kernel], ids=["numpy", "kernel"])


def check_last_places(case, evaluate, dtype):
    """The function is within its units in the last place of the reference, zeros have its sign."""
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


def check_exact(case, evaluate, dtype):
    """The function is the reference, bit for bit."""
    arrays = arguments(case, dtype)
    with np.errstate(all="ignore"):
        expected = case.reference(*arrays)
    got = evaluate(getattr(mathlib, case.name), *arrays)
    np.testing.assert_array_equal(expected, got)
    signs = ~np.isnan(expected)
    if case.name != "sign":  # NumPy's gives +0 for -0
        np.testing.assert_array_equal(np.signbit(expected[signs]), np.signbit(got[signs]))
