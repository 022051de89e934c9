"""Kernels that reduce across memory: columns accumulate in local arrays while rows stream by."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import allocate
from tandem.codegen.computes import Compute, Group
from tandem.codegen.expr import Expr, compute_dtype
from tandem.codegen.fuse import Fusion
from tandem.codegen.loops import Loop, Store, expression_cost, wide_total
from tandem.codegen.nest import CELL, CHUNK, FIRST_BLOCK, ITEM, Nest, adds_floats, adds_small, is_positional
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import Dim, ceildiv, hint, maximum, minimum, product

NARROW = 16  # columns below which a loop across them is too short
COLUMNS = 1024  # elements of the local arrays in which columns accumulate
CHUNKS = 64  # most chunks that rows are split in, and
AT_ONCE = 8  # rows added to the local arrays in one go, if adding them is cheap: a power of two
SUM_ROWS = 16  # rows of a block, where it is one at a time
ROWS = 64  # fewest rows of a chunk, over all reduced axes; both decide the order of summation, so they never depend on threads


def columns(fusion: Fusion, group: Group) -> KernelStep:
    if group.parts_of is not None:
        first = group.members[0].partial_of
        group.domain = (first.parts.shape[0], *group.domain[1:])
        group.order = (0, *[group.members[0].axis_of[a] for a in first.parts_order])
        group.unit = group.order[-1]
    splits: list = []
    while True:
        kernel = _Columns(fusion, group, splits)
        split = kernel.find_split()
        if split is None:
            return kernel.step()
        splits.append(split)


def columns_rows(group: Group) -> tuple:
    """(reductions, reduced axes, kept axes with the columns last, axis of the columns, axis of the rows)"""
    reductions = [m for m in group.members if m.role in ("partial", "reduce", "combine")]
    reduced = [a for a in group.order if a in group.reduced]
    if any(is_positional(m) for m in reductions):
        reduced.sort()  # the first position is the first in row-major order
    kept = [a for a in group.order if a not in group.reduced]
    unit = group.unit if group.unit in kept else kept[-1]
    return reductions, reduced, [a for a in kept if a != unit] + [unit], unit, reduced[-1]


class _Rows:
    """What the reductions take in, and what is stored, at a row that lies `shift` after the loop's."""

    def __init__(self, nest: Nest, row: int, shift: int, reductions: list[Compute], full: list[Compute]):
        forms = nest.e.forms
        if shift:
            forms.axes[row] = forms.add(forms.atom(row), forms.make(shift, {}))
        self.operands = [nest.operand(m) for m in reductions]
        self.values = [nest.value(m) for m in full]
        self.stores = [s for m, v in zip(full, self.values) for s in nest.stores(m, v)]
        forms.axes.pop(row, None)


