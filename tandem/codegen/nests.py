"""Loop nests: a group of computes becomes one kernel."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, allocate, is_one, is_zero, same
from tandem.codegen.emit import Emitter, reduce_operand
from tandem.codegen.expr import Expr
from tandem.codegen.fuse import Compute, Fusion, Group
from tandem.codegen.index import Linear
from tandem.codegen.loops import Accumulate, Accumulator, Declare, Finish, Kernel, Loop, Store, expression_cost
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import Dim, ceildiv, maximum, minimum, product

BLOCK = 4096  # elements of a flat loop that make one parallel item; part of what sums give, so never a matter of threads
INNER = 8192  # longest innermost loop of one item where there are outer loops too
COLUMNS = 1024  # elements of the local arrays in which columns accumulate
ITEM, CELL, CHUNK = 1000, 1001, 1002  # loop variables besides the axes 0, 1, ... of the group
NANOSECONDS = 0.06  # of one cost unit, vectorised
LOAD_COST = 2.0


class Nest:
    """A kernel under construction."""

    def __init__(self, fusion: Fusion, group: Group):
        self.fusion = fusion
        self.group = group
        self.sizes: dict[int, Dim] = dict(enumerate(group.domain))
        inside = {m.value for m in group.members if m.role in ("full", "kept")}
        self.e = Emitter(fusion.resolve, fusion.shape_of, fusion.buffer_of, inside)
        self.accs = 0
        self.own_forms: set[int] = set()  # forms over merged loops, made after merging
        self.writes: list[Buffer] = []

    # -- indices

    def index(self, compute: Compute, value) -> tuple:
        """The index of `value` (of compute's own rank) in terms of the group's loops."""
        forms = self.e.forms
        shape = self.fusion.shape_of(value)
        return tuple([forms.zero if is_one(n) else forms.atom(compute.axis_of[a]) for a, n in enumerate(shape)])

    def value(self, compute: Compute) -> Expr:
        return self.e.emit(compute.value, self.index(compute, compute.value))

    def stores(self, compute: Compute, value: Expr) -> list[Store]:
        """Stores of a member's value: into its own memory if someone looks at it, and into inputs that it replaces."""
        index = self.index(compute, compute.value)
        targets = [self.fusion.buffer_of[compute.value]] if compute.stored else []
        return [self.store(t, index, value) for t in targets + compute.targets]

    def store(self, target: Buffer, index, value: Expr) -> Store:
        offset = self.e.linear(self.e.forms.dot(index, target.strides))
        self.writes.append(target)
        return Store(self.e.slot(target), offset, self.e.b.cast(value, target.dtype))

    def operand(self, compute: Compute) -> tuple[Expr, Expr | None]:
        """What a reduction takes in at each point: (value, position for argmax)."""
        e = self.e
        if compute.role == "combine":
            parts = compute.partial_of.parts
            index = [e.forms.atom(0)]
            first = compute.partial_of
            for axis in [a for a in first.order if a not in first.reduced]:
                index.append(e.forms.atom(compute.axis_of[axis]))
            e.nodes[compute.node] = None
            return e.load(parts, index, None), None
        node = compute.node
        source, op = node.inputs[0], node.op
        shape = self.fusion.shape_of(source)
        x = e.emit(source, self.index(compute, source))
        e.nodes[node] = None
        if op.kind not in ("argmax", "argmin"):
            return reduce_operand(e.b, op, x, compute.value), None
        flat, step = e.forms.zero, 1
        for axis in reversed(range(len(shape))):
            if axis in compute.reduced:
                flat = e.forms.add(flat, e.forms.scale(e.forms.atom(compute.axis_of[axis]), step))
                step = step * shape[axis]
        return x, e.linear(flat)

    def accumulator(self, compute: Compute, dtype) -> Accumulator:
        self.accs += 1
        return Accumulator(self.accs - 1, compute.node.op.kind, dtype)

    # -- loops

    def merge(self, order: list[int]) -> list[int]:
        """Merges neighbouring loops where every index form moves through them as through one; returns what is left."""
        forms = [f for f in self.e.linears if id(f) not in self.own_forms]
        merged = list(order)
        k = len(merged) - 2
        while k >= 0:
            i, j = merged[k], merged[k + 1]
            n = self.sizes[j]
            if all(_continues(f, i, j, n) for f in forms):
                self.sizes[j] = self.sizes[i] * n
                del merged[k]
            k -= 1
        return merged

    def loops(self, order: list[int], body: list, unroll: int) -> list:
        """Serial loops around an innermost vector loop."""
        zero = self.e.dim(0)
        if not order:
            return body
        inner = Loop(order[-1], zero, self.e.dim(self.sizes[order[-1]]), body, "vector", unroll)
        for v in reversed(order[:-1]):
            inner = Loop(v, zero, self.e.dim(self.sizes[v]), [inner])
        return [inner]

    def items(self, digits: list[tuple[int, Dim]], body: list) -> Loop:
        b = self.e.b
        begin, end = b.make("begin", (), dtypes.int64), b.make("end", (), dtypes.int64)
        return Loop(ITEM, begin, end, body, "items", digits=tuple([(v, self.e.dim(n)) for v, n in digits]))

    def step(self, body: list, order: list[int], extent: Dim, work: Dim, roots: list[Expr]) -> KernelStep:
        e = self.e
        linear = [e.settle(f, order) for f in e.linears]
        nodes = sorted(e.nodes, key=lambda n: n.id) or [m.node for m in self.group.members]
        kernel = Kernel(_name(nodes), [x.dtype for x in e.buffers], e.locals, linear, body)
        cost = (expression_cost(roots) + LOAD_COST * len(e.buffers)) * NANOSECONDS
        return KernelStep(kernel, e.buffers, tuple(e.ints), extent, work, cost, nodes, self.writes)


def _continues(form: Linear, i: int, j: int, n: Dim) -> bool:
    outer, inner = form.terms.get(i, 0), form.terms.get(j, 0)
    if is_zero(inner):
        return is_zero(outer)
    return not is_zero(outer) and same(outer, inner * n)


def _name(nodes) -> str:
    names = []
    for node in nodes:
        name = getattr(node.op, "kind", None) if node.op.name == "reduce" else node.op.name
        if name not in names and name not in ("constant", "expand", "reshape", "permute"):
            names.append(name)
    if not names:
        return "copy"
    return names[0] if len(names) == 1 else "fused_" + "_".join(names[:6])


def unroll_for(cost: float, reducing: bool) -> int:
    if reducing:
        return 4 if cost < 10 else 2 if cost < 30 else 1
    return 2 if cost < 12 else 1


# -- elementwise


def elementwise(fusion: Fusion, group: Group) -> KernelStep:
    nest = Nest(fusion, group)
    e, b = nest.e, nest.e.b
    body: list = []
    before: list = []
    after: list = []
    roots = []
    mutating = []
    partials = []
    for member in group.members:
        if member.role == "partial":
            x, _ = nest.operand(member)
            acc = nest.accumulator(member, x.dtype)
            before.append(Declare(acc))
            body.append(Accumulate(acc, x))
            after.append(Finish(acc))
            partials.append((member, acc))
            roots.append(x)
        elif member.stored or member.targets:
            value = nest.value(member)
            (mutating if member.targets else body).extend(nest.stores(member, value))
            roots.append(value)
    body += mutating
    order = nest.merge(list(group.order))
    unroll = unroll_for(expression_cost(roots), bool(partials))

    if len(order) <= 1:
        size = nest.sizes[order[0]] if order else 1
        extent = ceildiv(size, BLOCK) if order else 1
        digits: list = []
        vector = order[0] if order else None
        cell = ITEM
        length = BLOCK
    else:
        vector = order[-1]
        size = nest.sizes[vector]
        cells = ceildiv(size, INNER)
        extent = product([nest.sizes[v] for v in order[:-1]]) * cells
        digits = [(v, nest.sizes[v]) for v in order[:-1]] + [(CELL, cells)]
        cell = CELL
        length = INNER
    for member, acc in partials:
        member.parts = allocate(acc.dtype, (extent,))
        form = e.forms.atom(ITEM)
        nest.own_forms.add(id(form))
        scalar = b.make("scalar", (), acc.dtype, acc.id)
        after.append(nest.store(member.parts, (form,), scalar))
    work = minimum(size, length)
    if vector is None:
        return nest.step([nest.items([], before + body + after)], [ITEM], extent, 1, roots)
    n = e.dim(size)
    if not digits and not partials:  # one long loop over all blocks asked for
        begin, end = b.make("begin", (), dtypes.int64), b.make("end", (), dtypes.int64)
        loop = Loop(vector, begin * length, b.min(end * length, n), body, "vector", unroll)
        return nest.step([loop], [vector], extent, work, roots)
    start = e.var(cell) * length
    loop = Loop(vector, start, b.min(start + length, n), body, "vector", unroll)
    items = nest.items(digits, [*before, loop, *after])
    return nest.step([items], [ITEM, *[v for v, _ in digits], vector], extent, work, roots)


def copy(fusion: Fusion, source: Buffer, target: Buffer, node) -> KernelStep:
    """target = source, element by element."""
    axes = [a for a, n in enumerate(target.shape) if not is_one(n)]
    group = Group("elementwise", 0, tuple([target.shape[a] for a in axes]))
    place = {a: i for i, a in enumerate(axes)}
    known = target.order if target.order is not None else source.order
    group.order = tuple([place[a] for a in known if a in place]) if known is not None else tuple(range(len(axes)))
    nest = Nest(fusion, group)
    e, b = nest.e, nest.e.b
    forms = e.forms
    index = tuple([forms.atom(place[a]) if a in place else forms.zero for a in range(len(target.shape))])
    value = e.load(source, index, None)
    body = [nest.store(target, index, value)]
    order = nest.merge(list(group.order))
    e.nodes[node] = None
    if not order:
        return nest.step([nest.items([], body)], [ITEM], 1, 1, [value])
    size = nest.sizes[order[-1]]
    cells = ceildiv(size, INNER)
    start = e.var(CELL) * INNER
    loop = Loop(order[-1], start, b.min(start + INNER, e.dim(size)), body, "vector", 2)
    digits = [(v, nest.sizes[v]) for v in order[:-1]] + [(CELL, cells)]
    extent = product([n for _, n in digits])
    items = nest.items(digits, [loop])
    return nest.step([items], [ITEM, *[v for v, _ in digits], order[-1]], extent, minimum(size, INNER), [value])


# -- rows


def rows(fusion: Fusion, group: Group) -> KernelStep:
    if group.parts_of is not None:
        first = group.members[0].partial_of
        group.domain = (first.parts.shape[0], *group.domain[1:])
    nest = Nest(fusion, group)
    e, b = nest.e, nest.e.b
    levels: dict = {}
    for member in group.members:
        level = 0
        for value, _ in member.reads:
            found = levels.get(value)
            if found is not None:
                level = max(level, found)
        levels[member.value] = level + 1 if member.role in ("reduce", "combine") else level
    passes = max(levels.values()) + 1
    roots: list[list] = [[] for _ in range(passes)]  # expressions computed in each pass
    plan = []  # per pass: (declare, in the loop, finish, at the kept rank)
    for number in range(passes):
        before, inner, after, outer = [], [], [], []
        for member in group.members:
            if member.role == "kept" and levels[member.value] == number and member.stored:
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
                result = dtypes.int64 if position is not None else x.dtype
                scalar = b.make("scalar", (), result, acc.id)
                e.given[member.value] = scalar
                roots[number].append(x)
                if member.stored:
                    after.extend(nest.stores(member, scalar))
        plan.append((outer, before, inner, after))

    reduced = [a for a in group.order if a in group.reduced and a != group.unit]
    reduced += [group.unit] if group.unit in group.reduced else []
    kept = nest.merge([a for a in group.order if a not in group.reduced])
    reduced = nest.merge(reduced)
    digits = [(a, nest.sizes[a]) for a in kept]
    body = []
    for number, (outer, before, inner, after) in enumerate(plan):
        body += outer
        if inner:
            reducing = any(type(s) is Accumulate for s in inner)
            positional = any(type(s) is Accumulate and s.position is not None for s in inner)
            unroll = 1 if positional else unroll_for(expression_cost(roots[number]), reducing)
            body += [*before, *nest.loops(reduced, inner, unroll), *after]
    extent = product([n for _, n in digits])
    work = product([nest.sizes[a] for a in reduced])
    everything = [r for level in roots for r in level]
    return nest.step([nest.items(digits, body)], [ITEM, *kept, *reduced], extent, work, everything)


# -- columns


def columns(fusion: Fusion, group: Group) -> KernelStep:
    if group.parts_of is not None:
        first = group.members[0].partial_of
        group.domain = (first.parts.shape[0], *group.domain[1:])
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
    for member, (x, position) in zip(reductions, one[0]):
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
    kept = nest.merge(kept)
    reduced = nest.merge(reduced)
    outer_row = reduced[0]
    size = nest.sizes[vector]
    cells = ceildiv(size, width)
    digits = [(a, nest.sizes[a]) for a in kept[:-1]] + [(CELL, cells)]
    outer = product([n for _, n in digits])
    n_rows = nest.sizes[outer_row]
    all_rows = product([nest.sizes[a] for a in reduced])
    if group.split:
        total = all_rows * product([nest.sizes[a] for a in kept])
        chunks = maximum(1, minimum(ceildiv(total, 65536), 64 // maximum(1, outer)))
        length = maximum(1, ceildiv(n_rows, chunks))
        chunks = ceildiv(n_rows, length)
        digits = [(CHUNK, chunks), *digits]
        first_row = e.var(CHUNK) * e.dim(length)
        last_row = b.min(first_row + e.dim(length), e.dim(n_rows))
        for (value_slot, _, dtype), member in zip(locals_, reductions):
            order = [a for a in member.order if a not in member.reduced]
            place = [member.domain[member.axes.index(a)] for a in order]
            member.parts = allocate(dtype, (chunks, *place))
            index = [forms.atom(CHUNK), *[forms.atom(member.axis_of[a]) for a in order]]
            finish.append(nest.store(member.parts, index, b.make("load", (here,), dtype, value_slot)))
    else:
        first_row, last_row = e.dim(0), e.dim(n_rows)

    start = e.var(CELL) * width
    stop = b.min(start + width, e.dim(size))
    clear = []
    for (value_slot, place_slot, dtype), member in zip(locals_, reductions):
        clear.append(Store(value_slot, here, identity(b, member.node.op.kind, dtype)))
        if place_slot is not None:
            clear.append(Store(place_slot, here, b.const(0, dtypes.int64)))
    across = lambda body: Loop(vector, start, stop, body, "vector", 1)
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
    body = [across(clear), *stream, across(finish)]
    extent = product([n for _, n in digits])
    work = minimum(size, width) * (length if group.split else n_rows)
    order = [ITEM, *[v for v, _ in digits], *reduced, vector]
    return nest.step([nest.items(digits, body)], order, extent, work, roots)


class _Shifted:
    """A nest whose row index is moved by a constant."""

    def __init__(self, nest: Nest, row: int, moved: Linear):
        self.nest, self.row, self.moved = nest, row, moved

    def _with(self, call):
        forms = self.nest.e.forms
        usual = forms.atom
        forms.atom = lambda a: self.moved if type(a) is int and a == self.row else usual(a)
        try:
            return call()
        finally:
            del forms.atom

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

