"""What programs ask of the compiler by PyTorch's path; td.compile is what compiles."""

from __future__ import annotations

from tandem import _runtime

__all__ = ["allow_in_graph", "assume_constant_result", "disable", "is_compiling", "list_backends", "reset"]


def is_compiling() -> bool:
    """Whether this runs inside a function that td.compile captures.

    >>> td.compiler.is_compiling()
    False
    """
    return bool(_runtime.capturing())


def disable(fn=None, recursive: bool = True, *, reason: str | None = None):
    """The function itself: Python code always runs as it stands, and nothing of it can go stale. A decorator too."""
    return fn if fn is not None else (lambda decorated: decorated)


def allow_in_graph(fn):
    """The function itself: whatever runs is part of the program."""
    return fn


assume_constant_result = allow_in_graph


def is_dynamo_compiling() -> bool:
    return is_compiling()


def is_exporting() -> bool:
    return False


def list_backends(*unused) -> list[str]:
    """The one compiler there is."""
    return ["tandem"]


def reset() -> None:
    """Accepted: programs belong to the functions they were made for, and go with them."""


def cudagraph_mark_step_begin() -> None:
    """Accepted: what a program gives is never written again by the next one."""
