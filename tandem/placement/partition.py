"""partition: a graph over several devices is cut into parts of one device each, with values that cross between them.

Note [Parts]
What a device computes is divided further, into stages: a part needs nothing of what runs after it, so that parts are programs of
their own, each run once in the order that `Partition.parts` has, with all that they read in place before. An input may be read from
stage 0 on; what is computed from something on another device is one stage after it. So no two parts of one stage read each other's
results, and they may run at the same time.

A value that another device reads crosses over once for each such device, whether a Transfer says so or a node is bound there: a
Transfer is a name for what has crossed. What is made of numbers and sizes alone is computed wherever it is read. A single element
on the host goes with a launch instead of crossing.

What is written into an input is written by the last part that touches it, after all parts that read it and all that may fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tandem.graph.ir import Builder, Graph, Node, Type, Value, placed, source_scope
from tandem.ops.define import Input, add_input
from tandem.ops.transfer import Transfer
from tandem.placement.where import Where, goes_along, is_cpu

BEFORE = -1  # the stage of inputs


class Crossing(NamedTuple):
    """A value that another device reads: one message, from one sender to one receiver."""

    value: Value
    source: str
    destination: str

    @property
    def key(self) -> str:
        """A name that both sides know the message by."""
        return f"{self.value.node.id}:{self.value.index};{self.source};{self.destination}"


class Part:
    """What one device computes between two exchanges.

    takes: values of the whole graph that its inputs stand for; gives: those that its outputs do
    crosses: what others read of it, to be sent as soon as it has run
    """

    def __init__(self, device: str, stage: int, graph: Graph):
        self.device = device
        self.stage = stage
        self.graph = graph
        self.takes: list[Value] = []
        self.gives: list[Value] = []
        self.crosses: list[Crossing] = []


class Partition:
    """parts: in an order in which they can run
    crosses: of inputs, before any part runs
    results: per output of the graph, (what it is, where)
    """

    def __init__(self, parts: list[Part], crosses: list[Crossing], results: list[tuple[Value, str]]):
        self.parts = parts
        self.crosses = crosses
        self.results = results

    @property
    def crossings(self) -> list[Crossing]:
        return [*self.crosses, *(c for part in self.parts for c in part.crosses)]

    def of(self, device: str) -> list[Part]:
        """What one device runs, in order."""
        return [part for part in self.parts if part.device == device]


def partition(
    graph: Graph, inputs: Sequence[str | None], main: str, may_fail: Callable[[Node], bool] = lambda node: False
) -> Partition:
    """See Note [Parts].

    inputs: names of the devices that inputs are on, None for numbers. main: where results are that could be anywhere.
    may_fail: whether a node may fail by what its operands hold.
    """
    return _Cut(graph, Where(graph, inputs), main, may_fail).partition()


def crossed(value: Value) -> Value:
    """What a value is a copy of, on whatever device."""
    while isinstance(value.op, Transfer):
        value = value.node.inputs[0]
    return value


class _Cut:
    def __init__(self, graph: Graph, where: Where, main: str, may_fail):
        self.graph, self.where, self.main = graph, where, main
        self.stage: dict[Node, int] = {}
        self.parts: dict[tuple[int, str], _Making] = {}
        self.crossings: dict[tuple[Value, str], Crossing] = {}
        self._find_stages()
        self.failing = [n for n in graph.nodes if n in self.stage and may_fail(n)]

    # -- stages

    def ready(self, value: Value, device: str) -> int:
        """From which stage on a device has a value."""
        value = crossed(value)
        if self.where[value] is None:
            return BEFORE
        made = self.stage.get(value.node, BEFORE)
        return made if self.where[value] == device else made + 1

    def _find_stages(self):
        effect: Node | None = None
        for node in self.graph.nodes:
            device = self._device(node)
            if device is None:
                continue
            needed = [self.ready(v, device) for v in node.inputs]
            needed += [self._after(n, device) for n in node.control]
            if node.op.effect:
                if effect is not None:
                    needed.append(self._after(effect, device))
                effect = node
            self.stage[node] = max(0, *needed) if needed else 0

    def _after(self, node: Node, device: str) -> int:
        if node not in self.stage:
            return max((self.ready(v, device) for v in node.inputs), default=BEFORE)
        return self.stage[node] + (self._device(node) != device)

    def _device(self, node: Node) -> str | None:
        """Where a node is computed; None for what is computed with its readers, or crosses."""
        if isinstance(node.op, (Input, Transfer)):
            return None
        if not node.outputs or node.op.effect:
            return self.where.device_of(node) or self.main
        return self.where[node.outputs[0]]

    # -- parts

    def partition(self) -> Partition:
        for node in self.graph.nodes:
            if node in self.stage:
                self._part(self.stage[node], self._device(node)).add(node)
        writes = [self._write(position, value) for position, value in self.graph.mutations]
        results = [self._result(v) for v in self.graph.outputs if v is not None]
        for part, position, value in writes:
            part.write(self.graph.inputs[position], value)
        order = sorted(
            self.parts.values(), key=lambda p: (p.stage, is_cpu(p.device))
        )  # the host computes while others do
        made = [making.part for making in order]
        at = {(part.stage, part.device): part for part in made}
        crosses = []
        for crossing in self.crossings.values():
            node = crossing.value.node
            part = at[self.stage[node], crossing.source] if node in self.stage else None
            (crosses if part is None else part.crosses).append(crossing)
        return Partition(made, crosses, results)

    def _part(self, stage: int, device: str) -> _Making:
        part = self.parts.get((stage, device))
        if part is None:
            part = self.parts[stage, device] = _Making(self, stage, device)
        return part

    def _write(self, position: int, value: Value) -> tuple:
        """The part that writes an input: after all that read what it held."""
        target = self.graph.inputs[position]
        device = self.where[target] or self.main
        stages = [0, self.ready(value, device), *(self._after(node, device) for node in self.failing)]
        for node, stage in self.stage.items():
            if any(crossed(v) is target for v in node.inputs):
                stages.append(stage + (self._device(node) != device))
        return self._part(max(stages), device), position, value

    def _result(self, value: Value) -> tuple[Value, str]:
        """What an output is, and where: something that a part gives, or that has crossed."""
        device = self.where[value] or self.main
        base = crossed(value)
        if self.where[base] is not None and self.where[base] != device:
            self.cross(base, device)
        elif not base.op.is_input or base is not value:
            self._part(max(0, self.ready(base, device)), device).give(base)
        return base, device

    def cross(self, value: Value, device: str) -> None:
        """Has a value brought to a device."""
        source = self.where[value]
        if (value, device) not in self.crossings:
            self.crossings[value, device] = Crossing(value, source, device)
            self.kept(value)

    def kept(self, value: Value) -> None:
        """Somebody outside of its part reads a value."""
        node = value.node
        if node in self.stage:
            self._part(self.stage[node], self._device(node)).give(value)


class _Making:
    """A part while it is being made."""

    def __init__(self, cut: _Cut, stage: int, device: str):
        self.cut, self.stage, self.device = cut, stage, device
        self.part = Part(device, stage, Graph(cut.graph.symbols, cut.graph.name))
        self.builder = Builder(self.part.graph)
        self.made: dict[Value, Value] = {}
        self.copies: dict[Node, Node] = {}

    def add(self, node: Node) -> Node:
        inputs = tuple([self.local(v) for v in node.inputs])
        control = [self.copies[n] for n in node.control if n in self.copies]
        with self.builder, source_scope(node.source), placed(self.builder, control):
            copy = self.builder.add(node.op, inputs)
        self.copies[node] = copy
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            self.made[old] = new
        return copy

    def local(self, value: Value) -> Value:
        """What stands for a value of the whole graph here."""
        value = crossed(value)
        found = self.made.get(value)
        if found is not None:
            return found
        cut, source = self.cut, self.cut.where[value]
        if source is None and not value.op.is_input:
            self.add(value.node)  # it can be had anywhere
            return self.made[value]
        if source not in (None, self.device) and not goes_along(value, source, self.device):
            cut.cross(value, self.device)
        else:
            cut.kept(value)
        return self._take(value)

    def _take(self, value: Value) -> Value:
        made = self.made[value] = add_input(self.builder, Type(value.dtype, value.shape, value.type.weak))
        self.part.takes.append(value)
        return made

    def give(self, value: Value) -> None:
        """Somebody outside reads a value."""
        if value not in self.part.gives:
            self.part.gives.append(value)
            self.part.graph.outputs.append(self.local(value))

    def write(self, target: Value, value: Value) -> None:
        value = self.local(value)
        target = self.local(target)
        self.part.graph.mutations.append((target.op.position, value))
