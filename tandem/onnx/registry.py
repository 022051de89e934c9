"""Which function runs an ONNX operator: by domain, name and the version of the operator set.

    @onnx_op("Softmax", since=13)
    def softmax(node, x):
        return td.softmax(x, node.get("axis", -1))

A function takes the node and one argument per input of the node: a tensor, a list (a sequence), or None for an input that
is left out. `static` names inputs that must be known while the graph is run, such as a shape: they come as NumPy arrays.
`host` functions take and give NumPy arrays only: text, and element types that tensors do not have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

DEFAULT, ML, TRAINING = "", "ai.onnx.ml", "ai.onnx.preview.training"
MICROSOFT = "com.microsoft"  # onnxruntime's own


@dataclasses.dataclass(frozen=True)
class Handler:
    """One implementation of an operator, valid from version `since` of its domain's operator set."""

    function: Callable
    since: int
    static: frozenset[int]
    host: bool
    scoped: bool  # it runs graphs of its own, and takes the scope that they see


_HANDLERS: dict[tuple[str, str], list[Handler]] = {}


def onnx_op(*names: str, since: int = 1, static: tuple[int, ...] = (), host=False, scoped=False, domain: str = DEFAULT):
    """Registers the decorated function for operators of these names."""

    def register(function):
        for name in names:
            versions = _HANDLERS.setdefault((domain, name), [])
            if any(h.since == since for h in versions):
                raise ValueError(f"{name} of version {since} is registered twice")
            versions.append(Handler(function, since, frozenset(static), host, scoped))
            versions.sort(key=lambda h: -h.since)
        return function

    return register


def handler_of(domain: str, name: str, version: int) -> Handler | None:
    """The newest implementation that is not newer than `version`."""
    for handler in _HANDLERS.get((DEFAULT if domain == "ai.onnx" else domain, name), ()):
        if handler.since <= version:
            return handler
    return None


def supported() -> list[tuple[str, str]]:
    """(domain, name) of every operator that is implemented directly."""
    return sorted(_HANDLERS)
