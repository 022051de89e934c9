"""How tensors travel through Python's queues, pipes and process arguments: a descriptor and a geometry."""

from __future__ import annotations

import os
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd, ForkingPickler

from tandem import _runtime, dtypes
from tandem.errors import AutogradError
from tandem.multiprocessing.shared import attach, share_memory_, shared_copy
from tandem.nn.parameter import Buffer, Parameter

Tensor = _runtime.Tensor


def _rebuild(cls, handle, dtype, shape, strides, offset, requires_grad, attributes):
    memory = attach(handle.detach())
    made = memory.tensor(dtypes.by_name(dtype), shape, strides, offset)
    if cls is not Tensor:
        made = _runtime.make_subclass(cls, made)
    made.requires_grad = requires_grad
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


class _Again:
    """A descriptor that a child was handed before, with another tensor on the same memory: it gets one more of its own."""

    def __init__(self, fd: int):
        self.fd = fd

    def detach(self) -> int:
        return os.dup(self.fd)


def _handle(fd: int):
    child = get_spawning_popen()
    if child is not None and child.method == "spawn" and fd in child._fds:  # it takes each once
        return _Again(fd)
    return DupFd(fd)


def _reduce(tensor):
    if not tensor.is_leaf:
        raise AutogradError(
            "multiprocessing",
            "a tensor computed by a recorded operator cannot be sent, for its history stays here",
            fix="send x.detach()",
        )
    place = _runtime.shared_memory_of(tensor)
    if place is None or place[0].fd < 0 or any(s < 0 for s in tensor.strides):
        # As elsewhere, what is sent becomes shared: both sides see later changes. Where others look at the same memory, moving
        # one would part it from them; then a copy is sent.
        is_whole = tensor.is_contiguous() and place is None and _runtime.storage_references(tensor) == 1
        sent = share_memory_(tensor) if is_whole else shared_copy(tensor)
        place = _runtime.shared_memory_of(sent)
        strides = tuple(sent.strides)
    else:
        strides = tuple(tensor.strides)
    memory, offset = place
    return _rebuild, (
        type(tensor), _handle(memory.fd), tensor.dtype.name, tuple(tensor.shape), strides, offset, tensor.requires_grad,
        dict(vars(tensor)),
    )  # fmt: skip


def register(cls):
    """Sends tensors of a subclass through shared memory too; use it as a decorator."""
    ForkingPickler.register(cls, _reduce)
    return cls


for _cls in (Tensor, Parameter, Buffer):
    register(_cls)
