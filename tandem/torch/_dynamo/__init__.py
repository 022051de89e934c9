"""What packages ask of PyTorch's tracer by its private name, answered by td.compile; the rest says what to use."""

from __future__ import annotations

import tandem as td
from tandem.torch._dynamo import config

__all__ = ["allow_in_graph", "config", "disable", "is_compiling", "mark_dynamic", "mark_static", "reset"]


def allow_in_graph(fn):
    """The function itself: whatever runs is part of the program."""
    return fn


disable = td.compiler.disable
forbid_in_graph = substitute_in_graph = allow_in_graph


def is_compiling() -> bool:
    return td.compiler.is_compiling()


def reset() -> None:
    """Accepted: programs belong to the functions they were made for, and go with them."""


def mark_dynamic(t, index, **bounds) -> None:
    """Accepted: leading axes are symbolic, and others become so when they change."""


def mark_static(t, index=None) -> None:
    """Accepted: which axes are symbolic is decided by what comes."""


maybe_mark_dynamic = mark_dynamic
mark_static_address = mark_static


class OptimizedModule(td.nn.Module):
    """What PyTorch's compiler wraps modules in: nothing here is one, which isinstance tells."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"module 'torch._dynamo' has no attribute {name!r} in Tandem: programs are made of what runs; td.compile(fn).explain() "
        "tells of them, and recompile_limit bounds them"
    )
