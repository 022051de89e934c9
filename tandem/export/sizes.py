"""What a function makes of the sizes of its arguments, found by running it with several.

# Note [Sizes by runs]
# Python code computes integers and numbers from sizes, for shapes (the batch times the length, half of it) and to compute with
# (one over the batch, its root), and asks them questions. A run shows what came of it, not how. So the function runs several
# times, which takes no longer than capturing its calls: with sizes like those of the example, and with large ones, where each axis
# of any size has another number than all else. Between runs the calls must stay the same; integers and numbers that change must
# follow from the sizes by a formula that holds in every run (formulas.py). Otherwise the function is refused for these sizes: what
# it gives for others is not known. For few rows, and between, formulas are looked at too (Note [Probes]); sizes below the example's
# for which the function does something else are refused when the graph runs (Note [Conditions]).
# Axes of equal sizes at the same place share one number, as most functions need them to be equal, and a guard says so. One that the
# function runs with in another size all the same has a number of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

from tandem.control.body import RANDOM, Result
from tandem.errors import UnsupportedError, ValueRangeError, source_at
from tandem.export import formulas
from tandem.export.pieces import in_pieces, probes
from tandem.tracing.describe import INT, NUMBER

MOST_SIZES = 32
MOST_FEW = 9
_FAILURES = Exception  # of ours, and of Python's: `rows, columns = edges` unpacks two


@dataclasses.dataclass(frozen=True)
class Group:
    """An axis of some arguments, where their examples have the same size."""

    axis: int
    size: int
    name: str  # of the first of the arguments
    places: tuple[tuple[int, int], ...]  # argument and axis

    def __str__(self):
        return f"axis {self.axis} of {self.name!r}"


@dataclasses.dataclass(frozen=True)
class Explored:
    """A run with sizes that nothing else has, and formulas for what depends on them; None: it does not."""

    result: Result
    sizes: dict[Group, int]
    ints: list
    numbers: list
    others: list[tuple[dict, Result]]  # runs that are to give the same graph
    looked_at: list[dict] = dataclasses.field(default_factory=list)  # sizes that the function was tried with
    runs: _Runs | None = None
    few: dict[Group, tuple[dict[int, str], list[dict]]] = dataclasses.field(default_factory=dict)  # what `_few` gives


def explore(run, groups: list[Group], dims: set[int]) -> Explored:
    """run(sizes): the function, with a size for each group. dims: sizes of axes that are fixed."""
    if not groups:
        return _constant(run({}), {})
    if sum(len(g.places) for g in groups) > MOST_SIZES:
        raise ValueRangeError(
            "export", f"more than {MOST_SIZES} axes are dynamic; name those that are: dynamic={{name: axes}}"
        )
    runs = _Runs(run)
    small = runs.first(_near(groups, 0))
    groups = [part for g in groups for part in _independent(runs, groups, small, g)]
    small = runs.first(_near(groups, 0))
    dims = dims | {n for t in runs[small].taken.consts for n in t.shape}
    similar = [_near(groups, k) for k in (0, *range(1, 8), *(g.size for g in groups))]
    others = runs.several(3, (s for s in similar if _is_distinct(s, dims)))
    for one in others:
        runs.compare(small, one)
    for skip in range(8):
        base = runs.first(*_large(groups, skip))
        changed = {g: runs.several(2, ({**base, g: n} for n in _instead(g, base[g]))) for g in groups}
        everywhere = [*others, *itertools.chain(*changed.values())]
        for one in everywhere:
            runs.compare(base, one)
        special = runs.special(base, everywhere)
        if not special(base):
            break
    probed = probes(groups, base, small)
    looked_at = [s for s in probed if runs.alike(base, s)]
    found = _Formulas(runs, base, changed, everywhere, looked_at)
    alike = [(s, runs[s]) for s in everywhere if not special(s)]
    few = {g: _few(runs, small, g) for g in groups}
    return Explored(runs[base], base, found.ints, found.numbers, alike, probed, runs, few)


def _few(runs: _Runs, small: dict, g: Group) -> tuple[dict[int, str], list[dict]]:
    """The sizes below the example's for which the function does something else than for the example, `if len(x) > 3`, and what;
    and those for which it makes other calls that may do the same: padding by nothing is none, so 0 or 1 is among its integers, and
    two views of one row may be one."""
    tried = range(1, min(g.size - 1, MOST_FEW) + 1)
    failures = [n for n in tried if runs.get({**small, g: n}) is None]
    found = {n: runs.failure({**small, g: n}) for n in failures if n == failures.index(n) + 1}
    unclear = []
    for n in tried:
        sizes = {**small, g: n}
        if n in failures or runs.alike(small, sizes):
            continue
        if {0, 1} & {*runs[sizes].taken.ints} or runs.names(sizes) == runs.names(small):
            unclear.append(sizes)
        else:
            found[n] = other_calls(n, g.size)
    return found, unclear


def other_calls(n: int, size: int) -> str:
    return f"the function computes something else for {n} than for {size}"


def _independent(runs: _Runs, groups: list[Group], small: dict, g: Group) -> list[Group]:
    """Groups of axes that must have one size: one with those of g, and one for each that need not be like the others."""
    apart, together = [], []
    for place in g.places:
        alone = dataclasses.replace(g, places=(place,))
        rest = dataclasses.replace(g, places=tuple(p for p in g.places if p != place))
        sizes = {**{h: small[h] for h in groups if h is not g}, rest: small[g], alone: small[g] + 1}
        (apart if rest.places and runs.alike(small, sizes) else together).append(place)
    parts = [*((place,) for place in apart), *([tuple(together)] if together else [])]
    return [dataclasses.replace(g, places=p) for p in sorted(parts)]


def _constant(result: Result, sizes: dict) -> Explored:
    return Explored(result, sizes, [None] * len(result.taken.ints), [None] * len(result.taken.numbers), [])


def _near(groups: list[Group], more: int) -> dict[Group, int]:
    """The example's sizes and a few more; a size of 1 is repeated where others are not."""
    return {g: max(g.size, 2) + more * (i + 1) for i, g in enumerate(groups)}


