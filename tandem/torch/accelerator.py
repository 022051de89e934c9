"""torch.accelerator: the device that is not the CPU, which is "cuda" or none."""

from __future__ import annotations

import contextlib

import tandem as td
from tandem import cuda

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index",
    "empty_cache", "is_available", "set_device_idx", "set_device_index", "set_stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is such a device."""
    return cuda.is_available()


def device_count() -> int:
    return cuda.device_count()


def current_accelerator(check_available: bool = False):
    """The kind of device, without an index; None where there is none.

    >>> device = td.torch.accelerator.current_accelerator() or td.torch.device("cpu")
    """
    return td.device("cuda") if is_available() else None


def current_device_index() -> int:
    return cuda.current_device()


def set_device_index(device, /) -> None:
    cuda.set_device(device)


current_device_idx, set_device_idx = current_device_index, set_device_index


def current_stream(device=None, /):
    return cuda.current_stream(device)


def set_stream(stream) -> None:
    cuda.set_stream(stream)


def synchronize(device=None, /) -> None:
    """Waits for the device; for none where there is none."""
    if is_available():
        cuda.synchronize(device)


def empty_cache() -> None:
    """Gives memory that is kept for later back to the device."""
    if is_available():
        cuda.empty_cache()


@contextlib.contextmanager
def device_index(device, /):
    """That device inside; nothing for None."""
    if device is None:
        yield
        return
    with cuda.device(device):
        yield
