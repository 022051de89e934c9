"""Collectives under PyTorch's names: they write into the tensors they are given, and record no gradients
(functional.py has those that do).

With async_op=True they run in the background and give a `Work` to wait for.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.modes import no_grad
from tandem.distributed import work
from tandem.distributed.functional import batches, complete_splits
from tandem.distributed.group import ProcessGroup, group_of, this_rank
from tandem.distributed.reduction import ReduceOp, reduction_name
from tandem.distributed.work import Work
from tandem.errors import DTypeError, ShapeError, UnsupportedError
from tandem.graph.ir import Value


def _run(
    name: str, group: ProcessGroup, call, async_op: bool, result=None, lane="collectives", moved: tuple = ()
) -> Work | None:
    """moved: tensors that may be moved to memory that other ranks can look at, as they stay and are met again."""

    @no_grad()
    def quietly():
        if moved and not _runtime.capturing() and group.is_idle:  # then nobody has noted its address
            for tensor in moved:
                _runtime.move_to_shared_heap(tensor)
        call()

    return work.run(group, lane, quietly, async_op, result)


def _check(name: str, *tensors):
    if any(isinstance(t, Value) for t in tensors):
        raise UnsupportedError(
            name, "a tensor of a deferred graph cannot be written to",
            fix=f"use td.distributed.functional.{name.removesuffix('_into_tensor').removesuffix('_tensor')}, which gives a new one",
        )  # fmt: skip


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op: bool = False) -> Work | None:
    """Reduces a tensor over all ranks, in place; all ranks then have the same bits.

    >>> td.distributed.init_process_group()
    >>> x = td.tensor([1.0, 2.0])
    >>> td.distributed.all_reduce(x)
    >>> x
    tensor([1., 2.])
    >>> td.distributed.destroy_process_group()
    """
    group = group_of(group, "all_reduce")
    if group is None:
        return None
    _check("all_reduce", tensor)
    name = reduction_name(op)
    return _run("all_reduce", group, lambda: F.all_reduce_(tensor, group.token, group.size(), name), async_op, [tensor],
                moved=(tensor,))  # fmt: skip


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op: bool = False) -> Work | None:
    """Reduces several tensors over all ranks, in place, at the cost of one collective for those of a dtype."""
    group = group_of(group, "all_reduce_coalesced")
    if group is None:
        return None
    name, tensors = reduction_name(op), list(tensors)

    def call():
        for some in batches(tensors):
            made = F.all_reduce_coalesced([tensors[i] for i in some], group.token, group.size(), name)
            for i, result in zip(some, made, strict=True):
                tensors[i].copy_(result)

    return _run("all_reduce_coalesced", group, call, async_op, tensors)


def broadcast(tensor, src: int = 0, group=None, async_op: bool = False) -> Work | None:
    """Gives all ranks the tensor of rank `src`, in place."""
    group = group_of(group, "broadcast")
    if group is None:
        return None
    _check("broadcast", tensor)
    root = group.position(src, "broadcast")
    return _run("broadcast", group, lambda: F.broadcast_(tensor, group.token, group.size(), root), async_op, [tensor],
                moved=(tensor,))  # fmt: skip


def broadcast_coalesced(tensors, src: int = 0, group=None, *, tag: int = 0):
    """Gives all ranks the tensors of rank `src`, in place, at the cost of one collective for those of a dtype. tag: what tells them
    from others of the same shapes; equal on all ranks."""
    group = group_of(group, "broadcast_coalesced")
    if group is None:
        return
    root, tensors = group.position(src, "broadcast_coalesced"), list(tensors)

    def call():
        for some in batches(tensors):
            made = F.broadcast_coalesced([tensors[i] for i in some], group.token, group.size(), root, tag)
            for i, result in zip(some, made, strict=True):
                tensors[i].copy_(result)

    _run("broadcast_coalesced", group, call, False)


def reduce(tensor, dst: int = 0, op=ReduceOp.SUM, group=None, async_op: bool = False) -> Work | None:
    """Reduces a tensor over all ranks, into that of rank `dst`; the others keep theirs."""
    group = group_of(group, "reduce")
    if group is None:
        return None
    root, name = group.position(dst, "reduce"), reduction_name(op)

    def call():
        result = F.reduce_to(tensor, group.token, group.size(), name, root)
        if group.rank() == root:
            tensor.copy_(result)

    return _run("reduce", group, call, async_op, [tensor])


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op: bool = False) -> Work | None:
    """Writes the tensors of all ranks into one: their rows one after the other, or stacked, as its shape says."""
    group = group_of(group, "all_gather_into_tensor")
    if group is None:
        return None
    _check("all_gather_into_tensor", output_tensor, input_tensor)
    _same_dtype("all_gather_into_tensor", output_tensor, input_tensor)
    if output_tensor.numel() != input_tensor.numel() * group.size():
        raise ShapeError(
            "all_gather_into_tensor",
            f"the output is {tuple(output_tensor.shape)} and each of {group.size()} ranks has {tuple(input_tensor.shape)}",
            fix="make the output as large as the tensors of all ranks together",
        )

    def call():
        rows = input_tensor.reshape(-1) if input_tensor.ndim == 0 else input_tensor
        output_tensor.copy_(F.all_gather(rows, group.token, group.size()).reshape(output_tensor.shape))

    return _run("all_gather_into_tensor", group, call, async_op, [output_tensor])


def all_gather(tensor_list, tensor, group=None, async_op: bool = False) -> Work | None:
    """Writes the tensors of all ranks into a list of tensors, which may differ in size where ranks' tensors do."""
    group = group_of(group, "all_gather")
    if group is None:
        return None
    _check("all_gather", tensor, *tensor_list)
    if len(tensor_list) != group.size():
        raise ShapeError("all_gather", f"a list of {len(tensor_list)} tensors for {group.size()} ranks")
    _same_dtype("all_gather", tensor, *tensor_list)

    def call():
        flat = tensor.reshape(-1)
        rows = tuple(t.numel() for t in tensor_list)
        gathered = F.all_gather(flat, group.token, group.size(), None if len(set(rows)) == 1 else rows)
        at = 0
        for t, n in zip(tensor_list, rows, strict=True):
            t.copy_(gathered[at : at + n].reshape(t.shape))
            at += n

    return _run("all_gather", group, call, async_op, tensor_list)


