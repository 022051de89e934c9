"""recompute: programs that take less memory by computing intermediate results twice.

td.compile(fn, memory_budget=...) asks for it. Where a program's memory is at its peak, some of what lies there waits for a use that
comes much later: activations that backward needs. Those that are cheapest to compute again, for the bytes that are freed, are
computed again right before that use, until the peak fits the budget or nothing is left that helps. Each round lowers the program
and looks at what it would take, so what is promised is what happens.
"""

from __future__ import annotations

from tandem import _runtime
from tandem.codegen.buffer import Buffer, root_of
from tandem.codegen.lower import lower
from tandem.codegen.peak import buffer_bytes, memory_of
from tandem.codegen.schedule import KernelStep, Schedule
from tandem.graph.ir import Builder, Graph, Node, Value, source_scope
from tandem.graph.symbolic import hint
from tandem.ops.again import Again
from tandem.ops.attention import Attention
from tandem.ops.conv import ConvForward
from tandem.ops.define import Input
from tandem.ops.matmul import Matmul

ROUNDS = 24
FLOPS_PER_NANOSECOND = 30.0
BYTES_PER_NANOSECOND = 8.0


def recompute(graph: Graph, layouts, budget: float) -> tuple[Graph, Schedule]:
    """graph and its schedule, with a peak of at most `budget`: bytes, or up to 1.0 a part of what it would be otherwise."""
    schedule = lower(graph, layouts)
    peak = memory_of(graph, schedule)["peak"]
    target = peak * budget if budget <= 1 else budget
    best = peak, graph, schedule
    # What is chosen first decides what can be chosen later: where it ends above the target, aiming lower may end below.
    for aim in (target, 0.85 * target, 0.7 * target):
        if best[0] <= target:
            break
        best = min(best, _towards(aim, target, peak, graph, schedule, layouts), key=lambda found: found[0])
    _, graph, schedule = best
    joined = lower(graph, layouts, epilogues=True)
    return graph, joined if memory_of(graph, joined)["peak"] <= best[0] else schedule


def _towards(aim: float, enough: float, peak: int, graph: Graph, schedule: Schedule, layouts):
    """(peak, graph, schedule) after rounds that each free what the peak is above `aim`."""
    for number in range(ROUNDS):
        if peak <= enough:
            break
        found = _Candidates(graph, schedule)
        chosen = found.choose(peak - aim)
        if not chosen:
            break
        changed = _Rewriter(graph, schedule, found.late_from, chosen, number + 1).run()
        new_schedule = lower(changed, layouts)
        new_peak = memory_of(changed, new_schedule)["peak"]
        if new_peak >= peak:
            break
        graph, schedule, peak = changed, new_schedule, new_peak
    return peak, graph, schedule


def _used(step) -> tuple:
    return tuple(step.buffers) if isinstance(step, KernelStep) else (*step.inputs, *step.outputs)


class _Candidates:
    """What lies in memory at the peak and is not used for a while."""

    def __init__(self, graph: Graph, schedule: Schedule):
        self.graph = graph
        at = memory_of(graph, schedule)["at"]
        steps = schedule.steps
        uses: dict[Buffer, list[int]] = {}
        for i, step in enumerate(steps):
            for buffer in _used(step):
                uses.setdefault(root_of(buffer), []).append(i)
        position = {node: i for i, node in enumerate(graph.nodes)}
        self.late_from = max((position.get(n, 0) for n in _nodes(steps[at])), default=0)
        kept = {root_of(schedule.buffer_of[v]) for v in graph.outputs if v in schedule.buffer_of}
        producer = {}
        for i, step in enumerate(steps):
            for buffer in step.writes if isinstance(step, KernelStep) else step.outputs:
                producer.setdefault(root_of(buffer), (i, step))
        holders: dict[Buffer, list[Value]] = {}
        for value, buffer in schedule.buffer_of.items():
            if buffer.kind == "alloc" and not isinstance(value.op, Again):
                holders.setdefault(buffer, []).append(value)
        self.found: list[tuple[float, int, Value]] = []  # (ns per byte, bytes, value)
        for buffer, values in holders.items():
            where = uses.get(buffer)
            if not where or buffer in kept or len(values) != 1 or buffer not in producer:
                continue
            made, step = producer[buffer]
            later = [i for i in where if i > at]
            if made > at or not later or position.get(values[0].node, self.late_from + 1) > self.late_from:
                continue
            if values[0].node.op.effect:
                continue
            size = buffer_bytes(buffer)
            # What the second computation reads must then live on until it runs.
            prolonged = 0
            for read in _read_again(values[0], schedule.buffer_of):
                if read.kind == "alloc" and read is not buffer and max(uses.get(read, (0,))) < later[0]:
                    prolonged += buffer_bytes(read)
            if prolonged < size:
                self.found.append((_cost(step) / (size - prolonged), size - prolonged, values[0]))
        self.found.sort(key=lambda c: c[0])

    def choose(self, excess: float) -> set[Value]:
        """The cheapest ones that together free this many bytes."""
        chosen: set[Value] = set()
        for _, size, value in self.found:
            if excess <= 0:
                break
            chosen.add(value)
            excess -= size
        return chosen


