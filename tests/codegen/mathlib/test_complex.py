"""Math functions of complex numbers: accuracy against long double, special values against the Array API standard's tables."""

import math

import numpy as np
import pytest

import tandem as td

INF, NAN, PI = math.inf, math.nan, math.pi
REFERENCE = {
    "exp": np.exp, "log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "expm1": np.expm1, "log1p": np.log1p,
}  # fmt: skip
NUMPY_CONFORMS = sorted(set(REFERENCE) - {"expm1", "log1p"})
ULPS = 8.0


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_accuracy(name):
    """Relative to the size of the result; near 1 and at both ends of the range too."""
    rng = np.random.default_rng(0)
    plane = lambda scale: (rng.normal(size=1000) + 1j * rng.normal(size=1000)) * scale
    ring = np.exp(1j * rng.uniform(-PI, PI, 1000)) * (1 + rng.normal(size=1000) * 1e-4)
    for dtype in (np.complex64, np.complex128):
        z = np.concatenate([plane(1), plane(1e-2), plane(30), plane(1e12), ring]).astype(dtype)
        actual = getattr(td, name)(td.tensor(z)).numpy()
        with np.errstate(all="ignore"):
            expected = REFERENCE[name](z.astype(np.clongdouble))
        kept = (
            np.isfinite(expected) & (abs(expected) < np.finfo(dtype).max / 4) & (abs(expected) > np.finfo(dtype).tiny)
        )
        if name == "log1p":  # NumPy's own loses digits there
            kept &= abs(z) > 1e-2
        error = abs(actual[kept] - expected[kept]) / abs(expected[kept]) / np.finfo(dtype).eps
        assert np.max(error) < ULPS, (name, dtype, z[kept][np.argmax(error)])


def agree(actual: complex, expected: complex, z: complex):
    for a, e in ((actual.real, expected.real), (actual.imag, expected.imag)):
        if math.isnan(e):
            if not math.isnan(a):
                return False
        elif math.isinf(e) or e == 0:
            # where z is neither finite nor on an axis, standards leave some signs open
            if abs(a) != abs(e) or (math.isfinite(abs(z)) and math.copysign(1, a) != math.copysign(1, e)):
                return False
        elif not math.isclose(a, e, rel_tol=1e-14):
            return False
    return True


@pytest.mark.parametrize("name", NUMPY_CONFORMS)
def test_special_values(name):
    """Zeros, ones, infinities and NaN in both parts, where NumPy follows C99."""
    parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, INF, -INF, NAN]
    z = np.array([complex(a, b) for a in parts for b in parts])
    actual = getattr(td, name)(td.tensor(z)).numpy()
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](z)
    wrong = [(w, a, e) for w, a, e in zip(z, actual, expected, strict=True) if not agree(a, e, w)]
    assert not wrong, wrong


