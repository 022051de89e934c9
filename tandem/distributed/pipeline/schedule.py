"""Schedules of a pipeline, as data: what each rank does, in order.

A model is a row of stages. Stage s of S is on rank s % ranks, so that with more stages than ranks each rank has several, far apart
(interleaved). A batch is divided into micro-batches, which go through the stages one after the other.

    F  forward of a stage on a micro-batch
    B  backward: gradients of what came in, and of the weights
    I  gradients of what came in only: what the stage before waits for
    W  gradients of the weights only: nobody waits for them, so they fill gaps
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

from tandem.errors import ValueRangeError

KINDS = ("F", "B", "I", "W")


class Action(NamedTuple):
    """One thing that a rank does."""

    kind: str
    stage: int
    micro: int

    def __str__(self):
        return f"{self.kind}{self.stage}.{self.micro}"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What each rank does, in order. Made by hand, or by the functions of this file; `verify` says whether it can be run."""

    name: str
    stages: int
    micro_batches: int
    actions: tuple[tuple[Action, ...], ...]  # of each rank

    @property
    def ranks(self) -> int:
        return len(self.actions)

    @property
    def splits(self) -> bool:
        """Whether gradients of weights are computed apart."""
        return any(a.kind == "W" for row in self.actions for a in row)

    def rank_of(self, stage: int) -> int:
        return stage % self.ranks

    def stages_of(self, rank: int) -> list[int]:
        return list(range(rank, self.stages, self.ranks))

    @functools.cached_property
    def _all(self) -> frozenset[Action]:
        return frozenset(a for row in self.actions for a in row)

    def before(self, action: Action) -> list[Action]:
        """What an action waits for, on whichever rank."""
        kind, stage, micro = action
        if kind == "F":
            return [Action("F", stage - 1, micro)] if stage else []
        if kind == "W":
            return [Action("I", stage, micro)]
        found = [Action("F", stage, micro)]
        if stage < self.stages - 1:
            apart = Action("I", stage + 1, micro)
            found.append(apart if apart in self._all else Action("B", stage + 1, micro))
        return found

    def __str__(self):
        rows = (f"rank {r}: " + " ".join(map(str, row)) for r, row in enumerate(self.actions))
        return "\n".join([f"{self.name}: {self.stages} stages, {self.micro_batches} micro-batches", *rows])


def gpipe(ranks: int, micro_batches: int) -> Schedule:
    """All micro-batches forward, then all backward: simple, and keeps the activations of all of them.

    >>> print(td.distributed.pipeline.gpipe(2, 2))
    gpipe: 2 stages, 2 micro-batches
    rank 0: F0.0 F0.1 B0.0 B0.1
    rank 1: F1.0 F1.1 B1.0 B1.1
    """
    _check(ranks, micro_batches)
    row = lambda s: tuple(Action(kind, s, m) for kind in "FB" for m in range(micro_batches))
    return Schedule("gpipe", ranks, micro_batches, tuple(row(s) for s in range(ranks)))


def one_f_one_b(ranks: int, micro_batches: int) -> Schedule:
    """As soon as a micro-batch is through, it goes back: as long as gpipe, with the activations of at most `ranks` micro-batches.

    >>> print(td.distributed.pipeline.one_f_one_b(2, 3))
    1f1b: 2 stages, 3 micro-batches
    rank 0: F0.0 F0.1 B0.0 F0.2 B0.1 B0.2
    rank 1: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2
    """
    _check(ranks, micro_batches)

    def row(stage: int):
        forward = [Action("F", stage, m) for m in range(micro_batches)]
        backward = [Action("B", stage, m) for m in range(micro_batches)]
        return _alternate(forward, backward, ranks - stage - 1)

    return Schedule("1f1b", ranks, micro_batches, tuple(row(s) for s in range(ranks)))


def interleaved(ranks: int, micro_batches: int, per_rank: int = 2) -> Schedule:
    """1f1b with several stages on each rank: a shorter wait at the beginning and the end, for more messages.

    micro_batches: a multiple of ranks
    """
    _check(ranks, micro_batches)
    if per_rank < 1:
        raise ValueRangeError("interleaved", f"per_rank={per_rank} must be a positive number of stages")
    if micro_batches % ranks:
        raise ValueRangeError(
            "interleaved", f"{micro_batches} micro-batches are not a multiple of {ranks} ranks",
            fix=f"use {-(-micro_batches // ranks) * ranks} micro-batches, or the schedule '1f1b'",
        )  # fmt: skip

    def row(rank: int):
        def order(kind: str, chunks):
            rounds = range(0, micro_batches, ranks)
            return [Action(kind, c * ranks + rank, m) for r in rounds for c in chunks for m in range(r, r + ranks)]

        forward, backward = order("F", range(per_rank)), order("B", range(per_rank - 1, -1, -1))
        ahead = (ranks - rank - 1) * (2 if per_rank > 1 else 1) + (per_rank - 1) * ranks
        return _alternate(forward, backward, ahead)

    rows = tuple(row(r) for r in range(ranks))
    return Schedule("interleaved", ranks * per_rank, micro_batches, rows)


