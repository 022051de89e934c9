"""Fits the series behind Bessel's and Airy's functions and the normal distribution: Chebyshev series for
src/library/special_tables.h, polynomials for tandem/codegen/mathlib/special_coefficients.py. Needs mpmath.

    python tools/fit_special.py

Every series stands for a function that varies little on its interval; the number of terms is what float64 needs.
"""

from pathlib import Path

import mpmath as mp

mp.mp.dps = 60
ROOT = Path(__file__).parent.parent
TABLES = ROOT / "src" / "library" / "special_tables.h"
COEFFICIENTS = ROOT / "tandem" / "codegen" / "mathlib" / "special_coefficients.py"
NEAR = 6  # where I changes from the series in x to that in 1 / x
AIRY = 10  # where Ai changes to its asymptotic series; pieces of width 2 lie between


def chebyshev(function, low, high, count=80, bits=56):
    """Coefficients on [low, high], cut where they no longer count; the first is halved already."""
    low, high = mp.mpf(low), mp.mpf(high)
    nodes = [mp.cos(mp.pi * (i + mp.mpf(1) / 2) / count) for i in range(count)]
    values = [function((low + high) / 2 + (high - low) / 2 * t) for t in nodes]
    made = []
    for k in range(count):
        total = sum(v * mp.cos(mp.pi * k * (i + mp.mpf(1) / 2) / count) for i, v in enumerate(values))
        made.append(total * 2 / count)
    made[0] /= 2
    size = max(abs(c) for c in made)
    while abs(made[-1]) < size * mp.mpf(2) ** -bits:
        made.pop()
    return made


def powers(series):
    """A Chebyshev series as coefficients of powers, lowest first."""
    before, here, made = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)], [mp.mpf(0)] * len(series)
    for c in series:
        for i, t in enumerate(before):
            made[i] += c * t
        after = [mp.mpf(0)] + [2 * t for t in here]
        for i, t in enumerate(before):
            after[i] -= t
        before, here = here, after
    return made


def tail(u):
    """Where erfc is q, less s = 1 / u, for q with q (2 - q) = exp(-s^2)."""
    s = 1 / u
    e = mp.exp(-s * s)
    q = e / (1 + mp.sqrt(1 - e))
    return mp.findroot(lambda x: mp.log(mp.erfc(x)) - mp.log(q), s) - s


def far(function, limit, start):
    """sqrt(x) times a function on [start, infinity), in u = start / x from 0 to 1."""
    return lambda u: limit if u == 0 else mp.sqrt(start / u) * function(start / u)


def airy(derivative):
    def value(x):
        scale = mp.exp(mp.mpf(2) / 3 * x ** mp.mpf("1.5")) if x > 2 else 1
        return mp.airyai(x, derivative=derivative) * scale

    return value


def k0_rest(square):
    x = mp.sqrt(square)
    return -mp.euler if x == 0 else mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def k1_rest(square):
    x = mp.sqrt(square)
    return mp.mpf(1) if x == 0 else x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))


ONE = 1 / mp.sqrt(2 * mp.pi)
HALF = mp.sqrt(mp.pi / 2)
SERIES = {
    "I0_NEAR": ("exp(-x) I0(x) on [0, 6]", lambda x: mp.exp(-x) * mp.besseli(0, x), 0, NEAR),
    "I0_FAR": ("sqrt(x) exp(-x) I0(x) in 6/x", far(lambda x: mp.exp(-x) * mp.besseli(0, x), ONE, NEAR), 0, 1),
    "I1_NEAR": ("exp(-x) I1(x) / x on [0, 6]", lambda x: mp.exp(-x) * mp.besseli(1, x) / x, 0, NEAR),
    "I1_FAR": ("sqrt(x) exp(-x) I1(x) in 6/x", far(lambda x: mp.exp(-x) * mp.besseli(1, x), ONE, NEAR), 0, 1),
    "K0_NEAR": ("K0(x) + log(x/2) I0(x) in x^2 on [0, 4]", k0_rest, 0, 4),
    "K0_FAR": ("sqrt(x) exp(x) K0(x) in 2/x", far(lambda x: mp.exp(x) * mp.besselk(0, x), HALF, 2), 0, 1),
    "K1_NEAR": ("x (K1(x) - log(x/2) I1(x)) in x^2 on [0, 4]", k1_rest, 0, 4),
    "K1_FAR": ("sqrt(x) exp(x) K1(x) in 2/x", far(lambda x: mp.exp(x) * mp.besselk(1, x), HALF, 2), 0, 1),
}


# Bessel's Y for float32: near zero what is left of it without the logarithm, in x^2; far out the two parts that turn with x.
Y_NEAR = 8  # where it changes from one to the other


