"""Stages of interleaved pipelines: several, far apart in the model, at each place, so that ranks wait less for the first and the
last micro-batches. All places have as many ranks; where the model is cut is found by dynamic programming."""

from __future__ import annotations

from tandem.distributed.automatic.choice import Choice
from tandem.distributed.automatic.inter import Found, Intervals, Row, sizes_of

MOST_STAGES = 4  # of a place


def interleaved_rows(found: Intervals, sizes: list[int] | None = None, stages: int | None = None) -> list[Row]:
    """Rows of stages whose longest is as short as can be, for each number of places and of stages at each. sizes: how many ranks a
    place may have; stages: how many there are in all; where that is asked for."""
    topology = found.topology
    made = []
    for each in sizes or sizes_of(topology):
        places = topology.devices // each
        if places < 2 or topology.devices % each or found.micro_batches % places:
            continue
        if each <= topology.per_node and topology.per_node % each:
            continue  # some would lie across nodes
        for chunks in range(2, MOST_STAGES + 1):
            count = places * chunks
            if count > found.layers or stages not in (None, count):
                continue
            row = _evenly(found, count, each, places)
            if row is not None:
                made.append(row)
    return made


def _evenly(found: Intervals, count: int, each: int, places: int) -> Row | None:
    """Layers in so many intervals, of which the longest is as short as can be."""
    shortest: dict[tuple[int, int], Found | None] = {}

    def option(i: int, j: int) -> Found | None:
        if (i, j) not in shortest:
            shortest[i, j] = min(found.options(i, j, each, 0, count // places), key=lambda f: f.micro, default=None)
        return shortest[i, j]

    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}  # first layers -> (longest, where intervals end)
    for number in range(count):
        longer: dict[int, tuple[float, tuple[int, ...]]] = {}
        ends = [found.layers] if number == count - 1 else range(1, found.layers)
        for j in ends:
            for i, (longest, before) in best.items():
                f = option(i, j) if i < j else None
                if f is not None and (j not in longer or max(longest, f.micro) < longer[j][0]):
                    longer[j] = max(longest, f.micro), (*before, j)
        best = longer
    if found.layers not in best:
        return None
    ends = best[found.layers][1]
    stages = []
    for number, (i, j) in enumerate(zip((0, *ends), ends, strict=False)):
        stages.append((i, j, number % places * each, option(i, j)))
    return Row(sum(f.micro for *_, f in stages), tuple(stages))


def is_runnable(choice: Choice) -> bool:
    """Not where several ranks divide a weight that two stages of one place read: they may want it differently."""
    for row in choice.rows:
        if len(choice.stages[row[0]].place.ranks) > 1:
            weights = [v for s in row for v in choice.stages[s].joint.weights]
            if len(weights) != len(set(weights)):
                return False
    return True
