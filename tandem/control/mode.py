"""Which of the three ways a call of control flow takes: plain Python, a capture, or a deferred graph."""

from __future__ import annotations

from tandem import _runtime
from tandem.graph.ir import Value, call_recorder, is_tracing
from tandem.tree import flatten


def is_captured() -> bool:
    return _runtime.capturing()


def deferred(*values):
    """What records calls into the deferred graph that these belong to, or that is being built here; None outside of graphs."""
    if is_tracing():
        recorder = call_recorder()
        if recorder is not None:
            return recorder
    leaves, _ = flatten(list(values))
    for leaf in leaves:
        if isinstance(leaf, Value):
            return leaf.recorder("control flow")
    return None
