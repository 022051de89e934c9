"""What a compiled function tells of its programs: fn.explain(), and what fn.graph() and fn.memory() look up."""

from __future__ import annotations

import contextlib
import threading
from typing import NamedTuple

from tandem import dtypes
from tandem.errors import DTypeError, ValueRangeError, source_at
from tandem.graph.ir import Origin
from tandem.program.recompiles import Recompiles


class _Here(threading.local):
    report: Report | None = None  # of the innermost td.programs


_here = _Here()


@contextlib.contextmanager
def programs(*, memory_budget: float | None = None):
    """Collects what is compiled inside, by whatever means: compiled functions, sessions, graphs from files, transforms and loops.

    memory_budget: for programs that are made inside and have none of their own, as in td.compile. What was compiled before stays.

    Gives a list with a dict for each program; str() of it explains them, as fn.explain() does, and `largest()` is what the largest
    of them takes.

    >>> with td.programs() as made:
    ...     y = td.vmap(lambda x: (x * 2).sum())(td.ones(3, 2))
    >>> len(made), made.largest()["outputs"]
    (1, 12)
    """
    before, _here.report = _here.report, Report(check_budget("programs", memory_budget))
    try:
        yield _here.report
    finally:
        _here.report = before


def check_budget(op: str, memory_budget):
    """The budget, if it is one."""
    if memory_budget is not None and (isinstance(memory_budget, bool) or not hasattr(memory_budget, "__float__")):
        raise DTypeError(
            op,
            f"memory_budget is {memory_budget!r}, of type {type(memory_budget).__name__}; it must be a number",
            fix="give a part of the usual peak, such as 0.5, or bytes",
        )
    if memory_budget is not None and not memory_budget > 0:
        raise ValueRangeError(
            op, f"memory_budget is {memory_budget}", fix="give a part of the usual peak, such as 0.5, or bytes"
        )
    return memory_budget


def budget_of(report: Report | None) -> float | None:
    """What a program may take: what its door says, or the scope around."""
    if report is not None and report.memory_budget is not None:
        return report.memory_budget
    return _here.report.memory_budget if _here.report is not None else None


def reports(report: Report | None) -> list[Report]:
    """Who wants to know of a program: its door, and the scope around."""
    return [r for r in (report, _here.report) if r is not None]


class Site(NamedTuple):
    """A call that is part of a program, and the line that made it."""

    name: str
    code: object = None  # None: not known, but as a text
    line: int = 0
    text: str = ""