def _same_dtype(name: str, *tensors):
    for t in tensors:
        if t.dtype != tensors[0].dtype:
            raise DTypeError(name, f"tensors are {tensors[0].dtype} and {t.dtype}; they must have one dtype")


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op: bool = False) -> Work | None:
    """Reduces a tensor over all ranks and writes this rank's part of it, its rows or its entry, into `output`."""
    group = group_of(group, "reduce_scatter_tensor")
    if group is None:
        return None
    _check("reduce_scatter_tensor", output, input)
    _same_dtype("reduce_scatter_tensor", output, input)
    name = reduction_name(op)
    if input.numel() != output.numel() * group.size():
        raise ShapeError(
            "reduce_scatter_tensor",
            f"the input is {tuple(input.shape)} and each of {group.size()} ranks gets {tuple(output.shape)}",
            fix="make the input as large as the outputs of all ranks together",
        )

    def call():
        made = F.reduce_scatter(input.reshape(-1), group.token, group.size(), name)
        output.copy_(made.reshape(output.shape))

    return _run("reduce_scatter_tensor", group, call, async_op, [output])


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op: bool = False) -> Work | None:
    """Reduces a list of tensors, one for each rank, over all ranks, and writes this rank's into `output`."""
    group = group_of(group, "reduce_scatter")
    if group is None:
        return None
    name, rows = reduction_name(op), tuple(t.numel() for t in input_list)
    if len(rows) != group.size():
        raise ShapeError("reduce_scatter", f"a list of {len(rows)} tensors for {group.size()} ranks")

    def call():
        flat = F.concatenate([t.reshape(-1) for t in input_list])
        made = F.reduce_scatter(flat, group.token, group.size(), name, rows[group.rank()], rows)
        output.copy_(made.reshape(output.shape))

    return _run("reduce_scatter", group, call, async_op, [output])


