"""Formulas in pieces: what Python code computes from sizes by min, max and questions, which shows at small sizes or not at all.

    in_pieces(at, formula, places, groups, whole)    a formula that holds at all places, made of this one and of others; or None

# Note [Probes]
# Formulas are found at large sizes, where integers are told apart (Note [Sizes by runs]). A `max(n - 3, 1)` is another line for few
# rows, and `min(n, t)` another size where the other is smaller. So every integer and number is looked at for small sizes and sizes
# in between too, of one axis alone and of all. Where a formula fails there, extrema of formulas are tried, and then formulas for
# parts of an axis.
"""

from __future__ import annotations

import dataclasses
import itertools

import tandem.ops as F
from tandem import dtypes
from tandem.export import formulas
from tandem.graph.symbolic import maximum, minimum

_FEW = (1, 2, 3, 4, 5, 6, 7, 8, 9)
_BETWEEN = (12, 16, 17, 24, 33, 48, 64, 100, 128, 256, 513, 1024, 2048, 4096)
_TOGETHER = (1, 2, 3, 5)
_MOST_STEPS = 9  # of what has no formula
_SOME, _MOST = 6, 10  # places that formulas are fitted to, and formulas


def probes(groups: list, base: dict, small: dict) -> list[dict]:
    """Sizes to look at. base: large sizes, small: those of the example."""
    found = [{**base, g: n} for g in groups for n in (*_FEW, *_BETWEEN) if n < base[g]]
    if len(groups) > 1:
        found += [{**small, g: n} for g in groups for n in _FEW]
        if len(groups) == 2:
            found += [dict(zip(groups, pair, strict=True)) for pair in itertools.product(_TOGETHER, repeat=2)]
        else:
            found += [dict.fromkeys(groups, n) for n in _TOGETHER]
    return found


@dataclasses.dataclass(frozen=True)
class Extremum:
    """The largest or smallest of some formulas."""

    largest: bool
    parts: tuple

    def at(self, sizes: dict):
        return (max if self.largest else min)(p.at(sizes) for p in self.parts)

    def holds(self, sizes: dict, value) -> bool:
        return formulas.is_near(self.at(sizes), value)

    def function(self, sizes: dict):
        return _fold(maximum if self.largest else minimum, [p.function(sizes) for p in self.parts])

    def value(self, sizes: dict, dtype):
        if self.is_whole:
            return formulas.constant_or_size(self.function(sizes), dtype)
        return _fold(F.maximum if self.largest else F.minimum, [p.value(sizes, dtype) for p in self.parts])

    @property
    def is_whole(self) -> bool:
        return all(p.is_whole for p in self.parts)


@dataclasses.dataclass(frozen=True)
class Split:
    """One formula where an axis has fewer elements than that, another where it has as many or more."""

    group: object
    least: int
    below: object
    above: object

    def at(self, sizes: dict):
        return (self.below if sizes[self.group] < self.least else self.above).at(sizes)

    def holds(self, sizes: dict, value) -> bool:
        return formulas.is_near(self.at(sizes), value)

    def function(self, sizes: dict):
        enough = minimum(maximum(sizes[self.group] - (self.least - 1), 0), 1)
        below = self.below.function(sizes)
        return below + enough * (self.above.function(sizes) - below)

    def value(self, sizes: dict, dtype):
        if self.is_whole:
            return formulas.constant_or_size(self.function(sizes), dtype)
        few = F.less(F.Size(sizes[self.group], dtypes.int64)(), self.least)
        return F.where(few, self.below.value(sizes, dtype), self.above.value(sizes, dtype))

    @property
    def is_whole(self) -> bool:
        return self.below.is_whole and self.above.is_whole


def _fold(function, parts: list):
    total = parts[0]
    for part in parts[1:]:
        total = function(total, part)
    return total


def in_pieces(at, found, places: list[tuple[dict, object]], groups: list, whole: bool):
    """A formula that holds at all places, (sizes, value). found: one that holds at large sizes. whole: whether all values are."""
    wrong = [(s, v) for s, v in places if not found.holds(s, v)]
    if not wrong:
        return found
    local = list(_local(at, wrong, groups, whole))
    pool = [found, *local]
    fits = lambda f: all(f.holds(s, v) for s, v in places)
    for a, b in itertools.combinations(pool, 2):
        for largest in (True, False):
            if fits(made := Extremum(largest, (a, b))):
                return made
    for a, b, c in itertools.permutations(pool, 3):
        for largest in (True, False):
            if fits(made := Extremum(largest, (Extremum(not largest, (a, b)), c))):
                return made
    for g in groups:
        least = _threshold(at, found, g, places, wrong)
        for below in local:
            if fits(made := Split(g, least, below, found)):
                return made
        if least <= _MOST_STEPS and fits(made := _in_steps(found, g, least, places)):
            return made
    return None


def _threshold(at, found, g, places: list, wrong: list) -> int:
    """The least size of an axis from which on a formula holds."""
    last, below = max(((s[g], s) for s, _ in wrong), key=lambda pair: pair[0])
    first = min((s[g] for s, _ in places if s[g] > last), default=last + 1)
    while first - last > 1:
        middle = (first + last) // 2
        value = at({**below, g: middle})
        if value is None or found.holds({**below, g: middle}, value):
            first = middle
        else:
            last = middle
    return first


def _in_steps(found, g, least: int, places: list):
    """A number for each of fewer sizes of one axis."""
    values = {s[g]: v for s, v in places if s[g] < least}
    for n in sorted(values, reverse=True):
        found = Split(g, n + 1, formulas.Plain(values[n]), found)
    return found


def _local(at, wrong: list, groups: list, whole: bool):
    """Formulas that hold somewhere among these places: numbers, lines, and where there are many places what holds for most."""
    some = wrong[:: max(1, len(wrong) // _SOME)][:_SOME] + wrong[-1:]
    seen: list = []
    for s, value in some:
        made = [formulas.Plain(value)]
        slopes = {g: _slope(at, s, g, value) for g in groups}
        slopes = {g: k for g, k in slopes.items() if k}
        rest = value - sum(k * s[g] for g, k in slopes.items())
        if whole and slopes:
            made.append(formulas.line(slopes, rest))
        elif len(slopes) == 1:
            ((g, slope),) = slopes.items()
            made.append(formulas.Real({g: 1}, slope, rest))
        for formula in made:
            values = [formula.at(t) for t, _ in some]
            if values not in seen and len(seen) < _MOST:
                seen.append(values)
                yield formula
    if whole and len(wrong) >= 8:
        for s in (wrong[0][0], wrong[len(wrong) // 2][0]):
            for g in groups:
                if at({**s, g: s[g] + 1}) is not None:
                    yield from itertools.islice(formulas.whole(at, s, [g]), 2)


def _slope(at, s: dict, g, value):
    there = at({**s, g: s[g] + 1})
    return there - value if there is not None else 0
