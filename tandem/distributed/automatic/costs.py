"""What strategies and moves cost on a cluster: seconds, and the bytes that a rank puts into collectives."""

from __future__ import annotations

import functools
import math

from tandem import _runtime
from tandem.distributed.automatic.strategies import Strategy, strategies_of
from tandem.distributed.sharding.layout import Grid, Placements
from tandem.distributed.sharding.move import Mover
from tandem.distributed.sharding.placements import Shard
from tandem.distributed.sharding.rules import is_zero
from tandem.distributed.topology import Link, Topology
from tandem.graph.ir import Builder, Graph, Node, Type
from tandem.graph.work import operations_of, traffic_of
from tandem.ops.define import add_input


class Memo:
    """What holds for all meshes of a shape, wherever they are: what moves take, and the ways to divide an operator."""

    def __init__(self, grid: Grid):
        self.grid = grid
        self.moved = functools.cache(self._moved)
        self._strategies: dict = {}

    def strategies(self, node: Node) -> list[Strategy]:
        """Equal operators on operands of equal types are divided alike; rules may ask whether an operand is nothing but zeros."""
        types = tuple(v.type for v in (*node.inputs, *node.outputs))
        key = node.op, types, tuple(is_zero(v) for v in node.inputs)
        if key not in self._strategies:
            self._strategies[key] = strategies_of(node, self.grid)
        return self._strategies[key]

    def _moved(self, dtype, shape: tuple, old: Placements, new: Placements) -> tuple[tuple[str, int], ...]:
        """What moving a value takes: (collective, bytes) on one rank. Counted on the nodes that do it."""
        if old == new:
            return ()
        mover = Mover(self.grid)
        _runtime.enter_trace()
        try:
            with Builder(Graph()) as builder:
                value = add_input(builder, Type(dtype, self.grid.local_shape(shape, old)))
                mover.move(value, shape, old, new)
        finally:
            _runtime.exit_trace()
        return tuple(mover.moved)


class Costs:
    """Costs for a mesh of this shape on a cluster, whose first device is `first`. The last mesh axis has neighbours: the fastest
    link comes last. state: bytes of optimiser state for each byte of a weight. memos: by shape, shared by several Costs."""

    def __init__(
        self, grid: Grid, topology: Topology, first: int = 0, state: float = 2.0, times=None, memos: dict | None = None
    ):
        self.grid, self.topology, self.first, self.state = grid, topology, first, state
        self.links = [self._link(m) for m in range(len(grid.shape))]
        self.memo: Memo = ({} if memos is None else memos).setdefault(grid.shape, Memo(grid))
        self._move = functools.cache(self._move_seconds)
        self.times = times  # of operators that were measured (op_times.py), or None
        self._cold = False  # whether weights are more than caches hold: Note [Cold operands] in op_times.py
        self._traffic: dict[Node, float] = {}
        self._graphs: set[Graph] = set()

    def _link(self, axis: int) -> Link:
        stride = math.prod(self.grid.shape[axis + 1 :])
        return self.topology.link([self.first + i * stride for i in range(self.grid.shape[axis])])

    @property
    def next_link(self) -> Link:
        """To the ranks of another stage: beyond this place."""
        size = math.prod(self.grid.shape)
        return self.topology.link([self.first, (self.first + size) % self.topology.devices])

    def know(self, graph: Graph):
        """What operators of a graph are fused with follows from all of it."""
        if graph not in self._graphs:
            self._graphs.add(graph)
            self._traffic.update(traffic_of(graph))
            both = (*graph.inputs, *graph.outputs)  # weights, and gradients of them
            whole = sum(math.prod(v.shape) * v.dtype.itemsize for v in both)
            self._cold = self._cold or whole > self.topology.device.cache

    def compute(self, node: Node, strategy: Strategy) -> float:
        """Seconds of an operator: as measured, or by the roofline, the longer one of arithmetic and of memory."""
        measured = self.times.seconds(node, strategy, self.grid, self._cold) if self.times is not None else None
        if measured is not None:
            return measured
        device = self.topology.device
        arithmetic = operations_of(node) / strategy.ways / device.operations
        return max(arithmetic, self._traffic.get(node, 0.0) / strategy.ways / device.bandwidth)

    def update(self, type: Type, placements: Placements) -> float:
        """Seconds of the optimiser: it reads weight, gradient and state, and writes weight and state."""
        return self.local_bytes(type, placements) * (3 + 2 * self.state) / self.topology.device.bandwidth

    def add(self, type: Type, placements: Placements) -> float:
        """Seconds to add a gradient to that of earlier micro-batches, besides computing it: the sum is read and written."""
        return 2 * self.local_bytes(type, placements) / self.topology.device.bandwidth

    def send(self, type: Type, placements: Placements) -> float:
        """Seconds to send a rank's part to another stage."""
        return self.next_link.time(self.local_bytes(type, placements))

    def local_bytes(self, type: Type, placements: Placements) -> int:
        return math.prod(self.grid.local_shape(type.shape, placements)) * type.dtype.itemsize

    def move(self, type: Type, old: Placements, new: Placements) -> float:
        """Seconds of moving a value."""
        return self._move(type, old, new)

    def _move_seconds(self, type: Type, old: Placements, new: Placements) -> float:
        changed = [m for m, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        seconds = 0.0
        for name, size in self.memo.moved(type.dtype, tuple(type.shape), old, new):
            seconds += max((self._collective(name, size, m) for m in changed), default=0.0)
        if seconds == 0.0 and any(isinstance(p, Shard) for p in new) and changed:
            seconds = self.local_bytes(type, new) * 2 / self.topology.device.bandwidth  # a copy of its part
        return seconds

    def _collective(self, name: str, size: int, axis: int) -> float:
        n, link = self.grid.shape[axis], self.links[axis]
        if n == 1:
            return 0.0
        passes = 2 if name == "all_reduce" else 1
        ring = size * (n - 1) / n / link.bandwidth + link.latency * math.log2(n)
        return passes * ring + self.topology.device.launch
