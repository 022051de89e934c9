"""Kernels over one iteration space: flat loops, nested loops, and tiles where operands are transposed."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, allocate, is_one, is_zero
from tandem.codegen.computes import Group
from tandem.codegen.expr import substitute
from tandem.codegen.fuse import Fusion
from tandem.codegen.loops import PAST_CACHES, Accumulate, Declare, Finish, Flush, Loop, Transpose, expression_cost
from tandem.codegen.nest import CELL, CHUNK, FIRST_BLOCK, INNER, ITEM, SUM_LANES, SUM_ROUNDS, Nest, unroll_for
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import Dim, ceildiv, minimum, product

# Elements of a flat loop that make one parallel item. Sums depend on it, so it must not depend on the number of threads.
BLOCK = 4096
TILE = 128  # side of the tiles in which transposed operands are turned: long enough runs of memory on both sides


def elementwise(fusion: Fusion, group: Group) -> KernelStep:
    return one_space(fusion, group, Nest, _loops)


def one_space(fusion: Fusion, group: Group, nest_type, loops) -> KernelStep:
    """A group whose members share one iteration space, by the kind of nest and the way of writing loops of a target. Axes are
    split, and everything is written again, until no index divides by a size."""
    splits: list = []
    while True:
        nest = nest_type(fusion, group, splits)
        before, body, after, partials, roots = _members(nest, group)
        split = nest.find_split() if nest.e.forms.quotients else None
        if split is None:
            return loops(nest, before, body, after, partials, roots)
        splits.append(split)


def copy(fusion: Fusion, source: Buffer, target: Buffer, node, nest_type=Nest, loops=None) -> KernelStep:
    """target = source, element by element."""
    axes = [a for a, n in enumerate(target.shape) if not is_one(n)]
    group = Group("elementwise", 0, tuple([target.shape[a] for a in axes]))
    place = {a: i for i, a in enumerate(axes)}
    known = target.order if target.order is not None else source.order
    group.order = tuple([place[a] for a in known if a in place]) if known is not None else tuple(range(len(axes)))
    nest = nest_type(fusion, group)
    forms = nest.e.forms
    index = tuple([forms.axis(place[a]) if a in place else forms.zero for a in range(len(target.shape))])
    value = nest.e.load(source, index, None)
    nest.e.nodes[node] = None
    return (loops or _loops)(nest, [], [nest.store(target, index, value)], [], [], [value])


def _members(nest: Nest, group: Group):
    """(before the loop, in it, after it, full reductions in it, expressions computed)."""
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
    return before, body + mutating, after, partials, roots


def _loops(nest: Nest, before: list, body: list, after: list, partials: list, roots: list) -> KernelStep:
    """Flat where all operands allow it; else the outer loops count the parallel items."""
    e, b = nest.e, nest.e.b
    order = nest.merge(nest.order)
    across = transposed_loads(nest, order)
    if across is not None:
        return _tiles(nest, order, *across, before, body, after, partials, roots)
    if not order:
        _store_partials(nest, partials, 1, after)
        return nest.step([nest.items([], before + body + after)], [ITEM], 1, 1, roots)
    unroll = unroll_for(expression_cost(roots), body)
    vector = order[-1]
    size = nest.sizes[vector]
    if len(order) == 1 and not partials:  # one long loop over all blocks asked for, of which the size is only the end
        n = e.argument(size)
        begin, end = b.make("begin", (), dtypes.int64), b.make("end", (), dtypes.int64)
        # A size that is known and small needs no second loop for large ones, which takes time to compile.
        may_be_large = not isinstance(size, int) or size * 8 >= PAST_CACHES
        total = n if may_be_large else None
        loop = Loop(vector, begin * BLOCK, b.min(end * BLOCK, n), body, "vector", unroll, total=total)
        step = nest.step([loop], [vector], ceildiv(size, BLOCK), minimum(size, BLOCK), roots)
        step.block = BLOCK
        return step
    length = INNER if len(order) > 1 else BLOCK
    digits = [(v, nest.sizes[v]) for v in order[:-1]] + [(CELL, ceildiv(size, length))]
    extent = product([count for _, count in digits])
    _store_partials(nest, partials, extent, after)
    start = e.var(CELL) * length
    loop = _in_blocks(nest, vector, start, b.min(start + length, e.dim(size)), body, unroll)
    items = nest.items(digits, [*before, loop, *after])
    return nest.step([items], [ITEM, *[v for v, _ in digits], vector], extent, minimum(size, length), roots)


def _in_blocks(nest: Nest, vector: int, start, stop, body: list, unroll: int) -> Loop:
    """The loop of one item, in the blocks of Note [Sums in blocks] if something is summed."""
    sums = [s.acc for s in body if type(s) is Accumulate and s.acc.blocked]
    if not sums:
        return Loop(vector, start, stop, body, "vector", unroll)
    e, size, counter = nest.e, SUM_ROUNDS * SUM_LANES * unroll, FIRST_BLOCK + vector
    first = start + e.var(counter) * size
    block = Loop(vector, first, e.b.min(first + size, stop), body, "vector", unroll)
    count = e.b.idiv(stop - start + (size - 1), e.b.const(size, dtypes.int64))
    return Loop(counter, e.dim(0), count, [block, *map(Flush, sums)])


def _store_partials(nest: Nest, partials, extent: Dim, after: list):
    """Each item leaves its part of the full reductions in an array of `extent`."""
    e, b = nest.e, nest.e.b
    for member, acc in partials:
        member.parts = allocate(acc.result, (extent,))
        form = e.forms.atom(ITEM)
        nest.own_forms.add(id(form))
        scalar = b.make("scalar", (), acc.result, acc.id)
        after.append(nest.store(member.parts, (form,), scalar))


def transposed_loads(nest: Nest, order: list[int]):
    """(axis, loads) that run along another axis than the innermost loop, where a tile can turn them; None if there are none."""
    if len(order) < 2:
        return None
    vector = order[-1]
    by_axis: dict[int, list] = {}
    for load, form in dict(nest.e.loads).items():
        if is_zero(form.terms.get(vector, 0)) or is_one(form.terms[vector]):
            continue
        if any(type(a) is not int for a in form.terms) or load.dtype is dtypes.complex128:
            continue
        for axis in order[:-1]:
            if is_one(form.terms.get(axis, 0)):
                by_axis.setdefault(axis, []).append((load, form))
                break
    if not by_axis:
        return None
    return max(by_axis.items(), key=lambda item: len(item[1]))


def _tiles(nest: Nest, order, axis: int, loads, before, body, after, partials, roots) -> KernelStep:
    """Square tiles over the innermost loop and `axis`: loads that run along `axis` are turned in local arrays first."""
    e, b, forms = nest.e, nest.e.b, nest.e.forms
    vector = order[-1]
    width = TILE if sum(load.dtype.itemsize for load, _ in loads) <= 4 else TILE // 2
    others = [v for v in order[:-1] if v != axis]
    starts = {axis: e.var(CELL) * width, vector: e.var(CHUNK) * width}
    stops = {v: b.min(start + width, e.dim(nest.sizes[v])) for v, start in starts.items()}
    replace, turns = {}, []
    # where the tile begins: the form with the tile's first indices in place of the two loop variables
    local_form = forms.make(0, {axis: width, vector: 1, CELL: -width * width, CHUNK: -width})
    here = e.linear(local_form)
    for load, form in loads:
        terms = {a: c for a, c in form.terms.items() if a not in (axis, vector)}
        terms[CELL] = width
        terms[CHUNK] = form.terms[vector] * width
        first = e.linear(forms.make(form.const, terms))
        local = e.local(load.dtype, width * width)
        stride = e.dim(form.terms[vector])
        rows, columns = stops[axis] - starts[axis], stops[vector] - starts[vector]
        turns.append(Transpose(local, load.attr, first, stride, rows, columns, width))
        replace[load.id] = b.make("load", (here,), load.dtype, local)
    for s, value in zip(body, substitute(b, [s.value for s in body], replace)):
        s.value = value
    tiles = [(CELL, ceildiv(nest.sizes[axis], width)), (CHUNK, ceildiv(nest.sizes[vector], width))]
    digits = [(v, nest.sizes[v]) for v in others] + tiles
    extent = product([n for _, n in digits])
    _store_partials(nest, partials, extent, after)
    inner = Loop(vector, starts[vector], stops[vector], body, "vector", 1)
    flushes = [Flush(acc) for _, acc in partials if acc.blocked]
    inside = Loop(axis, starts[axis], stops[axis], [inner, *flushes])
    items = nest.items(digits, [*turns, *before, inside, *after])
    work = minimum(nest.sizes[axis], width) * minimum(nest.sizes[vector], width)
    return nest.step([items], [ITEM, *[v for v, _ in digits], axis, vector], extent, work, roots)
