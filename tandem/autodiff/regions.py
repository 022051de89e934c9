"""Gradients of regions, which are regions again, so that any order works.

Note [Gradients of regions]
The gradient of a graph inside a region needs values that the graph computed. The forward region is made to hand them out: it gets
more outputs, in place, while the graph around it is being built (`_hand_out`), one for each result of a reduction or library call
that the gradient reads, and for each carried value. Elementwise results are computed again, as everywhere (Note [Saving]), but for
those that stand for a costly one in a Scan (`_as_late_as_possible`): tanh(c @ w + x) hands out the tanh, not the product, and an
LSTM its gates.

Cond    a Cond of the branches' gradients. What a branch hands out exists only if that branch ran.
Scan    a Scan in the other direction over what each iteration handed out. Gradients of constants are sums over all iterations:
        sums of products are made after the loop as one large product over stacked operands, others are carried along.
While   a Block as long as the loop was, in which the loop runs again as a Scan and its gradient after it.
Block   a Block of the body and its gradient.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.autodiff.partition import _boundary, _choose, _reached_from
from tandem.autodiff.reverse import _depends_on, backpropagate
from tandem.graph.ir import Builder, Graph, Node, Type, Value, current_builder, revise
from tandem.graph.substitution import local_symbol
from tandem.graph.symbolic import hint, product
from tandem.ops.arithmetic import Add
from tandem.ops.define import Elementwise, add_input
from tandem.ops.matmul import Matmul
from tandem.ops.movement import Permute, Reshape
from tandem.ops.reduce import Reduce
from tandem.ops.region import Block, Cond, Scan, While, copy_nodes, region_graph

_INDEX = Type(dtypes.int64, ())


class _Joint:
    """A region's graph with its gradient appended: `results` are gradients of the inputs `wanted`, given those of some outputs."""

    def __init__(self, graph: Graph, outputs: list[int], wanted: list[int]):
        self.graph = joint = Graph(graph.symbols, graph.name)
        self.wanted = wanted
        made: dict[Value, Value] = {}
        with Builder(joint) as builder:
            for v in graph.inputs:
                made[v] = add_input(builder, v.type)
            copy_nodes(graph.nodes, made)
            self.forward = list(joint.nodes)
            self.outputs = [None if v is None else made[v] for v in graph.outputs]
            given = [self.outputs[k] for k in outputs]
            self.incoming = [
                builder.add(F.Incoming(k, v.type), ()).outputs[0] for k, v in zip(outputs, given, strict=True)
            ]
            self.results = backpropagate(self.forward, given, self.incoming, [joint.inputs[i] for i in wanted])

    def needs(self) -> list[Value]:
        """Inputs and costly results of the forward part that the gradient is computed from."""
        needed = _boundary(self.results, _reached_from(self.graph.nodes, self.incoming))
        return _choose(needed, set(self.graph.inputs), set(self.forward))

    def forward_graph(self, more: list[Value | None]) -> Graph:
        """The region's graph with more outputs."""
        result = Graph(self.graph.symbols, self.graph.name)
        result.nodes, result.inputs = list(self.forward), list(self.graph.inputs)
        result.outputs = [*self.outputs, *more]
        return result

    def compute(self, results: list[Value | None], made: dict[Value, Value]) -> list[Value | None]:
        """results in the graph being built, from the values that `made` has."""
        found: set[Node] = set()
        stack = [v for v in results if v is not None]
        while stack:
            value = stack.pop()
            if value not in made and value.node not in found:
                found.add(value.node)
                stack.extend(value.node.inputs)
        copy_nodes([n for n in self.graph.nodes if n in found], made)
        return [None if v is None else made[v] for v in results]


def _hand_out(node: Node, op, count: int):
    """Gives a region an operator that has more outputs; the values of those it had stay what they are."""
    types = op.infer(*[v.type for v in node.inputs])
    revise(node, "op", op)
    first = len(node.outputs)
    more = tuple(Value(node, first + i, t) for i, t in enumerate(types[first : first + count]))
    revise(node, "outputs", node.outputs + more)