class _Columns:
    def __init__(self, fusion: Fusion, group: Group, splits: list[tuple]):
        self.group = group
        self.nest = Nest(fusion, group, splits)
        self.e, self.b, self.forms = self.nest.e, self.nest.e.b, self.nest.e.forms
        self.reductions, self.reduced, self.kept, self.vector, self.row = columns_rows(group)
        self.kept_axes = self.kept  # of the group; loops are these with some of them split in two
        if splits:
            loops = {axis: [axis] for axis in (*self.reduced, *self.kept)}
            for axis, high, low in self.nest.split_loops:
                whole = next(v for v in loops.values() if axis in v)
                at = whole.index(axis)
                whole[at : at + 1] = [high, low]
            self.reduced = [v for a in self.reduced for v in loops[a]]
            self.kept = [v for a in self.kept for v in loops[a]]
            self.vector, self.row = self.kept[-1], self.reduced[-1]
        self.width, size = COLUMNS, self.nest.sizes[self.vector]
        while self.width * len(self.reductions) > 4 * COLUMNS or (
            type(size) is int and self.width > NARROW and 2 * size <= self.width
        ):
            self.width //= 2
        self._take_rows(AT_ONCE if not splits else 1)
        self._make_locals()

    def find_split(self) -> tuple | None:
        """An axis that is better run through in two loops, as in elementwise kernels."""
        if not self.forms.quotients or any(is_positional(m) for m in self.reductions):
            return None
        split = self.nest.find_split()
        if split is None or (split[0] == self.vector and type(split[2]) is int and split[2] < NARROW):
            return None
        return split

    def _take_rows(self, at_once: int):
        """One row, to know its cost; then as many rows at once as that makes worth while."""
        full = [m for m in self.group.members if m.role == "full" and (m.stored or m.targets)]
        take = lambda shift: _Rows(self.nest, self.row, shift, self.reductions, full)
        one = take(0)
        self.roots = [x for x, _ in one.operands] + one.values
        few = expression_cost(self.roots) < 10 and not any(is_positional(m) for m in self.reductions)
        self.rows = [one] + [take(shift) for shift in range(1, at_once if few else 1)]

    def _make_locals(self):
        """Local arrays of the block's columns: (slot of values, slot of positions or None) per reduction."""
        e, local_form = self.e, self.forms.make(0, {self.vector: 1, CELL: -self.width})
        self.here = e.linear(local_form)
        self.nest.own_forms.add(id(local_form))
        self.locals = []
        # Of sums of floats: the local array in which blocks are added up in float64 (Note [Sums in blocks]). Several rows at once
        # are a block already, and go there directly.
        self.totals = []
        for (x, position), member in zip(self.rows[0].operands, self.reductions):
            kind = member.node.op.kind
            adds, dtype = adds_floats(kind, x.dtype) or adds_small(kind, x.dtype, member.value.dtype), x.dtype
            if adds and len(self.rows) > 1:
                adds, dtype = False, wide_total(dtype)
            values = e.local(dtype, self.width)
            self.locals.append((values, None if position is None else e.local(dtypes.int64, self.width), dtype))
            self.totals.append(e.local(wide_total(dtype), self.width) if adds else None)

    def _local(self, slot: int, dtype) -> Expr:
        return self.b.make("load", (self.here,), dtype, slot)

    def _clear(self) -> list:
        stores = []
        for (values, places, dtype), total, member in zip(self.locals, self.totals, self.reductions):
            if total is not None:
                stores.append(Store(total, self.here, self.b.const(0, wide_total(dtype))))
            stores.append(Store(values, self.here, identity(self.b, member.node.op.kind, dtype)))
            if places is not None:
                stores.append(Store(places, self.here, self.b.const(0, dtypes.int64)))
        return stores

    def _flush(self) -> list:
        """Ends a block: sums go to their totals, and start from zero again."""
        b, stores = self.b, []
        for (values, _, dtype), total in zip(self.locals, self.totals):
            if total is not None:
                wide = wide_total(dtype)
                block = b.cast(self._local(values, dtype), wide)
                stores.append(Store(total, self.here, self._local(total, wide) + block))
                stores.append(Store(values, self.here, b.const(0, dtype)))
        return stores

    def _add(self, rows: list[_Rows]) -> list:
        """The loop body that takes in some rows."""
        b, here = self.b, self.here
        body: list = []
        for k, (values, places, dtype) in enumerate(self.locals):
            kind = self.reductions[k].node.op.kind
            old = self._local(values, dtype)
            total, position = rows[0].operands[k]
            if places is not None:
                better = _better(b, kind, total, old)
                body.append(Store(values, here, b.where(better, total, old)))
                body.append(Store(places, here, b.where(better, position, self._local(places, dtypes.int64))))
                continue
            terms = [r.operands[k][0] for r in rows]
            while len(terms) > 1:
                terms = [combine(b, kind, x, y) for x, y in zip(terms[::2], terms[1::2])]
            body.append(Store(values, here, combine(b, kind, old, b.cast(terms[0], dtype))))
        return body + [s for r in rows for s in r.stores]

    def _finish(self) -> list:
        """What happens to a block's results: work at the kept rank, or partial results for a second kernel."""
        nest, forms = self.nest, self.forms
        stores: list = []
        for (values, places, dtype), total, member in zip(self.locals, self.totals, self.reductions):
            if total is not None:
                values, dtype = total, wide_total(dtype)
            result = self._local(values, dtype) if places is None else self._local(places, dtypes.int64)
            if not self.group.split:
                result = self.b.cast(result, compute_dtype(member.value.dtype))
                nest.e.given[member.value] = result
                if member.stored:
                    stores.extend(nest.stores(member, result))
                continue
            own_axis = {g: a for a, g in member.axis_of.items()}
            member.parts_order = tuple([own_axis[a] for a in self.kept_axes])
            sizes = [self.group.domain[a] for a in self.kept_axes]
            member.parts = allocate(dtype, (1, *sizes))  # the number of chunks is known once loops are merged
            index = [forms.atom(CHUNK), *[forms.axis(a) for a in self.kept_axes]]
            stores.append(nest.store(member.parts, index, result))
        for member in self.group.members:
            if member.role == "kept" and (member.stored or member.targets):
                value = nest.value(member)
                stores.extend(nest.stores(member, value))
                self.roots.append(value)
        return stores

    def _blocks(self, reduced: list[int], cut: int, first_row: Expr, last_row: Expr) -> tuple[list, dict]:
        """Loops over blocks of rows, [(variable, start, end)], and where the loops over rows begin and end in a block. See Note
        [Sums in blocks]."""
        nest, e, b = self.nest, self.e, self.b
        ends = {v: (e.dim(0), e.dim(nest.sizes[v])) for v in reduced}
        ends[cut] = first_row, last_row
        blocks = []
        inside: Dim = 1
        for v in reversed(reduced) if any(t is not None for t in self.totals) else ():
            size, step = nest.sizes[v], maximum(1, SUM_ROWS // maximum(1, inside))
            inside = inside * size
            if type(size) is int and type(step) is int and size <= step:
                continue
            counter, (low, high) = FIRST_BLOCK + v, ends[v]
            start = low + e.var(counter) * e.dim(step)
            blocks.insert(0, (counter, e.dim(0), b.idiv(high - low + e.dim(step) - 1, e.dim(step))))
            ends[v] = start, b.min(start + e.dim(step), high)
        return blocks, ends

    def step(self) -> KernelStep:
        nest, e, b, width = self.nest, self.e, self.b, self.width
        main, finish = self._add(self.rows), self._finish()
        kept, reduced = nest.merge(self.kept), nest.merge(self.reduced)
        cut = max(reduced, key=lambda v: hint(nest.sizes[v]))  # the loop that chunks are cut from: the longest
        size, n_rows = nest.sizes[self.vector], nest.sizes[cut]
        digits = [(a, nest.sizes[a]) for a in kept[:-1]] + [(CELL, ceildiv(size, width))]
        length, first_row, last_row = n_rows, e.dim(0), e.dim(n_rows)
        if self.group.split:
            fewest = ceildiv(ROWS, maximum(1, product([nest.sizes[v] for v in reduced if v != cut])))
            length = maximum(fewest, ceildiv(n_rows, CHUNKS))
            chunks = minimum(CHUNKS, ceildiv(n_rows, fewest))
            digits = [(CHUNK, chunks), *digits]
            first_row = e.var(CHUNK) * e.dim(length)
            last_row = b.min(first_row + e.dim(length), e.dim(n_rows))
            for member in self.reductions:
                member.parts.shape = (chunks, *member.parts.shape[1:])
        start = e.var(CELL) * width
        stop = b.min(start + width, e.dim(size))
        across = lambda body, end: Loop(self.vector, start, end, body, "vector", 1, compact=True)
        blocks, ends = self._blocks(reduced, cut, first_row, last_row)
        low, high = ends[self.row]
        stream = []
        if len(self.rows) > 1:
            several = len(self.rows)
            middle = low + b.idiv(high - low, b.const(several, dtypes.int64)) * several
            stream.append(Loop(self.row, low, middle, [across(main, stop)], step=several))
            low, main = middle, self._add(self.rows[:1])
        stream.append(Loop(self.row, low, high, [across(main, stop)]))
        for v in reversed(reduced[:-1]):
            stream = [Loop(v, *ends[v], stream)]
        flush = self._flush()
        if flush:
            stream.append(across(flush, stop))
        for counter, start_of, count in reversed(blocks):
            stream = [Loop(counter, start_of, count, stream)]
        body = [across(self._clear(), stop), *stream, across(finish, stop)]
        order = [ITEM, *[v for v, _ in digits], *reduced, self.vector]
        extent = product([n for _, n in digits])
        work = minimum(size, width) * length * product([nest.sizes[v] for v in reduced if v != cut])
        return nest.step([nest.items(digits, body)], order, extent, work, self.roots)


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
