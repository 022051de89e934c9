"""Structured control flow lowered to primitives: a graph with regions (ops/region.py) as a graph of the tagged executor.

Where a region is closed, code generation makes a native loop of it. Lowering is the other way to run it: branches become Switch and
Merge, loops become frames, and what lies between them becomes tasks, each a plan. That is what a graph needs whose pieces live in
different places.

Note [Lowered regions]
    Cond    each argument goes through a Switch to the branch that takes it; results of the branches meet in a Merge. More than two
            branches are tried one after the other.
    While   a frame. Carried values and the count of iterations are Merges of Enter and NextIteration; constants enter every
            iteration.
    Scan    a frame with a known number of iterations. A row of each x is taken by position; results are written into their rows.
    Block   its size becomes known here: a tensor with as many elements goes to every task inside, which reads its size.

Every task of a branch or body also waits for a value of that branch or iteration, so that nothing runs in one not taken.
Sizes of the graph's inputs are known when it is lowered; there is one lowered graph for each set of them.
"""

from __future__ import annotations

import functools

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.codegen.own_memory import own_memory
from tandem.errors import UnsupportedError
from tandem.graph.ir import Builder, Graph, Type, Value, current_builder, source_scope
from tandem.graph.substitution import substitute, symbol_indices
from tandem.graph.symbolic import Sym
from tandem.ops.define import Role, add_input, make_function
from tandem.ops.region import Block, Cond, Region, Scan, While, directs
from tandem.session.flow_program import (
    COMPUTE,
    ENTER,
    EXIT,
    FETCH,
    LOOP_COND,
    MERGE,
    NEXT_ITERATION,
    SOURCE,
    SWITCH,
    Unit,
)  # fmt: skip
from tandem.session.program import PARAMETERS
from tandem.session.unknown import unknown_index
from tandem.tensors.constructors import tensor, zeros
from tandem.tracing.compile import RandomState


class Lowered:
    """A graph with regions, run by the tagged executor: lowered(tensors) -> tensors."""

    def __init__(self, graph: Graph, parallel_iterations: int = 10, name: str = "lowered", report=None):
        if graph.mutations:
            raise UnsupportedError(name, "a graph that writes into its inputs cannot be lowered to primitives")
        self.graph = graph
        self.parallel = parallel_iterations
        self.last_outcome = None
        self.report = report  # takes down what the tasks are compiled to
        self._flows: dict[tuple, object] = {}

    def __call__(self, tensors: list, seed: int = 0, threads: int | None = None) -> list:
        sizes = self._bind(tensors)
        key = tuple(sorted(sizes.items()))
        if key not in self._flows:
            self._flows[key] = _Lowering(self.graph, sizes, self.parallel, self.report).build()
        outcome = self._flows[key].run(
            tensors, [], _runtime.RunLock(), seed, threads or _runtime.num_threads(), _runtime.Cancellation()
        )
        self.last_outcome = outcome
        if outcome.error is not None:
            raise outcome.error
        return list(outcome.results)

    def _bind(self, tensors) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for v, t in zip(self.graph.inputs, tensors, strict=True):
            for d, n in zip(v.type.shape, t.shape, strict=True):
                index = unknown_index(d)
                if index is not None:
                    sizes.setdefault(index, n)
        return sizes


class LoweredFunction:
    """What an operator function of (inputs, generator) does, with its regions lowered: for sessions that are asked to."""

    def __init__(self, body, stored: int = 0, report=None):
        self._body = body
        self._report = report
        self._stored = stored
        self._traced: dict[tuple, tuple] = {}

    def __call__(self, inputs, generator):
        key = tuple((t.dtype, tuple(t.shape)) for t in inputs)
        if key not in self._traced:
            self._traced[key] = self._trace(inputs)
        lowered, written, draws = self._traced[key]
        seed, offset = generator.get_state()
        numbers = [tensor(n - 2**64 if n >= 2**63 else n, dtype=dtypes.int64) for n in (seed, offset)]
        results = lowered([*inputs, *numbers])
        if draws.rng_advance:
            generator.set_state((seed, offset + draws.rng_advance))
        first = len(results) - len(written)
        for position, value in zip(written, results[first:], strict=True):
            inputs[position].copy_(value)
        return tuple(results[:first])

    def _trace(self, inputs):
        number = Type(dtypes.int64, ())
        types = [*(Type(t.dtype, tuple(t.shape)) for t in inputs), number, number]
        draws = _Draws()
        graph = Graph(name="run")
        _runtime.enter_trace()
        try:
            with Builder(graph) as builder:
                values = [add_input(builder, t) for t in types]
                graph.outputs = list(self._body(values[:-2], RandomState(*values[-2:], draws)))
            own_memory(graph, self._stored)
        finally:
            _runtime.exit_trace()
        written = [position for position, _ in graph.mutations]
        graph.outputs += [value for _, value in graph.mutations]
        graph.mutations = []
        return Lowered(graph, report=self._report), written, draws


