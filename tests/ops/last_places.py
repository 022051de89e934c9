"""How far public functions are off, in units of the last place, measured with mpmath.

    python -m tests.ops.last_places [points]

prints the table. Points are spread over the exponents of the interval, where floating-point numbers are, with some near what is
hard: zeros, ones, ends. `allowed` is the bar for (float32, float64); the tests hold every function to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np

import tandem as td


class Case(NamedTuple):
    function: Callable
    exact: Callable  # of an mpf
    low: float
    high: float
    allowed: tuple[float, float]
    scale: float = (
        0.0  # errors near zeros of the function count relative to this, as its argument cannot be given better
    )


def _exp2(x):
    return mpmath.power(2, x)


CASES = {
    "exp": Case(td.exp, mpmath.exp, -80, 80, (1, 1)),
    "exp2": Case(td.exp2, _exp2, -120, 120, (1, 1)),
    "expm1": Case(td.expm1, mpmath.expm1, -80, 80, (2, 2)),
    "log": Case(td.log, mpmath.log, 1e-30, 1e30, (1, 1)),
    "log2": Case(td.log2, lambda x: mpmath.log(x, 2), 1e-30, 1e30, (2, 2)),
    "log10": Case(td.log10, mpmath.log10, 1e-30, 1e30, (2, 2)),
    "log1p": Case(td.log1p, mpmath.log1p, -0.99, 1e30, (2, 2)),
    "sqrt": Case(td.sqrt, mpmath.sqrt, 1e-30, 1e30, (0.51, 0.51)),
    "rsqrt": Case(td.rsqrt, lambda x: 1 / mpmath.sqrt(x), 1e-30, 1e30, (2, 2)),
    "cbrt": Case(td.cbrt, mpmath.cbrt, 1e-30, 1e30, (2, 2)),
    "sin": Case(td.sin, mpmath.sin, -1e4, 1e4, (2, 2)),
    "cos": Case(td.cos, mpmath.cos, -1e4, 1e4, (2, 2)),
    "tan": Case(td.tan, mpmath.tan, -1e4, 1e4, (4, 4)),
    "asin": Case(td.asin, mpmath.asin, -1, 1, (3, 3)),
    "acos": Case(td.acos, mpmath.acos, -1, 1, (3, 3)),
    "atan": Case(td.atan, mpmath.atan, -1e6, 1e6, (2, 2)),
    "sinh": Case(td.sinh, mpmath.sinh, -80, 80, (3, 3)),
    "cosh": Case(td.cosh, mpmath.cosh, -80, 80, (3, 3)),
    "tanh": Case(td.tanh, mpmath.tanh, -20, 20, (3, 3)),
    "asinh": Case(td.asinh, mpmath.asinh, -1e30, 1e30, (4, 4)),
    "acosh": Case(td.acosh, mpmath.acosh, 1, 1e30, (4, 4)),
    "atanh": Case(td.atanh, mpmath.atanh, -0.999, 0.999, (4, 4)),
    "sigmoid": Case(td.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), -80, 80, (4, 4)),
    "erf": Case(td.erf, mpmath.erf, -6, 6, (4, 4)),
    "erfc": Case(td.erfc, mpmath.erfc, -5, 8, (8, 16)),
    "erfinv": Case(td.erfinv, mpmath.erfinv, -0.999, 0.999, (8, 8)),
    "lgamma": Case(td.lgamma, mpmath.loggamma, 0.01, 1e4, (8, 8), 1.0),
    "digamma": Case(td.digamma, mpmath.digamma, 0.01, 1e4, (8, 8), 1.0),
    "softplus": Case(td.nn.functional.softplus, lambda x: mpmath.log1p(mpmath.exp(x)), -50, 15, (4, 4)),
    "gelu": Case(td.nn.functional.gelu, lambda x: x * mpmath.ncdf(x), -4, 20, (16, 16), 1.0),
    "silu": Case(td.nn.functional.silu, lambda x: x / (1 + mpmath.exp(-x)), -50, 50, (4, 4)),
    "sinc": Case(td.sinc, lambda x: mpmath.sincpi(x), -20, 20, (8, 8), 1.0),
    "bessel_j0": Case(td.special.bessel_j0, lambda x: mpmath.besselj(0, x), -50, 50, (8, 16), 1.0),
    "bessel_j1": Case(td.special.bessel_j1, lambda x: mpmath.besselj(1, x), -50, 50, (8, 16), 1.0),
    "i0": Case(td.special.i0, lambda x: mpmath.besseli(0, x), -50, 50, (8, 8)),
    "i1": Case(td.special.i1, lambda x: mpmath.besseli(1, x), -50, 50, (8, 8)),
    # Its argument is divided by the root of 2, and the rounding of that counts x squared times.
    "ndtr": Case(td.special.ndtr, mpmath.ncdf, -8, 8, (64, 96)),
    "ndtri": Case(td.special.ndtri, lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1), 0.01, 0.99, (16, 16), 1.0),
    "entr": Case(td.special.entr, lambda x: -x * mpmath.log(x), 1e-6, 50, (4, 4), 1.0),
    "erfcx": Case(td.special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), -5, 20, (16, 16)),
}


def points(case: Case, count: int, dtype) -> np.ndarray:
    rng = np.random.default_rng(0)
    largest = max(abs(case.low), abs(case.high))
    spread = largest * 2.0 ** rng.uniform(-60, 0, 4 * count) * rng.choice([-1, 1], 4 * count)
    even = rng.uniform(case.low, case.high, count)
    near = np.concatenate([c + rng.normal(size=count // 4) * 1e-3 for c in (0, 1, -1, 2, case.low, case.high)])
    found = np.concatenate([spread, even, near]).astype(dtype)
    found = found[(found >= case.low) & (found <= case.high) & (np.abs(found) > 1e-30)]
    return rng.permutation(found)[:count]


def errors(name: str, count: int, dtype) -> tuple[float, float]:
    """(the largest error in units of the last place, where)."""
    case = CASES[name]
    x = points(case, count, dtype)
    found = case.function(td.tensor(x)).numpy()
    assert found.dtype == x.dtype
    worst, where = 0.0, float("nan")
    with mpmath.workdps(40):
        for v, got in zip(x.tolist(), found.tolist(), strict=True):
            exact = case.exact(mpmath.mpf(v)).real
            size = max(abs(float(exact)), case.scale, float(np.finfo(dtype).tiny))
            last = float(np.spacing(np.asarray(size, dtype=dtype)))
            off = float(abs(mpmath.mpf(got) - exact) / last) if np.isfinite(got) else float("inf")
            if off > worst:
                worst, where = off, v
    return worst, where


def table(count: int) -> str:
    lines = ["| function | interval | float32 | float64 |", "| --- | --- | --- | --- |"]
    for name, case in CASES.items():
        single, double = (errors(name, count, dtype)[0] for dtype in (np.float32, np.float64))
        lines.append(f"| `{name}` | {case.low:g} … {case.high:g} | {single:.2f} | {double:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
