"""Whether a schedule can be run, and what it keeps."""

from __future__ import annotations

import itertools

from tandem.distributed.pipeline.schedule import KINDS, Action, Schedule
from tandem.errors import ValueRangeError


def verify(schedule: Schedule) -> list[int]:
    """Raises an error that says what is wrong with a schedule; gives, for each rank, of how many micro-batches and stages it keeps
    activations at most.

    >>> td.distributed.pipeline.verify(td.distributed.pipeline.one_f_one_b(4, 8))
    [4, 3, 2, 1]
    """
    _check_complete(schedule)
    order(schedule)
    return most_kept(schedule)


def _check_complete(schedule: Schedule):
    seen: dict[Action, int] = {}
    for rank, row in enumerate(schedule.actions):
        for a in row:
            if a.kind not in KINDS or not (0 <= a.stage < schedule.stages and 0 <= a.micro < schedule.micro_batches):
                _refuse(schedule, f"{a} on rank {rank} is no action of it")
            if schedule.rank_of(a.stage) != rank:
                _refuse(schedule, f"{a} is on rank {rank}; stage {a.stage} is on rank {schedule.rank_of(a.stage)}")
            if a in seen:
                _refuse(schedule, f"{a} comes twice")
            seen[a] = rank
    for stage in range(schedule.stages):
        for micro in range(schedule.micro_batches):
            kinds = {k for k in KINDS if Action(k, stage, micro) in seen}
            if kinds not in ({"F", "B"}, {"F", "I", "W"}):
                _refuse(
                    schedule,
                    f"stage {stage} does {sorted(kinds)} on micro-batch {micro}; it must do F and B, or F, I and W",
                )


def order(schedule: Schedule) -> list[Action]:
    """All actions in an order in which one processor could do them. An error if ranks would wait for one another."""
    place = [0] * schedule.ranks
    done: set[Action] = set()
    made = []
    while len(made) < sum(map(len, schedule.actions)):
        before = len(made)
        for rank, row in enumerate(schedule.actions):
            while place[rank] < len(row) and all(a in done for a in schedule.before(row[place[rank]])):
                done.add(row[place[rank]])
                made.append(row[place[rank]])
                place[rank] += 1
        if len(made) == before:
            stuck = [f"rank {r} at {row[place[r]]}" for r, row in enumerate(schedule.actions) if place[r] < len(row)]
            _refuse(schedule, "ranks wait for one another: " + ", ".join(stuck))
    return made


def most_kept(schedule: Schedule) -> list[int]:
    """For each rank, of how many micro-batches and stages it keeps activations at most."""
    change = {"F": 1, "I": 0, "B": -1, "W": -1}
    return [max(itertools.accumulate((change[a.kind] for a in row), initial=0)) for row in schedule.actions]


def most_kept_of_stages(schedule: Schedule) -> list[int]:
    """For each stage, of how many micro-batches its activations are kept at most."""
    change = {"F": 1, "I": 0, "B": -1, "W": -1}
    actions = [
        [change[a.kind] for a in schedule.actions[schedule.rank_of(s)] if a.stage == s] for s in range(schedule.stages)
    ]
    return [max(itertools.accumulate(some, initial=0)) for some in actions]


def _refuse(schedule: Schedule, text: str):
    raise ValueRangeError("schedule", f"{schedule.name!r} cannot be run: {text}")
