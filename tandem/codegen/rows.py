"""Kernels that make passes over rows: reductions along memory, and what comes before, between and after them."""

from __future__ import annotations

from tandem.codegen.computes import Group
from tandem.codegen.expr import Expr, substitute, topological
from tandem.codegen.fuse import Fusion
from tandem.codegen.loops import Accumulate, Declare, Finish, Store, expression_cost
from tandem.codegen.nest import ITEM, Nest, is_positional, unroll_for
from tandem.codegen.schedule import KernelStep
from tandem.codegen.side_rows import SideRows
from tandem.graph.symbolic import minimum, product

KEEP_COST = 12.0  # of an expression that is worth a store and a load


def rows(fusion: Fusion, group: Group) -> KernelStep:
    if group.parts_of is not None:
        first = group.members[0].partial_of
        group.domain = (first.parts.shape[0], *group.domain[1:])
    nest = Nest(fusion, group)
    several = fusion.target.rows_at_once(group)
    plan, roots = _passes(nest, group)
    if nest.e.forms.quotients:
        several = 1  # rows that follow one another need not do so in memory
    reduced = [a for a in group.order if a in group.reduced and a != group.unit]
    reduced += [group.unit] if group.unit in group.reduced else []
    if any(is_positional(m) for m in group.members):
        reduced.sort()  # the first position is the first in row-major order
    kept = [a for a in group.order if a not in group.reduced]
    if several > 1:
        return SideRows(nest, group, several, _passes, levels_of(group)).step(kept, reduced)
    kept = nest.merge(kept)
    reduced = nest.merge(reduced)
    digits = [(a, nest.sizes[a]) for a in kept]
    body = []
    for number, (outer, before, inner, after) in enumerate(plan):
        body += outer
        if inner:
            unroll = unroll_for(expression_cost(roots[number]), inner)
            body += [*before, *nest.loops(reduced, inner, unroll), *after]
    extent = product([n for _, n in digits])
    work = product([nest.sizes[a] for a in reduced])
    if all(m.role == "full" for m in group.members if m.stored):
        extent = extent * minimum(1, work)  # rows without elements, however many, are not walked through
    everything = [r for level in roots for r in level]
    return nest.step([nest.items(digits, body)], [ITEM, *kept, *reduced], extent, work, everything)


def _passes(nest: Nest, group: Group, results: bool = True) -> tuple[list, list]:
    plan, roots = row_passes(nest, group, results)
    _keep_costly(nest, plan, roots)
    return plan, roots


def row_passes(nest: Nest, group: Group, results: bool = True) -> tuple[list, list]:
    """Passes over a row: [(at the kept rank before it, declarations, in the loop, after it)], and the expressions of each.
    results: whether results are stored."""
    e = nest.e
    levels = levels_of(group)
    passes = max(levels.values()) + 1
    roots: list[list] = [[] for _ in range(passes)]  # expressions computed in each pass
    plan = []  # per pass: (declare, in the loop, finish, at the kept rank)
    for number in range(passes):
        before, inner, after, outer = [], [], [], []
        for member in group.members:
            if member.role == "kept" and levels[member.value] == number and member.stored and results:
                outer.extend(nest.stores(member, nest.value(member)))
        for member in group.members:
            level = levels[member.value]
            if member.role == "full" and level == number and member.stored:
                value = nest.value(member)
                inner.extend(nest.stores(member, value))
                roots[number].append(value)
            elif member.role in ("reduce", "combine") and level - 1 == number:
                x, position = nest.operand(member)
                acc = nest.accumulator(member, x.dtype)
                before.append(Declare(acc))
                inner.append(Accumulate(acc, x, position))
                after.append(Finish(acc))
                scalar = e.given[member.value] = nest.result(member, acc)
                roots[number].append(x)
                if member.stored and results:
                    after.extend(nest.stores(member, scalar))
            elif member.role == "partial" and level == number:
                x, _ = nest.operand(member)
                acc = nest.accumulator(member, x.dtype)
                inner.append(Accumulate(acc, x))
                roots[number].append(x)
                nest.across.append((member, acc))
        plan.append((outer, before, inner, after))
    return plan, roots


