"""Groups of ranks."""

import threading

import pytest

import tandem as td
from tandem import distributed as dist


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=60)


def test_groups():
    def work():
        r = dist.get_rank()
        low, high = dist.new_group([0, 1]), dist.new_group([1, 2])
        x = td.ones(2)
        dist.barrier(group=dist.group.WORLD)
        dist.all_reduce(x, group=low)
        dist.broadcast(x, src=2, group=high)
        ranks = dist.get_process_group_ranks(low) if r < 2 else None
        return x.tolist(), dist.get_rank(high), ranks

    assert on_ranks(3, work) == [([2.0, 2.0], -1, [0, 1]), ([1.0, 1.0], 0, [0, 1]), ([1.0, 1.0], 1, None)]


# -- mistakes


def test_ranks_that_disagree_are_shown_with_their_lines_on_all_ranks():
    def work():
        if dist.get_rank() == 0:
            x = td.ones(3)
            dist.all_reduce(x)
        else:
            x = td.ones(4, dtype=td.float64)
            dist.all_reduce(x, "max")

    def caught():
        with pytest.raises(td.DistributedError) as error:
            work()
        after = td.ones(1)
        dist.all_reduce(after)  # the group goes on
        return str(error.value), after.item()

    results = on_ranks(2, caught)
    for text, after in results:
        assert "ranks do not agree on collective number 1" in text
        assert "rank 0: all_reduce(sum) of float32 (3,) at test_group.py:" in text
        assert "rank 1: all_reduce(max) of float64 (4,) at test_group.py:" in text
        assert after == 2


def test_ranks_that_disagree_in_compiled_functions():
    step = td.compile(lambda x: dist.functional.all_reduce(x) * 2)

    def caught():
        with pytest.raises(td.DistributedError) as error:
            step(td.ones(2 + dist.get_rank()))
        return str(error.value)

    for text in on_ranks(2, caught):
        assert "float32 (2,) at test_group.py:" in text and "float32 (3,) at test_group.py:" in text


def test_a_rank_that_fails_is_named_to_the_others():
    seen = {}

    def work():
        if dist.get_rank() == 1:
            raise ValueError("no data")
        try:
            dist.all_reduce(td.ones(2))
        except td.DistributedError as error:
            seen[dist.get_rank()] = str(error)
            raise

    with pytest.raises(ValueError, match="no data"):
        on_ranks(3, work)
    for text in seen.values():
        assert (
            "rank 1 failed (ValueError: no data, at" in text and "all_reduce(sum) of float32 (2,) at test_group" in text
        )


def test_a_rank_that_left_is_named():
    def work():
        if dist.get_rank() == 0:
            with pytest.raises(td.DistributedError, match=r"rank 1 has left the group, and barrier at .* waits for it"):
                dist.barrier()

    on_ranks(2, work)


def test_a_stuck_rank_is_named_with_the_line_it_is_at():
    import threading

    release = threading.Event()

    def work():
        dist.all_reduce(td.ones(2))
        if dist.get_rank() == 1:
            release.wait(30)  # stuck here
            return None
        try:
            with pytest.raises(td.DeadlineError) as error:
                dist.barrier()
        finally:
            release.set()
        return str(error.value)

    text = dist.spawn(work, 2, engine="threads", timeout=0.3)[0]
    assert "waited 0.3 s in barrier at test_group.py:" in text
    assert "rank 1: is at" in text and "in test_a_stuck_rank" not in text.partition("rank 1: is at")[0]
    assert "its latest collective was number 1, all_reduce(sum) of float32 (2,) at" in text


def test_subgroups():
    def work():
        own, groups = dist.new_subgroups(2)
        x = td.ones(1) * dist.get_rank()
        dist.all_reduce(x, group=own)
        with pytest.raises(td.ValueRangeError, match="4 ranks cannot be divided into groups of 3"):
            dist.new_subgroups(3)
        return x.item(), len(groups)

    assert on_ranks(4, work) == [(1.0, 2), (1.0, 2), (5.0, 2), (5.0, 2)]


def test_a_barrier_with_a_time_of_its_own():
    over = threading.Event()

    def work():
        dist.monitored_barrier(timeout=30)
        if dist.get_rank() == 1:
            over.wait(30)
        if dist.get_rank() == 0:
            with pytest.raises(td.DeadlineError, match=r"waited 0\.2 s in barrier(?s:.)*rank 1"):
                dist.monitored_barrier(timeout=0.2)
            over.set()
        return True

    assert on_ranks(2, work) == [True, True]
