"""Tensors on shared memory."""

from __future__ import annotations

import weakref

from tandem import _runtime, forks
from tandem.errors import AutogradError

Tensor, SharedMemory = _runtime.Tensor, _runtime.SharedMemory


def is_shared(tensor) -> bool:
    """Whether a tensor's memory can be seen by other processes.

    >>> td.multiprocessing.is_shared(td.zeros(2))
    False
    """
    return _runtime.shared_memory_of(tensor) is not None


def copy_into(target, source):
    """Copies elements between tensors of one shape and dtype, without running a kernel."""
    shape = tuple(source.shape)
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    _runtime.stack_rows(
        [source.detach()], _runtime.reinterpret(target.detach(), (1, *shape), (step, *strides), target.dtype)
    )


def shared_copy(tensor):
    """A contiguous copy on new shared memory."""
    memory = SharedMemory(tensor.numel() * tensor.dtype.itemsize)
    made = memory.tensor(tensor.dtype, tuple(tensor.shape))
    if tensor.numel():
        copy_into(made, tensor)
    return made


def share_memory_(tensor):
    """Moves a tensor to shared memory, in place: processes that are given it from now on see the same elements.

    >>> td.zeros(2).share_memory_().is_shared()
    True
    """
    if is_shared(tensor):
        return tensor
    if not tensor.is_leaf:
        raise AutogradError(
            "share_memory_",
            "the tensor was computed by a recorded operator; only leaves can be shared",
            fix="use x.detach()",
        )
    if _runtime.storage_references(tensor) > 1:
        raise AutogradError(
            "share_memory_",
            "other tensors look at the same memory (this is a view, or has views); they would be parted from it",
            fix="use x.clone().share_memory_()",
        )
    grad = tensor.grad
    _runtime.set_data(tensor, shared_copy(tensor))
    if grad is not None and not is_shared(grad):
        share_memory_(grad)
    return tensor


# Memory that came from other processes, by inode: what two messages mention is mapped once.
_known: weakref.WeakValueDictionary[int, SharedMemory] = weakref.WeakValueDictionary()
_lock = forks.lock()  # guards _known


def attach(fd: int) -> SharedMemory:
    """The memory behind a descriptor, which is taken over."""
    memory = SharedMemory.attach(fd)
    with _lock:
        known = _known.get(memory.inode)
        if known is not None:
            return known
        _known[memory.inode] = memory
    return memory