class Report(list):
    """A dict for each program, and how programs were asked for."""

    def __init__(self, memory_budget: float | None = None, recompile_limit: float | None = None, name: str = ""):
        super().__init__()
        self.name = name  # of the compiled function
        self.memory_budget = memory_budget
        self.recompiles = Recompiles(recompile_limit)
        self.fresh = False  # whether programs are made again even where they lie on disk
        self.failures: list[str] = []  # why no program could be made of a sequence; its calls run by the fallback
        self.restarts = 0

    def __str__(self):
        return self.explain("programs", len(self))

    def largest(self) -> dict | None:
        """What the program takes that takes the most, in bytes; None if there is none."""
        return max(map(self.memory, self), key=lambda memory: memory["peak"], default=None)

    def add_graph(self, graph, traced, shapes: list[tuple], facts: dict, seconds: dict):
        """A program of a graph, for any sizes. graph: after the passes, or what makes it; traced: before them."""
        places = dict.fromkeys(n.source for n in traced.nodes if isinstance(n.source, Origin))
        sites = [Site(origin.op, text=origin) for origin in places]
        self.append({
            "memory": None, **facts, "calls": len(sites), "symbolic": True, "sizes": [], "graph": graph, "seconds": seconds,
            "ended": "the graph does", "sites": sites or [Site(traced.name)], "shapes": shapes, "ints": [],
            "given": [((), ())] * max(len(sites), 1),
        })  # fmt: skip

    def may_compile(self, entry: dict) -> bool:
        """Whether a program is to be made of what the entry describes; told and limited where there are many."""
        return self.recompiles.may_compile(self.name, entry, lambda: self._why(entry, len(self)), _same)

    def start_over(self):
        """There were too many sequences: the runtime has dropped them all."""
        self.restarts += 1
        self.clear()

    def drop(self, number: int):
        """There were too many variants of one sequence: the runtime no longer keeps this one."""
        self[number]["graph"] = None

    def forget(self, number: int):
        """There were too many sequences: the runtime no longer keeps those that were not used for longest."""
        self[number] = None

    def entry(self, number: int) -> dict:
        try:
            found = self[number]
        except IndexError:
            found = None
        if found is None or found["graph"] is None:
            raise ValueRangeError(
                "compile",
                self._missing(number, found),
                fix="call the function first, with operators to compile; fn.explain() lists its programs",
            )  # fmt: skip
        return found

    def _missing(self, number: int, found: dict | None) -> str:
        if found:
            return f"program {number} was dropped again: there were too many variants"
        if number in range(-len(self), len(self)):
            return f"program {number} was dropped again: there were too many sequences of operators"
        if not self:
            return "no program was compiled so far: the function was not called, or its calls computed nothing"
        return f"there is no program {number}; there are {len(self)}, from 0 on"

    @staticmethod
    def graph(entry: dict):
        """The graph of a program; of one that came from disk it is made when asked for."""
        if callable(entry["graph"]):
            entry["graph"] = entry["graph"]()
        return entry["graph"]

    def memory(self, entry: dict) -> dict | None:
        """What a program takes with the sizes that it met first here; what is on disk may be of others."""
        if entry["memory"] is None and entry["graph"] is not None:
            entry["memory"] = self.graph(entry).memory
        return entry["memory"]

    def explain(self, name: str, sequences: int, runs: dict[int, int] | None = None) -> str:
        """runs: of each program, by number; those that are not in it were dropped. None: nobody counts."""
        count = len(self) if runs is None else len(runs)
        lines = [f"{name}: {sequences} sequences of operators, {count} programs"]
        if self.restarts:
            lines[0] += f"; started over {self.restarts} times, with too many sequences to keep"
        from tandem.graph.view import show_bytes  # only here: it imports what pages are made with

        for number, r in enumerate(self):
            if r is None:
                continue
            kind = "any sizes" if r["symbolic"] else "these sizes: " + " ".join(_sizes(s) for s in r["sizes"][:8])
            kind += " ..." if not r["symbolic"] and len(r["sizes"]) > 8 else ""
            times = ", ".join(f"{phase} {seconds * 1e3:.1f} ms" for phase, seconds in r["seconds"].items())
            passes = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in r["passes"].items())
            memory = self.memory(r) or {"peak": 0, "at": 0, "outputs": 0, "inputs": 0}
            lines += [
                f"  program {number}: {r['calls']} calls -> {r['joined']} nodes, {r['nodes']} after passes -> {r['steps']} steps; "
                + _ran(number, runs),
                f"    why: {self._why(r, number)}",
                f"    for {kind}",
                f"    ends where {r['ended']}",
                f"    memory: {show_bytes(memory['peak'])} at its peak (step {memory['at']}), of which "
                f"{show_bytes(memory['outputs'])} are results; inputs {show_bytes(memory['inputs'])}",
                f"    time: {times}" + ("" if "load" in r["seconds"] else f" ({passes} ms)"),
            ]
        if forgotten := sum(r is None for r in self):
            lines.append(f"  {forgotten} programs were dropped: too many sequences of operators to keep")
        lines += self.recompiles.tell()
        lines += [f"  no program, calls run eagerly (fallback): {cause}" for cause in self.failures]
        return "\n".join(lines)

    def _why(self, entry: dict, number: int) -> str:
        """Why none of the programs before a number served what becomes program `entry`."""
        sites = entry["sites"]
        begins = f"begins with {_place(sites[0])}"
        if number == 0:
            return f"the first one; {begins}"
        common = {n: _common(sites, self[n]["sites"]) for n in range(number) if self[n] is not None}
        if not common:
            return f"no other is kept; {begins}"
        nearest = max(common, key=lambda other: (common[other], other))
        length, other = common[nearest], self[nearest]["sites"]
        if length == 0:
            return f"no other {begins}"
        if length == len(sites) == len(other):
            for mine, theirs in zip(entry["shapes"], self[nearest]["shapes"], strict=False):
                if tuple(mine) != tuple(theirs):
                    return (
                        f"the operators of program {nearest}, but with sizes {_sizes(mine)} instead of {_sizes(theirs)}"
                    )
            other = _other_argument(entry, self[nearest]) or "on other layouts, or with other results kept"
            return f"the operators of program {nearest}, but {other}"
        mine = _place(sites[length]) if length < len(sites) else "nothing more"
        theirs = _place(other[length]) if length < len(other) else "nothing more"
        return f"as program {nearest} for {length} operators, then {mine} instead of {theirs}"


def _ran(number: int, runs: dict[int, int] | None) -> str:
    if runs is None:
        return "kept"
    return f"ran {runs[number]} times" if number in runs else "dropped: too many variants"


def _common(a: list, b: list) -> int:
    """How many operators two sequences begin with in common."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def _same(a: dict, b: dict) -> bool:
    """Whether two programs are made of the same calls on the same sizes."""
    facts = all(a[k] == b[k] for k in ("sites", "shapes", "symbolic"))
    return facts and _other_argument(a, b) is None


def _other_argument(mine: dict, theirs: dict) -> str | None:
    """The first argument that is another one in a program of the same operators."""
    for site, a, b in zip(mine["sites"], mine["given"], theirs["given"], strict=True):
        new, old = _arguments(*a, mine["ints"]), _arguments(*b, theirs["ints"])
        for name in new:
            if new[name] != old.get(name):
                return f"{_place(site)} got {name}={new[name]}, was {old.get(name, 'nothing')}"
    return None


def _arguments(arguments: list[tuple], operands: list[tuple], ints: list[int]) -> dict[str, str]:
    """What a call was given, as far as programs depend on it: names and texts."""
    found: dict[str, list[str]] = {}
    for name, item, position in arguments:
        texts = found.setdefault(name, [])
        kind = item.kind
        if kind == "tensor":
            axes = f"{dtypes.ALL[item.dtype].name}, {len(item.shape)} axes"
            texts.append(f"<{axes}, requires grad>" if item.requires_grad else f"<{axes}>")
        elif kind == "int":
            texts.append(str(ints[operands[position].index]))
        elif kind == "static":
            texts.append(repr(item.value))
        elif kind in ("none", "float", "integer", "bool", "complex"):
            texts.append({"none": "None", "integer": "<an int>"}.get(kind, f"<a {kind}>"))
    return {name: texts[0] if len(texts) == 1 else f"({', '.join(texts)})" for name, texts in found.items()}


def _place(site: Site) -> str:
    text = site.text if site.code is None else source_at(site.code, site.line).short
    return f"{site.name} ({text})" if text else site.name


def _sizes(sizes) -> str:
    return f"[{', '.join('*' if n is None else str(n) for n in sizes)}]"