def _alternate(forward: list, backward: list, ahead: int) -> tuple:
    """`ahead` forwards, then one forward and one backward in turn, then the backwards that are left."""
    ahead = min(ahead, len(forward))
    made = forward[:ahead]
    for f, b in zip(forward[ahead:], backward, strict=False):
        made += [f, b]
    return (*made, *backward[len(forward) - ahead :])


def zero_bubble(
    ranks: int, micro_batches: int, memory: int | None = None, times: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> Schedule:
    """Backward in two: what the stage before waits for comes first, gradients of weights fill the gaps.

    memory: of how many micro-batches a rank may keep activations; as many as 1f1b keeps by default. With about twice as many
        hardly a gap is left.
    times: of F, I and W, by which it is decided what comes first; those of a profile are better than equal ones.
    """
    _check(ranks, micro_batches)
    memory = ranks if memory is None else memory
    if memory < 1:
        raise ValueRangeError("zero_bubble", f"memory={memory} must be a positive number of micro-batches")
    return Schedule("zero_bubble", ranks, micro_batches, _greedy(ranks, micro_batches, memory, times))


def _greedy(ranks: int, count: int, memory: int, times) -> tuple[tuple[Action, ...], ...]:
    """Whoever is free first does the most urgent of what it can begin at that time: I before F before W."""
    cost = dict(zip("FIW", times, strict=True))
    end: dict[Action, float] = {}
    done = [dict.fromkeys("FIW", 0) for _ in range(ranks)]
    clock = [0.0] * ranks
    rows: list[list[Action]] = [[] for _ in range(ranks)]

    def ready(rank: int, kind: str) -> float | None:
        """From when on the rank's next action of this kind can be done; None if that is not known yet."""
        micro = done[rank][kind]
        if micro == count:
            return None
        if kind == "F":
            room = done[rank]["F"] - done[rank]["W"] < memory
            return None if not room else 0.0 if rank == 0 else end.get(Action("F", rank - 1, micro))
        if kind == "I":
            before = Action("F", rank, micro) if rank == ranks - 1 else Action("I", rank + 1, micro)
            return end.get(before) if done[rank]["F"] > micro else None
        return clock[rank] if done[rank]["I"] > micro else None

    def choice(rank: int):
        """(when, how urgent, kind) of what the rank does next."""
        found = []
        for urgency, kind in enumerate("IFW"):
            at = ready(rank, kind)
            if at is not None:
                found.append((max(at, clock[rank]), urgency, kind))
        return min(found, default=None)

    while any(d["W"] < count for d in done):
        found = [(c[0], rank, c) for rank in range(ranks) if (c := choice(rank)) is not None]
        _, rank, (at, _, kind) = min(found)
        action = Action(kind, rank, done[rank][kind])
        done[rank][kind] += 1
        clock[rank] = end[action] = at + cost[kind]
        rows[rank].append(action)
    return tuple(map(tuple, rows))


def _check(ranks: int, micro_batches: int):
    for name, n in (("ranks", ranks), ("micro_batches", micro_batches)):
        if not isinstance(n, int) or n < 1:
            raise ValueRangeError("schedule", f"{name}={n!r} must be a positive integer")


def schedule_of(name, ranks: int, stages: int, micro_batches: int) -> Schedule:
    """The schedule of this name for so many ranks and stages."""
    if isinstance(name, Schedule):
        if (name.ranks, name.stages, name.micro_batches) != (ranks, stages, micro_batches):
            raise ValueRangeError(
                "pipeline", f"the schedule is for {name.ranks} ranks, {name.stages} stages and {name.micro_batches} "
                f"micro-batches; there are {ranks}, {stages} and {micro_batches}",
            )  # fmt: skip
        return name
    if stages % ranks:
        raise ValueRangeError(
            "pipeline", f"{stages} stages cannot be divided evenly among {ranks} ranks",
            fix=f"use {ranks} stages, or a multiple of it with schedule='interleaved'",
        )  # fmt: skip
    per_rank = stages // ranks
    if per_rank > 1 and name != "interleaved":
        raise ValueRangeError(
            "pipeline", f"schedule={name!r} has one stage a rank; there are {stages} stages and {ranks} ranks",
            fix="use schedule='interleaved'",
        )  # fmt: skip
    if name == "interleaved":
        return interleaved(ranks, micro_batches, per_rank)
    makers = {"gpipe": gpipe, "1f1b": one_f_one_b, "zero_bubble": zero_bubble}
    if name not in makers:
        raise ValueRangeError("pipeline", f"schedule={name!r} must be one of {[*makers, 'interleaved']} or a Schedule")
    return makers[name](ranks, micro_batches)
