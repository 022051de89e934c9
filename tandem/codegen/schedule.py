"""What lowering gives: steps in order, and where every value that someone asks for lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tandem.codegen.buffer import Buffer
from tandem.codegen.loops import Kernel
from tandem.graph.ir import Node, Value
from tandem.graph.symbolic import Dim, Sym, hint


class KernelStep:
    """A call of a generated kernel: void f(void** pointers, const int64_t* ints, int64_t begin, int64_t end).

    pointers: the first element of each of `buffers`; ints: the values of these sizes; [begin, end) a part of [0, extent).
    The work of one item is about `element_cost` ns times `work` elements; `cost` is that for a typical call.
    block: of a flat loop, how many elements an item is; 0 for others.
    """

    __slots__ = ("block", "buffers", "element_cost", "extent", "ints", "kernel", "nodes", "work", "writes")

    def __init__(self, kernel: Kernel, buffers: list[Buffer], ints: tuple, extent: Dim, work: Dim, element_cost: float,
                 nodes: list[Node], writes: list[Buffer]):  # fmt: skip
        self.kernel = kernel
        self.buffers = buffers
        self.ints = ints
        self.extent = extent
        self.work = work
        self.element_cost = element_cost
        self.nodes = nodes
        self.writes = writes
        self.block = 0

    def again(self, buffers: list[Buffer], nodes: list[Node], writes: list[Buffer]) -> KernelStep:
        """The same on other memory."""
        step = KernelStep(self.kernel, buffers, self.ints, self.extent, self.work, self.element_cost, nodes, writes)
        step.block = self.block
        return step

    @property
    def cost(self) -> float:
        # A plan outlives the sizes it was made at: a small first call must not keep large ones on one thread.
        return self.element_cost * (max(hint(self.work), 1024) if isinstance(self.work, Sym) else max(self.work, 1))

    def __repr__(self):
        return f"<{self.kernel.name} x {self.extent}: {len(self.buffers)} buffers, {len(self.nodes)} nodes>"


class LibraryStep:
    """A call into the kernel library with any strided views."""

    __slots__ = ("floats", "inputs", "ints", "node", "outputs", "routine")

    def __init__(
        self, routine: str, inputs: list[Buffer], outputs: list[Buffer], ints: tuple, floats: tuple, node: Node
    ):
        self.routine = routine
        self.inputs = inputs
        self.outputs = outputs
        self.ints = ints
        self.floats = floats
        self.node = node

    def __repr__(self):
        return f"<{self.routine}: {len(self.inputs)} in, {len(self.outputs)} out>"


class EpilogueStep(LibraryStep):
    """A product, and a kernel that runs on blocks of its result (codegen/epilogues.py).

    inputs, outputs: of both; the result of the product is one of the outputs only if it `keeps` it. The kernel's integers are
    those behind the ones that the runtime fills in.
    """

    __slots__ = ("alike", "follows", "keeps", "product", "slot")

    def __init__(self, product: LibraryStep, follows: KernelStep, slot: int, alike: list[int], keeps: bool):
        result = product.outputs[0]
        read = [b for i, b in enumerate(follows.buffers) if i != slot]
        written = ([result] if keeps else []) + follows.writes
        super().__init__(product.routine, [*product.inputs, *read], written, (), (), product.node)
        self.product = product
        self.follows = follows
        self.slot = slot  # which of the kernel's buffers is the result
        self.alike = alike  # those that lie as it does
        self.keeps = keeps

    @property
    def nodes(self) -> list[Node]:
        return [self.node, *[n for n in self.follows.nodes if n is not self.node]]

    def __repr__(self):
        counts = f"{len(self.product.inputs)} in{'' if self.keeps else ', result not kept'}, {len(self.follows.buffers)} buffers"
        return f"<{self.routine} then {self.follows.kernel.name}: {counts}>"


class Update(NamedTuple):
    """A kernel that is joined to an all-reduce (codegen/updates.py)."""

    kernel: KernelStep
    slot: int  # which of its buffers is the result
    piece: int  # which of the collective's results that is
    dense: list[int]  # buffers that lie as it does; the others are single numbers
    keeps: bool  # whether somebody else reads the result


class Factors(NamedTuple):
    """A product that is left to an all-reduce to compute (codegen/join_products.py)."""

    product: LibraryStep
    a: Buffer
    b: Buffer
    piece: int  # which of the collective's operands it is


class UpdateStep(LibraryStep):
    """An all-reduce, kernels that run on blocks of its results, and products that are its operands.

    inputs, outputs: of all of them
    """

    __slots__ = ("collective", "factors", "updates")

    def __init__(self, collective: LibraryStep, updates: Sequence[Update], factors: Sequence[Factors] = ()):
        self.collective = getattr(collective, "collective", collective)
        self.updates = updates
        self.factors = factors
        read = [b for u in updates for i, b in enumerate(u.kernel.buffers) if i != u.slot]
        read += [b for f in factors for b in (f.a, f.b)]
        written = [b for u in updates for b in u.kernel.writes]
        inputs, outputs = [*self.collective.inputs, *read], [*self.collective.outputs, *written]
        super().__init__(self.collective.routine, inputs, outputs, (), (), collective.node)

    @property
    def nodes(self) -> list[Node]:
        products = [f.product.node for f in self.factors]
        return [self.node, *products, *[n for u in self.updates for n in u.kernel.nodes]]

    def __repr__(self):
        products = f" of {len(self.factors)} products" if self.factors else ""
        return f"<{self.routine}{products} then {len(self.updates)} updates: {len(self.collective.inputs)} in>"


class BeginStep(LibraryStep):
    """A collective that begins here and is waited for by a later AwaitStep (codegen/overlap.py)."""

    __slots__ = ()

    def __init__(self, collective: LibraryStep):
        super().__init__(
            "collective_begin",
            collective.inputs,
            collective.outputs,
            collective.ints,
            collective.floats,
            collective.node,
        )

    def __repr__(self):
        return f"<begin {self.node.op.name}: {len(self.inputs)} in, {len(self.outputs)} out>"


class AwaitStep(LibraryStep):
    """From here on, what a BeginStep began has its results."""

    __slots__ = ()

    def __init__(self, collective: LibraryStep):
        super().__init__(
            "collective_await",
            collective.inputs,
            collective.outputs,
            collective.ints,
            collective.floats,
            collective.node,
        )

    def __repr__(self):
        return f"<await {self.node.op.name}: {len(self.inputs)} in, {len(self.outputs)} out>"


class Part:
    """A graph of a region with its own schedule; the last inputs of the graph are where results go."""

    __slots__ = ("graph", "schedule")

    def __init__(self, graph, schedule: Schedule):
        self.graph = graph
        self.schedule = schedule


class RegionStep(LibraryStep):
    """A region: a branch or a loop over the schedules of its parts (codegen/regions.py)."""

    __slots__ = ("op", "parts")

    def __init__(self, op, inputs: list[Buffer], outputs: list[Buffer], parts: list[Part], node: Node):
        super().__init__(op.name, inputs, outputs, (), (), node)
        self.op = op
        self.parts = parts


class BlocksStep(RegionStep):
    """A call into the library with kernels that it calls for blocks (codegen/block_kernels.py), a part each.

    first: which of the inputs comes after the blocks, as an input of the parts
    """

    __slots__ = ("first",)

    def __init__(self, routine: str, inputs: list[Buffer], outputs: list[Buffer], ints: tuple, floats: tuple, node: Node,
                 parts: list[Part], first: int):  # fmt: skip
        super().__init__(node.op, inputs, outputs, parts, node)
        self.routine, self.ints, self.floats = routine, ints, floats
        self.first = first


class TransferStep:
    """A copy to another device (codegen/parts.py)."""

    __slots__ = ("inputs", "node", "outputs")

    def __init__(self, source: Buffer, target: Buffer, node: Node):
        self.inputs, self.outputs, self.node = [source], [target], node

    def __repr__(self):
        return f"<transfer: {self.inputs[0].device} to {self.outputs[0].device}>"


class PartStep:
    """A schedule for one device, as part of a program over several (codegen/parts.py).

    host: which of the inputs of `graph` are in host memory; writes: which of them it writes
    """

    __slots__ = ("device", "graph", "host", "inputs", "node", "outputs", "schedule", "writes")

    def __init__(
        self, device: int, graph, schedule: Schedule, inputs: list[Buffer], outputs: list[Buffer], host: set[int]
    ):
        self.device = device
        self.graph = graph
        self.schedule = schedule
        self.inputs = inputs
        self.outputs = outputs
        self.host = host
        self.writes = [inputs[position] for position, _ in graph.mutations]
        self.node = None

    def __repr__(self):
        return f"<part for {self.device}: {len(self.schedule.steps)} steps, {len(self.inputs)} in, {len(self.outputs)} out>"


class Schedule:
    __slots__ = ("buffer_of", "steps")

    def __init__(self, steps: list, buffer_of: dict[Value, Buffer]):
        self.steps = steps
        self.buffer_of = buffer_of

    def __repr__(self):
        return "\n".join(repr(s) for s in self.steps)


class Unfinished(Schedule):
    """Where values lie, without the steps that compute them. finish(): the whole schedule."""

    __slots__ = ("finish",)

    def __init__(self, buffer_of: dict[Value, Buffer], finish: Callable[[], Schedule]):
        super().__init__([], buffer_of)
        self.finish = finish


def kernels_of(schedule: Schedule):
    """All kernels that a schedule calls, also inside regions."""
    for step in schedule.steps:
        yield from kernels_in(step)


def kernels_in(step):
    if isinstance(step, KernelStep):
        yield step.kernel
    elif isinstance(step, EpilogueStep):
        yield step.follows.kernel
    elif isinstance(step, UpdateStep):
        for update in step.updates:
            yield update.kernel.kernel
    elif isinstance(step, RegionStep):
        for part in step.parts:
            yield from kernels_of(part.schedule)
    elif isinstance(step, PartStep):
        yield from kernels_of(step.schedule)
