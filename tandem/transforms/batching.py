"""Batching rules: a graph for one example becomes one for a whole batch, which lies along a new first axis of its values.

Each rule says how a primitive works on such values, given which of its inputs have the axis. What has no rule of its own runs once
per example, as a Scan, so everything can be batched.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import InternalError, UnsupportedError
from tandem.graph.ir import Graph, Node, Type, Value, current_builder
from tandem.graph.symbolic import Dim
from tandem.ops.define import Composite, Elementwise
from tandem.ops.region import Block, Cond, Scan, While, region_graph

RULES: dict = {}  # of single operators
KINDS: dict = {}  # of all operators that say so (Op.batching)


def rule(*names: str):
    """Registers the rule of these operators, which no operator has twice."""
    return _registered(RULES, names)


def kind(name: str):
    """Registers the rule of operators whose `batching` is this."""
    return _registered(KINDS, (name,))


def _registered(table: dict, names: tuple[str, ...]):
    def decorate(fn):
        twice = [name for name in names if name in table]
        if twice:
            raise InternalError("vmap", f"{', '.join(twice)} has two batching rules")
        table.update(dict.fromkeys(names, fn))
        return fn

    return decorate


def with_fields(op, **changes):
    """The same operator with some attributes changed."""
    return type(op)(*(changes.get(f, getattr(op, f)) for f in op._fields))


def as_list(values) -> list[Value]:
    return [values] if isinstance(values, Value) else list(values)


class Batcher:
    """`size`: how many examples. randomness: "error", "same" or "different". start: where the random numbers of the body begin."""

    def __init__(self, size: Dim, randomness: str, start: Value | None = None):
        self.size = size
        self.randomness = randomness
        self.start = start

    def graph(self, graph: Graph, inputs: list[Value], batched: list[bool]) -> list[tuple[Value, bool] | None]:
        """What the graph's outputs are for these inputs: (value, whether it has the batch's axis)."""
        made: dict[Value, tuple[Value, bool]] = dict(zip(graph.inputs, zip(inputs, batched, strict=True), strict=True))
        builder = current_builder()
        copies: dict[Node, tuple[Node, ...]] = {}
        for node in graph.nodes:
            if node.op.is_input:
                continue
            values = [made[v][0] for v in node.inputs]
            flags = [made[v][1] for v in node.inputs]
            random = node.op.samples
            if random and self.randomness == "error":
                raise UnsupportedError(
                    "vmap", "the function samples random numbers",
                    fix='say whether examples get their own: vmap(f, randomness="different"), or share them: randomness="same"',
                )  # fmt: skip
            if not any(flags) and not (random and self.randomness == "different"):
                results = [(v, False) for v in builder.again(node, tuple(values), copies).outputs]
            else:
                with builder.in_place_of(node, copies):
                    results = [(v, True) for v in self.node(node, values, flags)]
                copies[node] = tuple(dict.fromkeys(v.node for v, _ in results))
            for old, new in zip(node.outputs, results, strict=True):
                made[old] = new
        return [None if v is None else made[v] for v in graph.outputs]

    def node(self, node: Node, values: list[Value], flags: list[bool]) -> list[Value]:
        op = node.op
        found = RULES.get(op.name) or KINDS.get(op.batching)
        if found is not None:
            result = found(self, node, values, flags)
            if result is not None:
                return as_list(result)
        if isinstance(op, Elementwise):
            return as_list(self._elementwise(node, values, flags))
        if isinstance(op, Composite):
            inner = self._inner(node, lambda *inputs: as_list(op.expand(*inputs)))
            return [self.full(*r) for r in self.graph(inner, values, flags)]
        return self.per_example(node, values, flags)

    # -- tools

    def spread(self, v: Value) -> Value:
        """A value that is the same for all examples, along the batch's axis."""
        return F.Expand((self.size, *v.shape))(F.Reshape((1, *v.shape))(v))

    def full(self, v: Value, flag: bool) -> Value:
        return v if flag else self.spread(v)

    def fulls(self, values, flags) -> list[Value]:
        return [self.full(v, f) for v, f in zip(values, flags, strict=True)]

    def _inner(self, node: Node, fn) -> Graph:
        return region_graph(current_builder().graph.symbols, node.op.name, [v.type for v in node.inputs], fn)

    def _elementwise(self, node: Node, values, flags):
        shape = next((v.shape for v in node.inputs if v.shape), ())
        operands = []
        for one, v, flag in zip(node.inputs, values, flags, strict=True):
            if flag and shape and not one.shape:  # one number for each example
                v = F.Expand((self.size, *shape))(F.Reshape((self.size, *(1 for _ in shape)))(v))
            elif not flag and one.shape:
                v = self.spread(v)
            operands.append(v)
        return node.op(*operands)

    def per_example(self, node: Node, values, flags) -> list[Value]:
        """The operator on one example after the other."""
        xs = [v for v, f in zip(values, flags, strict=True) if f]
        consts = [v for v, f in zip(values, flags, strict=True) if not f]

        def body(*inputs):
            rows, rest = iter(inputs[: len(xs)]), iter(inputs[len(xs) : -1])
            return as_list(node.op(*(next(rows) if f else next(rest) for f in flags)))

        types = [*(Type(x.dtype, x.shape[1:]) for x in xs), *(c.type for c in consts), Type(dtypes.int64, ())]
        graph = region_graph(current_builder().graph.symbols, node.op.name, types, body)
        return as_list(Scan(graph, 0, len(xs), self.size, False)(*xs, *consts))

    def merged(self, v: Value, flag: bool) -> Value:
        """The batch's axis and the one after it as one."""
        v = self.full(v, flag)
        return F.Reshape((self.size * v.shape[1], *v.shape[2:]))(v)

    def split(self, v: Value) -> Value:
        return F.Reshape((self.size, v.shape[0] // self.size, *v.shape[1:]))(v)

    def place(self, offset: Value) -> Value:
        """Where random numbers of a batch begin: everything sampled before took as many counters as there are examples."""
        if self.start is None:
            return offset
        before = F.Sub()(offset, self.start)
        return F.Add()(self.start, F.Mul()(before, F.Size(self.size, dtypes.int64)()))

    def split_as(self, v: Value, like: Value) -> Value:
        """v, whose first axis is batch and first axis of `like` as one, with the two apart."""
        return F.Reshape((self.size, *like.shape))(v)


# -- movements


@rule("reshape", "expand")
def _reshape(b: Batcher, node, values, flags):
    return with_fields(node.op, shape=(b.size, *node.op.shape))(values[0])


@rule("permute")
def _permute(b, node, values, flags):
    return with_fields(node.op, axes=(0, *(a + 1 for a in node.op.axes)))(values[0])


@rule("roll")
def _roll(b, node, values, flags):
    return with_fields(node.op, axes=tuple(a + 1 for a in node.op.axes))(values[0])


@rule("arrange")
def _arrange(b, node, values, flags):
    return with_fields(node.op, order=(0, *(a + 1 for a in node.op.order)))(values[0])


@rule("slice")
def _slice(b, node, values, flags):
    op = node.op
    return with_fields(op, starts=(0, *op.starts), steps=(1, *op.steps), sizes=(b.size, *op.sizes))(values[0])


@rule("embed")
def _embed(b, node, values, flags):
    op = node.op
    return with_fields(op, starts=(0, *op.starts), steps=(1, *op.steps), shape=(b.size, *op.shape))(values[0])


# -- operators that work along the last axes, or everywhere alike


@kind("leading")
def _leading(b: Batcher, node: Node, values, flags):
    return node.op(*b.fulls(values, flags))


@kind("alike")
def _alike(b, node, values, flags):
    return node.op(*b.fulls(values, flags)) if len({v.ndim for v in node.inputs}) == 1 else None


# -- operators with an axis


@kind("axis")
def _axis(b, node, values, flags):
    axis = node.op.axis
    return with_fields(node.op, axis=axis + 1 if axis >= 0 else axis)(*b.fulls(values, flags))


@kind("axes")
def _axes(b, node, values, flags):
    return with_fields(node.op, axes=tuple(a + 1 if a >= 0 else a for a in node.op.axes))(*b.fulls(values, flags))


# -- products


@rule("matmul")
def _matmul(b, node, values, flags):
    x, y, *bias = values
    if len(bias) and flags[2]:
        made = node.op(*b.fulls(values[:2], flags[:2]))
        per_row = F.Reshape((b.size, *(1 for _ in made.shape[1:-1]), made.shape[-1]))(bias[0])
        return F.Add()(made, F.Expand(made.shape)(per_row))
    if flags[0] and not flags[1] and node.inputs[0].ndim == 2:  # one matrix for all: one tall product
        return b.split(node.op(b.merged(x, True), y, *bias))
    return node.op(*b.fulls(values[:2], flags[:2]), *bias)


@rule("linear")
def _linear(b, node, values, flags):
    if flags[0] and not any(flags[1:]):
        return b.split(node.op(b.merged(values[0], True), *values[1:]))
    return None


# -- lookups: with the batch's axis in the tensor looked up in, the position in the batch is one more index


def _positions(b: Batcher, shape) -> Value:
    return F.Iota((b.size, *shape), 0, dtypes.int64)()


@rule("gather")
def _gather(b, node, values, flags):
    x, *indices = values
    indices = b.fulls(indices, flags[1:])
    if not flags[0]:
        return node.op(x, *indices)
    return node.op(x, _positions(b, indices[0].shape[1:]), *indices)


@rule("scatter")
def _scatter(b, node, values, flags):
    base, updates, *indices = b.fulls(values, flags)
    return node.op(base, updates, _positions(b, indices[0].shape[1:]), *indices)


@rule("rows")
def _rows(b, node, values, flags):
    if flags[0]:
        return None
    return node.op(values[0], *b.fulls(values[1:], flags[1:]))


@rule("isin")
def _isin(b, node, values, flags):
    return None if flags[1] else node.op(*values)


@rule("segment_reduce")
def _segment_reduce(b, node, values, flags):
    """Stretches of all examples one after the other; what an example's leave over is one more, which is dropped."""
    data, lengths = b.fulls(values, flags)
    rest = F.subtract(data.shape[1], F.sum(lengths, 1, keepdims=True))
    lengths = F.concat([lengths, rest], 1)
    made = node.op(b.merged(data, True), F.Reshape((b.size * lengths.shape[1],))(lengths))
    made = F.Reshape((b.size, lengths.shape[1], *made.shape[1:]))(made)
    return F.narrow(made, 1, 0, lengths.shape[1] - 1)


# -- recurrent layers: the batch's axis joins that of the sequences


@rule("lstm_sequence", "lstm_sequence_backward")
def _lstm_sequence(b, node, values, flags):
    weights = 3 if node.op.name == "lstm_sequence" else 4
    if flags[weights]:
        return None

    def joined(v: Value) -> Value:  # (B, T, N, ...) as (T, B * N, ...), and (B, N, ...) as (B * N, ...)
        if v.ndim < 4:
            return b.merged(v, True)
        return F.Reshape((v.shape[1], b.size * v.shape[2], *v.shape[3:]))(F.Permute((1, 0, 2, 3))(v))

    def apart(v: Value, like: Value) -> Value:
        if v.ndim < 3:
            return b.split_as(v, like)
        return F.Permute((1, 0, 2, 3))(F.Reshape((v.shape[0], b.size, v.shape[1] // b.size, v.shape[2]))(v))

    given = [v if i == weights else joined(b.full(v, f)) for i, (v, f) in enumerate(zip(values, flags, strict=True))]
    return [apart(v, old) for v, old in zip(as_list(node.op(*given)), node.outputs, strict=True)]


# -- images: the batch's axis joins that of the images, or that of the channels


@kind("first")
def _merge(b, node, values, flags):
    results = as_list(node.op(*(b.merged(v, f) for v, f in zip(values, flags, strict=True))))
    return [b.split_as(r, old) for r, old in zip(results, node.outputs, strict=True)]


@rule("flex_attention", "flex_attention_backward", "recurrence")
def _written_out(b, node, values, flags):
    """By what it is made of: graphs of its own are over the matrix of one example."""
    made_of = node.op.composed
    inner = b._inner(node, lambda *inputs: as_list(made_of(*inputs)))
    return [b.full(*r) for r in b.graph(inner, values, flags)]


def _into_channels(b: Batcher, v: Value) -> Value:
    """(B, N, C, ...) as (N, B * C, ...)"""
    axes = (1, 0, *range(2, v.ndim))
    return F.Reshape((v.shape[1], v.shape[0] * v.shape[2], *v.shape[3:]))(F.Permute(axes)(v))


def _out_of_channels(b: Batcher, v: Value, like: Value) -> Value:
    apart = F.Reshape((like.shape[0], b.size, *like.shape[1:]))(v)
    return F.Permute((1, 0, *range(2, apart.ndim)))(apart)


@rule("conv_forward")
def _conv_forward(b, node, values, flags):
    x, w, *bias = values
    if not any(flags[1:]):
        return b.split_as(node.op(b.merged(x, True), w, *bias), node.outputs[0])
    op = with_fields(node.op, groups=node.op.groups * b.size)
    if not isinstance(op.groups, int):
        return None
    w = b.merged(w, flags[1])
    bias = [F.Reshape((w.shape[0],))(b.full(v, f)) for v, f in zip(bias, flags[2:], strict=True)]
    return _out_of_channels(b, op(_into_channels(b, b.full(x, flags[0])), w, *bias), node.outputs[0])


@rule("conv_backward_data")
def _conv_backward_data(b, node, values, flags):
    g, w = values
    if not flags[1]:
        return b.split_as(node.op(b.merged(g, True), w), node.outputs[0])
    op = with_fields(node.op, groups=node.op.groups * b.size)
    if not isinstance(op.groups, int):
        return None
    return _out_of_channels(b, op(_into_channels(b, b.full(g, flags[0])), b.merged(w, True)), node.outputs[0])


@rule("conv_backward_weight")
def _conv_backward_weight(b, node, values, flags):
    op = with_fields(node.op, groups=node.op.groups * b.size)
    if not isinstance(op.groups, int):
        return None
    x, g = (_into_channels(b, b.full(v, f)) for v, f in zip(values, flags, strict=True))
    return b.split_as(op(x, g), node.outputs[0])


# -- random numbers


@rule("random_bits")
def _random_bits(b, node, values, flags):
    if any(flags):
        return None
    seed, offset = values
    return with_fields(node.op, shape=(b.size, *node.op.shape))(seed, b.place(offset))


@rule("nonzero")
def _nonzero(b, node, values, flags):
    raise UnsupportedError(
        "vmap", "how many elements are not zero differs between examples", fix="use td.where(mask, x, 0)"
    )


# -- regions


def _graph(b: Batcher, graph: Graph, batched: list[bool], wanted) -> Graph:
    """A region's graph for batches: inputs that are `batched` have the axis; of the outputs, those `wanted`."""
    types = [
        Type(v.dtype, (b.size, *v.type.shape)) if flag else v.type
        for v, flag in zip(graph.inputs, batched, strict=True)
    ]

    def fn(*inputs):
        made = b.graph(graph, list(inputs), batched)
        return [None if m is None else b.full(*m) if want else m[0] for m, want in zip(made, wanted, strict=True)]

    return region_graph(current_builder().graph.symbols, graph.name, types, fn)


@rule("cond")
def _cond(b, node, values, flags):
    index, *args = values
    flags = flags[1:]
    branches = node.op.branches
    if not node.inputs[0].type.shape and index.ndim == 0:
        made = [_graph(b, g, flags, [True] * len(g.outputs)) for g in branches]
        return as_list(Cond(tuple(made))(index, *args))
    # Examples differ in which branch they take: all are computed, and one is chosen for each.
    results = [[None if m is None else b.full(*m) for m in b.graph(g, args, flags)] for g in branches]
    chosen = []
    for column in zip(*results, strict=True):
        last = next(v for v in reversed(column) if v is not None)
        value = last
        for i in reversed(range(len(column))):
            v = column[i]
            if v is None or v is last:
                continue
            here = index if index.dtype is dtypes.bool_ else F.Equal()(index, F.Constant(i, index.dtype)())
            if index.dtype is dtypes.bool_ and i == 0:
                here = F.LogicalNot()(here)
            value = F.Where()(_per_example(b, here, v), v, value)
        chosen.append(value)
    return chosen


def _per_example(b: Batcher, flag: Value, like: Value) -> Value:
    """(B) booleans in the shape of `like`, (B, ...)"""
    if like.ndim == 1:
        return flag
    return F.Expand(like.shape)(F.Reshape((b.size, *(1 for _ in like.shape[1:])))(flag))


@rule("scan")
def _scan(b, node, values, flags):
    op: Scan = node.op
    c, x = op.carried, op.scanned
    carry = b.fulls(values[:c], flags[:c])
    rows = [
        F.Permute((1, 0, *range(2, v.ndim)))(v) if f else v
        for v, f in zip(values[c : c + x], flags[c : c + x], strict=True)
    ]
    batched = [*[True] * c, *flags[c:], False]
    graph = _graph(b, op.body, batched, [True] * len(op.body.outputs))
    made = as_list(Scan(graph, c, x, op.length, op.reverse)(*carry, *rows, *values[c + x :]))
    return [v if i < c else F.Permute((1, 0, *range(2, v.ndim)))(v) for i, v in enumerate(made)]


@rule("while")
def _while(b, node, values, flags):
    """Runs until the last example is done; those that are done before keep what they have."""
    op: While = node.op
    c = op.carried
    carry = b.fulls(values[:c], flags[:c])
    batched = [*[True] * c, *flags[c:], False]
    symbols = current_builder().graph.symbols
    types = [
        Type(v.dtype, (b.size, *v.type.shape)) if f else v.type for v, f in zip(op.body.inputs, batched, strict=True)
    ]
    count = Type(dtypes.int64, (b.size,))

    def going(inputs) -> Value:
        return b.full(*b.graph(op.cond, list(inputs), batched)[0])

    def inner(inputs):  # without the counts, which are carried last
        return [*inputs[:c], *inputs[c + 1 :]]

    def cond(*inputs):
        return [F.any(going(inner(inputs)))]

    def body(*inputs):
        own = inner(inputs)
        alive = going(own)
        after = [b.full(*m) for m in b.graph(op.body, own, batched)]
        kept = [F.Where()(_per_example(b, alive, new), new, old) for new, old in zip(after, own[:c], strict=True)]
        return [*kept, F.Add()(inputs[c], F.Cast(dtypes.int64)(alive))]

    with_count = [*types[:c], count, *types[c:]]
    graphs = [region_graph(symbols, name, with_count, fn) for name, fn in (("cond", cond), ("body", body))]
    zero = b.spread(F.Constant(0, dtypes.int64)())
    made = as_list(While(*graphs, c + 1, op.maximum)(*carry, zero, *values[c:]))
    return made[: c + 1]  # the last of which are the examples' counts of iterations


@rule("block")
def _block(b, node, values, flags):
    if flags[0]:
        return None  # examples differ in how many iterations their gradients go back over: one after the other
    op: Block = node.op
    graph = _graph(b, op.body, flags[1:], [True] * len(op.body.outputs))
    return as_list(Block(graph, op.size)(*values))
