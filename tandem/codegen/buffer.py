"""Memory as kernels see it: buffers with symbolic sizes and strides, and views of them."""

from __future__ import annotations

from typing import NamedTuple

from tandem.dtypes import COMPLEX_OF, DType, part_dtype
from tandem.graph.symbolic import Dim, Sym, divide_exactly, hint


class Layout(NamedTuple):
    """How an input lies in memory: strides in elements; literal 0 and 1 where the signature knows them.

    unit_axis    the axis with stride 1, if known
    dense_order  axes from the largest stride to the smallest, if the elements fill one block without gaps
    """

    strides: tuple
    unit_axis: int | None = None
    dense_order: tuple | None = None


class Buffer:
    """Memory for one value.

    kind: "input" (`position` of the call), "alloc" (taken by the plan), "view" (of `base`, starting `offset` elements after its
    first element). `order`: axes from the largest stride to the smallest where that is known. `unit`: the axis of stride 1.
    `device`: where it is, of programs over several devices; `pinned`: host memory that devices copy from and to by themselves.
    """

    __slots__ = (
        "base", "device", "dtype", "kind", "offset", "on_host", "order", "pinned", "position", "shape", "strides", "unit",
    )  # fmt: skip

    def __init__(
        self, dtype: DType, shape, strides, kind: str, position=None, base=None, offset: Dim = 0, order=None, unit=None
    ):
        self.dtype = dtype
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.kind = kind
        self.position = position
        self.base = base
        self.offset = offset
        self.order = order
        self.unit = order[-1] if order and unit is None else unit
        self.device: int | None = None
        self.pinned = False
        self.on_host = base is not None and base.on_host  # a single element on the host, where kernels run on a device

    def __repr__(self):
        where = {"input": f"input {self.position}", "alloc": "alloc", "view": f"view +{self.offset} of {self.base!r}"}
        return f"<{where[self.kind]} {self.dtype.short}{list(self.shape)} strides {list(self.strides)}>"


def root_of(buffer: Buffer) -> Buffer:
    """The memory that a view shows, through all views between."""
    while buffer.kind == "view":
        buffer = buffer.base
    return buffer


def same(a: Dim, b: Dim) -> bool:
    """Whether two sizes are known to be equal. Unlike `==` this writes no guard."""
    return a is b or (type(a) is int and type(b) is int and a == b)


def same_shape(a, b) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))


def is_one(d: Dim) -> bool:
    return type(d) is int and d == 1


def is_zero(d: Dim) -> bool:
    return type(d) is int and d == 0


def dense_strides(shape, order=None) -> tuple:
    """Strides of a block without gaps whose axes lie in `order`, row-major if None."""
    strides: list = [1] * len(shape)
    step: Dim = 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = step
        step = step * shape[axis]
    return tuple(strides)


def input_buffer(dtype, shape, position: int, layout: Layout | None, resolve) -> Buffer:
    if layout is None:
        order = tuple(range(len(shape)))
        return Buffer(dtype, shape, dense_strides(shape), "input", position, order=order)
    strides = tuple(0 if is_one(n) else resolve(s) for n, s in zip(shape, layout.strides))
    return Buffer(dtype, shape, strides, "input", position, order=layout.dense_order, unit=layout.unit_axis)


def allocate(dtype, shape, order=None) -> Buffer:
    order = tuple(range(len(shape))) if order is None else order
    return Buffer(dtype, shape, dense_strides(shape, order), "alloc", order=order)


def view(source: Buffer, shape, strides, offset: Dim = 0, order=None) -> Buffer:
    base = source if source.kind != "view" else source.base
    unit = next((i for i, (n, s) in enumerate(zip(shape, strides)) if is_one(s) and not is_one(n)), None)
    return Buffer(source.dtype, shape, strides, "view", None, base, offset + source.offset, order, unit)


def permute(source: Buffer, axes) -> Buffer:
    place = {a: i for i, a in enumerate(axes)}
    order = None if source.order is None else tuple(place[a] for a in source.order)
    return view(source, [source.shape[a] for a in axes], [source.strides[a] for a in axes], 0, order)


def expand(source: Buffer, shape) -> Buffer:
    strides = [0 if is_one(n) and not is_one(m) else s for n, m, s in zip(source.shape, shape, source.strides)]
    return view(source, shape, strides, 0, source.order if same_shape(source.shape, shape) else None)


def slice_(source: Buffer, starts, steps, sizes) -> Buffer:
    offset: Dim = 0
    strides = []
    for start, step, stride in zip(starts, steps, source.strides):
        offset = offset + start * stride
        strides.append(stride * step)
    return view(source, sizes, strides, offset)


def diagonal(source: Buffer) -> Buffer:
    """The diagonal of the square matrices that the last two axes span."""
    *lead, down, right = source.strides
    return view(source, source.shape[:-1], [*lead, down + right])


def reshape(source: Buffer, shape, exact: bool = False) -> Buffer | None:
    """The view of `source` under another shape, or None where its strides do not allow one.

    Views are found by what is known of sizes and strides. `exact`: where that is not enough, concrete values decide, and the
    plan depends on them: someone may write through the result, so that a copy would not do where a view is possible.
    """
    strides = _strides_known(source, shape)
    if strides is None and exact:
        strides = _concrete_strides(source, shape)
    if strides is None:
        return None
    in_order = source.order is not None and source.order == tuple(range(len(source.shape)))
    return view(source, shape, strides, 0, tuple(range(len(shape))) if in_order else None)


