"""Kernels over short rows: several rows side by side, whose accumulators are combined together.

A short row fills few vectors, and what follows them costs more than they do: the lanes of its sum are added up in several steps,
and its result is stored alone. Of several rows the vectors of partial results are folded into one another, and their results are
computed with and stored as a vector. Each row is summed in the order in which it is summed alone.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.computes import Compute, Group
from tandem.codegen.expr import compute_dtype
from tandem.codegen.loops import FinishRows, Loop
from tandem.codegen.nest import CELL, ITEM, LANE, Nest
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import ceildiv, minimum, product

STRIP = 64  # rows of an item


class SideRows:
    """A kernel whose loop over rows takes `several` at once. passes(nest, group, results): as row_passes in rows.py."""

    def __init__(self, nest: Nest, group: Group, several: int, passes, levels: dict):
        self.nest, self.group, self.several, self.passes, self.levels = nest, group, several, passes, levels
        self.row = [a for a in group.order if a not in group.reduced][-1]

    def step(self, kept: list[int], reduced: list[int]) -> KernelStep:
        nest, e, b, several, row = self.nest, self.nest.e, self.nest.e.b, self.several, self.row
        copies = [self._passes_at(shift) for shift in range(several)]
        after = [self._after(number, [plan[number] for plan, _ in copies]) for number in range(len(copies[0][0]))]
        before = self._lanes([], 0)
        e.forms.axes.pop(row, None)
        e.forget()
        e.given.clear()
        alone, roots = self.passes(nest, self.group, True)
        kept, reduced = nest.merge(kept), nest.merge(reduced)
        wide = self._across(before)
        for number, (stores, finish) in enumerate(after):
            inner = [s for plan, _ in copies for s in plan[number][2]]
            declared = [s for plan, _ in copies for s in plan[number][1]]
            if inner:
                wide += [*declared, *self._loops(reduced, inner), *finish, *self._across(stores)]
        single = []
        for outer, declared, inner, finish in alone:
            single += outer
            if inner:
                single += [*declared, *nest.loops(reduced, inner, 1), *finish]
        size = nest.sizes[row]
        first = e.var(CELL) * STRIP
        stop = b.min(first + STRIP, e.dim(size))
        middle = first + b.idiv(stop - first, b.const(several, dtypes.int64)) * several
        body = [Loop(row, first, middle, wide, step=several), Loop(row, middle, stop, single)]
        digits = [(a, nest.sizes[a]) for a in kept[:-1]] + [(CELL, ceildiv(size, STRIP))]
        order = [ITEM, *[v for v, _ in digits], row, *reduced, LANE]
        work = product([nest.sizes[a] for a in reduced]) * minimum(size, STRIP)
        everything = [r for level in roots for r in level]
        return nest.step([nest.items(digits, body)], order, product([n for _, n in digits]), work, everything)

    def _passes_at(self, shift: int) -> tuple[list, list]:
        """The passes over the row that lies `shift` after the loop's."""
        e = self.nest.e
        e.forget()
        e.forms.axes[self.row] = e.forms.add(e.forms.atom(self.row), e.forms.make(shift, {}))
        return self.passes(self.nest, self.group, False)

    def _after(self, number: int, plans: list) -> tuple[list, list]:
        """(stores of what is computed of the results of a pass, for all rows as one vector; statements that finish the pass)."""
        finished = [m for m in self.group.members if m.role == "reduce" and self.levels[m.value] - 1 == number]
        finish = []
        for k, member in enumerate(finished):
            accs = [plan[1][k].acc for plan in plans]
            local = self.nest.e.local(accs[0].result, self.several)
            finish.append(FinishRows(accs, local))
            self._give(member, local)
        return self._lanes(finished, number + 1), finish

    def _give(self, member: Compute, local: int):
        e, lane = self.nest.e, self.nest.e.forms.atom(LANE)
        self.nest.own_forms.add(id(lane))
        result = e.b.make("load", (e.linear(lane),), e.locals[-local - 1][0], local)
        e.given[member.value] = e.b.cast(result, compute_dtype(member.value.dtype))

    def _lanes(self, finished: list[Compute], level: int) -> list:
        """Stores of results, and of work at the kept rank that has what it needs at that level: a lane for each row."""
        nest, forms = self.nest, self.nest.e.forms
        nest.e.forget()
        forms.axes[self.row] = forms.add(forms.atom(self.row), forms.atom(LANE))
        stores = [s for m in finished if m.stored for s in nest.stores(m, nest.e.given[m.value])]
        for member in self.group.members:
            if member.role == "kept" and self.levels[member.value] == level and member.stored:
                stores += nest.stores(member, nest.value(member))
        return stores

    def _across(self, stores: list) -> list:
        e = self.nest.e
        return [Loop(LANE, e.dim(0), e.dim(self.several), stores, "lanes")] if stores else []

    def _loops(self, reduced: list[int], inner: list) -> list:
        """Rows that are so short are one block (Note [Sums in blocks]) where their elements are one loop."""
        if len(reduced) > 1:
            return self.nest.loops(reduced, inner, 1)
        e, unit = self.nest.e, reduced[0]
        return [Loop(unit, e.dim(0), e.dim(self.nest.sizes[unit]), inner, "vector", 1)]
