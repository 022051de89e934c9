"""Fits the polynomials of tandem/codegen/mathlib and writes coefficients.py there. Needs mpmath.

    python tools/fit_polynomials.py            all of them
    python tools/fit_polynomials.py EXP ERF    show these only

Each fit is minimax: the largest weighted error on the interval is as small as it can be (Remez exchange on a fine grid).
The coefficients are then rounded one after the other, lowest power first, and the rest fitted again around each rounded
one, so that rounding to the target type costs little.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp
import numpy as np

mp.mp.dps = 45


@dataclass
class Fit:
    name: str
    doc: str  # what the polynomial stands for
    function: object  # the ideal polynomial, as a function of its variable
    interval: tuple
    degree: int
    dtype: str = "float64"
    weight: object = lambda x: 1  # error is measured as weight(x) * (polynomial - function)

    def solve(self):
        lo, hi = (mp.mpf(v) for v in self.interval)
        count = max(400, 24 * self.degree)
        xs = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / count) for i in range(count)]
        ws = [abs(mp.mpf(self.weight(x))) for x in xs]
        # Where the weight goes through zero the error does not count; left in, those points would upset the exchange.
        xs, ws = zip(*[(x, w) for x, w in zip(xs, ws) if w > max(ws) / 100])
        fs = [self.function(x) for x in xs]
        ideal = remez(xs, fs, ws, self.degree, {})
        measure = lambda cs: max(abs(w * (mp.polyval(cs[::-1], x) - f)) for x, f, w in zip(xs, fs, ws))
        candidates = [[self.rounded(c) for c in ideal]]
        fixed, coefficients = {}, ideal
        for k in range(self.degree + 1 if self.dtype == "float32" else 4):
            fixed[k] = self.rounded(coefficients[k])
            if k < self.degree:
                coefficients = remez(xs, fs, ws, self.degree, fixed)
            candidates.append([fixed.get(k, self.rounded(c)) for k, c in enumerate(coefficients)])
        best = min(candidates, key=measure)
        return [float(c) for c in best], float(measure(best)), float(measure(ideal))

    def rounded(self, value):
        value = float(value)
        return mp.mpf(float(np.float32(value)) if self.dtype == "float32" else value)


def remez(xs, fs, ws, degree, fixed):
    """Coefficients of the minimax polynomial on the grid; those in `fixed` are kept."""
    free = [k for k in range(degree + 1) if k not in fixed]
    targets = [f - sum(c * x**k for k, c in fixed.items()) for x, f in zip(xs, fs)]
    n = len(free)
    powers = [[x**k for k in free] for x in xs]
    points = [round(i * (len(xs) - 1) / n) for i in range(n + 1)]
    best = None
    for _ in range(30):
        matrix = mp.matrix(n + 1, n + 1)
        right = mp.matrix(n + 1, 1)
        for row, i in enumerate(points):
            for column in range(n):
                matrix[row, column] = powers[i][column]
            matrix[row, n] = (-1) ** row / ws[i]
            right[row] = targets[i]
        solution = mp.lu_solve(matrix, right)
        errors = [w * (t - sum(p * solution[j] for j, p in enumerate(ps))) for w, t, ps in zip(ws, targets, powers)]
        largest = max(abs(e) for e in errors)
        if best is None or largest < best[0]:
            best = (largest, solution)
        if largest <= abs(solution[n]) * mp.mpf("1.001"):
            break
        runs = []  # the extreme of each stretch of one sign
        for i, e in enumerate(errors):
            if runs and (e > 0) == (errors[runs[-1]] > 0):
                if abs(e) > abs(errors[runs[-1]]):
                    runs[-1] = i
            else:
                runs.append(i)
        if len(runs) < n + 1:
            break
        while len(runs) > n + 1:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        points = runs
    result = [mp.mpf(0)] * (degree + 1)
    for k, c in fixed.items():
        result[k] = c
    for j, k in enumerate(free):
        result[k] = best[1][j]
    return result


def odd_tail(function):
    """z -> (function(x) - x) / x^3 with x = sqrt(z), and its weight relative to the function's value."""

    def tail(z):
        x = mp.sqrt(z)
        with mp.workdps(70):
            return (function(x) - x) / x**3

    return tail, lambda z: mp.sqrt(z) ** 3 / function(mp.sqrt(z))


def both(name, doc, function, interval, degrees, weight=lambda x: 1, **options):
    for dtype, degree in zip(("float32", "float64"), degrees):
        if degree is not None:
            yield Fit(f"{name}_{'F32' if dtype == 'float32' else 'F64'}", doc, function, interval, degree, dtype, weight,
                      **options)  # fmt: skip


def exact(function, digits=70):
    def f(x):
        with mp.workdps(digits):
            return function(x)

    return f