def _read_again(value: Value, buffer_of: dict[Value, Buffer]) -> set[Buffer]:
    """Memory that a second computation of a value reads: it begins at what is in memory, not where its kernel began."""
    found: set[Buffer] = set()
    seen: set[Value] = set()
    stack = list(value.node.inputs)
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        buffer = buffer_of.get(v)
        if buffer is not None and buffer.kind != "view":
            found.add(buffer)
        elif not isinstance(v.op, Input):
            stack.extend(v.node.inputs)
    return found


def _nodes(step) -> list[Node]:
    return list(step.nodes) if isinstance(step, KernelStep) else [step.node]


def _cost(step) -> float:
    """Nanoseconds, roughly."""
    if isinstance(step, KernelStep):
        return step.cost * hint(step.extent) / 2
    node, moved = step.node, sum(buffer_bytes(b) for b in _used(step)) / BYTES_PER_NANOSECOND
    out = node.outputs[0] if node.outputs else None
    count = 1
    for d in out.shape if out is not None else ():
        count *= hint(d)
    flops = 0
    if isinstance(node.op, Matmul):
        flops = 2 * count * hint(node.inputs[0].shape[-1])
    elif isinstance(node.op, ConvForward):
        weight = node.inputs[1]
        flops = 2 * count
        for d in weight.shape[1:]:
            flops *= hint(d)
    elif isinstance(node.op, Attention):
        flops = 4 * count * hint(node.inputs[1].shape[-2])
    return moved + flops / FLOPS_PER_NANOSECOND


class _Rewriter:
    """The graph with `chosen` values computed again for nodes after number `late_from`."""

    def __init__(self, graph: Graph, schedule: Schedule, late_from: int, chosen: set[Value], number: int):
        self.graph = graph
        self.late_from = late_from
        self.chosen = chosen
        self.number = number
        self.in_memory = {v for v, b in schedule.buffer_of.items() if b.kind != "view"}
        self.made: dict[Value, Value] = {}
        self.late: dict[Value, Value] = {}  # what late nodes use in place of an early value
        self.again: dict[Value, Value] = {}  # what second computations use
        self.early: set[Value] = set()
        self.copies: dict[Node, tuple[Node, ...]] = {}
        self._touched: dict[Value, bool] = {}

    def run(self) -> Graph:
        graph = self.graph
        result = Graph(graph.symbols, graph.name)
        _runtime.enter_trace()
        try:
            with Builder(result) as self.builder, source_scope(None) as scope:
                for i, node in enumerate(graph.nodes):
                    if isinstance(node.op, Input):
                        self.builder.adopt(node)
                        self.made.update((v, v) for v in node.outputs)
                    else:
                        scope.set(node.source)
                        look_up = self.made.__getitem__ if i <= self.late_from else self._late
                        self._add(node, [look_up(v) for v in node.inputs], self.made)
                    if i <= self.late_from:
                        self.early.update(node.outputs)
        finally:
            _runtime.exit_trace()
        result.inputs = list(graph.inputs)
        result.outputs = [self.made[v] for v in graph.outputs]
        result.mutations = [(position, self.made[v]) for position, v in graph.mutations]
        return result

    def _add(self, node: Node, inputs: list[Value], into: dict[Value, Value]):
        new = self.builder.again(node, tuple(inputs), self.copies)
        into.update(zip(node.outputs, new.outputs, strict=True))

    def _late(self, value: Value) -> Value:
        if value not in self.early or not self._depends(value):
            return self.made[value]
        if value not in self.late:
            inputs = value.node.inputs
            look_up = self._second if value in self.chosen else self._late
            self._add(value.node, [look_up(v) for v in inputs], self.late)
        return self.late[value]

    def _depends(self, value: Value) -> bool:
        """Whether value is chosen, or computed on the way from chosen values without memory of its own."""
        found = self._touched.get(value)
        if found is None:
            if value in self.chosen:
                found = True
            elif value in self.in_memory or isinstance(value.op, Input):
                found = False
            else:
                found = any(self._depends(v) for v in value.node.inputs)
            self._touched[value] = found
        return found

    def _second(self, value: Value) -> Value:
        """value for a second computation: what is in memory is read again, what is not is computed again."""
        if value in self.chosen:
            return self._late(value)
        if value not in self.again:
            node = value.node
            if value in self.in_memory or isinstance(node.op, Input):
                self.again[value] = Again(self.number)(self.made[value])
            elif not node.inputs:
                self.again[value] = self.made[value]
            else:
                self._add(node, [self._second(v) for v in node.inputs], self.again)
        return self.again[value]
