"""Formulas for what Python code computes from sizes, found from the values that it has for several of them.

    whole(at, base, groups)     an integer: products and sums of sizes, quotients, remainders, round-ups
    real(at, base, groups)      a number: powers of sizes, their logarithm, and sums, quotients and roots of those

`at(sizes)` is the value for these sizes, None where there is none; `base` are sizes with a value. Each yields formulas that hold
for the sizes that it asked for, the simplest first; who asks looks at further ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import tandem.ops as F
from tandem import dtypes
from tandem.graph.symbolic import Dim

_MOST_RESIDUES = 64  # the longest period of quotients and remainders that is looked for
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Whole:
    """An integer made of sizes, plain or symbolic ones."""

    function: Callable[[dict], Dim]
    is_whole = True  # gives integers, which may be sizes

    def at(self, sizes: dict) -> int:
        return self.function(sizes)

    def holds(self, sizes: dict, value) -> bool:
        return self.function(sizes) == value

    def value(self, sizes: dict, dtype):
        return constant_or_size(self.function(sizes), dtype)


@dataclasses.dataclass(frozen=True)
class Plain:
    """A number that no size changes."""

    number: int | float

    @property
    def is_whole(self) -> bool:
        return float(self.number).is_integer()

    def at(self, sizes: dict):
        return self.number

    def holds(self, sizes: dict, value) -> bool:
        return self.number == value

    def function(self, sizes: dict) -> int:
        return int(self.number)

    def value(self, sizes: dict, dtype):
        return F.Constant(self.number, dtype)()


def constant_or_size(dim: Dim, dtype):
    return F.Constant(dim, dtype)() if isinstance(dim, int) else F.Size(dim, dtype)()


def is_near(number, value) -> bool:
    """Whether a formula's number is the one that Python computed, in another order perhaps."""
    return math.isclose(number, value, rel_tol=_TOLERANCE)


@dataclasses.dataclass(frozen=True)
class Real:
    """outer(scale * product + offset), where the product is of powers of sizes, or a logarithm."""

    powers: dict  # by size
    scale: float
    offset: float = 0.0
    outer: str = "itself"
    logarithm: bool = False
    is_whole = False

    def at(self, sizes: dict) -> float:
        product = math.prod(float(sizes[g]) ** e for g, e in self.powers.items())
        inner = self.scale * (math.log(product) if self.logarithm else product) + self.offset
        if inner <= 0 and self.outer != "itself":
            return math.nan
        return _OUTER[self.outer].of(inner)

    def holds(self, sizes: dict, value) -> bool:
        return is_near(self.at(sizes), value)

    def value(self, sizes: dict, dtype):
        product = None
        for g, e in self.powers.items():
            size = F.Size(sizes[g], dtypes.float64)()
            power = _power(size, abs(e))
            if product is None:
                product = 1.0 / power if e < 0 else power
            else:
                product = product / power if e < 0 else product * power
        product = F.log(product) if self.logarithm else product
        inner = product * self.scale + self.offset if self.offset else product * self.scale
        return F.Cast(dtype)(_OUTER[self.outer].written(inner))


def _power(x, e):
    whole = int(e)
    factors = [x] * whole + ([F.sqrt(x)] if e != whole else [])
    made = factors[0]
    for factor in factors[1:]:
        made = made * factor
    return made


@dataclasses.dataclass(frozen=True)
class _Function:
    of: Callable
    inverse: Callable
    written: Callable


_OUTER = {
    "itself": _Function(lambda v: v, lambda v: v, lambda x: x),
    "reciprocal": _Function(lambda v: 1 / v, lambda v: 1 / v, lambda x: 1.0 / x),
    "root": _Function(math.sqrt, lambda v: v * v, lambda x: F.sqrt(x)),
    "reciprocal root": _Function(lambda v: 1 / math.sqrt(v), lambda v: 1 / (v * v), lambda x: 1.0 / F.sqrt(x)),
}


def whole(at, base: dict, groups: list):
    """Whole formulas, the simplest first."""
    if len(groups) == 1:
        (g,) = groups
        yield from _of_one(lambda n: at({**base, g: n}), base[g], g)
        return
    value, steps = at(base), {g: _slope(at, base, g) for g in groups}
    if None in steps.values():
        return
    rest = value - sum(s * base[g] for g, s in steps.items())
    yield line(steps, rest)
    product = math.prod(base[g] for g in groups)
    scale = Fraction(value, product)
    yield _quotient(lambda sizes: scale.numerator * math.prod(sizes[g] for g in groups), scale.denominator)


