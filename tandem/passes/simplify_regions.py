"""simplify_regions: the graphs inside regions go through the other passes, and work moves out of loops.

In this order, for each region:
- results that nobody uses, operands that nobody reads, and values that are carried without changing go away;
- what depends on constants of the loop only is computed once, before it;
- products of rows of a scanned tensor with a constant matrix become one product before the loop, and products with a constant
  matrix that only go into rows of a result become one after it.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Graph, Type, Value
from tandem.graph.symbolic import hint
from tandem.ops.create import Constant, Size
from tandem.ops.define import Elementwise, Movement
from tandem.ops.matmul import Matmul
from tandem.ops.region import Block, Cond, Region, Scan, While, copy_nodes, region_graph
from tandem.passes.graph_pass import graph_pass, run_inside
from tandem.passes.rebuild import rebuild, use_counts


@graph_pass
def simplify_regions(graph: Graph) -> Graph:
    if not any(isinstance(node.op, Region) for node in graph.nodes):
        return graph
    used = use_counts(graph)

    def visit(node, inputs):
        if not isinstance(node.op, Region):
            return None  # (one that waits for something is not visited, and stays as it is)
        wanted = [used.get(v, 0) > 0 for v in node.outputs]
        return _Visit(node.op, list(inputs), wanted).run()

    return rebuild(graph, visit)


class _Visit:
    """A region being rebuilt. `outputs`: for each of its results, what stands for it: a Value, or the number of a result now."""

    def __init__(self, op: Region, inputs: list[Value], wanted: list[bool]):
        self.op, self.inputs = op, inputs
        self.outputs: list = [i if w else None for i, w in enumerate(wanted)]

    def run(self) -> list[Value]:
        if isinstance(self.op, Scan):
            self._trim_scan()
            self.op = self.op.with_graphs(*map(run_inside, self.op.graphs()))
            self._hoist()
            self._rows_before()
            self._rows_after()
        elif isinstance(self.op, While):
            self._hoist()
        elif isinstance(self.op, (Cond, Block)):
            self._trim_results()
        self.op = self.op.with_graphs(*map(run_inside, self.op.graphs()))
        return self._finish()

    def _finish(self) -> list[Value]:
        made = ()
        if any(isinstance(o, (int, _Later)) for o in self.outputs) or self.op.effect:
            made = self.op(*self.inputs)
            made = (made,) if isinstance(made, Value) else made
        results = [
            o.total(made) if isinstance(o, _Later) else made[o] if isinstance(o, int) else o for o in self.outputs
        ]
        # nobody looks at what stands for an unused result
        anything = next((v for v in results if v is not None), None)
        if anything is None:
            anything = F.Constant(0, dtypes.int64)()
        return [anything if v is None else v for v in results]

    # -- what nobody needs

    def _trim_results(self):
        keep = [i for i, o in enumerate(self.outputs) if o is not None]
        if len(keep) == len(self.outputs) or not keep:
            return
        graphs = []
        for g in self.op.graphs():
            trimmed = Graph(g.symbols, g.name)
            trimmed.nodes, trimmed.inputs, trimmed.outputs = g.nodes, g.inputs, [g.outputs[i] for i in keep]
            graphs.append(trimmed)
        self.op = self.op.with_graphs(*graphs)
        place = {old: new for new, old in enumerate(keep)}
        self.outputs = [None if o is None else place[o] for o in self.outputs]

    def _trim_scan(self):
        op, body = self.op, self.op.body
        c, x = op.carried, op.scanned
        still = {i for i in range(c) if body.outputs[i] is body.inputs[i]}  # carried as they are: constants
        needed = {i for i, o in enumerate(self.outputs) if o is not None and i not in still}
        while True:
            reached = _reached(body, [body.outputs[i] for i in needed])
            more = {i for i in range(c) if body.inputs[i] in reached and i not in still} - needed
            if not more:
                break
            needed |= more
        carries = [i for i in range(c) if i in needed]
        rows = [k for k in range(c, len(body.outputs)) if k in needed]
        scans = [i for i in range(c, c + x) if body.inputs[i] in reached]
        consts = [i for i in sorted(still) + list(range(c + x, len(self.inputs))) if body.inputs[i] in reached]
        for i in still:
            if self.outputs[i] is not None:
                self.outputs[i] = self.inputs[i]
        place = {old: new for new, old in enumerate([*carries, *rows])}
        self.outputs = [place[o] if isinstance(o, int) else o for o in self.outputs]
        order = [*carries, *scans, *consts]
        self._rebuild_body(order, [body.outputs[i] for i in [*carries, *rows]], len(carries), len(scans))

    def _rebuild_body(self, order: list[int], results: list[Value], carried: int, scanned: int):
        """The scan with only these of its inputs, and these results."""
        op, body = self.op, self.op.body
        taken = [body.inputs[i] for i in order] + [body.inputs[-1]]

        def fn(*values):
            made = dict(zip(taken, values, strict=True))
            reached = _reached(body, results)
            kept = {n for n in body.nodes if any(v in reached for v in n.outputs) or n.op.effect}
            copy_nodes([n for n in body.nodes if n in kept], made)
            return [made[v] for v in results]

        graph = region_graph(body.symbols, body.name, [v.type for v in taken], fn)
        self.inputs = [self.inputs[i] for i in order]
        self.op = Scan(graph, carried, scanned, op.length, op.reverse)

    # -- what is the same in every iteration

    def _hoist(self):
        first = self.op.carried + (self.op.scanned if isinstance(self.op, Scan) else 0)
        outside = dict(enumerate(self.inputs))
        graphs = []
        hoisted: list[list[tuple[Value, Value]]] = []
        for g in self.op.graphs():
            made = {g.inputs[i]: outside[i] for i in range(first, len(self.inputs))}
            known = set(made)
            for node in g.nodes:
                if (node.inputs and _movable(node) and all(v in known for v in node.inputs)) or (
                    not node.inputs and isinstance(node.op, (Constant, Size))
                ):
                    known.update(node.outputs)
            moved = {}
            for node in g.nodes:
                for v in node.inputs if not all(u in known for u in node.outputs) else ():
                    if v in known and v not in made and _worth(v):
                        moved[v] = None
            for v in g.outputs:
                if v in known and v not in made and _worth(v):
                    moved[v] = None
            if moved:
                copy_nodes(_between(g, list(moved), made), made)
            hoisted.append([(v, made[v]) for v in moved])
        if not any(hoisted):
            return
        extra = list(dict.fromkeys(v for pairs in hoisted for _, v in pairs))
        for g, pairs in zip(self.op.graphs(), hoisted, strict=True):

            def fn(*values, g=g, pairs=pairs):
                given = [*values[: len(self.inputs)], values[-1]]
                made = dict(zip(g.inputs, given, strict=True))
                new = dict(zip(extra, values[len(self.inputs) : -1], strict=True))
                made.update((v, new[u]) for v, u in pairs)
                copy_nodes(_between(g, g.outputs, made, effects=True), made)
                return [made[v] for v in g.outputs]

            types = [*(v.type for v in g.inputs[:-1]), *(v.type for v in extra), g.inputs[-1].type]
            graphs.append(region_graph(g.symbols, g.name, types, fn))
        self.inputs = [*self.inputs, *extra]
        self.op = self.op.with_graphs(*graphs)

    # -- products for all rows together

    def _rows_before(self):
        op, body = self.op, self.op.body
        c, x = op.carried, op.scanned
        rows, consts = body.inputs[c : c + x], set(body.inputs[c + x : -1])
        moved: dict[Value, Value] = {}
        for node in body.nodes:
            if (
                not isinstance(node.op, Matmul)
                or node.control
                or node.outputs[0].ndim != 2
                or node.inputs[0] not in rows
            ):
                continue
            if not all(_of(v, consts) for v in node.inputs[1:]):
                continue
            made = {body.inputs[i]: self.inputs[i] for i in range(c + x, len(self.inputs))}
            copy_nodes(_between(body, list(node.inputs[1:]), made), made)
            stack = self.inputs[c + rows.index(node.inputs[0])]
            n, k = node.inputs[0].shape
            flat = F.Matmul()(F.Reshape((op.length * n, k))(stack), *(made[v] for v in node.inputs[1:]))
            moved[node.outputs[0]] = F.Reshape((op.length, n, flat.shape[1]))(flat)
        if not moved:
            return
        at = c + x

        def fn(*values):
            given = [*values[:at], *values[at + len(moved) :]]
            made = dict(zip(body.inputs, given, strict=True))
            made.update(zip(moved, values[at:], strict=False))
            copy_nodes(_between(body, body.outputs, made, effects=True), made)
            return [made[v] for v in body.outputs]

        types = [v.type for v in body.inputs]
        types[at:at] = [v.type for v in moved]
        graph = region_graph(body.symbols, body.name, types, fn)
        self.inputs[at:at] = list(moved.values())
        self.op = Scan(graph, c, x + len(moved), op.length, op.reverse)
        self._scanned_results()
        self._drop_unread()

    def _scanned_results(self):
        """A result whose rows are those of a scanned tensor is that tensor."""
        op, body = self.op, self.op.body
        c = op.carried
        place = {v: self.inputs[c + i] for i, v in enumerate(body.inputs[c : c + op.scanned])}
        self.outputs = [
            place[body.outputs[o]] if isinstance(o, int) and o >= c and body.outputs[o] in place else o
            for o in self.outputs
        ]

    def _drop_unread(self):
        """After changes: results and operands that are no longer needed."""
        results = {o for o in self.outputs if isinstance(o, int)}
        before = self.outputs
        total = len(self.op.body.outputs)
        self.outputs = [i if i in results else None for i in range(total)]
        self._trim_scan()
        now = self.outputs
        self.outputs = [now[o] if isinstance(o, int) else o for o in before]

    def _rows_after(self):
        op, body = self.op, self.op.body
        c, x = op.carried, op.scanned
        uses = use_counts(body)
        consts = set(body.inputs[c + x : -1])
        changed = {}
        for k in range(c, len(body.outputs)):
            v = body.outputs[k]
            if not isinstance(v.op, Matmul) or v.node.control or v.ndim != 2 or uses[v] > 1 or len(v.node.inputs) != 2:
                continue
            a, b = v.node.inputs
            if _of(b, consts) and not _of(a, consts) and a not in consts:
                made = {body.inputs[i]: self.inputs[i] for i in range(c + x, len(self.inputs))}
                copy_nodes(_between(body, [b], made), made)
                changed[k] = (a, made[b])
        if not changed:
            return
        rows = [*body.outputs[c:]]
        for k, (a, _) in changed.items():
            rows[k - c] = a
        # a row that is given already is not given twice
        distinct = list(dict.fromkeys(rows))
        place = {k: c + distinct.index(rows[k - c]) for k in range(c, len(body.outputs))}
        result = Graph(body.symbols, body.name)
        result.nodes, result.inputs, result.outputs = body.nodes, body.inputs, [*body.outputs[:c], *distinct]
        self.op = self.op.with_graphs(result)
        self.outputs = [
            o
            if not isinstance(o, int) or o < c
            else _Later(place[o], changed[o][1], op.length)
            if o in changed
            else place[o]
            for o in self.outputs
        ]


class _Later:
    """A product of each row of a result with a matrix, made after the loop."""

    def __init__(self, index: int, matrix: Value, length):
        self.index, self.matrix, self.length = index, matrix, length

    def total(self, made) -> Value:
        stack = made[self.index]
        n, k = stack.shape[1:]
        flat = F.Matmul()(F.Reshape((self.length * n, k))(stack), self.matrix)
        return F.Reshape((self.length, n, flat.shape[1]))(flat)


def _reached(graph: Graph, values: list[Value]) -> set[Value]:
    """Everything that values are made from, with them."""
    found = set()
    stack = list(values) + [v for n in graph.nodes if n.op.effect for v in _needs(n)]
    while stack:
        v = stack.pop()
        if v not in found:
            found.add(v)
            stack.extend(_needs(v.node))
    return found


def _needs(node) -> list[Value]:
    """What a node reads, and results of what it waits for."""
    return [*node.inputs, *(v for n in node.control for v in n.outputs)] if node.control else node.inputs


def _between(graph: Graph, results: list[Value], made: dict, effects: bool = False) -> list:
    """Nodes that compute results from what `made` has, and if asked those with effects."""
    found = set()
    stack = [v for v in results if v is not None]
    if effects:
        stack += [v for n in graph.nodes if n.op.effect for v in _needs(n)]
    while stack:
        v = stack.pop()
        if v in made or v.node in found:
            continue
        found.add(v.node)
        stack.extend(_needs(v.node))
    return [n for n in graph.nodes if n in found or (effects and n.op.effect)]


def _of(value: Value, consts: set[Value]) -> bool:
    """Whether value is one of these, perhaps rearranged."""
    while isinstance(value.op, Movement) and value.node.inputs:
        value = value.node.inputs[0]
    return value in consts


def _worth(value: Value) -> bool:
    """Whether computing a value before a loop pays: rearranged memory is free anyway, and what is larger than what it is made
    from would only be read more slowly."""
    if isinstance(value.op, Movement) or not value.node.inputs:
        return False
    if not isinstance(value.op, Elementwise):
        return True
    return _size(value.type) <= max(_size(v.type) for v in value.node.inputs)


def _movable(node) -> bool:
    """Whether a node may run although its loop makes no iteration: it has no effect, and no error comes of it."""
    return not (node.op.effect or node.control or node.op.is_input or node.op.checks)


def _size(t: Type) -> int:
    n = 1
    for d in t.shape:
        n *= hint(d)
    return n
