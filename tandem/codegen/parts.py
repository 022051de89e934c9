"""lower_parts: a graph over several devices becomes steps that each run one device's part, or copy between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tandem.codegen.buffer import Buffer, Layout, dense_strides, input_buffer, is_one, same
from tandem.codegen.own_memory import own_memory
from tandem.codegen.schedule import PartStep, Schedule, TransferStep
from tandem.codegen.targets import target_of
from tandem.devices import code_of
from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import Sym
from tandem.ops.failing import may_fail
from tandem.ops.transfer import Transfer
from tandem.placement.partition import Crossing, Part, partition

HOST = 0


def lower_parts(
    lower: Callable,
    graph: Graph,
    layouts: list[Layout | None],
    devices: Sequence[str | None],
    main: str,
    saved: Sequence[Value] = (),
    optimise: Callable[[Graph, list[Layout | None], int], Graph] | None = None,
) -> Schedule:
    """Steps that compute the graph's outputs, saved values and mutations (Note [Parts] in placement/partition.py).

    lower: what lowers the graph of one device. devices: of the inputs, None for numbers. main: where results are that could be
    anywhere. optimise(graph, layouts, device): what is done to the graph of a part first.
    """
    return _Parts(lower, graph, layouts, devices, main, saved, optimise).schedule()


class _Parts:
    def __init__(self, lower, graph: Graph, layouts, devices, main: str, saved, optimise):
        self.lower, self.optimise = lower, optimise
        self.graph = graph
        self.asked = [*graph.outputs, *saved]
        whole = Graph(graph.symbols, graph.name)
        whole.inputs, whole.nodes, whole.mutations, whole.outputs = (
            graph.inputs,
            graph.nodes,
            graph.mutations,
            self.asked,
        )
        self.cut = partition(whole, devices, main, lambda node: may_fail(node.op))
        self.at: dict[tuple[Value, int], Buffer] = {}  # (value, device) -> memory
        self.steps: list = []
        self.late: list = []  # copies that nobody but the caller waits for
        for value, layout, device in zip(graph.inputs, layouts, devices, strict=True):
            buffer = input_buffer(value.dtype, self._sized(value.shape), value.op.position, layout, self._resolve)
            buffer.device = HOST if device is None else code_of(device)
            self.at[value, buffer.device] = buffer

    def schedule(self) -> Schedule:
        readers = {(v, code_of(part.device)) for part in self.cut.parts for v in part.takes}
        for crossing in self.cut.crosses:
            self._cross(crossing, readers)
        for part in self.cut.parts:
            self._part(part)
            for crossing in part.crosses:
                self._cross(crossing, readers)
        self.steps += self.late
        buffer_of = {v: self._input(v) for v in self.graph.inputs}
        for asked, (value, device) in zip((v for v in self.asked if v is not None), self.cut.results, strict=True):
            buffer_of.setdefault(asked, self.at[value, code_of(device)])
        return Schedule(self.steps, buffer_of)

    def _input(self, value: Value) -> Buffer:
        return next(buffer for (v, _), buffer in self.at.items() if v is value)

    def _part(self, part: Part):
        device = code_of(part.device)
        inputs = [self._read(value, device) for value in part.takes]
        layouts = [None if _row_major(b) else Layout(b.strides, b.unit, b.order) for b in inputs]
        graph = part.graph if self.optimise is None else self.optimise(part.graph, layouts, device)
        own_memory(graph, len(graph.outputs))
        host = {i for i, b in enumerate(inputs) if b.device == HOST} if device != HOST else set()
        schedule = self.lower(
            graph,
            layouts,
            target=target_of(device),
            in_pieces=True,
            epilogues=True,
            on_host={graph.inputs[i] for i in host},
        )
        outputs = []
        for value, made in zip(part.gives, graph.outputs, strict=True):
            buffer = _like(schedule.buffer_of[made], device)
            self.at[value, device] = buffer
            outputs.append(buffer)
        for value, buffer, made in zip(part.gives, outputs, graph.outputs, strict=True):
            if device == HOST and any(c.value is value for c in part.crosses):
                buffer.pinned = schedule.buffer_of[made].pinned = True
        self.steps.append(PartStep(device, graph, schedule, inputs, outputs, host))

    def _read(self, value: Value, device: int) -> Buffer:
        """Where a part finds a value: on its device, or on the host."""
        found = self.at.get((value, device))
        return self.at[value, HOST] if found is None else found

    def _cross(self, crossing: Crossing, readers: set):
        value, destination = crossing.value, code_of(crossing.destination)
        source = self.at[value, code_of(crossing.source)]
        target = _like(source, destination)
        waits = (value, destination) in readers
        target.pinned = destination == HOST and waits
        self.at[value, destination] = target
        step = TransferStep(source, target, self._mover(value) or value.node)
        # What an input holds goes before anything is written into one: others may share its memory.
        changes = value.op.is_input and self.graph.mutations
        (self.late if destination == HOST and not waits and not changes else self.steps).append(step)

    def _mover(self, value: Value) -> Node | None:
        """The transfer that moves a value, for errors and profiles."""
        return next((n for n in self.graph.nodes if isinstance(n.op, Transfer) and n.inputs[0] is value), None)

    def _sized(self, shape) -> tuple:
        return tuple(self._resolve(d) for d in shape)

    def _resolve(self, d):
        return self.graph.symbols.resolve(d) if isinstance(d, Sym) else d


def _like(buffer: Buffer, device: int) -> Buffer:
    """Memory of another device for the same elements: in the same order, if they fill a block without gaps."""
    order = buffer.order or tuple(range(len(buffer.shape)))
    made = Buffer(buffer.dtype, buffer.shape, dense_strides(buffer.shape, order), "alloc", order=order)
    made.device = device
    return made


def _row_major(buffer: Buffer) -> bool:
    return all(is_one(n) or same(s, t) for n, s, t in zip(buffer.shape, buffer.strides, dense_strides(buffer.shape)))
