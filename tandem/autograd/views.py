"""Histories of views: what a write through a view means for its base, and a write to the base for its views.

Note [Views and in-place]
A write through a view changes its base. On the tape the base then is: what it was, with the view's positions replaced by the
view's new value. Gradients go both ways accordingly. Positions are found once by laying out the base's flat numbers in its own
geometry and looking at them through the view; that costs memory for an index, but serves every view there is.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad


def positions_of(base, view):
    """Flat numbers of the base's elements that the view shows, in the view's shape; base.size where it shows
    none of them."""
    with no_grad():
        reach = max(_reach(base), _reach(view))
        numbers = F.full((reach,), base.size, dtype=dtypes.int64)
        own = _runtime.alias(numbers, base.shape, base.strides, base.storage_offset())
        F.copy_(own, F.reshape(F.arange(base.size), base.shape))
        return F.clone(_runtime.alias(numbers, view.shape, view.strides, view.storage_offset()))


def _reach(t) -> int:
    """How many elements of its storage t reaches over."""
    if 0 in t.shape:
        return 1
    return t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.strides, strict=True) if s > 0) + 1


def _add_up(g, positions, shape):
    """Zeros of `shape` with g added at flat positions. One more element at the end takes what belongs to none
    of them."""
    size = 1
    for n in shape:
        size *= n
    flat = F.scatter_at(F.full((size + 1,), 0, dtype=g.dtype), [positions], (0,), g, "add")
    return F.reshape(F.slice_axis(flat, 0, 0, size), shape)


def _recorded(create_graph: bool, fn, *args):
    before = _runtime.set_grad_enabled(create_graph)
    try:
        return fn(*args)
    finally:
        _runtime.set_grad_enabled(before)


def record_view(name: str, source, view):
    """Makes `view`, which shows memory of source, a result computed from it."""
    shape, positions = source.shape, positions_of(source, view)

    def backward(create_graph, g):
        return _recorded(create_graph, _add_up, g, positions, shape)

    _runtime.record_python(backward, name, [source], [view])


def rebase(written):
    """The base's history after `written`, a view of it, was written; it has a history of its own unless
    constants were."""
    base = _runtime.view_base(written)
    sources = [t if t.requires_grad else None for t in (base, written)]
    if all(t is None for t in sources):
        return
    positions = positions_of(base, written)
    shape = base.shape

    def pull(g):
        flat = F.reshape(g, (-1,))
        return F.reshape(F.scatter_at(flat, [positions], (0,), 0.0), shape), F.gather_at(flat, [positions], (0,))

    _runtime.record_python(lambda create_graph, g: _recorded(create_graph, pull, g), "view_write", sources, [base])


def refresh_view(stale):
    """The view's history after its base was written: it shows the base as it is now."""
    record_view("view", _runtime.view_base(stale), stale)
