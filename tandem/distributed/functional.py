"""Collectives that give new tensors and have gradients, eagerly, in compiled functions and in deferred graphs.

Gradients are those of the sum of all ranks' losses. All ranks must call the same functions in the same order, and run backward
alike.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.distributed.group import group_of
from tandem.distributed.reduction import reduction_name
from tandem.errors import DistributedError

__all__ = [
    "all_gather", "all_reduce", "all_reduce_coalesced", "all_to_all", "broadcast", "recv", "reduce", "reduce_scatter", "send",
]  # fmt: skip


def _mine(group, name: str):
    group = group_of(group, name)
    if group is None:
        raise DistributedError(name, "this rank is not in the group")
    return group


def all_reduce(x, op="sum", group=None):
    """x reduced over all ranks; the same bits on each.

    op: "sum", "avg", "product", "min", "max", for integers "band", "bor", "bxor"; or of ReduceOp

    >>> td.distributed.init_process_group()
    >>> td.distributed.functional.all_reduce(td.tensor([1.0, 2.0]))
    tensor([1., 2.])
    >>> td.distributed.destroy_process_group()
    """
    group = _mine(group, "all_reduce")
    return F.all_reduce(x, group.token, group.size(), reduction_name(op))


def all_reduce_coalesced(tensors, op="sum", group=None) -> list:
    """Several tensors reduced over all ranks, at the cost of one collective for those of a dtype."""
    tensors = list(tensors)
    group = _mine(group, "all_reduce_coalesced")
    made: dict[int, object] = {}
    for some in batches(tensors):
        results = F.all_reduce_coalesced([tensors[i] for i in some], group.token, group.size(), reduction_name(op))
        made.update(zip(some, results, strict=True))
    return [made[i] for i in range(len(tensors))]


MOST_TENSORS = 64  # of a coalesced collective


def batches(tensors: list):
    """Positions of as many tensors as one collective takes, of one dtype each."""
    by_dtype: dict = {}
    for i, t in enumerate(tensors):
        by_dtype.setdefault(t.dtype, []).append(i)
    for some in by_dtype.values():
        for start in range(0, len(some), MOST_TENSORS):
            yield some[start : start + MOST_TENSORS]


def all_gather(x, group=None, rows=None):
    """The rows of all ranks: x (n, ...) -> (n * ranks, ...). rows: how many each rank has, where they differ."""
    group = _mine(group, "all_gather")
    return F.all_gather(x, group.token, group.size(), None if rows is None else tuple(rows))


def reduce_scatter(x, op="sum", group=None, rows=None):
    """Rows reduced over all ranks, of which this rank gets its part: x (n * ranks, ...) -> (n, ...). rows: how many each rank gets,
    where they differ."""
    group = _mine(group, "reduce_scatter")
    if rows is None:
        return F.reduce_scatter(x, group.token, group.size(), reduction_name(op))
    return F.reduce_scatter(x, group.token, group.size(), reduction_name(op), rows[group.rank()], tuple(rows))


def broadcast(x, src: int = 0, group=None):
    """The tensor of rank `src`; x has the same shape on all ranks."""
    group = _mine(group, "broadcast")
    return F.broadcast(x, group.token, group.size(), group.position(src, "broadcast"))


def reduce(x, dst: int = 0, op="sum", group=None):
    """x reduced over all ranks, on rank `dst`; zeros on the others."""
    group = _mine(group, "reduce")
    return F.reduce_to(x, group.token, group.size(), reduction_name(op), group.position(dst, "reduce"))


def all_to_all(x, output_split_sizes=None, input_split_sizes=None, group=None):
    """This rank's rows divided among all ranks, in turn for theirs. Split sizes: rows from and for each rank, where they differ."""
    group = _mine(group, "all_to_all")
    sends, takes = complete_splits(x, input_split_sizes, output_split_sizes, group.size())
    return F.all_to_all(x, group.token, group.size(), sends, takes)


def complete_splits(x, sends, takes, size: int):
    """Both or neither: where one is given, the other is equal parts of the rows here."""
    if sends is None and takes is None:
        return None, None
    even = (x.shape[0] // size,) * size
    return tuple(sends) if sends else even, tuple(takes) if takes else even


def send(x, dst: int, group=None, tag: int = 0):
    """Sends x to rank `dst`. Gives a zero; add it to the loss, and x gets its gradient from there in backward."""
    group = _mine(group, "send")
    return F.send(x, group.token, group.size(), group.position(dst, "send"), tag)


def recv(like, src: int, group=None, tag: int = 0):
    """What rank `src` sends: a tensor of the shape and dtype of `like`. If `like` requires a gradient, backward sends the result's
    gradient to that rank."""
    group = _mine(group, "recv")
    return F.recv(like, group.token, group.size(), group.position(src, "recv"), tag)
