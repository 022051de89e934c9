"""Formulas for what is computed from sizes, found from values."""

import math

import pytest

from tandem.export import formulas

BASE = {"n": 7919, "t": 211}
WHOLE = {
    "a product": lambda n, t: 3 * n * t,
    "a sum": lambda n, t: 2 * n - t + 5,
    "a quotient": lambda n, t: (n + 3) // 7,
    "a remainder": lambda n, t: 5 - n % 12,
    "a round-up": lambda n, t: (n + 31) // 32 * 32,
    "a square": lambda n, t: n * (n - 1) // 2,
    "of one of them": lambda n, t: 4 * t,
}
REAL = {
    "a root": lambda n, t: 0.3 / math.sqrt(n),
    "a power of each": lambda n, t: 1.7 * n / t**0.5,
    "a quotient": lambda n, t: 1 / (n - 1),
    "a line": lambda n, t: 0.1 * n + 2.5,
    "a root of a line": lambda n, t: math.sqrt(2 * n + 3),
    "a logarithm": lambda n, t: math.log(n) / 2,
}


def first(candidates, fn):
    def at(sizes):
        return fn(**sizes)

    groups = [g for g in BASE if any(at({**BASE, g: BASE[g] - k}) != at(BASE) for k in (1, 100))]
    elsewhere = [{"n": n, "t": t} for n in (5, 6, 100, 7919, 8192) for t in (3, 211)]
    return next(f for f in candidates(at, BASE, groups) if all(f.holds(s, at(s)) for s in elsewhere))


@pytest.mark.parametrize("name", WHOLE)
def test_whole_formulas(name):
    first(formulas.whole, WHOLE[name])


@pytest.mark.parametrize("name", REAL)
def test_real_formulas(name):
    first(formulas.real, REAL[name])


def test_what_has_none():
    with pytest.raises(StopIteration):
        first(formulas.whole, lambda n, t: math.isqrt(n))
    with pytest.raises(StopIteration):
        first(formulas.real, lambda n, t: math.sin(n))
