"""What a view shows of its base, as operators: taken from the base, and replaced in it. See Note [Captured view writes]."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.ops.define import op
from tandem.ops.movement import take_slice
from tandem.ops.prepare import constant, full_expand


@op(internal=True)
def take_slices(x: Tensor, starts: Ints, sizes: Ints, axes, steps):
    """x restricted to sizes[i] elements from starts[i] on, in steps of steps[i], on each of some axes."""
    return take_slice(x, dict(zip(axes, zip(starts, steps, sizes, strict=True), strict=True)))


@op(internal=True)
def put_slices(x: Tensor, source: Tensor, starts: Ints, axes, steps):
    """x with source in place of what take_slices gives; source has as many axes as x."""
    first, step = [0] * x.ndim, [1] * x.ndim
    for axis, start, by in zip(axes, starts, steps, strict=True):
        first[axis], step[axis] = start, by
    embed = F.Embed(tuple(first), tuple(step), x.shape)
    shown = embed(full_expand(constant(True, dtypes.bool_), source.shape))
    return F.where(shown, embed(F.astype(source, x.dtype)), x)


class Slices(NamedTuple):
    """A view as slices of the base's axes, in the base's order of memory: (start, step, size) each, and which axis of the view
    shows each (-1: none)."""

    order: list[int]  # axes of the base, the largest stride first
    ranges: list[tuple[int, int, int]]
    shown_by: list[int]

    def arguments(self, sizes) -> tuple:
        """starts, sizes, axes, steps of those that are not whole."""
        partial = [i for i, (r, n) in enumerate(zip(self.ranges, sizes, strict=True)) if r != (0, 1, n)]
        starts, steps, counts = ([self.ranges[i][k] for i in partial] for k in (0, 1, 2))
        return starts, counts, tuple(partial), tuple(steps)

    def axes(self) -> list[int]:
        """Axes of the slices in the order in which the view shows them, then the others."""
        return sorted(range(len(self.ranges)), key=lambda i: (self.shown_by[i] < 0, self.shown_by[i]))


def _slices(base: tuple, view: tuple) -> Slices | None:
    """view of base, each (shape, strides, offset), as slices; None if an axis of it runs over several of the base's."""
    shape, strides, at = base
    if 0 in shape or 0 in view[0]:
        return None  # nothing is shown
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], shape[i] == 1))
    rest = view[2] - at
    starts = []
    for i in order:
        step = strides[i] if shape[i] > 1 else 0
        starts.append(rest // step if step else 0)
        rest -= starts[-1] * step
    if rest:
        return None
    ranges, shown_by = [(start, 1, 1) for start in starts], [-1] * len(order)
    for axis, (n, stride) in enumerate(zip(view[0], view[1], strict=True)):
        if n == 1:
            continue
        for k, i in enumerate(order):
            if shown_by[k] >= 0 or shape[i] == 1 or stride % strides[i]:
                continue
            step = stride // strides[i]
            if step and 0 <= starts[k] + (n - 1) * step < shape[i]:
                ranges[k], shown_by[k] = (starts[k], step, n), axis
                break
        else:
            return None
    return Slices(order, ranges, shown_by)


def _lies(t, pairs: bool) -> tuple:
    """(shape, strides, offset); of a complex tensor as pairs of real numbers, if asked for."""
    if pairs:
        return (*t.shape, 2), (*(2 * s for s in t.strides), 1), 2 * t.storage_offset()
    return tuple(t.shape), tuple(t.strides), t.storage_offset()


def _real_parts(base, view) -> tuple[bool, bool]:
    """Whether the base, and whether the view, is to be seen as pairs of real numbers, which the other one shows."""
    if base.dtype == view.dtype:
        return False, False
    return base.dtype.is_complex, view.dtype.is_complex


def select_view(base, view):
    """What the view shows of the base, as a tensor of its own."""
    base_pairs, view_pairs = _real_parts(base, view)
    given = F.view_as_real(base) if base_pairs else base
    whole, shown = _lies(base, base_pairs), _lies(view, view_pairs)
    slices = _slices(whole, shown)
    if slices is None:
        made = F.reshape(F.take(_flat(given, whole), _positions(whole, shown)), shown[0])
    else:
        made = _permuted(given, slices.order)
        starts, sizes, axes, steps = slices.arguments(made.shape)
        if axes:
            made = take_slices(made, starts, sizes, axes, steps)
        made = _reshaped(_permuted(made, slices.axes()), shown[0])
    return F.view_as_complex(F.contiguous(made)) if view_pairs else made


def put_view(base, view, value):
    """Writes the base: as it was, with value in place of what the view shows. The base."""
    base_pairs, view_pairs = _real_parts(base, view)
    given = F.view_as_real(base) if base_pairs else base
    value = F.view_as_real(value) if view_pairs else value
    whole, shown = _lies(base, base_pairs), _lies(view, view_pairs)
    slices = _slices(whole, shown)
    if slices is None:
        order = _order(whole)
        flat = F.index_copy(_flat(given, whole), 0, _positions(whole, shown), F.reshape(value, (-1,)))
        made = F.permute(F.reshape(flat, tuple(whole[0][i] for i in order)), _inverse(order))
    else:
        made = _permuted(given, slices.order)
        starts, _, axes, steps = slices.arguments(made.shape)
        shown_first = slices.axes()
        value = _reshaped(value, tuple(slices.ranges[i][2] for i in shown_first))
        made = put_slices(made, _permuted(value, _inverse(shown_first)), starts, axes, steps)
        made = _permuted(made, _inverse(slices.order))
    return F.copy_(base, F.view_as_complex(F.contiguous(made)) if base_pairs else made)


def _permuted(x, axes):
    return x if list(axes) == list(range(len(axes))) else F.permute(x, tuple(axes))


def _reshaped(x, shape: tuple):
    return x if tuple(x.shape) == shape else F.reshape(x, shape)


def _order(whole: tuple) -> list[int]:
    return sorted(range(len(whole[0])), key=lambda i: -whole[1][i])


def _flat(given, whole: tuple):
    """The base's elements as they follow one another in memory."""
    return F.reshape(F.permute(given, tuple(_order(whole))), (-1,))


def _positions(whole: tuple, shown: tuple):
    """Where the view's elements lie among the base's, in the view's order: (size of the view,)"""
    total = F.full((1,) * len(shown[0]), shown[2] - whole[2], dtype=dtypes.int64)
    for axis, (n, stride) in enumerate(zip(shown[0], shown[1], strict=True)):
        places = F.arange(n) * stride
        total = total + F.reshape(places, tuple(n if i == axis else 1 for i in range(len(shown[0]))))
    return F.reshape(total, (-1,))


def _inverse(axes) -> tuple[int, ...]:
    back = [0] * len(axes)
    for i, a in enumerate(axes):
        back[a] = i
    return tuple(back)
