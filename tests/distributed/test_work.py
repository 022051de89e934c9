"""Handles of collectives that go on."""

import tandem as td
from tandem import distributed as dist


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=300)


def test_handles_keep_the_order_of_calls():
    def work():
        x = td.ones(70_000)
        works = [dist.all_reduce(x, async_op=True) for _ in range(3)]
        y = td.ones(2)
        dist.all_reduce(y)  # behind those under way
        for w in works:
            assert w.wait() and w.is_completed()
        return x[0].item(), y.tolist()

    assert on_ranks(2, work) == [(8.0, [2.0, 2.0])] * 2
