"""What is wrong with a schedule."""

import pytest

import tandem as td
from tandem.distributed import pipeline as P


def test_1f1b_keeps_fewer_activations_than_gpipe():
    assert P.verify(P.gpipe(4, 8)) == [8, 8, 8, 8]
    assert P.verify(P.one_f_one_b(4, 8)) == [4, 3, 2, 1]


def replaced(schedule, rank, row):
    rows = list(schedule.actions)
    rows[rank] = tuple(row)
    return P.Schedule(schedule.name, schedule.stages, schedule.micro_batches, tuple(rows))


def test_what_is_wrong_with_a_schedule_is_said():
    good = P.gpipe(2, 2)
    row = good.actions[1]
    cases = {
        "B1.1 comes twice": [*row, row[-1]],
        "stage 1 does \\['F'\\] on micro-batch 1": row[:-1],
        "ranks wait for one another: rank 0 at B0.0, rank 1 at B1.0": [row[2], *row[:2], row[3]],
        "F0.0 is on rank 1; stage 0 is on rank 0": [P.Action("F", 0, 0), *row],
        "X1.0 on rank 1 is no action": [P.Action("X", 1, 0), *row],
    }
    for text, changed in cases.items():
        with pytest.raises(td.errors.ValueRangeError, match=text):
            P.verify(replaced(good, 1, changed))
