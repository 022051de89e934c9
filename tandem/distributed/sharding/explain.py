"""explain: each operator's placements, and the bytes that it moves."""

from __future__ import annotations

from typing import NamedTuple

from tandem import _runtime
from tandem.distributed.sharding.layout import Placements
from tandem.distributed.sharding.parts import state


class Line(NamedTuple):
    """One operator of a call, or a redistribution."""

    call: str
    source: str
    op: str
    inputs: list[Placements]
    outputs: list[Placements]
    moved: list[tuple[str, int]]  # (collective, bytes): what this rank puts in, or of an all-gather what it gets


class ShardingReport:
    """What calls on sharded tensors did on this rank while it was open: `with td.distributed.sharding_report() as report:`.

    lines: one for each operator      collectives: {name: how many}      bytes: what they moved
    """

    def __init__(self):
        self.lines: list[Line] = []

    def __enter__(self):
        state.reports = (*state.reports, self)
        return self

    def __exit__(self, *exc):
        state.reports = tuple(r for r in state.reports if r is not self)

    def add(self, name: str, call):
        source = _runtime.captured_source()
        for step in call.steps:
            self.lines.append(Line(name, source, step.node.op.name, step.inputs, step.outputs, step.moved))
        counted = sum(len(step.moved) for step in call.steps)
        if counted < len(call.moved):  # results that are brought to where they are wanted
            self.lines.append(
                Line(name, source, "result", [], [o.placements for o in call.outputs], call.moved[counted:])
            )

    def add_move(self, shape, old: Placements, new: Placements, moved):
        self.lines.append(Line("redistribute", _runtime.captured_source(), "redistribute", [old], [new], moved))

    @property
    def collectives(self) -> dict[str, int]:
        made: dict[str, int] = {}
        for line in self.lines:
            for name, _ in line.moved:
                made[name] = made.get(name, 0) + 1
        return made

    @property
    def bytes(self) -> int:
        return sum(n for line in self.lines for _, n in line.moved)

    def __str__(self):
        rows, last = [], None
        for line in self.lines:
            if (line.call, line.source) != last:
                rows.append(f"{line.call}  {line.source}".rstrip())
                last = line.call, line.source
            inputs, outputs = (", ".join(map(_shown, p)) for p in (line.inputs, line.outputs))
            moved = "".join(f"  {name} {n:,} B" for name, n in line.moved)
            rows.append(f"  {line.op}: {inputs} -> {outputs}{moved}")
        made = ", ".join(f"{n} {name}" for name, n in self.collectives.items()) or "no collectives"
        return "\n".join([*rows, f"{made}: {self.bytes:,} B on this rank"])


def _shown(placements: Placements) -> str:
    return "[" + ", ".join(map(repr, placements)) + "]"


def sharding_report() -> ShardingReport:
    """A scope that takes down what calls on sharded tensors do.

    >>> with td.distributed.sharding_report() as report:
    ...     y = td.ones(2) + 1
    >>> print(report)
    no collectives: 0 B on this rank
    """
    return ShardingReport()


def explain(fn, *args, **kwargs) -> str:
    """Calls fn and gives, as text, the placements of every operator on sharded tensors and the bytes that it moves on this rank.
    All ranks must call it.

    >>> print(td.distributed.explain(lambda x: x + 1, td.ones(2)))
    no collectives: 0 B on this rank
    """
    with ShardingReport() as report:
        fn(*args, **kwargs)
    return str(report)