def _is_distinct(sizes: dict, dims: set[int]) -> bool:
    """Whether no size is by chance what another is."""
    return len({*sizes.values()} - dims) == len(sizes)


def _large(groups: list[Group], skip: int):
    """Sizes that nothing else has. An axis but the first may have an end (a table of positions), or be divided (by strides)."""
    primes = dict(zip(groups, itertools.islice(_primes(7919), skip, None), strict=False))
    yield primes
    if any(g.axis for g in groups):
        yield {g: p if g.axis == 0 else _prime_below(g.size) for g, p in primes.items()}
        yield {g: p if g.axis == 0 else 64 * _prime_below(p // 64 - 3 * i) for i, (g, p) in enumerate(primes.items())}
        yield {g: p if g.axis == 0 else max(g.size, 2) for g, p in primes.items()}


def _instead(g: Group, n: int):
    """Other sizes for one axis."""
    yield from ((n + 1) // 2, n - 1, n + 1, n - 2, n // 2 + 64 - n // 2 % 64, n + 64, n + max(g.size, 2), 2 * n)


def _primes(n: int):
    """Primes from n down."""
    while True:
        n = _prime_below(n)
        yield n
        n -= 1


def _prime_below(n: int) -> int:
    """The largest prime up to n; 3 at least."""
    n = max(n, 3)
    while any(n % d == 0 for d in range(2, math.isqrt(n) + 1)):
        n -= 1
    return n


class _Runs:
    """Runs with different sizes, each made once."""

    def __init__(self, run):
        self._run = run
        self._found: dict = {}
        self._failures: dict = {}

    def first(self, *sizes) -> dict:
        """The first of these that the function runs with."""
        failure = None
        for tried in sizes:
            try:
                self._found[_key(tried)] = self._run(tried)
                return tried
            except _FAILURES as error:
                failure = failure or error
        raise failure

    def __getitem__(self, sizes: dict) -> Result:
        return self._found[_key(sizes)]

    def get(self, sizes: dict) -> Result | None:
        key = _key(sizes)
        if key not in self._found:
            try:
                self._found[key] = self._run(sizes) if all(n > 0 for n in sizes.values()) else None
            except _FAILURES as error:
                self._found[key] = None
                self._failures[key] = str(error).partition("\n")[0]
        return self._found[key]

    def failure(self, sizes: dict) -> str:
        """Why the function does not run with these sizes."""
        return self._failures.get(_key(sizes), "it does not run with them")

    def names(self, sizes: dict) -> list[tuple]:
        """What is called, whatever it is applied to."""
        return [(c.plan.name, _statics(c.plan)) for c in self[sizes].taken.calls()]

    def alike(self, one: dict, other: dict) -> bool:
        """Whether the function runs with these sizes too, by the same calls."""
        if self.get(other) is None:
            return False
        try:
            self.compare(one, other)
        except UnsupportedError:
            return False
        return True

    def compare(self, one: dict, other: dict):
        """Refuses a function whose calls differ."""
        a, b = self[one], self[other]
        if a.taken.key == b.taken.key and _same_consts(a, b):
            return
        left, right = a.taken.calls(), b.taken.calls()
        for x, y in zip(left, right, strict=False):
            if x.plan.name != y.plan.name or x.operands != y.operands or _statics(x.plan) != _statics(y.plan):
                raise refusal(one, other, f"it calls {_place(x)} with the first and {_place(y)} with the second")
        if len(left) != len(right) or a.taken.sites != b.taken.sites or repr(a.structure) != repr(b.structure):
            raise refusal(one, other, f"it makes {len(left)} calls with the first and {len(right)} with the second")
        if not _same_consts(a, b):
            raise refusal(one, other, "it makes other tensors outside of operators")

    def several(self, count: int, sizes) -> list[dict]:
        """The first of these that the function runs with."""
        return list(itertools.islice((s for s in sizes if self.get(s) is not None), count))

    def special(self, base: dict, others: list):
        """Whether a run has 0 or 1 for an integer that depends on sizes: padding by nothing is none, a size of 1 is broadcast."""
        lists = [self[s].taken.ints for s in (base, *others)]
        varying = [i for i, values in enumerate(zip(*lists, strict=True)) if len(set(values)) > 1]
        return lambda sizes: any(self[sizes].taken.ints[i] in (0, 1) for i in varying)


def _same_consts(a: Result, b: Result) -> bool:
    left, right = a.taken.consts, b.taken.consts
    if len(left) != len(right):
        return False
    return all(
        x is y or (x.dtype is y.dtype and x.shape == y.shape and x.numpy().tobytes() == y.numpy().tobytes())
        for x, y in zip(left, right, strict=True)
    )


def _statics(plan) -> list:
    """What a plan is made for besides types and sizes."""
    return [(name, item.value) for name, item, _ in plan.arguments if item.kind == "static"]


def _key(sizes: dict) -> tuple:
    return tuple(sorted((place, n) for g, n in sizes.items() for place in g.places))


class _Formulas:
    """Formulas of all integers and numbers that differ between runs."""

    def __init__(self, runs: _Runs, base: dict, changed: dict, others: list, looked_at: list):
        self._runs, self._base, self._changed, self._others, self._looked_at = runs, base, changed, others, looked_at
        taken = runs[base].taken
        self.ints = [self._of(INT, i, "integer") for i in range(len(taken.ints))]
        self.numbers = [self._of(NUMBER, i, kind) for i, (kind, _) in enumerate(taken.numbers)]

    def _of(self, where: int, index: int, kind: str):
        def value(sizes: dict):
            run = self._runs.get(sizes)
            if run is None:
                return None
            values = run.taken.ints if where == INT else [v for _, v in run.taken.numbers]
            return values[index] if index < len(values) else None

        here = value(self._base)
        if kind in RANDOM:
            return None
        places = [(s, value(s)) for s in self._looked_at]
        if all(value(s) == here for s in self._others):
            if all(v == here for _, v in places):
                return None
            found = formulas.Plain(here)  # for many
        else:
            found = self._large(value, here, kind) or formulas.Plain(here)
        if kind in ("integer", "float"):
            groups = list(self._base)
            found = in_pieces(value, found, places, groups, all(float(v).is_integer() for _, v in places))
        if found is not None:
            return found
        raise self._refusal(where, index, value)

    def _large(self, value, here, kind: str):
        """A formula that holds for large sizes."""
        groups = [g for g, runs in self._changed.items() if any(value(s) != here for s in runs)]
        if not groups or kind not in ("integer", "float"):
            return None
        integral = all(isinstance(v, int) or v.is_integer() for v in map(value, (self._base, *self._others)))
        found = self._first(formulas.whole, value, groups) if integral else None
        return found or (self._first(formulas.real, value, groups) if kind == "float" else None)

    def _first(self, candidates, value, groups: list):
        """The first formula that holds everywhere: in runs that were made, and further ones."""
        further = [
            {**self._base, **{g: self._base[g] + k * (i + 1) for i, g in enumerate(groups)}} for k in (5, 12, 64)
        ]

        def whole(sizes: dict):
            there = value(sizes)
            return int(there) if there is not None and float(there).is_integer() else None

        asked = whole if candidates is formulas.whole else value
        for formula in candidates(asked, self._base, groups):
            places = [self._base, *self._others, *further]
            if all((v := value(s)) is None or formula.holds(s, v) for s in places):
                return formula
        return None

    def _refusal(self, where: int, index: int, value) -> UnsupportedError:
        taken = self._runs[self._base].taken
        call = next((c for c in taken.calls() if any(o.kind == where and o.index == index for o in c.operands)), None)
        there = next(s for s in (*self._others, *self._looked_at) if value(s) != value(self._base))
        given = f"{_place(call)} is given {value(there)}" if call is not None else f"it computes {value(there)}"
        return refusal(there, self._base, f"{given} with the first and {value(self._base)} with the second")


def _place(call) -> str:
    where = f" at {source_at(call.code, call.line)}" if call.code is not None else ""
    return f"{call.plan.name}{where}"


def refusal(one: dict, other: dict, what: str) -> UnsupportedError:
    changed = [g for g in one if g in other and one[g] != other[g]]  # groups may be divided differently
    sizes = ", ".join(f"{g} has {one[g]} or {other[g]} elements" for g in changed)
    return UnsupportedError(
        "export", f"the function computes something else where {sizes}: {what}, and how that follows from the size is not known",
        fix="compute it with operators, or fix the size: dynamic=False, or {name: axes} without this one",
    )  # fmt: skip