TABLES = {
    "expm1": {
        (0, 0): (0, 0), (INF, 0): (INF, 0), (-INF, 1): (-1, 0), (INF, 1): (INF, INF), (-INF, INF): (-1, 0),
        (INF, INF): (INF, NAN), (-INF, NAN): (-1, 0), (INF, NAN): (INF, NAN), (NAN, 0): (NAN, 0), (NAN, 1): (NAN, NAN),
        (1, INF): (NAN, NAN), (1, NAN): (NAN, NAN), (NAN, NAN): (NAN, NAN),
    },
    "log1p": {
        (-1, 0): (-INF, 0), (1, INF): (INF, PI / 2), (1, NAN): (NAN, NAN), (-INF, 1): (INF, PI), (INF, 1): (INF, 0),
        (-INF, INF): (INF, 3 * PI / 4), (INF, INF): (INF, PI / 4), (INF, NAN): (INF, NAN), (-INF, NAN): (INF, NAN),
        (NAN, 1): (NAN, NAN), (NAN, INF): (INF, NAN), (NAN, NAN): (NAN, NAN),
    },
    "sqrt": {
        (0, 0): (0, 0), (3, INF): (INF, INF), (NAN, INF): (INF, INF), (-INF, 1): (0, INF), (INF, 1): (INF, 0),
        (-INF, NAN): (NAN, INF), (INF, NAN): (INF, NAN), (NAN, 1): (NAN, NAN), (1, NAN): (NAN, NAN),
    },
    "acosh": {
        (0, 0): (0, PI / 2), (1, INF): (INF, PI / 2), (0, NAN): (NAN, PI / 2), (-INF, 1): (INF, PI), (INF, 1): (INF, 0),
        (-INF, INF): (INF, 3 * PI / 4), (INF, INF): (INF, PI / 4), (INF, NAN): (INF, NAN), (NAN, INF): (INF, NAN),
    },
    "tanh": {
        (0, 0): (0, 0), (1, INF): (NAN, NAN), (0, INF): (0, NAN), (0, NAN): (0, NAN), (INF, 1): (1, 0), (INF, INF): (1, 0),
        (INF, NAN): (1, 0), (NAN, 0): (NAN, 0), (NAN, 1): (NAN, NAN),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TABLES))
def test_tables_of_the_standard(name):
    z = np.array([complex(*k) for k in TABLES[name]])
    actual = getattr(td, name)(td.tensor(z)).numpy()
    for (key, expected), a in zip(TABLES[name].items(), actual, strict=True):
        assert agree(a, complex(*expected), complex(INF, INF)), (key, a, expected)


def test_small_and_large():
    z = np.array([3e-310 + 4e-310j, 1e308 + 1e308j, -1e-170 + 1e-170j, 1e160 - 1e160j])
    t = td.tensor(z)
    np.testing.assert_allclose(td.abs(t).numpy(), np.abs(z), rtol=1e-15)
    np.testing.assert_allclose(td.sqrt(t).numpy(), np.sqrt(z), rtol=1e-15)
    np.testing.assert_allclose(td.log(t).numpy(), np.log(z), rtol=1e-15)
    np.testing.assert_allclose((t / t).numpy(), np.ones(4), atol=1e-15)
    np.testing.assert_allclose(
        td.exp(td.tensor([709.9 + 1j])).numpy()[0].real, math.exp(709.0) * math.exp(0.9) * math.cos(1)
    )
    np.testing.assert_allclose(td.log1p(td.tensor([1e-20 + 1e-20j])).numpy(), [1e-20 + 1e-20j], rtol=1e-6)


def test_powers():
    z, w = np.array([1 + 2j, -3 + 0.5j, 0.1j]), np.array([2 - 1j, 0.5 + 0j, -1.5 + 2j])
    np.testing.assert_allclose(td.power(td.tensor(z), td.tensor(w)).numpy(), z**w, rtol=1e-13)
    np.testing.assert_allclose((td.tensor(z) ** (1.5 + 1j)).numpy(), z ** (1.5 + 1j), rtol=1e-13)
    np.testing.assert_allclose((td.tensor(z) ** 3).numpy(), z**3, rtol=1e-13)
    np.testing.assert_allclose((2.0 ** td.tensor(z)).numpy(), 2.0**z, rtol=1e-13)
    zero = td.tensor([0j, 0j, 1 + 1j], dtype=td.complex128)
    assert td.power(zero, td.tensor([0j, 1 + 1j, 0j])).tolist() == [1, 0, 1]
    np.testing.assert_allclose(
        td.sigmoid(td.tensor(z * 100)).numpy(), 1 / (1 + np.exp(-z * 100)), rtol=1e-10, atol=1e-30
    )
    np.testing.assert_allclose(td.exp2(td.tensor(z)).numpy(), 2.0**z, rtol=1e-14)
    np.testing.assert_allclose(td.rsqrt(td.tensor(z)).numpy(), 1 / np.sqrt(z), rtol=1e-14)
