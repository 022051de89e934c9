"""td.profile: what ran, when, for how long, and for which line of the user's program.

Note [What is recorded]
The runtime notes every call of an operator (or program), and inside it every kernel, library call and copy (src/profile/profile.h).
On the CPU a step takes as long as its caller waits for it. On CUDA devices steps are timed by events on their stream, without
waiting: the timeline shows both when the host queued a step and when the device ran it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass

from tandem import _runtime, files
from tandem.errors import UnsupportedError

_KINDS = [kind.name.lower() for kind in _runtime.ProfileKind]
_STEPS = ("kernel", "library", "copy")  # what does the work; others are around them


@dataclass(frozen=True, slots=True)
class Step:
    """Something that ran. Times are nanoseconds of time.perf_counter_ns."""

    kind: str  # "operator", "kernel", "library", "region", "copy", "compile", "wait" or "range"
    device: str  # "cpu" or "cuda:0"
    name: str
    op: str  # the operator that the user called
    line: str  # where: "train.py:12"
    thread: int
    stream: int
    start: int
    duration: int
    launched: int
    bytes: int
    live: int = 0  # bytes of that device that tensors had when the host was done with it


class profile:
    """Records what runs inside the scope: operators, kernels, library calls, copies, with the lines that called them.

    Print it, or table(), for the most expensive operators; view() writes a page with a timeline, tables and memory; save() writes a
    timeline for Perfetto, which `tandem view FILE.json` opens, or ui.perfetto.dev.
    Programs on CUDA devices run step by step meanwhile, not as replayed graphs, so that each step can be timed.

    >>> with td.profile() as p:
    ...     y = td.ones(64, 64) @ td.ones(64, 64)
    >>> [row.name for row in p.rows() if row.name == "matmul"]
    ['matmul']
    """

    def __init__(
        self, activities=None, record_shapes: bool = False, profile_memory: bool = False, with_stack: bool = False
    ):
        # PyTorch's options choose nothing: both devices, and the lines that called, are always recorded.
        self.steps: list[Step] = []
        self.dropped = 0  # steps beyond the two million that are kept
        self.start = self.end = 0
        self._ranges: list[Step] = []

    def __enter__(self) -> profile:
        if not _runtime.profile_start():
            raise UnsupportedError("profile", "another profile is being recorded", fix="end it first")
        self._ranges.clear()
        _active.append(self)
        self.start = time.perf_counter_ns()
        return self

    def __exit__(self, *exc):
        self.end = time.perf_counter_ns()
        _active.remove(self)
        entries, self.dropped = _runtime.profile_stop()
        self.steps = [
            Step(_KINDS[kind], "cpu" if device == 0 else f"cuda:{device - 1}", *rest) for kind, device, *rest in entries
        ]
        self.steps += self._ranges

    # -- tables

    def rows(self, by: str = "op", device: str | None = None) -> list[Row]:
        """Steps that do work, added up by "op", "line", "kernel" (with its operator) or "device"; the most expensive first."""
        keys = {
            "op": lambda s: s.op, "line": lambda s: s.line or "?", "device": lambda s: s.device,
            "kernel": lambda s: s.name if s.name == s.op else f"{s.name} in {s.op}",
        }  # fmt: skip
        if by not in keys:
            raise UnsupportedError("profile", f"by={by!r} is not known", fix="use 'op', 'line', 'kernel' or 'device'")
        key = keys[by]
        made: dict[tuple, Row] = {}
        lines: dict[tuple, dict[str, int]] = {}
        for step in self.steps:
            if step.kind not in _STEPS or (device is not None and step.device != device):
                continue
            place = (key(step), step.device)
            row = made.get(place)
            if row is None:
                row = made[place] = Row(place[0], step.device)
            row.steps += 1
            row.nanoseconds += step.duration
            row.slowest = max(row.slowest, step.duration)
            at = lines.setdefault(place, {})
            at[step.line] = at.get(step.line, 0) + step.duration
        for place, row in made.items():
            row.line = max(lines[place], key=lines[place].get)
        return sorted(made.values(), key=lambda row: -row.nanoseconds)

    def table(self, by: str = "op", top: int = 20, device: str | None = None) -> str:
        """The most expensive operators (or lines, or kernels), as text."""
        rows = self.rows(by, device)
        total = sum(row.nanoseconds for row in rows)
        head = f"{'time':>11} {'share':>7} {'steps':>7} {'mean':>11}  {'device':7} {by:32} line"
        lines = [self._summary(rows), head]
        for row in rows[:top]:
            share = 100 * row.nanoseconds / max(total, 1)
            lines.append(
                f"{shown_time(row.nanoseconds):>11} {share:6.1f}% {row.steps:7} {shown_time(row.nanoseconds / row.steps):>11}  "
                f"{row.device:7} {_short(row.name, 32):32} {row.line if by != 'line' else ''}".rstrip()
            )
        if len(rows) > top:
            rest = sum(row.nanoseconds for row in rows[top:])
            lines.append(f"{shown_time(rest):>11} {100 * rest / max(total, 1):6.1f}%  in {len(rows) - top} more")
        return "\n".join(lines)

    def _summary(self, rows) -> str:
        busy: dict[str, int] = {}
        for row in rows:
            busy[row.device] = busy.get(row.device, 0) + row.nanoseconds
        parts = [f"{shown_time(self.end - self.start)} in all"]
        parts += [f"{shown_time(t)} in steps on {device}" for device, t in sorted(busy.items())]
        compiling = sum(s.duration for s in self.steps if s.kind == "compile")
        if compiling:
            parts.append(f"{shown_time(compiling)} compiling")
        waiting = sum(s.duration for s in self.steps if s.kind == "wait")
        if waiting:
            parts.append(f"{shown_time(waiting)} waiting for devices")
        if self.dropped:
            parts.append(f"{self.dropped} steps were too many to keep")
        return ", ".join(parts)

    def __repr__(self) -> str:
        spent = (self.end - self.start) / 1e6 if self.end else 0.0
        state = f"{len(self.steps)} steps in {spent:.2f} ms" if self.end else "not ended" if self.start else "not begun"
        return f"<profile: {state}; print it for a table>"

    def __str__(self) -> str:
        return self.table()

    def key_averages(self, *unused, **also_unused) -> _Averages:
        """PyTorch's way to the table."""
        return _Averages(self)

    # -- timeline

    def save(self, path: str | os.PathLike) -> None:
        """Writes a timeline in Chrome's trace format, which ui.perfetto.dev shows."""
        files.write(path, json.dumps(self.trace()), durable=False)

    export_chrome_trace = save

    def trace(self) -> dict:
        events: list[dict] = []
        tracks: dict[tuple, tuple[int, int]] = {}
        devices: dict[str, int] = {}

        def track(step: Step) -> tuple[int, int]:
            where = (step.device, step.stream if step.device != "cpu" else step.thread)
            if where not in tracks:
                process = devices.setdefault(step.device, len(devices))
                tracks[where] = (process, len(tracks))
                name = f"thread {len(tracks)}" if step.device == "cpu" else f"stream {step.stream:#x}"
                for what, label in (("process_name", step.device), ("thread_name", name)):
                    events.append(
                        {"ph": "M", "name": what, "pid": process, "tid": tracks[where][1], "args": {"name": label}}
                    )
            return tracks[where]

        for number, step in enumerate(self.steps):
            process, thread = track(step)
            start = (step.start - self.start) / 1000
            arguments = {"op": step.op, "line": step.line}
            if step.bytes:
                arguments["bytes"] = step.bytes
            name = f"compile {step.name}" if step.kind == "compile" else step.name
            events.append({
                "ph": "X", "name": name, "cat": step.kind, "pid": process, "tid": thread, "ts": start,
                "dur": step.duration / 1000, "args": arguments,
            })  # fmt: skip
            if step.device != "cpu":  # an arrow from where the host queued it
                host = (devices.setdefault("cpu", len(devices)), tracks.get(("cpu", step.thread), (0, 0))[1])
                arrow = {"name": "launch", "cat": "launch", "id": number}
                queued = (step.launched - self.start) / 1000
                events.append({"ph": "s", "pid": host[0], "tid": host[1], "ts": queued, **arrow})
                events.append({"ph": "f", "bp": "e", "pid": process, "tid": thread, "ts": start, **arrow})
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def view(self, path: str | os.PathLike | None = None) -> str:
        """The profile as a page that needs nothing else: a timeline to zoom into, tables to sort, memory over time.

        Written to path, if there is one; gives the HTML text. Notebooks show it by themselves.

        >>> with td.profile() as p:
        ...     y = td.ones(64, 64) @ td.ones(64, 64)
        >>> "matmul" in p.view()
        True
        """
        from tandem.pages.profile import render

        text = render(self)
        if path is not None:
            files.write(path, text, durable=False)
        return text

    def _repr_html_(self) -> str:
        from tandem.pages import frame

        return frame(self.view(), title="profile")

    @staticmethod
    def range(name: str) -> _Range:
        """A part of the program with a name, as a context: shown in the timeline of the profile around it, if there is one."""
        return _Range(name)


class _Averages:
    def __init__(self, recorded: profile):
        self._recorded = recorded

    def table(self, sort_by: str | None = None, row_limit: int = 100, **unused) -> str:
        return self._recorded.table(top=row_limit)


class ProfilerActivity:
    """PyTorch's names of what to record."""

    CPU, CUDA = "cpu", "cuda"


record_function = profile.range
_active: list[profile] = []


class _Range:
    def __init__(self, name: str):
        self.name = name

    def __enter__(self):
        self.begun = time.perf_counter_ns()
        return self

    def __exit__(self, *exc):
        if _active:
            took = time.perf_counter_ns() - self.begun
            thread = threading.get_ident()
            step = Step("range", "cpu", self.name, self.name, "", thread, 0, self.begun, took, self.begun, 0)
            _active[-1]._ranges.append(step)


@dataclass(slots=True)
class Row:
    """Steps that have a name in common: an operator, a line, a kernel."""

    name: str
    device: str
    steps: int = 0
    nanoseconds: int = 0
    slowest: int = 0  # nanoseconds of the longest step
    line: str = ""  # where most of the time goes


def shown_time(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3f} {unit}"
    return f"{nanoseconds / 1e3:.2f} us"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