def erfc_scaled(k):
    """t -> exp(x^2) erfc(x) (1 + 2x) where t = (x - k) / (x + k)."""

    def f(t):
        with mp.workdps(60):
            x = k * (1 + t) / (1 - t)
            return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)

    return f


def erfinv_tail(s):
    """erfinv(x) where s = sqrt(-log(1 - x^2))."""
    with mp.workdps(60):
        y = mp.exp(-s * s)  # 1 - x^2
        complement = y / (1 + mp.sqrt(1 - y))  # 1 - x
        guess = mp.mpf(s)
        for _ in range(60):
            step = (mp.erfc(guess) - complement) / (-2 / mp.sqrt(mp.pi) * mp.exp(-guess * guess))
            step = step / (1 + guess * step)  # Halley
            guess -= step
            if abs(step) < mp.mpf(10) ** -50:
                break
        return guess


LN2 = mp.log(2)


def fits():
    half = LN2 / 2 * mp.mpf("1.02")
    yield from both(
        "EXP", "(e^x - 1 - x) / x^2; relative to e^x", exact(lambda x: (mp.exp(x) - 1 - x) / x**2),
        (-half, half), (4, 9), lambda x: x**2 / mp.exp(x))  # fmt: skip
    yield Fit("EXP_SINGLE", "the same to 34 bits", exact(lambda x: (mp.exp(x) - 1 - x) / x**2), (-half, half), 5, "float64",
              lambda x: x**2 / mp.exp(x))  # fmt: skip
    yield from both(
        "EXPM1", "(e^x - 1 - x) / x^2; relative to e^x - 1", exact(lambda x: (mp.exp(x) - 1 - x) / x**2),
        (-half, half), (5, 10), lambda x: x**2 / mp.expm1(x))  # fmt: skip
    yield from both("EXP2", "(2^x - 1) / x; relative to 2^x", exact(lambda x: (2**x - 1) / x), (-0.505, 0.505), (5, 11),
                    lambda x: x / 2**x)  # fmt: skip
    yield Fit("EXP2_SINGLE", "2^x to 36 bits", exact(lambda x: (2**x - 1) / x), (-0.505, 0.505), 7, "float64",
              lambda x: x / 2**x)  # fmt: skip
    yield from both("LOG", "(log(1 + x) - x) / x^2; relative to log(1 + x)", exact(lambda x: (mp.log1p(x) - x) / x**2),
                    (mp.sqrt(0.5) - 1, mp.sqrt(2) - 1), (8, None), lambda x: x**2 / mp.log1p(x))  # fmt: skip
    top = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.01")
    atanh2 = lambda z: 2 * mp.atanh(mp.sqrt(z))
    yield Fit("LOG_F64", "(log((1+s)/(1-s)) - 2s) / s^3 in s^2", exact(lambda z: (atanh2(z) - 2 * mp.sqrt(z)) / mp.sqrt(z) ** 3),
              (0, top), 6, "float64", lambda z: mp.sqrt(z) ** 3 / atanh2(z))  # fmt: skip
    yield Fit("LOG_SINGLE", "the same to 36 bits", exact(lambda z: (atanh2(z) - 2 * mp.sqrt(z)) / mp.sqrt(z) ** 3),
              (0, top), 4, "float64", lambda z: mp.sqrt(z) ** 3 / atanh2(z))  # fmt: skip
    yield Fit("LOG_TAIL", "(log((1+s)/(1-s)) - 2s - 2s^3/3) / s^5 in s^2",
              exact(lambda z: (atanh2(z) - 2 * mp.sqrt(z) - 2 * mp.sqrt(z) ** 3 / 3) / mp.sqrt(z) ** 5),
              (0, top), 7, "float64", lambda z: mp.sqrt(z) ** 5 / atanh2(z))  # fmt: skip

    quarter, full = (mp.pi / 4 * mp.mpf("1.03")) ** 2, (mp.pi / 2 * mp.mpf("1.03")) ** 2
    sin_tail, sin_weight = odd_tail(mp.sin)
    yield from both("SIN_WIDE", "(sin(x) - x) / x^3 in x^2, |x| <= pi/2", sin_tail, (0, full), (4, 7), sin_weight)
    yield from both("SIN", "(sin(x) - x) / x^3 in x^2, |x| <= pi/4", sin_tail, (0, quarter), (2, 6), sin_weight)
    cos_tail = exact(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2)
    yield from both("COS", "(cos(x) - 1 + x^2/2) / x^4 in x^2, |x| <= pi/4", cos_tail, (0, quarter), (2, 5),
                    lambda z: z**2 / mp.cos(mp.sqrt(z)))  # fmt: skip

    asin_tail, asin_weight = odd_tail(mp.asin)
    yield from both("ASIN", "(asin(x) - x) / x^3 in x^2, |x| <= 1/2", asin_tail, (0, 0.2502), (4, 12), asin_weight)
    atan_tail, atan_weight = odd_tail(mp.atan)
    yield from both("ATAN", "(atan(x) - x) / x^3 in x^2, |x| <= tan(pi/8)", atan_tail, (0, mp.tan(mp.pi / 8) ** 2 * 1.01),
                    (4, 10), atan_weight)  # fmt: skip
    sinh_tail, sinh_weight = odd_tail(mp.sinh)
    yield from both("SINH", "(sinh(x) - x) / x^3 in x^2, |x| <= 1", sinh_tail, (0, 1.01), (3, 6), sinh_weight)
    tanh_tail, tanh_weight = odd_tail(mp.tanh)
    yield from both("TANH", "(tanh(x) - x) / x^3 in x^2, |x| <= 0.55", tanh_tail, (0, 0.303), (3, None), tanh_weight)
    yield from both(
        "TANH_NEAR", "(tanh(x) - x) / x^3 in x^2, |x| <= ln 2 / 4", tanh_tail, (0, 0.0306), (1, None), tanh_weight
    )

    erf_small = exact(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1)
    erf_small = exact(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1)
    yield from both("ERF", "erf(x) / x - 1 in x^2, |x| <= 1.25", erf_small, (0, 1.5626), (7, 13),
                    lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)))  # fmt: skip
    root8 = lambda x: mp.erfc(x) ** (mp.mpf(1) / 8)
    yield Fit("ERF_BIG_F32", "erfc(x)^(1/8), 1.25 <= x <= 4; error of erf", root8, (1.24, 4), 6, "float32",
              lambda x: 8 * root8(x) ** 7)  # fmt: skip
    for name, degree, bound in ("ERFC_SINGLE", 11, 11), ("ERFC_F64", 22, 28):
        yield Fit(name, "exp(x^2) erfc(x) (1 + 2x) in (x - 4)/(x + 4)", erfc_scaled(4),
                  (-0.82, mp.mpf(bound - 4) / (bound + 4)), degree, "float64", lambda t: 1 / erfc_scaled(4)(t))  # fmt: skip
    erfinv_mid = exact(lambda z: mp.erfinv(mp.sqrt(z)) / mp.sqrt(z) - 1)
    yield from both("ERFINV", "erfinv(x) / x - 1 in x^2, |x| <= 1/2", erfinv_mid, (1e-12, 0.2501), (7, 14),
                    lambda z: 1 / (1 + erfinv_mid(z)))  # fmt: skip
    for name, middle, width, degree, dtype in (
        ("ERFINV_NEAR_F32", "1.25", "0.752", 9, "float32"),
        ("ERFINV_FAR_F32", "3", "1.02", 9, "float32"),
        ("ERFINV_NEAR_F64", "1.25", "0.752", 9, "float64"),
        ("ERFINV_FAR_F64", "4.1", "2.12", 11, "float64"),
    ):
        m = mp.mpf(middle)
        tail = lambda u, m=m: erfinv_tail(u + m) - u - m
        yield Fit(name, f"erfinv(x) - s in s - {middle}, s = sqrt(-log(1 - x^2))", tail, ("-" + width, width), degree, dtype,
                  lambda u, m=m: 1 / erfinv_tail(u + m))  # fmt: skip

    cbrt = lambda m: mp.cbrt(m)
    yield Fit(
        "CBRT", "first guess of cbrt(x), 0.35 <= x <= 2.83", cbrt, (0.353, 2.83), 4, "float32", lambda m: 1 / cbrt(m)
    )
    yield Fit("LGAMMA", "lgamma(2 + x) / x", exact(lambda x: mp.loggamma(2 + x) / x), (-0.5, 1), 21, "float64",
              lambda x: 1 / (mp.loggamma(2 + x) / x))  # fmt: skip


HEADER = '''"""Coefficients of the polynomials, lowest power first. Written by tools/fit_polynomials.py; change them there."""

'''


def main(wanted):
    text = HEADER
    for fit in fits():
        if wanted and not any(fit.name.startswith(w) for w in wanted):
            continue
        coefficients, error, ideal = fit.solve()
        lo, hi = (float(v) for v in fit.interval)
        found, best = (f"2^{float(mp.log(e, 2)):.1f}" for e in (error, ideal))
        print(f"{fit.name:18} degree {fit.degree:2}  error {found}  unrounded {best}", flush=True)
        text += f"# {fit.doc}: on [{lo:.4g}, {hi:.4g}] error {found}\n{fit.name} = (\n"
        text += "".join(f"    {c!r},\n" for c in coefficients) + ")\n"
    if not wanted:
        path = Path(__file__).parent.parent / "tandem/codegen/mathlib/coefficients.py"
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
