"""Memory of the caching allocator: how much is in use, and how to give it back."""

from tandem import _runtime

__all__ = ["empty_cache", "reset_peak", "set_limit", "stats"]


def stats() -> dict[str, int]:
    """Counts of the allocator, exact at the time of the call.

    `live_bytes` and `live_blocks` are in use by tensors, `peak_bytes` is the highest `live_bytes` since `reset_peak`,
    `reserved_bytes` were taken from the system (in use, or cached for later), `allocations` were served in all, and
    `system_allocations` and `system_frees` went through to the system. Memory that a tensor shares with NumPy or another
    library, which allocated it, is not counted.

    >>> td.memory.stats()["live_bytes"] <= td.memory.stats()["reserved_bytes"]
    True
    """
    return _runtime.memory_stats()


def reset_peak() -> None:
    """Start `peak_bytes` again from what is live now."""
    _runtime.reset_peak_memory()


def empty_cache() -> None:
    """Return everything that is cached to the system. Live tensors stay where they are."""
    _runtime.empty_cache()


def set_limit(bytes: int | None) -> None:
    """Refuse to take more than this many bytes from the system; None: as many as the machine or its container has."""
    _runtime.set_memory_limit(0 if bytes is None else bytes)
