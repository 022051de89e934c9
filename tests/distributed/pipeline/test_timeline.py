"""Schedules played through."""

import json

import pytest

from tandem.distributed import pipeline as P

SIZES = [(p, m) for p in (1, 2, 3, 4, 8) for m in (1, 2, 4, 8, 24)]


@pytest.mark.parametrize("ranks, micro_batches", SIZES)
@pytest.mark.parametrize("make", [P.gpipe, P.one_f_one_b])
def test_the_bubble_of_equal_stages_is_the_known_one(ranks, micro_batches, make):
    timeline = P.simulate(make(ranks, micro_batches))
    assert timeline.idle == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))


@pytest.mark.parametrize("per_rank", [1, 2, 3])
def test_several_stages_a_rank_divide_the_bubble(per_rank):
    timeline = P.simulate(P.interleaved(4, 8, per_rank))
    assert timeline.idle == pytest.approx(3 / (8 * per_rank + 3))


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