def _slope(at, base: dict, g) -> Fraction | None:
    """By how much the value grows with this size."""
    for n in range(base[g] + 1, 2 * base[g] + 1):
        there = at({**base, g: n})
        if there is not None:
            return Fraction(there - at(base), n - base[g])
    return None


def line(slopes: dict, rest) -> Whole:
    """The sum of sizes times fractions, rounded down."""
    rest = Fraction(rest)
    divisor = math.lcm(rest.denominator, *(s.denominator for s in slopes.values()))
    terms = [(g, int(s * divisor)) for g, s in slopes.items()]
    return _quotient(lambda sizes: sum(sizes[g] * c for g, c in terms) + int(rest * divisor), divisor)


def _quotient(function, divisor: int) -> Whole:
    return Whole(function if divisor == 1 else lambda sizes: function(sizes) // divisor)


def _of_one(at, n: int, g):
    step = next((s for s in range(1, n + 1) if at(n + s) is not None), None)
    if step is None:
        return
    values = [at(n + i * step) for i in range(4)]
    if None in values:
        return
    slope = Fraction(values[1] - values[0], step)
    if slope:
        yield line({g: slope}, values[0] - slope * n)
    bend = values[2] - 2 * values[1] + values[0]
    if bend:  # a n^2 + b n + c
        a = Fraction(bend, 2 * step * step)
        b = slope - a * (2 * n + step)
        c = values[0] - a * n * n - b * n
        divisor = math.lcm(a.denominator, b.denominator, c.denominator)
        a, b, c = (int(v * divisor) for v in (a, b, c))
        yield _quotient(lambda sizes: sizes[g] * sizes[g] * a + sizes[g] * b + c, divisor)
    for period in range(2, _MOST_RESIDUES + 1):
        values = [at(n + i * step) for i in range(period + 1)]
        if None in values:
            return
        yield _periodic(
            dict(zip((n + i * step for i in range(period)), values)), values[-1] - values[0], period * step, g
        )


def _periodic(values: dict[int, int], growth: int, period: int, g) -> Whole:
    """What grows by so much in every period: quotients, remainders and round-ups."""
    table = {n % period: v - growth * (n // period) for n, v in values.items()}
    residues = sorted(table)
    rises = [table[b] - table[a] for a, b in itertools.pairwise(residues)]
    slope = Fraction(max(set(rises), key=rises.count), residues[1] - residues[0]) if rises else Fraction(0)
    slope = slope if slope.denominator == 1 else Fraction(0)
    steps = [(r, table[r] - table[b] - int(slope) * (r - b)) for b, r in itertools.pairwise(residues)]

    def function(sizes):
        n = sizes[g]
        rest = n % period
        made = n // period * growth + rest * int(slope) + table[residues[0]] - residues[0] * int(slope)
        for r, jump in steps:  # of all residues from r on
            if jump:
                made = made + (rest + (period - r)) // period * jump
        return made

    return Whole(function)


def real(at, base: dict, groups: list):
    """Real formulas, the simplest first."""
    value = at(base)
    others = {g: _other(at, base, g) for g in groups}
    if None in others.values():
        return
    powers = {}
    for g, (n, there) in others.items():
        if there * value <= 0:
            break
        exponent = math.log(there / value) / math.log(n / base[g])
        powers[g] = round(exponent * 2) / 2
    else:
        if all(powers.values()) and all(abs(e) <= 4 for e in powers.values()):
            yield Real(powers, value / math.prod(float(base[g]) ** e for g, e in powers.items()))
    if len(groups) == 1:
        yield from _real_of_one(value, base[groups[0]], *others[groups[0]][::-1], groups[0])


def _other(at, base: dict, g) -> tuple[int, float] | None:
    """Another size, far from this one, and the value there."""
    for n in (base[g] // 2, *range(2 * base[g], base[g], -1)):
        there = at({**base, g: n})
        if there is not None:
            return n, there
    return None


def _real_of_one(value: float, n: int, there: float, m: int, g):
    for outer, function in _OUTER.items():
        if outer != "itself" and (value <= 0 or there <= 0):
            continue
        u, v = function.inverse(value), function.inverse(there)
        for power, logarithm in ((1, False), (-1, False), (0.5, False), (-0.5, False), (1, True)):
            a, b = (math.log(s) if logarithm else float(s) ** power for s in (n, m))
            scale = _simple((u - v) / (a - b))
            yield Real({g: power}, scale, _simple(u - scale * a), outer, logarithm)


def _simple(value: float) -> float:
    """A fraction of small numbers where one is as near as rounding allows."""
    near = Fraction(value).limit_denominator(10000)
    return float(near) if abs(float(near) - value) <= 1e-9 * max(1.0, abs(value)) else value