def levels_of(group: Group) -> dict:
    """Per member's value, how many passes over a row come before it is there."""
    levels: dict = {}
    for member in group.members:
        level = 0
        for value, _ in member.reads:
            found = levels.get(value)
            if found is not None:
                level = max(level, found)
        levels[member.value] = level + 1 if member.role in ("reduce", "combine") else level
    return levels


def _keep_costly(nest: Nest, plan: list, roots: list[list]):
    """What an early pass computes at a price and a later one needs again is put into memory that a later pass will overwrite.

    In softmax this is exp(x - max): pass two stores it in the output, pass three divides it there. Once that pass has been,
    the memory holds its result: passes after it compute the value again, or have it elsewhere.
    """
    e, b = nest.e, nest.e.b
    varies: dict[int, bool] = {}

    def varying(x: Expr) -> bool:
        found = varies.get(x.id)
        if found is None:
            for y in topological([x]):
                if y.op == "linear":
                    varies[y.id] = any(type(a) is not int or a in nest.group.reduced for a in e.linears[y.attr].terms)
                else:
                    varies[y.id] = any(varies[a.id] for a in y.args)
            found = varies[x.id]
        return found

    first_pass: dict[int, int] = {}
    for number, expressions in enumerate(roots):
        for x in topological(expressions):
            first_pass.setdefault(x.id, number)
    written: dict[int, tuple[int, Store]] = {}  # slot -> (pass, store), for whole rows stored once
    lent: dict[int, tuple[int, Store]] = {}  # the same for what is kept in a slot until it is written
    for number, (_, _, inner, _) in enumerate(plan):
        for s in inner:
            if type(s) is Store and varying(s.offset) and s.slot not in written:
                written[s.slot] = (number, s)
    for number in range(1, len(plan)):
        inner = plan[number][2]
        replace: dict[int, Expr] = {}
        stack = [s.value for s in inner]
        seen = set()
        while stack:
            x = stack.pop()
            if x.id in seen:
                continue
            seen.add(x.id)
            early = first_pass.get(x.id, number)
            if early < number and x.op not in ("load", "load_if", "linear", "const") and varying(x):
                if expression_cost([x]) < KEEP_COST:
                    continue
                place = _place_to_keep(e, written, lent, x, early, number)
                if place is not None:
                    slot, offset, is_stored = place
                    replace[x.id] = b.make("load", (offset,), x.dtype, slot)
                    if not is_stored:
                        plan[early][2].append(Store(slot, offset, x))
                        lent[slot] = (early, plan[early][2][-1])
                continue
            stack.extend(x.args)
        if replace:
            old = [s.value for s in inner]
            new = substitute(b, old + roots[number], replace)
            for s, value in zip(inner, new):
                s.value = value
            roots[number] = new[len(inner) :]
            # A store of this pass may overwrite what is kept for it: what is summed reads that before. Renderers compute what is
            # stored before they store any of it.
            inner.sort(key=lambda s: type(s) is Store)


def _place_to_keep(e, written, lent, x: Expr, early: int, number: int):
    """(slot, offset, whether the early pass already stores x there) of memory that holds x from pass early to pass number."""
    spare = None
    for slot, (when, s) in written.items():
        if e.buffers[slot].dtype is not x.dtype:
            continue
        if when == early and s.value is x:
            return slot, s.offset, True
        if when < number:
            continue
        if slot in lent:
            since, kept = lent[slot]
            if since == early and kept.value is x:
                return slot, kept.offset, True
        elif spare is None and e.buffers[slot].kind == "alloc" and _reads(s.value, x):
            spare = (slot, s.offset, False)
    return spare


def _reads(value: Expr, x: Expr) -> bool:
    """Whether value is computed from x: it is then read before value is stored in its place."""
    return any(y is x for y in topological([value]))