def _wanted(wanted: list[bool], inputs, start: int = 0) -> list[int]:
    return [i for i, (w, v) in enumerate(zip(wanted, inputs, strict=True)) if i >= start and w and v.dtype.is_inexact]


def region_grad(node: Node, grads: list[Value | None], wanted: list[bool]) -> list[Value | None]:
    """Gradients of a region's inputs, of those that are wanted; None among `grads` where none arrived."""
    return _RULES[type(node.op)](node.op, grads, node.inputs, node, wanted)


def cond_grad(op: Cond, grads, inputs, node: Node, wanted) -> list[Value | None]:
    index, *args = inputs
    wanted = [i - 1 for i in _wanted(wanted, inputs, 1)]
    given = [k for k, g in enumerate(grads) if g is not None]
    joints, kept = [], []
    for branch in op.branches:
        joints.append(_Joint(branch, [k for k in given if branch.outputs[k] is not None], wanted))
        inside = set(joints[-1].graph.inputs)
        kept.append([v for v in joints[-1].needs() if v not in inside])
    total = sum(map(len, kept))
    branches, before = [], 0
    for joint, own in zip(joints, kept, strict=True):
        branches.append(joint.forward_graph([None] * before + own + [None] * (total - before - len(own))))
        before += len(own)
    first = len(node.outputs)
    _hand_out(node, Cond(tuple(branches)), total)
    residuals = list(node.outputs[first:])
    operands = [*(grads[k] for k in given), *args, *residuals]
    backward, before = [], 0
    for joint, own in zip(joints, kept, strict=True):
        backward.append(region_graph(op.branches[0].symbols, f"{joint.graph.name}_grad", [v.type for v in operands],
                                     _branch(joint, own, given, len(args), before)))  # fmt: skip
        before += len(own)
    results = Cond(tuple(backward))(index, *operands) if wanted else ()
    results = (results,) if isinstance(results, Value) else results
    made = dict(zip(wanted, results, strict=True))
    return [None, *(made.get(i) for i in range(len(args)))]


def _branch(joint: _Joint, own: list[Value], given: list[int], args: int, before: int):
    def fn(*values):
        incoming = dict(zip(given, values, strict=False))
        made = {v: incoming[v.op.position] for v in joint.incoming}
        made.update(zip(joint.graph.inputs, values[len(given) :], strict=False))
        made.update(zip(own, values[len(given) + args + before :], strict=False))
        results = joint.compute(joint.results, made)
        targets = [joint.graph.inputs[i] for i in joint.wanted]
        return [F.zeros_like(v) if r is None else r for r, v in zip(results, targets, strict=True)]

    return fn


