"""What all kernels under construction share: indices, stores, loops, and merging of loops."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, is_one, is_zero, same
from tandem.codegen.computes import Compute, Group
from tandem.codegen.emit import Emitter, reduce_operand
from tandem.codegen.expr import Expr, compute_dtype
from tandem.codegen.fuse import Fusion
from tandem.codegen.index import Linear, exact
from tandem.codegen.loops import Accumulate, Accumulator, Flush, Kernel, Loop, Store, expression_cost
from tandem.codegen.schedule import KernelStep
from tandem.graph.symbolic import Dim, ceildiv, maximum
from tandem.ops.reduce import Reduce

INNER = 8192  # longest innermost loop of one item where there are outer loops too
FIRST_SPLIT = 100  # loops that an axis was split in are numbered from here
ITEM, CELL, CHUNK, LANE = 1000, 1001, 1002, 1003  # loop variables besides the axes 0, 1, ... of the group
FIRST_BLOCK = 2000  # and those that count blocks of these axes
# Note [Sums in blocks]
# A running float32 sum of n numbers is off by up to n roundings of its last digit. Sums are therefore taken in short blocks, and
# those are added up in float64: the error of a long sum is that of a block, whatever its axes and layout, and next to nothing is
# done in float64. Sums of integers of up to 16 bits, and of bits, are int64: their blocks are int32, twice as many to a vector.
# Blocks depend on the kernel only, never on threads. The result is rounded once, at the end.
SUM_ROUNDS = 16  # numbers that a block adds up in each lane, where a vector has
SUM_LANES = 16  # so many lanes; with fewer they are more
NANOSECONDS = 0.06  # of one cost unit, vectorised
LOAD_COST = 2.0


class Nest:
    """A kernel under construction."""

    def __init__(self, fusion: Fusion, group: Group, splits: list[tuple] = ()):
        self.fusion = fusion
        self.group = group
        self.sizes: dict[int, Dim] = dict(enumerate(group.domain))
        inside = {m.value for m in group.members if m.role in ("full", "kept")}
        self.e = Emitter(fusion.resolve, fusion.shape_of, fusion.buffer_of, inside, self.sizes)
        self.e.rounds = not fusion.target.renders_philox
        self.e.b.approximates = fusion.target.approximates
        self.order = list(group.order)
        self.split_loops: list[tuple[int, int, int]] = []  # (loop, outer loop, inner loop)
        for axis, outer, inner in splits:
            self._split(axis, outer, inner)
        self.accs = 0
        self.own_forms: set[int] = set()  # forms over merged loops, made after merging
        self.writes: list[Buffer] = []
        # Sums across the rows of a kernel that makes passes over them.
        self.across: list[tuple[Compute, Accumulator]] = []

    # -- axes

    def _split(self, axis: int, outer: Dim, inner: Dim):
        """Runs through an axis of size outer * inner in two loops."""
        forms, high = self.e.forms, FIRST_SPLIT + len(self.sizes)
        low = high + 1
        self.sizes[high], self.sizes[low] = outer, inner
        self.split_loops.append((axis, high, low))
        at = self.order.index(axis)
        self.order[at : at + 1] = [high, low]
        form = forms.make(0, {high: inner, low: 1})
        forms.axes = {a: forms.replace(f, axis, form) for a, f in forms.axes.items()}
        if axis < FIRST_SPLIT:
            forms.axes[axis] = form

    def find_split(self) -> tuple | None:
        """(axis, outer, inner) of a loop whose counter some index divides by `inner`; in two loops it need not be divided."""
        used = {a for f in self.e.linears for a in f.terms if type(a) is not int}
        for atom, (_, form, divisor, _) in self.e.forms.quotients.items():
            if atom in used and len(form.terms) == 1 and is_zero(form.const):
                ((axis, coefficient),) = form.terms.items()
                if type(axis) is int and is_one(coefficient) and axis in self.order:
                    outer = exact(self.sizes[axis], divisor)
                    if outer is not None:
                        return axis, outer, divisor
        return None

    # -- indices

    def index(self, compute: Compute, value) -> tuple:
        """The index of `value` (of compute's own rank) in terms of the group's loops."""
        forms = self.e.forms
        shape = self.fusion.shape_of(value)
        return tuple([forms.zero if is_one(n) else forms.axis(compute.axis_of[a]) for a, n in enumerate(shape)])

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
            index = [e.forms.axis(0)]
            for axis in compute.partial_of.parts_order:
                index.append(e.forms.axis(compute.axis_of[axis]))
            e.nodes[compute.node] = None
            return e.load(parts, index, None), None
        node = compute.node
        source, op = node.inputs[0], node.op
        shape = self.fusion.shape_of(source)
        x = e.emit(source, self.index(compute, source))
        e.nodes[node] = None
        if op.kind not in ("argmax", "argmin"):
            if adds_floats(op.kind, x.dtype) and compute.value.dtype is dtypes.float64:
                return x, None  # only the total is in float64
            if self.adds_small(compute, x):
                return e.b.cast(x, dtypes.int32), None
            return reduce_operand(e.b, op, x, compute.value), None
        flat, step = e.forms.zero, 1
        for axis in reversed(range(len(shape))):
            if axis in compute.reduced:
                flat = e.forms.add(flat, e.forms.scale(e.forms.axis(compute.axis_of[axis]), step))
                step = step * shape[axis]
        return x, e.linear(flat)

    def adds_small(self, compute: Compute, x: Expr) -> bool:
        """Whether x is a small integer of which many are added up: blocks of them are int32."""
        adds = (
            compute.node.op.kind == "sum" and compute.value.dtype is dtypes.int64 and self.fusion.target.sums_in_blocks
        )
        return adds and x.dtype.kind in ("bool", "int", "uint") and x.dtype.itemsize <= 2

    def accumulator(self, compute: Compute, dtype) -> Accumulator:
        self.accs += 1
        kind = compute.node.op.kind
        adds = adds_floats(kind, dtype) or adds_small(kind, dtype, compute.value.dtype)
        blocked = self.fusion.target.sums_in_blocks and adds
        return Accumulator(self.accs - 1, kind, dtype, blocked=blocked)

    def result(self, compute: Compute, acc: Accumulator) -> Expr:
        """What an accumulator has after Finish, in the type that kernels compute the value in."""
        scalar = self.e.b.make("scalar", (), acc.result, acc.id)
        return self.e.b.cast(scalar, compute_dtype(compute.value.dtype))

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
        """Serial loops around an innermost vector loop; in blocks, if something is summed. See Note [Sums in blocks]."""
        if not order:
            return body
        sums = [s.acc for s in body if type(s) is Accumulate and s.acc.blocked]
        blocks, ends = self.blocks(order, SUM_LANES * unroll) if sums else ([], {})
        around = lambda v: ends.get(v) or (self.e.dim(0), self.e.dim(self.sizes[v]))
        inner = Loop(order[-1], *around(order[-1]), body, "vector", unroll)
        for v in reversed(order[:-1]):
            inner = Loop(v, *around(v), [inner])
        made = [inner]
        if blocks:
            made += map(Flush, sums)
        for counter, count in reversed(blocks):
            made = [Loop(counter, self.e.dim(0), self.e.dim(count), made)]
        return made

    def blocks(self, order: list[int], round: int) -> tuple[list, dict]:
        """Loops that count blocks in the order of memory, [(variable, count)], and where each of the loops begins and ends in a
        block. round: elements that the innermost loop takes in at once."""
        e, counters, ends = self.e, [], {}
        step, rounds = SUM_ROUNDS * round, ceildiv(self.sizes[order[-1]], round)
        for v in reversed(order):
            size = self.sizes[v]
            if v != order[-1]:
                step, rounds = maximum(1, SUM_ROUNDS // maximum(1, rounds)), rounds * size
            if type(size) is int and type(step) is int and size <= step:
                continue
            counter = FIRST_BLOCK + v
            start = e.var(counter) * e.dim(step)
            counters.insert(0, (counter, ceildiv(size, step)))
            ends[v] = start, e.b.min(start + e.dim(step), e.dim(size))
        return counters, ends

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
        name = node.op.kind if isinstance(node.op, Reduce) else node.op.name
        if name not in names and name not in ("constant", "expand", "reshape", "permute"):
            names.append(name)
    if not names:
        return "copy"
    return names[0] if len(names) == 1 else "fused_" + "_".join(names[:6])


def adds_floats(kind: str, dtype) -> bool:
    return kind == "sum" and dtype in (dtypes.float32, dtypes.float64)


def adds_small(kind: str, dtype, total) -> bool:
    """Whether a sum of small integers has blocks of int32. See Note [Sums in blocks]."""
    return kind == "sum" and dtype is dtypes.int32 and total is dtypes.int64


def is_positional(compute: Compute) -> bool:
    return isinstance(compute.node.op, Reduce) and compute.node.op.kind in ("argmax", "argmin")


def unroll_for(cost: float, statements: list) -> int:
    """Vectors per round of a loop. More accumulators hide the latency of adding, at the price of code to compile."""
    kinds = {s.acc.kind for s in statements if type(s) is Accumulate}
    if kinds & {"argmax", "argmin"}:
        return 1
    if kinds:
        cheap = cost < 8 and len(statements) == 1 and kinds <= {"sum", "prod", "max", "min"}
        return 1 if cost >= 30 else 4 if cheap else 2
    return 2 if cost < 12 else 1
