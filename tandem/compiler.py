"""What programs ask of the compiler by PyTorch's path; td.compile is what compiles."""

from __future__ import annotations

from tandem import _runtime

__all__ = ["disable", "is_compiling"]


def is_compiling() -> bool:
    """Whether this runs inside a function that td.compile takes down.

    >>> td.compiler.is_compiling()
    False
    """
    return bool(_runtime.capturing())


def disable(fn=None, recursive: bool = True, *, reason: str | None = None):
    """The function itself: Python code always runs as it stands, and nothing of it can go stale. A decorator too."""
    return fn if fn is not None else (lambda decorated: decorated)
