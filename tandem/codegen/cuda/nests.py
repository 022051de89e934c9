"""Kernels for CUDA devices: the same groups of computes as on the CPU, spread over blocks and threads instead of lanes.

See render.py for what the modes of loops mean. How work is cut up depends on sizes only, so results do not change from run to run.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, allocate, is_one, root_of
from tandem.codegen.columns import columns_rows
from tandem.codegen.computes import Compute, Group
from tandem.codegen.cuda.kernel import CudaKernel
from tandem.codegen.cuda.sizes import LIMIT, SMALL_STRIDE, WIDEST, Sizes, inverse
from tandem.codegen.elementwise import _store_partials, one_space, transposed_loads
from tandem.codegen.elementwise import copy as copy_by
from tandem.codegen.expr import Expr, substitute, topological
from tandem.codegen.fuse import Fusion
from tandem.codegen.index import Linear
from tandem.codegen.loops import Accumulate, Accumulator, Declare, Finish, Loop, Store, Transpose, expression_cost
from tandem.codegen.nest import CELL, CHUNK, ITEM, Nest, _name, is_positional
from tandem.codegen.rows import row_passes
from tandem.codegen.schedule import KernelStep
from tandem.dtypes import DType
from tandem.graph.symbolic import Dim, ceildiv, hint, maximum, minimum, product

THREADS = 256
PARTS = 1024  # most blocks that leave partial results of a full reduction
WARP_ROW = 1024  # rows up to this length are served by a warp each
LONG_ROW = 32768  # longer ones are read again in every pass, by blocks so large that all their rows stay in the second-level cache
LONG_THREADS = 512
TILE = 32
TEAM = 8  # rows of threads where threadIdx.y is a dimension of its own
CHUNK_ROWS = 64  # fewest rows of a chunk
ACROSS_ROWS = 2048  # rows from which on their kernel also sums across them
ACROSS_SUMS = 72  # with so many sums in a thread's registers
ACROSS_TURNS = 32  # most rows that a warp sums across in registers, which have no room for what is rounded away
# Note [Sums on devices]
# As on the CPU (Note [Sums in blocks] in nest.py), a long sum of float32 is as exact as a short one, whatever its axes and layout.
# float64 is slow on many devices. So a thread keeps what its additions round away in a second register and adds it at the end;
# where the elements of a piece go to one sum, they are added up first, and the thread does so once for each piece. What threads
# have is added pairwise. Nothing is kept where a thread is known to add few numbers.
FEW = 32
SETUP = 64  # what every thread computes for itself; if it is more, few blocks that stay share the elements


class CudaNest(Nest):
    def __init__(self, fusion: Fusion, group: Group, splits: list[tuple] = ()):
        super().__init__(fusion, group, splits)
        self.stored: list = []
        self.sums: list[Accumulator] = []  # that keep what is rounded away
        self.known = Sizes(self.e)
        self.e.clamp = True  # a bad index is reported late: until then it must not reach beyond memory

    threads = (THREADS, 1)
    team = False
    items_count: Dim | None = None
    kept = 0
    flat: tuple[int, int, int] | None = None
    once = False

    def step(self, body: list, order: list[int], extent: Dim, work: Dim, roots: list[Expr]) -> KernelStep:
        e = self.e
        linear = self.known.settle(e.linears, order)
        nodes = sorted(e.nodes, key=lambda n: n.id) or [m.node for m in self.group.members]
        by_value = frozenset(i for i, x in enumerate(e.buffers) if x.on_host)
        written = {id(root_of(x)) for x in self.writes}
        inputs_stay = all(root_of(x).kind == "alloc" for x in self.writes)  # inputs may share memory
        constant = frozenset(
            i
            for i, x in enumerate(e.buffers)
            if id(root_of(x)) not in written and (inputs_stay or root_of(x).kind == "alloc") and i not in by_value
        )
        items = None if self.items_count is None else self.known.size("items", self.items_count)
        kernel = CudaKernel(
            _name(nodes),
            [x.dtype for x in e.buffers],
            e.locals,
            linear,
            body,
            self.threads,
            self.team,
            by_value,
            items,
            self.kept,
            constant,
        )
        kernel.num_ints = len(e.ints)
        kernel.aligned = frozenset(i for i, x in enumerate(e.buffers) if _is_aligned(x))
        kernel.known, kernel.inverses = self.known.known, self.known.inverses
        kernel.flat, kernel.once = self.flat, self.once
        return KernelStep(kernel, e.buffers, self.known.values(), extent, work, 1.0, nodes, self.writes)

    def accumulator(self, compute: Compute, dtype: DType) -> Accumulator:
        acc = super().accumulator(compute, dtype)
        acc.compensated = acc.kind == "sum" and dtype is dtypes.float32
        if acc.compensated:
            self.sums.append(acc)
        return acc

    def add_up(self, count: Dim):
        """Each thread adds up this many numbers: few need no care. See Note [Sums on devices]."""
        if type(count) is int and count <= FEW:
            for acc in self.sums:
                acc.compensated = False
            self.sums = []

    def items(self, digits: list[tuple[int, Dim]], body: list) -> Loop:
        loop = super().items([], body)
        total = product([n for _, n in digits])
        # there are less than 2^31 blocks; where one serves several items, there may be more of those
        fits = self.items_count is None or (type(total) is int and total < LIMIT)
        loop.digits = self.known.digits(digits, fits)
        return loop

    def flat_loop(self, vector: int, size: Dim, piece: int, digits: list[tuple[int, Dim]], body: list) -> Loop:
        known, counts = self.known, [n for _, n in digits]
        fits = type(size) is int and all(type(n) is not int or n for n in (*counts, size))
        if fits:
            row = ceildiv(size, piece) if digits else size // piece  # without digits, what is left over follows
            total = product([*counts, row])
            fits = total * piece < LIMIT  # a symbolic size leaves a guard
        if fits:
            whole = (known.number("row", row), known.number("row inverse", inverse(row))) if digits else (-1, -1)
            self.flat = (*whole, known.number("pieces", total))
        end = known.size("limit", size) if fits else self.e.dim(size)
        return Loop(vector, self.e.dim(0), end, body, "flat", piece, known.digits(digits, fits))

    def piece(self, vector: int, size: Dim, roots: list[Expr], most: int = 8, rows: bool = True) -> int:
        """Neighbouring elements that one thread takes: as many of the smallest kind as 16 bytes hold, fewer where the code is long,
        sizes are odd, or others would take more than two words."""
        sizes = [b.dtype.itemsize for b, form in self.accesses() if is_one(form.terms.get(vector, 0))]
        if not sizes:
            return 1
        piece = min(max(16 // min(sizes), 1), max(32 // max(sizes), 1), most)
        cost = self.costs(roots)[1]
        if cost > 150:
            piece = min(piece, 4)
        if cost > 600:
            piece = min(piece, 2)
        if cost > 2000:
            piece = 1
        while rows and piece > 1 and not self.keeps_alignment(vector, piece):
            piece //= 2
        return max(piece, 1)

    def costs(self, roots: list[Expr]) -> tuple[float, float]:
        """Of what is computed once per thread, and of what is computed for every element."""
        varies: dict[int, bool] = {}
        for x in topological(roots):
            if x.op == "linear":
                varies[x.id] = bool(self.e.linears[x.attr].terms)
            else:
                varies[x.id] = x.op == "var" or any(varies[y.id] for y in x.args)
        once = [x for x in topological(roots) if not varies[x.id]]
        fixed = expression_cost(once)
        return fixed, expression_cost(roots) - fixed

    def keeps_alignment(self, vector: int, piece: int) -> bool:
        """Whether rows start at multiples of a piece, at concrete sizes."""
        for _, form in self.accesses():
            if is_one(form.terms.get(vector, 0)):
                others = [c for a, c in form.terms.items() if type(a) is not int or a != vector]
                if any(hint(c) % piece for c in [form.const, *others]):
                    return False
        return True

    def accesses(self) -> list[tuple[Buffer, Linear]]:
        """(buffer, form) of every plain load and every store."""
        return [(self.e.buffers[load.attr], form) for load, form in self.e.loads if load.attr >= 0] + self.stored

    def store(self, target: Buffer, index, value: Expr) -> Store:
        self.stored.append((target, self.e.forms.dot(index, target.strides)))
        return super().store(target, index, value)


def _is_aligned(buffer: Buffer) -> bool:
    """Whether memory starts at a multiple of 16 bytes: what programs take does, what they are given need not."""
    while buffer.kind == "view":
        if type(buffer.offset) is not int or buffer.offset * buffer.dtype.itemsize % WIDEST:
            return False
        buffer = buffer.base
    return buffer.kind == "alloc"


# -- one iteration space


def elementwise(fusion: Fusion, group: Group) -> KernelStep:
    return one_space(fusion, group, CudaNest, _loops)


def copy(fusion: Fusion, source: Buffer, target: Buffer, node) -> KernelStep:
    return copy_by(fusion, source, target, node, CudaNest, _loops)


def _loops(nest: CudaNest, before: list, body: list, after: list, partials: list, roots: list) -> KernelStep:
    order = nest.merge(nest.order)
    across = None if partials else transposed_loads(nest, order)
    if across is not None and hint(nest.sizes[across[0]]) >= 8 and hint(nest.sizes[order[-1]]) >= 8:
        return _tiles(nest, order, *across, body, roots)
    if not order:  # a single element: a loop of one
        axis = 0
        nest.sizes[axis] = 1
        order = [axis]
    vector = order[-1]
    size = nest.sizes[vector]
    piece = nest.piece(vector, size, roots, rows=len(order) > 1)
    digits = [(v, nest.sizes[v]) for v in order[:-1]]
    pieces = product([n for _, n in digits]) * ceildiv(size, piece)
    extent = ceildiv(pieces, THREADS)
    nest.once = not partials
    if nest.costs(roots)[0] > SETUP:
        extent = minimum(extent, nest.fusion.target.costs.setup_blocks)
        nest.once = False
    if partials:
        extent = minimum(maximum(ceildiv(extent, 4), 1), PARTS)
        _store_partials(nest, partials, extent, after)
        nest.add_up(ceildiv(pieces, extent * THREADS) * piece)
    loop = nest.flat_loop(vector, size, piece, digits, body)
    return nest.step([*before, loop, *after], [ITEM, *[v for v, _ in digits], vector], extent, 1, roots)


def _tiles(nest: CudaNest, order, axis: int, loads, body, roots) -> KernelStep:
    """Square tiles over the innermost loop and `axis`: loads that run along `axis` are turned in shared memory first."""
    e, b, forms = nest.e, nest.e.b, nest.e.forms
    nest.threads, nest.team = (TILE, TEAM), True
    vector, width, pitch = order[-1], TILE, TILE + 1
    others = [v for v in order[:-1] if v != axis]
    starts = {axis: e.var(CELL) * width, vector: e.var(CHUNK) * width}
    stops = {v: b.min(start + width, nest.known.size("tile", nest.sizes[v])) for v, start in starts.items()}
    replace, turns = {}, []
    here = e.linear(forms.make(0, {axis: pitch, vector: 1, CELL: -width * pitch, CHUNK: -width}))
    for load, form in loads[:8]:  # shared memory is limited
        terms = {a: c for a, c in form.terms.items() if a not in (axis, vector)}
        terms[CELL] = width
        terms[CHUNK] = form.terms[vector] * width
        first = e.linear(forms.make(form.const, terms))
        local = e.local(load.dtype, width * pitch)
        rows, columns = stops[axis] - starts[axis], stops[vector] - starts[vector]
        stride = nest.known.size(vector, form.terms[vector], SMALL_STRIDE)
        turns.append(Transpose(local, load.attr, first, stride, rows, columns, width))
        replace[load.id] = b.make("load", (here,), load.dtype, local)
    for s, value in zip(body, substitute(b, [s.value for s in body], replace)):
        s.value = value
    digits = [(v, nest.sizes[v]) for v in others]
    digits += [(CELL, ceildiv(nest.sizes[axis], width)), (CHUNK, ceildiv(nest.sizes[vector], width))]
    extent = product([n for _, n in digits])
    inner = Loop(vector, starts[vector], stops[vector], body, "lanes", 1)
    inside = Loop(axis, starts[axis], stops[axis], [inner], "team")
    items = nest.items(digits, [*turns, inside])
    return nest.step([items], [ITEM, *[v for v, _ in digits], axis, vector], extent, 1, roots)


# -- rows


def rows(fusion: Fusion, group: Group) -> KernelStep:
    if group.parts_of is not None:
        first = group.members[0].partial_of
        group.domain = (first.parts.shape[0], *group.domain[1:])
    nest = CudaNest(fusion, group)
    plan, roots = row_passes(nest, group)
    everything = [r for level in roots for r in level]
    reduced = [a for a in group.order if a in group.reduced and a != group.unit]
    reduced += [group.unit] if group.unit in group.reduced else []
    if any(is_positional(m) for m in group.members):
        reduced.sort()
    kept = nest.merge([a for a in group.order if a not in group.reduced])
    reduced = nest.merge(reduced)
    digits = [(a, nest.sizes[a]) for a in kept]
    extent = product([n for _, n in digits])
    work = product([nest.sizes[a] for a in reduced])
    vector = reduced[-1]
    piece = nest.piece(vector, nest.sizes[vector], everything, most=8 if hint(nest.sizes[vector]) >= 512 else 4)
    if nest.across:
        return _rows_and_sums(nest, plan, digits, reduced[0], piece, everything)
    if hint(work) <= WARP_ROW and hint(extent) > 1:
        nest.threads = (32, TEAM)
        nest.items_count = extent
        blocks = ceildiv(extent, TEAM)
    else:
        nest.threads = (LONG_THREADS if hint(work) > LONG_ROW else THREADS, 1)
        blocks = extent
    nest.add_up(ceildiv(work, nest.threads[0]))
    nest.kept = _pieces_to_keep(nest, plan, reduced, piece)
    body = []
    for outer, before, inner, after in plan:
        body += outer
        if inner:
            body += [*before, *_across_threads(nest, reduced, inner, piece), *after]
    step = nest.items(digits, body)
    return nest.step([step], [ITEM, *kept, *reduced], blocks, work, everything)


def sums_across(group: Group, reduced: frozenset, dtype: DType) -> bool:
    """Whether the kernel of a group over rows can sum over the axes `reduced` too: all the others, and each thread's share of the
    sums fits in its registers."""
    if group.parts_of is not None or dtype.itemsize > 4:
        return False
    if len(group.reduced) != 1 or reduced | group.reduced != {*range(len(group.domain))}:
        return False
    (axis,) = group.reduced
    size, rows = group.domain[axis], product([group.domain[a] for a in reduced])
    if reduced & group.reduced or type(size) is not int or not 128 <= size <= WARP_ROW or hint(rows) < ACROSS_ROWS:
        return False
    sums = 1 + sum(m.role == "partial" for m in group.members)
    return size % 8 == 0 and sums * -(-size // 256) * 8 <= ACROSS_SUMS


def _rows_and_sums(nest: CudaNest, plan, digits, vector: int, piece: int, roots: list[Expr]) -> KernelStep:
    """Warps take turns with the rows of a chunk; what is summed across rows stays in their registers until the end of it."""
    e, b, forms, known = nest.e, nest.e.b, nest.e.forms, nest.known
    size, extent = nest.sizes[vector], product([n for _, n in digits])
    nest.threads, nest.kept = (32, TEAM), -(-size // (32 * piece))
    turns = ceildiv(extent, nest.fusion.target.costs.across_blocks * TEAM)
    length = maximum(minimum(turns, ACROSS_TURNS), 1) * TEAM
    nest.add_up(ACROSS_TURNS)
    chunks = ceildiv(extent, length)
    first = e.var(CHUNK) * known.size("length", length)
    last = b.min(first + known.size("length", length), known.size("rows", extent))
    body, sums = [], [acc for _, acc in nest.across]
    for outer, before, inner, after in plan:
        body += outer
        if inner:
            body += [*before, *_across_threads(nest, [vector], inner, piece), *after]
    fits = type(extent) is int and extent < LIMIT
    in_turn = Loop(CELL, first, last, body, "rows", digits=known.digits(digits, fits))
    stores = []
    for member, acc in nest.across:
        acc.lanes = nest.kept * piece
        member.parts_order = tuple([a for a, g in member.axis_of.items() if g == vector])
        member.parts = allocate(acc.dtype, (chunks, size))
        result = b.make("scalar", (), acc.dtype, acc.id)
        stores.append(nest.store(member.parts, [forms.atom(CHUNK), forms.atom(vector)], result))
    body = [*map(Declare, sums), in_turn, *map(Finish, sums), *_across_threads(nest, [vector], stores, piece)]
    order = [ITEM, CHUNK, CELL, *[a for a, _ in digits], vector]
    return nest.step([nest.items([(CHUNK, chunks)], body)], order, chunks, 1, roots)


def _pieces_to_keep(nest: CudaNest, plan: list, reduced: list[int], piece: int) -> int:
    """How many pieces of a row a thread holds, if registers have room for them and there is more than one pass."""
    if len(reduced) != 1 or sum(1 for _, _, inner, _ in plan if inner) < 2:
        return 0
    vector = reduced[0]
    size = nest.sizes[vector]
    once = nest.threads[0] * piece
    pieces = -(-hint(size) // once)
    rows = {load.attr: load.dtype.itemsize for load, form in nest.e.loads if is_one(form.terms.get(vector, 0))}
    words = pieces * piece * sum(rows.values()) / 4
    if pieces < 1 or words > 64 or nest.threads[0] > THREADS:
        return 0
    return pieces if size <= pieces * once else 0  # a symbolic size leaves a guard


def _across_threads(nest: CudaNest, order: list[int], body: list, piece: int) -> list:
    zero = nest.e.dim(0)
    inner = Loop(order[-1], zero, nest.e.dim(nest.sizes[order[-1]]), body, "vector", piece)
    for v in reversed(order[:-1]):
        inner = Loop(v, zero, nest.e.dim(nest.sizes[v]), [inner])
    return [inner]


# -- columns


def shares(vectors: int) -> tuple[int, int]:
    """(lanes, rows) of a block whose lanes share so many vectors of columns evenly; the rows are a power of two."""
    lanes = -(-vectors // -(-vectors // 32))
    rows = 1
    while 2 * rows * lanes <= 3 * THREADS // 2:
        rows *= 2
    return lanes, rows


def _shares_of(size: Dim, piece: int) -> tuple[int, int]:
    """The same for columns of a size; one that is not known leaves a guard, so that a plan serves sizes that want the same."""
    if type(size) is int:
        return shares(-(-max(size, 1) // piece))
    lanes = next((n for n in (4, 8, 16) if size <= n * piece), 32)
    return lanes, THREADS // lanes


def columns(fusion: Fusion, group: Group) -> KernelStep:
    if group.parts_of is not None:
        first = group.members[0].partial_of
        group.domain = (first.parts.shape[0], *group.domain[1:])
        group.order = (0, *[group.members[0].axis_of[a] for a in first.parts_order])
        group.unit = group.order[-1]
    return _Columns(fusion, group).step()


class _Columns:
    """Threads along x own columns, threads along y take turns with rows; the rows are cut in chunks if blocks are too few."""

    def __init__(self, fusion: Fusion, group: Group):
        self.group = group
        self.nest = nest = CudaNest(fusion, group)
        nest.team = True
        self.e, self.b, self.forms = nest.e, nest.e.b, nest.e.forms
        self.reductions, self.reduced, self.kept, self.vector, self.row = columns_rows(group)

    def step(self) -> KernelStep:
        nest, e, b = self.nest, self.e, self.b
        before, main, after = [], [], []
        roots: list[Expr] = []
        accumulators: list[tuple[Compute, Accumulator, Expr]] = []
        for member in self.reductions:
            x, position = nest.operand(member)
            acc = nest.accumulator(member, x.dtype)
            before.append(Declare(acc))
            main.append(Accumulate(acc, x, position))
            after.append(Finish(acc))
            roots.append(x)
            accumulators.append((member, acc, position))
        for member in self.group.members:
            if member.role == "full" and (member.stored or member.targets):
                value = nest.value(member)
                main.extend(nest.stores(member, value))
                roots.append(value)
        finish = self._finish(accumulators, roots)
        kept, reduced = nest.merge(self.kept), nest.merge(self.reduced)
        size, n_rows = nest.sizes[self.vector], nest.sizes[reduced[0]]
        piece = nest.piece(self.vector, size, roots)
        while piece > 1 and piece * (len(accumulators) + len(nest.sums)) > 32:
            piece //= 2
        if (
            self.group.parts_of is not None
        ):  # what combines chunks has few columns: as many threads for each as there are chunks
            piece, rows = 1, 1
            while rows < min(hint(n_rows), 64):
                rows *= 2
            lanes = max(8, min(32, THREADS // rows))
        else:
            lanes, rows = _shares_of(size, piece)
        nest.threads = (lanes, rows)
        for _, acc, _ in accumulators:
            acc.lanes = piece
        width = lanes * piece
        digits = [(a, nest.sizes[a]) for a in kept[:-1]] + [(CELL, ceildiv(size, width))]
        known = nest.known
        first_row, last_row = e.dim(0), known.size("rows", n_rows)
        if self.group.split:
            most = maximum(nest.fusion.target.costs.chunk_blocks // maximum(product([n for _, n in digits]), 1), 1)
            inner = max(hint(product([nest.sizes[v] for v in reduced[1:]])), 1)  # rows for each of those that are cut
            length = maximum(max(CHUNK_ROWS // inner, 1), ceildiv(n_rows, most))
            chunks = ceildiv(n_rows, length)
            digits = [(CHUNK, chunks), *digits]
            first_row = e.var(CHUNK) * known.size("length", length)
            last_row = b.min(first_row + known.size("length", length), last_row)
            for member, _, _ in accumulators:
                member.parts.shape = (chunks, *member.parts.shape[1:])
        else:
            length = n_rows
        shared = self.row_of(reduced)
        lengths = {v: nest.sizes[v] for v in reduced} | {reduced[0]: length}
        nest.add_up(product([ceildiv(n, rows) if v == shared else n for v, n in lengths.items()]))
        start = e.var(CELL) * width
        stop = b.min(start + width, known.size("columns", size))
        ends = {v: (e.dim(0), e.dim(nest.sizes[v])) for v in reduced}
        if self.group.split or reduced[0] == self.row_of(reduced):
            ends[reduced[0]] = first_row, last_row
        stream = [Loop(self.vector, start, stop, main, "lanes", piece)]
        for v in reversed(reduced):
            stream = [Loop(v, *ends[v], stream, "team" if v == self.row_of(reduced) else "serial")]
        body = [*before, *stream, *after, Loop(self.vector, start, stop, finish, "lanes", piece)]
        order = [ITEM, *[v for v, _ in digits], *reduced, self.vector]
        extent = product([n for _, n in digits])
        return nest.step([nest.items(digits, body)], order, extent, 1, roots)

    def row_of(self, reduced: list[int]) -> int:
        """The loop that threads share: the longest."""
        return max(reduced, key=lambda v: hint(self.nest.sizes[v]))

    def _finish(self, accumulators, roots: list[Expr]) -> list:
        nest, forms, b = self.nest, self.forms, self.b
        stores: list = []
        for member, acc, _ in accumulators:
            result = b.make("scalar", (), acc.result, acc.id)
            if not self.group.split:
                result = nest.e.given[member.value] = nest.result(member, acc)
                if member.stored:
                    stores.extend(nest.stores(member, result))
                continue
            own_axis = {g: a for a, g in member.axis_of.items()}
            member.parts_order = tuple([own_axis[a] for a in self.kept])
            sizes = [self.group.domain[a] for a in self.kept]
            member.parts = allocate(acc.dtype, (1, *sizes))  # the number of chunks is known once loops are merged
            stores.append(nest.store(member.parts, [forms.atom(a) for a in (CHUNK, *self.kept)], result))
        for member in self.group.members:
            if member.role == "kept" and (member.stored or member.targets):
                value = nest.value(member)
                stores.extend(nest.stores(member, value))
                roots.append(value)
        return stores