def _concrete_strides(source: Buffer, shape) -> list | None:
    """By the sizes and strides of this call; every comparison leaves a guard."""
    strides: list = [0] * len(shape)
    axes = [(n, s) for n, s in zip(source.shape, source.strides) if n != 1]
    at = len(shape) - 1
    while axes:
        n, step = axes.pop()
        while axes and axes[-1][1] == n * step:  # these lie in memory like one axis
            n = n * axes.pop()[0]
        taken: Dim = 1
        while at >= 0 and (is_one(shape[at]) or taken < n):
            strides[at] = step * taken
            taken = taken * shape[at]
            at -= 1
        if taken != n:
            return None
    return strides


def _strides_known(source: Buffer, shape) -> list | None:
    strides: list = [0] * len(shape)
    for inner, outer in factor_groups(source.shape, shape):
        step: Dim | None = None  # stride that the group's next larger axis must have
        first: Dim = 1
        for axis in reversed(inner):
            if step is None:
                first = source.strides[axis]
            elif not same(step, source.strides[axis]):
                return None
            step = source.strides[axis] * source.shape[axis]
        step = first
        for axis in reversed(outer):
            strides[axis] = step
            step = step * shape[axis]
    return strides


def factor_groups(inner, outer) -> list[tuple[list[int], list[int]]]:
    """Splits the axes of two shapes of equal size into the finest groups with equal products; axes of size 1 are left out."""
    left = [i for i, n in enumerate(inner) if not is_one(n)]
    right = [i for i, n in enumerate(outer) if not is_one(n)]
    groups, rest = _matching(left, right, inner, outer)
    if rest is None:
        return groups
    # Sizes that are not known to be equal stand in the way of the rest; what comes after them can still be told apart.
    tail, middle = _matching(rest[0][::-1], rest[1][::-1], inner, outer)
    if middle is not None:
        groups.append((middle[0][::-1], middle[1][::-1]))
    return groups + [(a[::-1], b[::-1]) for a, b in reversed(tail)]


def learn_groups(inner, outer):
    """Makes the plan depend on those groups having equal products that have them in this call, so that factor_groups finds them."""
    left = [i for i, n in enumerate(inner) if not is_one(n)]
    right = [i for i, n in enumerate(outer) if not is_one(n)]
    _matching(left[::-1], right[::-1], inner, outer, lambda p, q: hint(p) == hint(q) and bool(p == q))


def _matching(left: list[int], right: list[int], inner, outer, equal=same):
    """(groups of equal products from the front, what is left over or None)"""
    groups = []
    a = b = 0
    while a < len(left) or b < len(right):
        group: tuple[list, list] = ([], [])
        p: Dim = 1
        q: Dim = 1
        while True:
            # grow the side that is smaller now; concrete sizes steer, only identity decides
            take_left = a < len(left) and (b >= len(right) or not group[0] or (group[1] and hint(p) < hint(q)))
            if take_left:
                p = p * inner[left[a]]
                group[0].append(left[a])
                a += 1
            elif b < len(right):
                q = q * outer[right[b]]
                group[1].append(right[b])
                b += 1
            if group[0] and group[1] and equal(p, q):
                break
            if a == len(left) and b == len(right):
                return groups, group
        groups.append(group)
    return groups, None


def has_sym(d: Dim) -> bool:
    return isinstance(d, Sym)


def part(source: Buffer, index: int) -> Buffer:
    """The real (0) or imaginary (1) parts of complex memory."""
    made = _retyped(source, part_dtype(source.dtype), [s * 2 for s in source.strides], source.offset * 2 + index)
    made.order = made.unit = None
    return made


def as_real(source: Buffer) -> Buffer:
    """Complex memory as its parts, along a last axis of size 2."""
    dtype, last = part_dtype(source.dtype), len(source.shape)
    made = _retyped(source, dtype, [*[s * 2 for s in source.strides], 1], source.offset * 2, (*source.shape, 2))
    made.order = None if source.order is None else (*source.order, last)
    made.unit = last
    return made


def as_complex(source: Buffer, exact: bool = False) -> Buffer | None:
    """Memory of pairs along the last axis as complex numbers, or None where strides do not allow it. `exact`: as for reshape."""
    if not is_one(source.strides[-1]) and not (exact and source.strides[-1] == 1):
        return None
    halves = [_half(d, exact) for d in (*source.strides[:-1], source.offset)]
    if any(h is None for h in halves):
        return None
    made = _retyped(source, COMPLEX_OF[source.dtype], halves[:-1], halves[-1], source.shape[:-1])
    made.order = None if source.order is None else tuple(a for a in source.order if a != len(source.shape) - 1)
    made.unit = next((i for i, (n, s) in enumerate(zip(made.shape, made.strides)) if is_one(s) and not is_one(n)), None)
    return made


def _half(d: Dim, exact: bool) -> Dim | None:
    if isinstance(d, Sym):
        half = divide_exactly(d, 2)
        return d // 2 if half is None and exact and d % 2 == 0 else half
    return None if d % 2 else d // 2


def _retyped(source: Buffer, dtype: DType, strides, offset: Dim, shape=None) -> Buffer:
    base = source if source.kind != "view" else source.base
    return Buffer(dtype, source.shape if shape is None else shape, strides, "view", None, base, offset)