def scan_grad(op: Scan, grads, inputs, node: Node, wanted) -> list[Value | None]:
    carried, scanned = op.carried, op.scanned
    body = op.body
    asked = _wanted(wanted, inputs)
    active = set(
        asked
    )  # inputs that gradients are computed for: those asked for, and carried values that depend on them
    while True:
        depends = _depends_on(body.nodes, [body.inputs[i] for i in active])
        more = {i for i in range(carried) if body.outputs[i] in depends} - active
        if not more:
            break
        active |= more
    carries = [i for i in range(carried) if i in active]
    given = [*carries, *(k for k in range(carried, len(grads)) if grads[k] is not None and body.outputs[k] in depends)]
    if not any(g is not None for g in grads) or not given:
        return [None] * len(inputs)
    joint = _Joint(body, given, sorted(active))
    gradient = dict(zip(sorted(active), joint.results, strict=True))
    rows = joint.graph.inputs[carried : carried + scanned]
    consts = joint.graph.inputs[carried + scanned :]  # and the position
    sums = [i for i in sorted(active) if i >= carried + scanned and gradient[i] is not None]
    parts = {i: _Sum(gradient[i]) for i in sums}
    after = _reached_from(joint.graph.nodes, joint.incoming) | {v.node for v in joint.incoming}
    outside = dict.fromkeys(v for p in parts.values() for v in p.stacked)
    kept = set(joint.forward) - {v.node for v in consts}  # whose results the forward loop can hand out

    # what the forward loop hands out, and what of that is there already
    emitted = [v for v in outside if v.node not in kept]
    needed = [v for v in _needs_of(joint, gradient, parts, after, emitted) if v not in consts and v not in rows]
    stacks = {v: node.outputs[carried + k] for k, v in enumerate(joint.outputs[carried:])}
    fresh = [v for v in needed if v not in stacks]
    first = len(node.outputs)
    if fresh:
        _hand_out(node, Scan(joint.forward_graph(fresh), carried, scanned, op.length, op.reverse), len(fresh))
    stacks.update(zip(fresh, node.outputs[first:], strict=True))
    stacks.update(zip(rows, inputs[carried : carried + scanned], strict=True))
    stacks.update((v, grads[k]) for v, k in zip(joint.incoming, given, strict=True) if k >= carried)

    # the loop back
    loops = [i for i in sums if parts[i].rest]
    rests = [(n, v) for n, i in enumerate(loops) for v in parts[i].rest]
    start = [grads[i] if grads[i] is not None else F.zeros_like(inputs[i]) for i in carries]
    start += [F.zeros_like(inputs[i]) for i in loops]
    arriving = [k for k in given if k >= carried]
    read = list(dict.fromkeys([*needed, *rows]))
    xs = [*(grads[k] for k in arriving), *(stacks[v] for v in read)]
    made_rows = dict.fromkeys(
        gradient[i] for i in sorted(active) if carried <= i < carried + scanned and gradient[i] is not None
    )
    made_rows.update(dict.fromkeys(emitted))
    made_rows = [v for v in made_rows if v not in stacks]

    def backward(*values):
        at = iter(values)
        made = {v: next(at) for v, k in zip(joint.incoming, given, strict=True) if k < carried}
        totals = [next(at) for _ in loops]
        made.update((v, next(at)) for v, k in zip(joint.incoming, given, strict=True) if k >= carried)
        made.update((v, next(at)) for v in read)
        made.update((v, next(at)) for v in consts)
        results = joint.compute([gradient[i] for i in carries] + [v for _, v in rests] + made_rows, made)
        back = [F.zeros_like(joint.graph.inputs[i]) if r is None else r for i, r in zip(carries, results, strict=False)]
        for (n, _), r in zip(rests, results[len(carries) :], strict=False):
            totals[n] = F.add(totals[n], r)
        return [*back, *totals, *results[len(carries) + len(rests) :]]

    operands = [*start, *xs, *inputs[carried + scanned :]]
    types = [*(v.type for v in start), *(Type(v.dtype, v.shape[1:]) for v in xs),
             *(v.type for v in inputs[carried + scanned :]), _INDEX]  # fmt: skip
    graph = region_graph(body.symbols, f"{body.name}_grad", types, backward)
    results = Scan(graph, len(start), len(xs), op.length, not op.reverse)(*operands) if graph.outputs else ()
    results = (results,) if isinstance(results, Value) else results
    stacks.update(zip(made_rows, results[len(start) :], strict=True))

    # sums over all iterations at once
    final: dict[int, Value] = dict(zip(carries, results, strict=False))
    looped = dict(zip(loops, results[len(carries) : len(start)], strict=True))
    for i in sums:
        totals = [term.total(stacks, op.length) for term in parts[i].terms]
        if i in looped:
            totals.append(looped[i])
        total = totals[0]
        for more in totals[1:]:
            total = F.add(total, more)
        final[i] = total
    for i in asked:
        if carried <= i < carried + scanned and gradient[i] is not None:
            final[i] = stacks[gradient[i]]
    return [final.get(i) if i in asked else None for i in range(len(inputs))]