def all_to_all_single(
    output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op: bool = False
):
    """Divides the rows of `input` among all ranks and writes those that they have for this one into `output`.

    Split sizes: rows from each rank and for each; equal parts unless given.
    """
    group = group_of(group, "all_to_all_single")
    if group is None:
        return None
    _check("all_to_all_single", output, input)
    _same_dtype("all_to_all_single", output, input)
    sends, takes = complete_splits(input, input_split_sizes, None, group.size())
    if output_split_sizes is not None or sends is not None:
        takes = tuple(output_split_sizes) if output_split_sizes else (output.shape[0] // group.size(),) * group.size()
        sends = sends or (input.shape[0] // group.size(),) * group.size()

    def call():
        output.copy_(F.all_to_all(input, group.token, group.size(), sends, takes).reshape(output.shape))

    return _run("all_to_all_single", group, call, async_op, [output])


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op: bool = False) -> Work | None:
    """Sends the i-th tensor of a list to rank i, and writes what rank i sends into the i-th of another."""
    group = group_of(group, "all_to_all")
    if group is None:
        return None
    sends = tuple(t.numel() for t in input_tensor_list)
    takes = tuple(t.numel() for t in output_tensor_list)

    def call():
        made = F.all_to_all(
            F.concatenate([t.reshape(-1) for t in input_tensor_list]), group.token, group.size(), sends, takes
        )
        at = 0
        for t, n in zip(output_tensor_list, takes, strict=True):
            t.copy_(made[at : at + n].reshape(t.shape))
            at += n

    return _run("all_to_all", group, call, async_op, output_tensor_list)


def gather(tensor, gather_list=None, dst: int = 0, group=None, async_op: bool = False) -> Work | None:
    """Writes the tensors of all ranks into a list that rank `dst` gives."""
    group = group_of(group, "gather")
    if group is None:
        return None
    root, n = group.position(dst, "gather"), tensor.numel()
    mine = group.rank() == root

    def call():
        sends = tuple(n if r == root else 0 for r in range(group.size()))
        takes = tuple(t.numel() for t in gather_list) if mine else (0,) * group.size()
        made, at = F.all_to_all(tensor.reshape(-1), group.token, group.size(), sends, takes), 0
        for t in gather_list if mine else ():
            t.copy_(made[at : at + t.numel()].reshape(t.shape))
            at += t.numel()

    return _run("gather", group, call, async_op, gather_list)


def scatter(tensor, scatter_list=None, src: int = 0, group=None, async_op: bool = False) -> Work | None:
    """Writes the i-th tensor of a list that rank `src` gives into the tensor of rank i."""
    group = group_of(group, "scatter")
    if group is None:
        return None
    root = group.position(src, "scatter")
    mine = group.rank() == root

    def call():
        flat = F.concatenate([t.reshape(-1) for t in scatter_list]) if mine else F.full((0,), 0, dtype=tensor.dtype)
        sends = tuple(t.numel() for t in scatter_list) if mine else (0,) * group.size()
        takes = tuple(tensor.numel() if r == root else 0 for r in range(group.size()))
        tensor.copy_(F.all_to_all(flat, group.token, group.size(), sends, takes).reshape(tensor.shape))

    return _run("scatter", group, call, async_op, [tensor])


def barrier(group=None, async_op: bool = False, device_ids=None) -> Work | None:
    """Waits until all ranks are here."""
    group = group_of(group, "barrier")
    if group is None:
        return None
    return _run("barrier", group, lambda: F.barrier(F.full((), 0.0), group.token, group.size()), async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks: bool = False):
    """barrier, with a time of its own to wait, in seconds or a timedelta; as every collective here, it says which ranks are missing
    and where they are."""
    mine = group_of(group, "monitored_barrier")
    if mine is None:
        return
    seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
    if seconds is None:
        barrier(mine)
        return
    mine.communicator.set_timeout(float(seconds))
    try:
        barrier(mine)
    finally:
        mine.communicator.set_timeout(this_rank("monitored_barrier").timeout)


# -- messages


def _message(name: str, tensor, peer: int | None, group, tag: int, call, asynchronous: bool):
    group = group_of(group, name)
    if group is None:
        return None
    if peer is None:
        raise UnsupportedError(name, "a message from any rank is not offered", fix="say from which: src=...")
    _check(name, tensor)
    position = group.position(peer, name)
    if position == group.rank():
        raise ShapeError(name, f"rank {peer} is this one; it can send nothing to itself")
    return _run(name, group, lambda: call(tensor, group.token, group.size(), position, tag), asynchronous, [tensor],
                (call.__name__, position))  # fmt: skip


def send(tensor, dst: int, group=None, tag: int = 0):
    """Sends a tensor to rank `dst`, which receives one of the same shape, dtype and tag."""
    _message("send", tensor, dst, group, tag, F.send, False)


def recv(tensor, src: int | None = None, group=None, tag: int = 0) -> int:
    """Writes what rank `src` sends into a tensor; gives that rank."""
    _message("recv", tensor, src, group, tag, F.recv_, False)
    return src


def isend(tensor, dst: int, group=None, tag: int = 0) -> Work | None:
    """send in the background."""
    return _message("isend", tensor, dst, group, tag, F.send, True)


def irecv(tensor, src: int | None = None, group=None, tag: int = 0) -> Work | None:
    """recv in the background."""
    return _message("irecv", tensor, src, group, tag, F.recv_, True)


class P2POp:
    """A send or a receive for batch_isend_irecv: P2POp(td.distributed.isend, tensor, peer)."""

    def __init__(self, op, tensor, peer: int, group=None, tag: int = 0):
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag


def batch_isend_irecv(p2p_op_list) -> list[Work]:
    """Begins several sends and receives, in any order that other ranks begin theirs in."""
    this_rank("batch_isend_irecv")
    return [p.op(p.tensor, p.peer, p.group, p.tag) for p in p2p_op_list]