class _Draws:
    rng_advance = 0


class Place:
    """Where a piece of the graph runs: its frame, what it waits for, and the sizes that Blocks around it made known."""

    def __init__(self, frame: int, pivot: tuple | None, carriers: dict[int, tuple]):
        self.frame = frame
        self.pivot = pivot  # a port of this branch or iteration
        self.carriers = carriers  # symbol -> port of a tensor that is as long

    def within(self, pivot) -> Place:
        return Place(self.frame, pivot, self.carriers)


class _Lowering:
    def __init__(self, graph: Graph, sizes: dict[int, int], parallel: int, report):
        self.graph = graph
        self.sizes = sizes
        self.parallel = parallel
        self.role = Role(whole=True, report=report)
        self.units: list[Unit] = []
        self.frames = 1

    def build(self):
        ports = {v: self._add(Unit(SOURCE, num_outputs=1)) for v in self.graph.inputs}
        results = self._graph(self.graph, ports, Place(0, None, {}))
        for port in results:
            self._add(Unit(FETCH), [port])
        builder = _runtime.FlowBuilder()
        for u in self.units:
            builder.add(
                u.kind,
                u.inputs,
                list(dict.fromkeys(u.controls)),
                [],
                u.num_outputs,
                u.task,
                u.frame,
                u.constant,
                u.parallel,
            )
        return builder.build(self.frames)

    def _add(self, unit: Unit, inputs=(), wait=None) -> tuple[int, int]:
        unit.inputs = list(inputs)
        if wait is not None:
            unit.controls = [wait[0]]
        self.units.append(unit)
        return len(self.units) - 1, 0

    # -- graphs

    def _graph(self, graph: Graph, ports: dict, place: Place) -> list:
        """Ports of the graph's results, None where there is none."""
        levels: dict = {}
        for node in graph.nodes:
            if node.op.is_input:
                continue
            is_region = directs(node.op)
            level = 0
            for v in node.inputs:
                source = v.node
                if source in levels:
                    level = max(level, levels[source] + (is_region != directs(source.op) or is_region))
            levels[node] = max([level, *(levels[n] + 1 for n in node.control if n in levels)])
        for level in range(max(levels.values(), default=-1) + 1):
            here = [n for n in graph.nodes if levels.get(n) == level]
            plain = [n for n in here if not directs(n.op)]
            if plain:
                self._piece(graph, plain, ports, place)
            for node in here:
                if directs(node.op):
                    if node.control:
                        raise UnsupportedError(node.op.name, "a branch or loop that waits for something is not lowered")
                    results = self._region(node.op, [ports.get(v) for v in node.inputs], place)
                    ports.update((v, p) for v, p in zip(node.outputs, results, strict=False) if p is not None)
        return [None if v is None else ports.get(v) for v in graph.outputs]

    def _piece(self, graph: Graph, nodes: list, ports: dict, place: Place):
        """Nodes that run together, as one task."""
        inside = {v for n in nodes for v in n.outputs}
        keys = list(dict.fromkeys(v for n in nodes for v in n.inputs if v not in inside))
        later = {v for n in graph.nodes if n not in set(nodes) for v in n.inputs} | {
            v for v in graph.outputs if v is not None
        }
        later.update(v for n in graph.nodes for c in n.control for v in c.outputs)  # so that it runs
        results = [v for n in nodes for v in n.outputs if v in later]
        if not results:
            return

        def compute(change, *values):
            made = dict(zip(keys, values, strict=True))
            builder, copies = current_builder(), {}
            with source_scope(None) as scope:
                for n in nodes:
                    scope.set(n.source)
                    new = builder.again(n, tuple(made[v] for v in n.inputs), copies, n.op.substitute(change))
                    made.update(zip(n.outputs, new.outputs, strict=True))
            return [made[v] for v in results]

        made = self._task(compute, [ports[v] for v in keys], len(results), place, [v.type for v in keys])
        waited = {ports[v][0] for n in nodes for c in n.control for v in c.outputs if v in ports}
        self.units[made[0][0]].controls += sorted(waited)
        ports.update(zip(results, made, strict=True))

    def _task(self, compute, inputs, num_outputs: int, place: Place, types=None) -> list[tuple[int, int]]:
        """A task that computes tensors from tensors; `compute` is traced when sizes are there."""
        carriers = list(place.carriers.items())

        def body(tensors, generator):
            known = dict(self.sizes)
            values = list(tensors[len(carriers) :])
            for (index, _), t in zip(carriers, tensors, strict=False):
                known[index] = t.shape[0]
            change = functools.partial(_change, known)
            for v, t in zip(values, types or (), strict=False):
                for actual, d in zip(v.shape, t.shape, strict=True):
                    expected = change(d)
                    if actual != expected:  # asking teaches that these sizes are one
                        raise UnsupportedError(None, f"a size is {actual} where {expected} was expected")
            return tuple(compute(change, *values))

        task = _runtime.plan_task(make_function("lowered", body, PARAMETERS, role=self.role), [], [])
        at, _ = self._add(
            Unit(COMPUTE, task=task, num_outputs=num_outputs), [*(p for _, p in carriers), *inputs], place.pivot
        )
        return [(at, k) for k in range(num_outputs)]

    # -- regions

    def _region(self, op: Region, inputs: list, place: Place) -> list:
        if isinstance(op, Cond):
            return self._cond(op, inputs[0], inputs[1:], place)
        if isinstance(op, While):
            return self._while(op, inputs, place)
        if isinstance(op, Scan):
            return self._scan(op, inputs, place)
        if isinstance(op, Block):
            return self._block(op, inputs[0], inputs[1:], place)
        raise UnsupportedError("lower", f"there is no lowering of {op.name}")

    def _switch(self, data, predicate, wait=None) -> tuple[tuple, tuple]:
        at, _ = self._add(Unit(SWITCH, num_outputs=2), [data, predicate], wait)
        return (at, 0), (at, 1)

    def _pivot(self, port) -> tuple[int, int]:
        """A node that is live when the value is. (A Switch is live whichever output is.)"""
        return self._add(Unit(MERGE, num_outputs=2), [port])

    def _cond(self, op: Cond, index, args, place: Place) -> list:
        branches = op.branches
        collected: list[list] = [[] for _ in branches[0].outputs]
        rest_index, rest = index, list(args)
        for i in range(len(branches) - 1, -1, -1):
            if i == 0:
                taken, pivot = rest, self._pivot(rest_index)
            else:
                (here,) = self._task(lambda change, k, i=i: [_is(k, i)], [rest_index], 1, place.within(None))
                rest_index, chosen = self._switch(rest_index, here)
                pairs = [None if a is None else self._switch(a, here) for a in rest]
                taken = [p and p[1] for p in pairs]
                rest = [p and p[0] for p in pairs]
                pivot = self._pivot(chosen)
            branch = branches[i]
            ports = {v: p for v, p in zip(branch.inputs, taken, strict=True) if p is not None}
            for k, port in enumerate(self._graph(branch, ports, place.within(pivot))):
                if port is None:
                    port = self._unmade(branches, k, place.within(pivot))
                collected[k].append(port)
        return [self._add(Unit(MERGE, num_outputs=2), found) for found in collected]

    def _unmade(self, branches, k: int, place: Place):
        """A result that a branch does not make. Nobody looks at it, but it may travel through a loop, where it must not be dead."""
        made = next(b.outputs[k].type for b in branches if b.outputs[k] is not None)
        return self._task(lambda change: [F.full(change(made.shape), 0, dtype=made.dtype)], [], 1, place)[0]

    def _enter(self, port, frame: int, constant: bool):
        return self._add(Unit(ENTER, num_outputs=1, frame=frame, constant=constant, parallel=self.parallel), [port])

    def _loop(self, carry, consts, place: Place, condition, body) -> list:
        """A frame: condition(carried, constants, place) -> predicate; body(...) -> carried. Ports of the carried values after."""
        frame = self.frames
        self.frames += 1
        consts = [None if c is None else self._enter(c, frame, True) for c in consts]
        carriers = {s: self._enter(p, frame, True) for s, p in place.carriers.items()}
        merged = [self._add(Unit(MERGE, num_outputs=2), [self._enter(c, frame, False)]) for c in carry]
        inside = Place(frame, merged[0], carriers)
        predicate = self._add(Unit(LOOP_COND, num_outputs=1), [condition(merged, consts, inside)])
        pairs = [self._switch(m, predicate) for m in merged]
        inside = Place(frame, self._pivot(pairs[0][1]), carriers)
        after = body([yes for _, yes in pairs], consts, inside)
        for m, port in zip(merged, after, strict=True):
            following = self._add(Unit(NEXT_ITERATION, num_outputs=1), [port])
            self.units[m[0]].inputs.append(following)
        return [self._add(Unit(EXIT, num_outputs=1), [no]) for no, _ in pairs]

    def _zero(self, place: Place):
        return self._task(lambda change: [F.Constant(0, dtypes.int64)()], [], 1, place)[0]

    def _while(self, op: While, inputs, place: Place) -> list:
        carry, consts = inputs[: op.carried], inputs[op.carried :]

        def condition(carried, constants, inside):
            (count, *values) = carried
            ports = dict(zip(op.cond.inputs, [*values, *constants, count], strict=True))
            (going,) = self._graph(op.cond, ports, inside)
            if op.maximum is None:
                return going
            most = op.maximum
            return self._task(
                lambda change, p, i: [F.logical_and(p, F.less(i, _size(change(most))))], [going, count], 1, inside
            )[0]

        def body(carried, constants, inside):
            (count, *values) = carried
            ports = dict(zip(op.body.inputs, [*values, *constants, count], strict=True))
            (following,) = self._task(lambda change, i: [F.add(i, 1)], [count], 1, inside)
            return [following, *self._graph(op.body, ports, inside)]

        count, *results = self._loop([self._zero(place), *carry], consts, place, condition, body)
        return [*results, count]

    def _scan(self, op: Scan, inputs, place: Place) -> list:
        c, x = op.carried, op.scanned
        made = op.body.outputs[c:]
        length = op.length
        buffers = self._task(
            lambda change: [F.full((change(length), *change(v.type.shape)), 0, dtype=v.dtype) for v in made],
            [], len(made), place,
        ) if made else []  # fmt: skip

        def position(change, i):
            return F.subtract(F.subtract(_size(change(length)), i), 1) if op.reverse else F.add(i, 0)

        def condition(carried, constants, inside):
            return self._task(lambda change, i: [F.less(i, _size(change(length)))], [carried[0]], 1, inside)[0]

        def body(carried, constants, inside):
            count, values, stacks = carried[0], carried[1 : 1 + c], carried[1 + c :]
            xs = constants[:x]
            at, following, *rows = self._task(
                lambda change, i, *columns: [
                    position(change, i), F.add(i, 1), *(_row(t, position(change, i)) for t in columns)
                ],
                [count, *xs], 2 + x, inside,
            )  # fmt: skip
            ports = dict(zip(op.body.inputs, [*values, *rows, *constants[x:], at], strict=True))
            results = self._graph(op.body, ports, inside)
            written = self._task(
                lambda change, i, *pairs: [_with_row(s, i, y) for s, y in zip(pairs[: len(made)], pairs[len(made) :], strict=True)],
                [at, *stacks, *results[c:]], len(made), inside,
            ) if made else []  # fmt: skip
            return [following, *results[:c], *written]

        carry = [self._zero(place), *inputs[:c], *buffers]
        _, *results = self._loop(carry, inputs[c:], place, condition, body)
        return results

    def _block(self, op: Block, size, args, place: Place) -> list:
        task = _runtime.python_task(_carrier, False)
        carrier = self._add(Unit(COMPUTE, task=task, num_outputs=1), [size], place.pivot)
        index = unknown_index(op.size)
        inside = Place(place.frame, place.pivot, {**place.carriers, index: carrier})
        ports = {v: p for v, p in zip(op.body.inputs, args, strict=True) if p is not None}
        return self._graph(op.body, ports, inside)


def _change(known: dict, d):
    """A size of the graph in the trace of a task."""
    if isinstance(d, tuple):
        return tuple(_change(known, x) for x in d)
    if not isinstance(d, Sym):
        return d
    if symbol_indices(d) - known.keys():
        raise UnsupportedError("lower", f"the size {d} is not known from the graph's inputs")
    return substitute(d, known)


def _carrier(operands, cancellation):
    return [zeros(operands[0].item(), dtype=dtypes.bool_)]


def _size(n) -> Value:
    return F.Size(n, dtypes.int64)() if isinstance(n, Sym) else F.Constant(n, dtypes.int64)()


def _is(index: Value, i: int) -> Value:
    return index if index.dtype is dtypes.bool_ else F.equal(index, i)


def _row(x: Value, i: Value) -> Value:
    return F.index_select(x, 0, F.reshape(i, (1,)))[0]


def _with_row(stack: Value, i: Value, row: Value) -> Value:
    here = F.equal(F.Iota(tuple(stack.shape), 0, dtypes.int64)(), i)
    return F.where(here, F.expand(F.reshape(row, (1, *row.shape)), stack.shape), stack)
