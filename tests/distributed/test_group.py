"""Groups of ranks."""

import re
import threading

import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed.group import current


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=300)


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


def swapped(times=1):
    """What is summed in which order is the other way round on rank 1, and nothing but the lines tells."""
    first, second = td.ones(3), td.ones(3) * 10

    def sum_first():
        dist.all_reduce(first)

    def sum_second():
        dist.all_reduce(second)

    for _ in range(times):
        for call in (sum_first, sum_second) if dist.get_rank() == 0 else (sum_second, sum_first):
            call()


def test_equal_collectives_in_different_orders_are_warned_of_once(capfd):
    with td.switches(ORDER=1):
        dist.spawn(swapped, 2, (3,), engine="threads")
    told = capfd.readouterr().err
    assert told.count("ranks call equal collectives in different orders") == 1
    assert re.search(r"number 1: rank 0 at test_group.py:(\d+), rank 1 at test_group.py:(\d+)\n"
                     r"  number 2: rank 0: all_reduce\(sum\) of float32 \(3,\) at test_group.py:\2, rank 1 at "
                     r"test_group.py:\1\n", told)  # fmt: skip
    with td.switches(ORDER=0):
        dist.spawn(swapped, 2, engine="threads")
    assert capfd.readouterr().err == ""


def test_equal_collectives_in_different_orders_are_an_error():
    with pytest.raises(
        td.DistributedError, match=r"(?s)collectives in different orders:.*number 2.*those were mixed.*fix:"
    ):
        dist.spawn(swapped, 3, engine="threads")


def test_equal_collectives_in_an_order_that_goes_round_are_an_error():
    """Rank 1 begins with what is second on rank 0: no two lines meet both ways."""

    def work():
        tensors = [td.ones(3) * 10**k for k in range(3)]
        calls = (
            lambda: dist.all_reduce(tensors[0]),
            lambda: dist.all_reduce(tensors[1]),
            lambda: dist.all_reduce(tensors[2]),
        )
        for k in range(3):
            calls[(k + dist.get_rank()) % 3]()

    with pytest.raises(
        td.DistributedError,
        match=r"orders:\n  number 1: rank 0 at (\S+:\d+), rank 1 at .*\n  number 3: .*, rank 1 at \1\n",
    ):
        dist.spawn(work, 2, engine="threads")


def test_branches_and_turns_are_no_different_orders(capfd):
    def work():
        rank, n = dist.get_rank(), dist.get_world_size()
        for k in range(2 * n):
            x = td.full((2,), float(rank))
            if rank == k % n:  # ranks take turns
                dist.broadcast(x, k % n)
            else:
                dist.broadcast(x, k % n)
            if rank == 0:  # one rank alone has another branch
                dist.all_reduce(x)
            else:
                dist.all_reduce(x)
        return x.tolist()

    assert dist.spawn(work, 3, engine="threads") == [[6.0, 6.0]] * 3
    assert capfd.readouterr().err == ""


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
            release.wait(300)  # stuck here
            return None
        current().world.communicator.set_timeout(0.3)
        try:
            with pytest.raises(td.DeadlineError) as error:
                dist.barrier()
        finally:
            release.set()
        return str(error.value)

    text = on_ranks(2, work)[0]
    assert "waited 0.3 s in barrier at test_group.py:" in text
    assert "rank 1: is at" in text and "in test_a_stuck_rank" not in text.partition("rank 1: is at")[0]
    assert "its latest collective was number 1, all_reduce(sum) of float32 (2,) at" in text


def test_ranks_that_disagree_find_out_though_another_waits_for_one_of_them():
    """Rank 2 waits for a message from rank 1, which waits for rank 2 in a collective that rank 0 does not call."""

    def work():
        current().world.communicator.set_timeout(40 if dist.get_rank() == 2 else 2)
        with pytest.raises(td.DistributedError) as error:
            if dist.get_rank() == 0:
                dist.barrier()
            elif dist.get_rank() == 1:
                dist.all_reduce(td.ones(5))
            else:
                dist.recv(td.ones(3), 1)
        return type(error.value), str(error.value)

    found = on_ranks(3, work)
    for kind, text in found[:2]:
        assert kind is td.DistributedError and ("ranks do not agree" in text or "failed" in text)
    first = next(text for _, text in found if "ranks do not agree" in text)
    assert "rank 0: barrier at test_group.py:" in first and "rank 1: all_reduce(sum) of float32 (5,)" in first
    assert re.search(r"rank [01] failed \(it gave up waiting in", found[2][1])


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
        dist.monitored_barrier(timeout=300)
        if dist.get_rank() == 1:
            over.wait(300)
        if dist.get_rank() == 0:
            with pytest.raises(td.DeadlineError, match=r"waited 0\.2 s in barrier(?s:.)*rank 1"):
                dist.monitored_barrier(timeout=0.2)
            over.set()
        return True

    assert on_ranks(2, work) == [True, True]
