"""Kernels that reduce across memory: columns accumulate in local arrays while rows stream by."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import allocate
from tandem.codegen.computes import Group
from tandem.codegen.expr import Expr
from tandem.codegen.fuse import Fusion
from tandem.codegen.index import Linear
from tandem.codegen.loops import Loop, Store, expression_cost
from tandem.codegen.nest import CELL, CHUNK, ITEM, Nest
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import ceildiv, maximum, minimum, product

COLUMNS = 1024  # elements of the local arrays in which columns accumulate
CHUNKS = 64  # most chunks that rows are split in, and
ROWS = 64  # fewest rows of a chunk; both decide the order of summation, so they never depend on threads


def columns(fusion: Fusion, group: Group) -> KernelStep:
    if group.parts_of is not None:
        first = group.members[0].partial_of
        group.domain = (first.parts.shape[0], *group.domain[1:])
        group.order = (0, *[group.members[0].axis_of[a] for a in first.parts_order])
        group.unit = group.order[-1]
    nest = Nest(fusion, group)
    e, b, forms = nest.e, nest.e.b, nest.e.forms
    reductions = [m for m in group.members if m.role in ("partial", "reduce", "combine")]
    reduced = [a for a in group.order if a in group.reduced]
    kept = [a for a in group.order if a not in group.reduced and a != group.unit]
    kept.append(group.unit if group.unit is not None and group.unit not in group.reduced else
                [a for a in group.order if a not in group.reduced][-1])  # fmt: skip
    kept = list(dict.fromkeys(a for a in kept if a != kept[-1])) + [kept[-1]]
    vector, row = kept[-1], reduced[-1]
    width = COLUMNS
    while width * len(reductions) > 4 * COLUMNS:
        width //= 2

    # One row, to know its cost; then as many rows at once as that makes worth while.
    def take(shift: int):
        if shift:
            moved = forms.add(forms.atom(row), forms.make(shift, {}))
            shifted = _Shifted(nest, row, moved)
            operands = [shifted.operand(m) for m in reductions]
            values = [(m, shifted.value(m)) for m in full]
            return operands, [(m, v, shifted) for m, v in values]
        return [nest.operand(m) for m in reductions], [(m, nest.value(m), nest) for m in full]

    full = [m for m in group.members if m.role == "full" and (m.stored or m.targets)]
    one = take(0)
    roots = [x for x, _ in one[0]] + [v for _, v, _ in one[1]]
    cost = expression_cost(roots)
    positional = any(p is not None for _, p in one[0])
    several = 4 if cost < 10 and not positional else 1
    rows_at_once = [one] + [take(k) for k in range(1, several)]

    local_form = forms.add(forms.atom(vector), forms.make(0, {CELL: -width}))
    here = e.linear(local_form)
    nest.own_forms.add(id(local_form))
    locals_: list = []
    for x, position in one[0]:
        value_slot = e.local(x.dtype, width)
        place_slot = e.local(dtypes.int64, width) if position is not None else None
        locals_.append((value_slot, place_slot, x.dtype))

    def step_of(rows_now) -> list:
        body: list = []
        for k, (value_slot, place_slot, dtype) in enumerate(locals_):
            kind = reductions[k].node.op.kind
            old = b.make("load", (here,), dtype, value_slot)
            if place_slot is not None:
                x, position = rows_now[0][0][k]
                better = _better(b, kind, x, old)
                where = b.make("load", (here,), dtypes.int64, place_slot)
                body.append(Store(value_slot, here, b.where(better, x, old)))
                body.append(Store(place_slot, here, b.where(better, position, where)))
                continue
            total = rows_now[0][0][k][0]
            for operands, _ in rows_now[1:]:
                total = combine(b, kind, total, operands[k][0])
            body.append(Store(value_slot, here, combine(b, kind, old, total)))
        for _, values in rows_now:
            for member, value, at in values:
                body.extend(at.stores(member, value))
        return body

    main, single = step_of(rows_at_once), step_of(rows_at_once[:1]) if several > 1 else []

    # kept-rank work after the reduction
    finish: list = []
    kept_nodes = [m for m in group.members if m.role == "kept"]
    if not group.split:
        for (value_slot, place_slot, dtype), member in zip(locals_, reductions):
            if place_slot is None:
                result = b.make("load", (here,), dtype, value_slot)
            else:
                result = b.make("load", (here,), dtypes.int64, place_slot)
            e.given[member.value] = result
            if member.stored:
                finish.extend(nest.stores(member, result))
        for member in kept_nodes:
            if member.stored or member.targets:
                value = nest.value(member)
                finish.extend(nest.stores(member, value))
                roots.append(value)
    else:
        for (value_slot, _, dtype), member in zip(locals_, reductions):
            own_axis = {g: a for a, g in member.axis_of.items()}
            member.parts_order = tuple([own_axis[a] for a in kept])
            sizes = [group.domain[a] for a in kept]
            member.parts = allocate(dtype, (1, *sizes))  # the number of chunks is known once loops are merged
            index = [forms.atom(CHUNK), *[forms.atom(a) for a in kept]]
            finish.append(nest.store(member.parts, index, b.make("load", (here,), dtype, value_slot)))
    kept = nest.merge(kept)
    reduced = nest.merge(reduced)
    outer_row = reduced[0]
    size = nest.sizes[vector]
    cells = ceildiv(size, width)
    digits = [(a, nest.sizes[a]) for a in kept[:-1]] + [(CELL, cells)]
    n_rows = nest.sizes[outer_row]
    if group.split:
        length = maximum(ROWS, ceildiv(n_rows, CHUNKS))
        chunks = minimum(CHUNKS, ceildiv(n_rows, ROWS))
        digits = [(CHUNK, chunks), *digits]
        first_row = e.var(CHUNK) * e.dim(length)
        last_row = b.min(first_row + e.dim(length), e.dim(n_rows))
        for member in reductions:
            member.parts.shape = (chunks, *member.parts.shape[1:])
    else:
        first_row, last_row = e.dim(0), e.dim(n_rows)

    start = e.var(CELL) * width
    stop = b.min(start + width, e.dim(size))
    clear = []
    for (value_slot, place_slot, dtype), member in zip(locals_, reductions):
        clear.append(Store(value_slot, here, identity(b, member.node.op.kind, dtype)))
        if place_slot is not None:
            clear.append(Store(place_slot, here, b.const(0, dtypes.int64)))
    across = lambda body: Loop(vector, start, stop, body, "vector", 1, compact=True)
    inner_first, inner_last = (first_row, last_row) if len(reduced) == 1 else (e.dim(0), e.dim(nest.sizes[row]))
    if several > 1:
        count = inner_last - inner_first
        middle = inner_first + b.idiv(count, b.const(several, dtypes.int64)) * several
        stream = [Loop(row, inner_first, middle, [across(main)], step=several),
                  Loop(row, middle, inner_last, [across(single)])]  # fmt: skip
    else:
        stream = [Loop(row, inner_first, inner_last, [across(main)])]
    for v in reversed(reduced[:-1]):
        ends = (first_row, last_row) if v == outer_row else (e.dim(0), e.dim(nest.sizes[v]))
        stream = [Loop(v, *ends, stream)]
    body = [Loop(vector, start, start + width, clear, "vector", 1, compact=True), *stream, across(finish)]
    extent = product([n for _, n in digits])
    work = minimum(size, width) * (length if group.split else n_rows)
    order = [ITEM, *[v for v, _ in digits], *reduced, vector]
    return nest.step([nest.items(digits, body)], order, extent, work, roots)


class _Shifted:
    """A nest whose row index is moved by a constant."""

    def __init__(self, nest: Nest, row: int, moved: Linear):
        self.nest, self.row, self.moved = nest, row, moved

    def _with(self, call):
        axes = self.nest.e.forms.axes
        axes[self.row] = self.moved
        try:
            return call()
        finally:
            del axes[self.row]

    def operand(self, compute):
        return self._with(lambda: self.nest.operand(compute))

    def value(self, compute):
        return self._with(lambda: self.nest.value(compute))

    def stores(self, compute, value):
        return self._with(lambda: self.nest.stores(compute, value))


def combine(b, kind: str, x: Expr, y: Expr) -> Expr:
    if kind == "sum":
        return x + y
    if kind == "prod":
        return x * y
    if kind == "any":
        return x | y
    if kind == "all":
        return x & y
    return b.max(x, y) if kind == "max" else b.min(x, y)


def identity(b, kind: str, dtype) -> Expr:
    if kind in ("sum", "any"):
        return b.const(0, dtype)
    if kind in ("prod", "all"):
        return b.const(1, dtype)
    largest = kind in ("min", "argmin")
    if dtype.kind == "float":
        return b.const(float("inf") if largest else float("-inf"), dtype)
    if dtype.kind == "bool":
        return b.const(largest, dtype)
    bits = dtype.itemsize * 8
    low, high = (0, (1 << bits) - 1) if dtype.kind == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return b.const(high if largest else low, dtype)


def _better(b, kind: str, x: Expr, old: Expr) -> Expr:
    beats = x > old if kind == "argmax" else x < old
    if x.dtype.kind != "float":
        return beats
    return beats | (b.isnan(x) & ~b.isnan(old))
