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


def test_compiled_and_functional_collectives_come_after_those_under_way():
    """All of one size, so that those of one would be taken for those of another."""

    def work():
        r = dist.get_rank()
        compiled = td.compile(lambda x: dist.functional.all_reduce(x) + 0)
        b = td.full((50_000,), 10.0 + r)
        compiled(b)
        found = set()
        for i in range(40):
            a = td.full((50_000,), 1.0 + r)
            handle = dist.all_reduce(a, async_op=True)
            y = compiled(b) if i % 2 else dist.functional.all_reduce(b)
            value = y[0].item()
            handle.wait()
            found.add((a[0].item(), value))
        return found

    assert on_ranks(2, work) == [{(3.0, 21.0)}] * 2
