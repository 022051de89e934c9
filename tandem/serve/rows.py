"""Whether the rows of a batch are independent, which joining requests into one batch relies on: Note [Batches].

A model that normalises over its batch, or scales by the largest of all its elements, gives a request other numbers according to
whose requests came at the same time. Nothing of that is an error, so that it is looked for before a model answers: a row is
computed beside different rows, and alone. What depends on other rows for rare values only is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

Arrays = dict[str, np.ndarray]

_ROUNDING = {
    2: 1e-2,
    4: 1e-5,
    8: 1e-10,
}  # of the largest element, by bytes of an element: one program, one number of rows
_OTHER_ORDER = (
    1e-2  # of the largest: programs for one row and for two add up in different orders, and choose neighbours on ties
)
_FEW = 0.02  # part of the elements that may be on the other side of a step of theirs for that


def dependence(run: Callable[[Arrays], Arrays], draws: Iterable[Callable[[], Arrays]]) -> str | None:
    """What changes the results of a row besides the row itself; None if nothing was seen.

    draws: each makes one row, different at every call; a fault of one is no proof.
    """
    by_number = []
    for draw in draws:
        a, b, c = draw(), draw(), draw()
        whole = run(_joined(a, b))
        if not _same(whole, run(_joined(a, b))):
            return None  # random: rows differ from themselves
        beside = run(_joined(a, c))
        changed = [n for n in whole if not _close(whole[n][:1], beside[n][:1], _rounding(whole[n]), 0.0)]
        if changed:
            return f"its output {changed[0]!r} for one row changes with the values of other rows"
        alone = _joined(run(a), run(b))
        by_number.append({n for n in whole if not _close(whole[n], alone[n], _OTHER_ORDER, _FEW)})
    changed = sorted(set.intersection(*by_number)) if by_number else []
    return f"its output {changed[0]!r} for one row changes with the number of rows" if changed else None


def _joined(*rows: Arrays) -> Arrays:
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _same(a: Arrays, b: Arrays) -> bool:
    return all(_close(a[n], b[n], _rounding(a[n]), 0.0) for n in a)


def _rounding(a: np.ndarray) -> float:
    return 0.0 if a.dtype.kind in "biu" else _ROUNDING.get(a.dtype.itemsize, 1e-2)


def _close(a: np.ndarray, b: np.ndarray, part: float, few: float) -> bool:
    """Whether all but few elements differ by no more than a part of the largest."""
    if a.shape != b.shape:
        return False
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    largest = max(np.abs(y[finite]).max(initial=0.0), np.abs(x[finite]).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        equal = (np.abs(x - y) <= (part if a.dtype.kind not in "biu" else 0.0) * largest) | (x == y)
    equal |= np.isnan(x) & np.isnan(y)
    return np.count_nonzero(~equal) <= few * equal.size