def _needs_of(joint: _Joint, gradient, parts, after, emitted) -> list[Value]:
    """What the loop back and the sums after it read of the forward loop."""
    results = [
        *(g for i, g in gradient.items() if i not in parts),
        *(v for p in parts.values() for v in p.rest),
        *emitted,
    ]
    boundary = _boundary(results, after)
    found = _choose(boundary, set(joint.graph.inputs), set(joint.forward))
    found = _as_late_as_possible(found, boundary, joint)
    stacked = [v for p in parts.values() for v in p.stacked]
    return list(dict.fromkeys([*found, *(v for v in stacked if v not in emitted)]))


def _as_late_as_possible(found: list[Value], boundary: list[Value], joint: _Joint) -> list[Value]:
    """What to keep instead of `found`, so that there is less to compute again: the gates of an LSTM rather than the product that
    they are made of, where nothing else is computed from it and they are as large."""
    inputs, forward = set(joint.graph.inputs), set(joint.forward)
    users: dict[Value, list[Node]] = {}
    for node in _between(boundary, set(found)):
        for v in dict.fromkeys(node.inputs):
            users.setdefault(v, []).append(node)
    as_such = set(boundary)

    def later(value: Value) -> list[Value]:
        nodes = users.get(value, ())
        if value in as_such or value in inputs or not nodes or any(node not in forward for node in nodes):
            return [value]
        if len(nodes) == 1 and isinstance(nodes[0].op, Elementwise) and nodes[0].outputs[0].type == value.type:
            return later(nodes[0].outputs[0])
        parts = [node.outputs[0] for node in nodes]
        if all(isinstance(node.op, F.Slice) for node in nodes) and sum(hint(product(v.shape)) for v in parts) <= hint(
            product(value.shape)
        ):
            made = [later(part) for part in parts]
            if all(len(m) == 1 and isinstance(m[0].op, Elementwise) for m in made):
                return [v for m in made for v in m]
        return [value]

    late = [v for value in found for v in later(value)]
    read = as_such | {v for node in _between(boundary, set(late)) for v in node.inputs}
    return [v for v in dict.fromkeys(late) if v in read]


def _between(results: list[Value], known: set[Value]) -> list[Node]:
    """Nodes that compute the results from the known values."""
    found: dict[Node, None] = {}
    stack = [v for v in results if v not in known]
    while stack:
        node = stack.pop().node
        if node not in found:
            found[node] = None
            stack.extend(v for v in node.inputs if v not in known)
    return list(found)


class _Sum:
    """A gradient that is added up over iterations: terms that can be computed for all of them together, and the rest."""

    def __init__(self, value: Value):
        self.terms: list = []
        self.rest: list[Value] = []
        for addend in _addends(value):
            term = _Product.of(addend) or _Rows.of(addend)
            if term is not None:
                self.terms.append(term)
            else:
                self.rest.append(addend)
        self.stacked = [v for term in self.terms for v in term.stacked]


def _addends(value: Value) -> list[Value]:
    if isinstance(value.op, Add) and all(v.shape == value.shape for v in value.node.inputs):
        return [a for v in value.node.inputs for a in _addends(v)]
    return [value]


def _transposed(value: Value) -> tuple[Value, bool]:
    """What a matrix is the transpose of, and whether it is one: twice transposed it is not."""
    transposed = False
    while isinstance(value.op, Permute) and value.op.axes == (1, 0):
        value, transposed = value.node.inputs[0], not transposed
    return value, transposed


class _Product:
    """sum over t of a_t @ b_t: the product of all a_t side by side and all b_t on top of each other."""

    def __init__(self, a: Value, b: Value, transposed: bool):
        self.transposed = transposed  # the whole product
        self.a, self.a_transposed = _transposed(a)
        self.b, self.b_transposed = _transposed(b)
        self.stacked = [self.a, self.b]

    @staticmethod
    def of(value: Value) -> _Product | None:
        value, transposed = _transposed(value)
        if isinstance(value.op, Matmul) and len(value.node.inputs) == 2 and value.ndim == 2:
            return _Product(*value.node.inputs, transposed)
        return None

    def total(self, stacks, length) -> Value:
        a, b = stacks[self.a], stacks[self.b]
        t, k = length, (self.a.shape[0] if self.a_transposed else self.a.shape[1])
        if self.a_transposed:  # (t, k, m)
            left = F.Permute((1, 0))(F.Reshape((t * k, a.shape[2]))(a))
        else:
            left = F.Reshape((a.shape[1], t * k))(F.Permute((1, 0, 2))(a))
        if self.b_transposed:  # (t, n, k)
            right = F.Permute((1, 0))(F.Reshape((b.shape[1], t * k))(F.Permute((1, 0, 2))(b)))
        else:
            right = F.Reshape((t * k, b.shape[2]))(b)
        total = F.Matmul()(left, right)
        return F.Permute((1, 0))(total) if self.transposed else total


