"""Schedules: which can be run, how long they take, what they keep."""

import json

import pytest

import tandem as td
from tandem.distributed import pipeline as P

SIZES = [(p, m) for p in (1, 2, 3, 4, 8) for m in (1, 2, 4, 8, 24)]


@pytest.mark.parametrize("ranks, micro_batches", SIZES)
def test_every_schedule_can_be_run(ranks, micro_batches):
    made = [P.gpipe(ranks, micro_batches), P.one_f_one_b(ranks, micro_batches)]
    made += [P.zero_bubble(ranks, micro_batches, memory) for memory in (None, 1, 2 * ranks)]
    if micro_batches % ranks == 0:
        made += [P.interleaved(ranks, micro_batches, v) for v in (1, 2, 3)]
    for schedule in made:
        assert len(P.verify(schedule)) == ranks


@pytest.mark.parametrize("ranks, micro_batches", SIZES)
@pytest.mark.parametrize("make", [P.gpipe, P.one_f_one_b])
def test_the_bubble_of_equal_stages_is_the_known_one(ranks, micro_batches, make):
    timeline = P.simulate(make(ranks, micro_batches))
    assert timeline.idle == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))


@pytest.mark.parametrize("per_rank", [1, 2, 3])
def test_several_stages_a_rank_divide_the_bubble(per_rank):
    timeline = P.simulate(P.interleaved(4, 8, per_rank))
    assert timeline.idle == pytest.approx(3 / (8 * per_rank + 3))


@pytest.mark.parametrize("ranks, micro_batches", [(2, 8), (4, 8), (8, 24)])
def test_backward_in_two_waits_less_with_the_memory_of_1f1b(ranks, micro_batches):
    apart, whole = P.zero_bubble(ranks, micro_batches), P.one_f_one_b(ranks, micro_batches)
    assert max(P.verify(apart)) <= max(P.verify(whole)) == min(ranks, micro_batches)
    assert P.simulate(apart).idle < 0.8 * P.simulate(whole).idle


def test_more_memory_leaves_a_smaller_bubble():
    idle = [P.simulate(P.zero_bubble(4, 12, memory)).idle for memory in (1, 4, 8)]
    assert idle == sorted(idle, reverse=True) and idle[0] > idle[2]
    assert idle[2] == pytest.approx(3 / 39)  # (p - 1) forwards at the beginning of the last rank


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


def test_bad_numbers_are_refused():
    with pytest.raises(td.errors.ValueRangeError, match="use 8 micro-batches"):
        P.interleaved(4, 6)
    with pytest.raises(td.errors.ValueRangeError, match="ranks=0 must be a positive integer"):
        P.gpipe(0, 2)
    with pytest.raises(td.errors.ValueRangeError, match="memory=0"):
        P.zero_bubble(2, 2, 0)


def test_messages_take_time_but_overlap_with_other_work():
    whole = P.gpipe(2, 8)
    at_once, late = P.simulate(whole).total, P.simulate(whole, link=0.5).total
    assert late == at_once + 2 * 0.5  # the first one on and the first one back


def test_pictures():
    timeline = P.simulate(P.gpipe(2, 2), {"F": 1, "B": 2})
    assert timeline.picture(9) == "rank 0: FF...BBBB\nrank 1: .FFBBBB.."
    assert timeline.svg().count("<rect") == 8 and "<title>F0.0: 0 to 1</title>" in timeline.svg()
    events = json.loads(timeline.perfetto())["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == 8 and events[1]["dur"] == 1e6
