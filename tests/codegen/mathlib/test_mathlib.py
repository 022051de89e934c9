"""What holds for all math functions: no calls, 32 and 64 bits alone, little lost on devices that approximate."""

import numpy as np
import pytest

from tandem.codegen import mathlib
from tests.codegen.compiled import instructions, kernel_of
from tests.codegen.mathlib import (
    test_exponential,
    test_gamma,
    test_hyperbolic,
    test_inverse_trigonometric,
    test_logarithm,
    test_normal,
    test_numbers,
    test_powers,
    test_remainder,
    test_trigonometric,
)
from tests.codegen.mathlib.checks import BOTH_TYPES, TYPES, arguments, by_kernel, ulps_off, wide
from tests.codegen.numpy_builder import ApproximatingBuilder, NumpyBuilder

FILES = (
    test_exponential,
    test_gamma,
    test_hyperbolic,
    test_inverse_trigonometric,
    test_logarithm,
    test_normal,
    test_numbers,
    test_powers,
    test_remainder,
    test_trigonometric,
)
CASES = [case for file in FILES for case in file.CASES]


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


@BOTH_TYPES
def test_what_is_at_most_1_stays_so(dtype):
    near_one = np.linspace(-10, 10, 100_001).astype(dtype)
    for name in ("sin", "cos", "tanh", "erf", "sigmoid"):
        assert np.max(np.abs(by_kernel(getattr(mathlib, name), near_one))) <= 1


@pytest.mark.parametrize("name", [name for name in mathlib.__all__ if name != "frexp"])
def test_kernels_call_nothing_outside(name):
    function = getattr(mathlib, name)
    count = next((case.arguments for case in CASES if case.name == name), 2 if name == "ldexp" else 1)
    for dtype in TYPES.values():
        code = instructions(kernel_of(function, *[dtype] * count))
        calls = [line for line in code if line.startswith(("call", "bl\t", "blr"))]
        assert not [line for line in calls if "reduce_angles" not in line]


def test_sixteen_bit_floats_are_not_taken():
    b = NumpyBuilder()
    with pytest.raises(TypeError, match="float32 and float64"):
        mathlib.exp(b, b.value(np.zeros(1, np.float16)))