class _Rows:
    """sum over t of sums over axes of a_t, perhaps rearranged: one sum over the stack of all a_t."""

    def __init__(self, source: Value, axes: tuple[int, ...], moves: list):
        self.source, self.axes, self.moves = source, axes, moves
        self.stacked = [source]

    @staticmethod
    def of(value: Value) -> _Rows | None:
        moves = []
        while isinstance(value.op, (Reshape, Permute)):
            moves.append(value.op)
            value = value.node.inputs[0]
        if not isinstance(value.op, Reduce) or value.op.kind != "sum":
            return None
        return _Rows(value.node.inputs[0], value.op.axes, moves[::-1])

    def total(self, stacks, length) -> Value:
        stack = stacks[self.source]
        total = F.Reduce("sum", (0, *(a + 1 for a in self.axes)))(stack)
        total = F.Reshape(total.shape[1:])(total)
        for op in self.moves:
            total = op(total)
        return total


def while_grad(op, grads, inputs, node: Node, wanted) -> list[Value | None]:
    wanted = _wanted(wanted, inputs)
    given = [k for k in range(op.carried) if grads[k] is not None]
    if not wanted or not given:
        return [None] * len(inputs)
    size = local_symbol(op.body.symbols)

    def fn(*values):
        arguments = values[: len(inputs)]
        results = Scan(op.body, op.carried, 0, size, False)(*arguments)
        results = (results,) if isinstance(results, Value) else results
        return backpropagate([results[0].node], [results[k] for k in given], list(values[len(inputs) :]),
                             [arguments[i] for i in wanted])  # fmt: skip

    return _block(
        op.body.symbols, "while_grad", size, node.outputs[op.carried], inputs, [grads[k] for k in given], wanted, fn
    )


def block_grad(op: Block, grads, inputs, node: Node, wanted) -> list[Value | None]:
    count, *args = inputs
    wanted = [i - 1 for i in _wanted(wanted, inputs, 1)]
    given = [k for k, g in enumerate(grads) if g is not None]
    if not wanted or not given:
        return [None] * len(inputs)

    def fn(*values):
        made = dict(zip(op.body.inputs, values, strict=False))
        copy_nodes(op.body.nodes, made)
        nodes = list(current_builder().graph.nodes)
        return backpropagate(nodes, [made[op.body.outputs[k]] for k in given], list(values[len(args) :]),
                             [values[i] for i in wanted])  # fmt: skip

    return [
        None,
        *_block(op.body.symbols, f"{op.body.name}_grad", op.size, count, args, [grads[k] for k in given], wanted, fn),
    ]


def _block(symbols, name, size, count: Value, args, grads: list[Value], wanted: list[int], fn) -> list[Value | None]:
    """fn(*args, *grads) -> gradients of the wanted args (None among them), in a Block."""
    graph = region_graph(symbols, name, [v.type for v in [*args, *grads]], fn)
    there = [i for i, v in zip(wanted, graph.outputs, strict=True) if v is not None]
    graph.outputs = [v for v in graph.outputs if v is not None]
    if not there:
        return [None] * len(args)
    results = Block(graph, size)(count, *args, *grads)
    made = dict(zip(there, (results,) if isinstance(results, Value) else results, strict=True))
    return [made.get(i) for i in range(len(args))]


_RULES = {Cond: cond_grad, Scan: scan_grad, While: while_grad, Block: block_grad}
