"""Whether processes work together on one model: they do not here, and programs that ask are told so."""

from __future__ import annotations

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """Whether there are groups of processes: no.

    >>> td.distributed.is_available()
    False
    """
    return False


def is_initialized() -> bool:
    return False