def y_rest(order):
    def value(square):
        x = mp.sqrt(square) if square else mp.mpf(10) ** -20
        rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        return rest if order == 0 else (rest + 2 / (mp.pi * x)) / x

    return value


def j_near(order):
    def value(square):
        x = mp.sqrt(square) if square else mp.mpf(10) ** -20
        return mp.besselj(order, x) / x**order

    return value


def turning(order, odd):
    """P (or Q / u) of sqrt(pi x / 2) Y = P sin(x - phase) + Q cos(x - phase), in u^2 for u = 8 / x."""

    def value(square):
        u = mp.sqrt(square) if square > mp.mpf(10) ** -30 else mp.mpf(10) ** -15
        x = Y_NEAR / u
        phase = x - (2 * order + 1) * mp.pi / 4
        j, y, size = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(mp.pi * x / 2)
        if odd:
            return size * (y * mp.cos(phase) - j * mp.sin(phase)) / u
        return size * (j * mp.cos(phase) + y * mp.sin(phase))

    return value


Y_SERIES = {}
for n in (0, 1):
    Y_SERIES[f"Y{n}_NEAR"] = (
        f"Y{n} without the logarithm (order 1: and 1/x, over x), x^2 on [0, 64]",
        y_rest(n),
        0,
        64,
        34,
    )
    Y_SERIES[f"J{n}_NEAR"] = (f"J{n}(x) / x^{n}, x^2 on [0, 64]", j_near(n), 0, 64, 34)
    Y_SERIES[f"Y{n}_P"] = (f"P of Y{n}, (8/x)^2 on [0, 1]", turning(n, False), 0, 1, 30)
    Y_SERIES[f"Y{n}_Q"] = (f"Q x / 8 of Y{n}, (8/x)^2 on [0, 1]", turning(n, True), 0, 1, 30)


def show(numbers) -> str:
    lines, line = [], "    "
    for n in numbers:
        text = f"{float(n)!r}, "
        if len(line) + len(text) > 118:
            lines.append(line.rstrip())
            line = "    "
        line += text
    return "\n".join([*lines, line.rstrip(" ,")])


def main():
    parts = [
        "// Chebyshev series of Bessel's and Airy's functions. Written by tools/fit_special.py; change them there.",
        "#pragma once",
        "",
        "// clang-format off",
        "namespace tandem::library::special {",
    ]
    for name, (text, function, low, high) in SERIES.items():
        parts.append(f"\n// {text}\ninline constexpr double k{name}[] = {{\n{show(chebyshev(function, low, high))}}};")
    for name, derivative in (("AI", 0), ("AI_SLOPE", 1)):
        pieces = [chebyshev(airy(derivative), low, low + 2, 40) for low in range(-AIRY, AIRY, 2)]
        terms = max(len(p) for p in pieces)
        text = "Ai" if derivative == 0 else "the derivative of Ai"
        rows = ",\n".join("   {" + show(p + [0.0] * (terms - len(p))).strip() + "}" for p in pieces)
        parts.append(
            f"\n// {text} on [-10, -8], ..., [8, 10]; times exp(2/3 x^1.5) where x > 2\n"
            f"inline constexpr double k{name}[{len(pieces)}][{terms}] = {{\n{rows}}};"
        )
    parts.append("\n}  // namespace tandem::library::special\n")
    TABLES.write_text("\n".join(parts))
    parts = [
        '"""Coefficients of polynomials on [-1, 1], lowest power first. Written by tools/fit_special.py; change them there."""'
    ]
    for name in ("I0_NEAR", "I0_FAR", "I1_NEAR", "I1_FAR"):
        text, function, low, high = SERIES[name]
        for suffix, bits in (("F32", 30), ("F64", 55)):
            made = powers(chebyshev(function, low, high, bits=bits))
            parts.append(f"\n# {text}, to {bits} bits\n{name}_{suffix} = (\n{show(made)},\n)  # fmt: skip")
    for name, (text, function, low, high, bits) in Y_SERIES.items():
        made = powers(chebyshev(function, low, high, 40, bits=bits))
        parts.append(f"\n# {text}, to {bits} bits\n{name} = (\n{show(made)},\n)  # fmt: skip")
    made = powers(chebyshev(tail, 1 / mp.mpf("27.3"), 1 / mp.mpf("5.5"), 24, bits=30))
    parts.append(
        f"\n# where erfc is q less s, in 1/s on [1/27.3, 1/5.5], to 30 bits\nERFC_INVERSE_TAIL = (\n{show(made)},\n)  # fmt: skip\n"
    )
    COEFFICIENTS.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
