"""Histories of views: what a write through a view means for its base, and a write to the base for its views.

Note [Views and in-place]
A write through a view changes its base. On the tape the base then is: what it was, with the view's elements replaced by the
view's new value. Gradients go both ways accordingly. Both directions are copies between two geometries of one block of memory:
`select` takes a gradient of the base to the elements that the view shows, `embed` puts a gradient of the view among zeros (each
is the other's derivative), `erase` sets a gradient of the base to zero where the view shows. A record costs nothing but its
geometry until backward comes.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.devices import code_of


class Geometry:
    """How a base and a view of it lie in one block of memory, counted from the first element that either reaches."""

    def __init__(self, base, view):
        # A complex base with a real view, or the other way round: the block is one of real numbers.
        self.device = base.device
        self.base_pairs = base.dtype.is_complex and not view.dtype.is_complex
        self.view_pairs = view.dtype.is_complex and not base.dtype.is_complex
        *self.base, at_base = _in_parts(base) if self.base_pairs else (base.shape, base.strides, base.storage_offset())
        *self.view, at_view = _in_parts(view) if self.view_pairs else (view.shape, view.strides, view.storage_offset())
        lows, highs = zip(_reach(*self.base, at_base), _reach(*self.view, at_view), strict=True)
        low = min(lows)
        self.size = max(highs) - low + 1
        self.at_base, self.at_view = at_base - low, at_view - low
        count = base.size * 2 if self.base_pairs else base.size
        self.dense = self.size == count  # the base fills the block: no element of the view lies outside of it
        self.row_major = self.dense and base.is_contiguous()
        self.overlaps = _overlaps(*self.base) or _overlaps(*self.view)

    def filled(self, value, dtype):
        return F.full((self.size,), value, dtype=dtype, device=self.device)

    def holding(self, g, fresh: bool = False):
        """A block with g as the base: g's own memory if it lies like the base, unless a fresh one is asked for."""
        if self.base_pairs:
            g = F.view_as_real(g)
        if self.row_major and not fresh and g.is_contiguous():
            return _runtime.alias(g, (self.size,), (1,), g.storage_offset())
        block = _runtime.empty((self.size,), g.dtype, code_of(self.device)) if self.dense else self.filled(0, g.dtype)
        F.copy_(self.as_base(block), g)
        return block

    def as_base(self, block):
        return _runtime.alias(block, *self.base, block.storage_offset() + self.at_base)

    def as_view(self, block):
        return _runtime.alias(block, *self.view, block.storage_offset() + self.at_view)

    def result(self, block):
        """The base in a block that is ours."""
        made = self.as_base(block) if self.row_major else F.clone(self.as_base(block))
        return F.view_as_complex(made) if self.base_pairs else made

    def of_view(self, block):
        """The view in a block, in memory of its own."""
        made = F.clone(self.as_view(block))
        return F.view_as_complex(made) if self.view_pairs else made

    def in_block(self, h):
        """h, which is like the view, as the block holds it."""
        return F.view_as_real(h) if self.view_pairs else h


def _in_parts(t) -> tuple:
    """(shape, strides, offset) of a complex tensor as pairs of real numbers."""
    return (*t.shape, 2), (*(2 * s for s in t.strides), 1), 2 * t.storage_offset()


def _reach(shape, strides, offset: int) -> tuple[int, int]:
    if 0 in shape:
        return offset, offset
    low = high = offset
    for n, s in zip(shape, strides, strict=True):
        if s < 0:
            low += (n - 1) * s
        else:
            high += (n - 1) * s
    return low, high


def _overlaps(shape, strides) -> bool:
    """Whether several indices may show one element: strides, sorted, do not each step over what is below."""
    reach = 0
    for s, n in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False


def _record(name: str, source, made, backward):
    if source.requires_grad and _runtime.grad_enabled():
        _runtime.record_python(lambda create_graph, g: _with_mode(create_graph, backward, g), name, [source], [made])
    return made


def _with_mode(create_graph: bool, fn, *args):
    before = _runtime.set_grad_enabled(create_graph)
    try:
        return fn(*args)
    finally:
        _runtime.set_grad_enabled(before)


def select(g, geometry: Geometry):
    """The elements of g, which has the base's shape, that the view shows; zero where it shows memory that is not the base's."""
    before = _runtime.set_grad_enabled(False)
    try:
        made = geometry.of_view(geometry.holding(g))
    finally:
        _runtime.set_grad_enabled(before)
    return _record("select", g, made, lambda h: embed(h, geometry))


def embed(h, geometry: Geometry):
    """Zeros of the base's shape with h, which has the view's shape, where the view shows; added up where it shows one often."""
    before = _runtime.set_grad_enabled(False)
    try:
        given = geometry.in_block(h)
        if geometry.overlaps:
            made = _add_up(given, geometry)
        else:
            block = geometry.filled(0, given.dtype)
            F.copy_(geometry.as_view(block), given)
            made = geometry.result(block)
    finally:
        _runtime.set_grad_enabled(before)
    return _record("embed", h, made, lambda g: select(g, geometry))


def erase(g, geometry: Geometry):
    """g, which has the base's shape, with zeros where the view shows. Its own derivative."""
    before = _runtime.set_grad_enabled(False)
    try:
        block = geometry.holding(g, fresh=True)
        F.copy_(geometry.as_view(block), 0)
        made = geometry.result(block)
    finally:
        _runtime.set_grad_enabled(before)
    return _record("erase", g, made, lambda h: erase(h, geometry))


def _add_up(h, geometry: Geometry):
    """embed by positions: flat numbers of the base's elements, looked at through the view."""
    count = 1
    for n in geometry.base[0]:
        count *= n
    block = geometry.filled(
        count, dtypes.int64
    )  # memory that is not the base's counts as one more element, which is dropped
    F.copy_(geometry.as_base(block), F.reshape(F.arange(count, device=geometry.device), geometry.base[0]))
    positions = F.clone(geometry.as_view(block))
    total = F.scatter_at(F.full((count + 1,), 0, dtype=h.dtype, device=geometry.device), [positions], (0,), h, "add")
    made = F.reshape(F.slice_axis(total, 0, 0, count), geometry.base[0])
    return F.view_as_complex(made) if geometry.base_pairs else made


def record_view(name: str, source, view):
    """Makes `view`, which shows memory of source, a result computed from it."""
    geometry = Geometry(source, view)
    _runtime.record_python(lambda create_graph, g: _with_mode(create_graph, embed, g, geometry), name, [source], [view])


def rebase(written):
    """The base's history after `written`, a view of it, was written; it has a history of its own unless constants were."""
    base = _runtime.view_base(written)
    sources = [t if t.requires_grad else None for t in (base, written)]
    if all(t is None for t in sources):
        return
    geometry = Geometry(base, written)

    for_base, for_view = (
        t is not None for t in sources
    )  # not the tensors: a record that held them would never be freed

    def pull(g):
        return erase(g, geometry) if for_base else None, select(g, geometry) if for_view else None

    _runtime.record_python(lambda create_graph, g: _with_mode(create_graph, pull, g), "view_write", sources, [base])


def refresh_view(stale):
    """The view's history after its base was written: it shows the base as it is now."""
    record_view("view", _runtime.view_base(stale), stale)
