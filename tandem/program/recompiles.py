"""How often a compiled function is compiled again: counted by the line where programs begin, told of, and limited.

A function that reads values has several programs, which begin at several lines: those are no recompiles. A program that begins
where another one does is: arguments, sizes or branches were such that none of those served. Up to the limit another one is made;
beyond it, what no program serves runs eagerly, one operator after the other.
"""

from __future__ import annotations

import math

from tandem.errors import DTypeError, RecompileWarning, ValueRangeError, source_at, warn
from tandem.switches import RECOMPILE_LIMIT


def check_limit(limit):
    """recompile_limit of td.compile, if it is one."""
    if limit is None or limit == math.inf:
        return limit
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise DTypeError(
            "compile", f"recompile_limit is {limit!r}, of type {type(limit).__name__}; it must be an int",
            fix="give a number of recompiles, or math.inf for no limit",
        )  # fmt: skip
    if limit < 0:
        raise ValueRangeError("compile", f"recompile_limit is {limit}; it must not be negative")
    return limit


class Recompiles:
    """Of one compiled function."""

    def __init__(self, limit: float | None):
        self.own_limit = limit  # None: that of the switch
        self.made: dict[tuple, list[dict]] = {}  # what programs were made of, by the code and line where they begin
        self.refused = 0  # sequences of operators that run eagerly

    @property
    def limit(self) -> float:
        return self.own_limit if self.own_limit is not None else RECOMPILE_LIMIT.value or math.inf

    @property
    def count(self) -> int:
        return sum(map(len, self.made.values())) - len(self.made)

    def may_compile(self, name: str, entry: dict, why, same) -> bool:
        """Whether another program is to be made. entry: what it would be, for the report; why: tells the reason for it; same:
        whether another entry is no different, as when several threads make the first program."""
        site = entry["sites"][0]
        place = site.code, site.line
        there = self.made.setdefault(place, [])
        if any(same(entry, other) for other in there):
            return True
        before = len(there)
        if before > self.limit:
            self.refused += 1
            if self.refused == 1:
                self._warn_limit(name, before, site, why())
            return False
        there.append(entry)
        if before == max(self.limit // 2, 2) and before < self.limit:
            self._warn_many(name, before, site, why())
        return True

    def _warn_many(self, name, before, site, reason):
        warn(
            f"{name} is compiled for the {_ordinal(before + 1)} time{_from(site)}. Why this time: {reason}.\n"
            f"  After {self.limit} recompiles, what no program serves runs eagerly; {_ADVICE}",
            RecompileWarning,
        )

    def _warn_limit(self, name, before, site, reason):
        warn(
            f"{name} was compiled {before} times{_from(site)}, which is its limit: what no program serves runs eagerly from now "
            f"on, operator by operator. Why another program would be needed: {reason}.\n  {_ADVICE[0].upper()}{_ADVICE[1:]}",
            RecompileWarning,
        )

    def tell(self) -> list[str]:
        """Lines for fn.explain()."""
        if not self.refused:
            return []
        return [
            f"  {self.count} recompiles, the limit: {self.refused} more sequences of operators run eagerly (recompile_limit)"
        ]


_ADVICE = (
    "give what changes as a tensor or a number that operators compute with, keep what decides on the operators out of the "
    "function, or raise recompile_limit of td.compile. fn.explain() tells why each program exists"
)


def _from(site) -> str:
    return "" if site.code is None else f" from {source_at(site.code, site.line).short} on"


def _ordinal(n: int) -> str:
    suffix = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"
