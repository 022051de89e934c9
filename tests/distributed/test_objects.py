"""Objects between ranks."""

import pytest

import tandem as td
from tandem import distributed as dist


def on_ranks(n, fn, *args):
    return dist.spawn(fn, n, args, engine="threads", timeout=300)


def test_objects_without_pickle():
    def work():
        r = dist.get_rank()
        every = [None] * 2
        dist.all_gather_object(every, {"rank": r, "parts": (1, b"x", 2 + 1j, {3}), "x": td.tensor([r, r + 1])})
        given = [["a", r], None] if r == 1 else [None, None]
        dist.broadcast_object_list(given, src=1)
        with pytest.raises(td.DTypeError, match=r"type .*object.* is not sent between ranks(?s:.)*allow_pickle"):
            dist.all_gather_object(every.copy(), object())
        return [(e["rank"], e["parts"], e["x"].tolist()) for e in every], given

    parts = (1, b"x", 2 + 1j, {3})
    expected = [(0, parts, [0, 1]), (1, parts, [1, 2])], [["a", 1], None]
    assert on_ranks(2, work) == [expected] * 2


def test_objects_for_each_rank_and_between_two():
    def work():
        r, n = dist.get_rank(), dist.get_world_size()
        mine = [None]
        dist.scatter_object_list(mine, [{"part": k, "text": "x" * k} for k in range(n)] if r == 1 else None, src=1)
        got = [None, None]
        if r == 0:
            dist.send_object_list([(1, 2), {"a": td.ones(2)}], 2)
        if r == 2:
            dist.recv_object_list(got, 0)
        return mine[0], str(got)

    for r, (mine, got) in enumerate(on_ranks(3, work)):
        assert mine == {"part": r, "text": "x" * r}
        assert got == ("[(1, 2), {'a': tensor([1., 1.])}]" if r == 2 else "[None, None]")
