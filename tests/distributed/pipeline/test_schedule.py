"""Schedules: which can be run, how long they take, what they keep."""

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


@pytest.mark.parametrize("ranks, micro_batches", [(2, 8), (4, 8), (8, 24)])
def test_backward_in_two_waits_less_with_the_memory_of_1f1b(ranks, micro_batches):
    apart, whole = P.zero_bubble(ranks, micro_batches), P.one_f_one_b(ranks, micro_batches)
    assert max(P.verify(apart)) <= max(P.verify(whole)) == min(ranks, micro_batches)
    assert P.simulate(apart).idle < 0.8 * P.simulate(whole).idle


def test_more_memory_leaves_a_smaller_bubble():
    idle = [P.simulate(P.zero_bubble(4, 12, memory)).idle for memory in (1, 4, 8)]
    assert idle == sorted(idle, reverse=True) and idle[0] > idle[2]
    assert idle[2] == pytest.approx(3 / 39)  # (p - 1) forwards at the beginning of the last rank


def test_bad_numbers_are_refused():
    with pytest.raises(td.errors.ValueRangeError, match="use 8 micro-batches"):
        P.interleaved(4, 6)
    with pytest.raises(td.errors.ValueRangeError, match="ranks=0 must be a positive integer"):
        P.gpipe(0, 2)
    with pytest.raises(td.errors.ValueRangeError, match="memory=0"):
        P.zero_bubble(2, 2, 0)
