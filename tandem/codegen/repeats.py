"""Steps of groups that are alike are made once.

Note [Groups alike]
A model repeats its layers, and so do its gradients and its updates: most groups of a program compute what an earlier one did, on
other memory. What a nest makes of a group follows from what it reads of it, which `Form` writes down: loops, members, the operators
between them and memory, and shapes, strides and types of that memory, each value and buffer as a number in the order in which it
is met. Groups of equal forms have one kernel; the second one's step is the first one's with its own buffers and nodes in their
places. Sizes are part of the form as they are, so that the integers that a step hands over are the same, too.
"""

from __future__ import annotations

from tandem.codegen.buffer import Buffer
from tandem.codegen.computes import Group
from tandem.codegen.fuse import Fusion
from tandem.codegen.schedule import KernelStep
from tandem.graph.ir import Value
from tandem.ops.define import Movement


class Repeats:
    """Steps of the groups of one fusion, by the kinds of nests of a target."""

    def __init__(self, fusion: Fusion, nests: dict):
        self.fusion = fusion
        self.nests = nests
        self._made: dict[tuple, Made] = {}

    def step(self, group: Group) -> KernelStep:
        form = Form(self.fusion, group)
        made = self._made.get(form.key)
        if made is not None:
            return made.on(group, form)
        step = self.nests[group.kind](self.fusion, group)
        if type(step) is KernelStep:
            found = Made(step, group, form)
            if found.is_whole:
                self._made[form.key] = found
        return step


class Copies:
    """Steps that copy one tensor to another; those whose memory is alike share a kernel."""

    def __init__(self, fusion: Fusion, copy):
        self.fusion = fusion
        self.copy = copy
        self._made: dict[tuple, KernelStep] = {}

    def step(self, source: Buffer, target: Buffer, node) -> KernelStep:
        key = describe(source), describe(target)
        made = self._made.get(key)
        if made is not None:
            return made.again([source, target], [node], [target])
        step = self.copy(self.fusion, source, target, node)
        if type(step) is KernelStep and [id(b) for b in step.buffers] == [id(source), id(target)]:
            self._made[key] = step
        return step


def describe(buffer: Buffer) -> tuple:
    """What a kernel knows of memory that it is made for."""
    return buffer.dtype, buffer.shape, buffer.strides, buffer.kind, buffer.order, buffer.unit, buffer.on_host


class Form:
    """What a nest reads of a group. `key`: equal for groups that are alike; `buffers`, `nodes`: what its numbers stand for."""

    def __init__(self, fusion: Fusion, group: Group):
        self.fusion = fusion
        self.nodes: list = []
        self.buffers: list[Buffer] = []
        self._number_of_node: dict = {}
        self._number_of_buffer: dict[int, int] = {}
        self._described: list = []  # buffers and values, in the order in which they are met
        self._values: dict[Value, int] = {}
        self._met: list[Value] = []  # the same, in order
        self._inside = {m.value for m in group.members if m.role in ("full", "kept")}
        self._results = {m.value: i for i, m in enumerate(group.members) if m.role in ("reduce", "combine")}
        place = {m.value: i for i, m in enumerate(group.members)}
        members = [self._member(m, place) for m in group.members]
        self._walk()
        self.key = (
            group.kind, tuple(group.domain), group.order, group.reduced, group.unit, group.split,
            group.parts_of is not None, *members, *self._described,
        )  # fmt: skip

    def _member(self, m, place: dict) -> tuple:
        self._node(m.node)
        if m.role in ("reduce", "partial"):
            source = self._value(m.node.inputs[0])
        elif m.role == "combine":
            source = self._buffer(m.partial_of.parts), m.partial_of.parts_order
        else:
            source = self._value(m.value)
        reads = [place[v] for v, _ in m.reads if v in place]
        targets = [self._buffer(b) for b in m.targets]
        return (
            m.role, m.node.op._key, m.value.type.dtype, self.fusion.shape_of(m.value), m.stored, source, m.reduced,
            self._buffer(self.fusion.buffer_of.get(m.value)), *reads, None, *targets, None, *m.axis_of.items(),
        )  # fmt: skip

    def _node(self, node):
        if self._number_of_node.setdefault(node, len(self.nodes)) == len(self.nodes):
            self.nodes.append(node)

    def _value(self, value: Value) -> int:
        number = self._values.setdefault(value, len(self._met))
        if number == len(self._met):
            self._met.append(value)
        return number

    def _buffer(self, buffer: Buffer | None) -> int:
        if buffer is None:
            return -1
        found = self._number_of_buffer.get(id(buffer))
        if found is None:
            found = self._number_of_buffer[id(buffer)] = len(self.buffers)
            self.buffers.append(buffer)
            self._described.append(describe(buffer))
        return found

    def _walk(self):
        """Describes the values that were numbered, and those that they are made of, down to memory."""
        buffer_of, shape_of, described = self.fusion.buffer_of, self.fusion.shape_of, self._described
        for value in self._met:  # more are met on the way
            op, node, dtype = value.op, value.node, value.type.dtype
            buffer, inside = buffer_of.get(value), value in self._inside
            number = self._buffer(buffer)
            if value in self._results:
                described.append((self._results[value], number, dtype))
            elif not inside and buffer is not None and not (isinstance(op, Movement) and buffer.kind == "view"):
                described.append((number, dtype, shape_of(value)))
            else:
                self._node(node)
                inputs = [self._value(v) for v in node.inputs]
                described.append((op._key, number, inside, dtype, shape_of(value), *inputs))

    def number(self, buffer: Buffer) -> int | None:
        return self._number_of_buffer.get(id(buffer))

    def number_of(self, node) -> int | None:
        return self._number_of_node.get(node)


class Made:
    """The step of the first group of a form."""

    def __init__(self, step: KernelStep, group: Group, form: Form):
        self.step = step
        self.group = group
        own = {id(m.parts): -1 - i for i, m in enumerate(group.members) if m.parts is not None and m.role == "partial"}
        number = lambda b: own[id(b)] if id(b) in own else form.number(b)
        self.buffers = [number(b) for b in step.buffers]
        self.writes = [number(b) for b in step.writes]
        self.nodes = [form.number_of(n) for n in step.nodes]
        self.is_whole = None not in (*self.buffers, *self.writes, *self.nodes)

    def on(self, group: Group, form: Form) -> KernelStep:
        """The step of another group of the form."""
        first = self.group
        group.domain, group.order, group.unit = first.domain, first.order, first.unit
        for made, m in zip(first.members, group.members, strict=True):
            if m.role == "partial":
                parts = made.parts
                m.parts = Buffer(
                    parts.dtype, parts.shape, parts.strides, parts.kind, order=parts.order, unit=parts.unit
                )
                m.parts_order = made.parts_order
        at = lambda number: group.members[-1 - number].parts if number < 0 else form.buffers[number]
        nodes = sorted([form.nodes[k] for k in self.nodes], key=lambda n: n.id)
        return self.step.again([at(k) for k in self.buffers], nodes, [at(k) for k in self.writes])
