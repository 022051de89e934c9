"""What placing depends on: seconds of nodes on each device, links between devices, memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.modes import no_grad
from tandem.devices import canonical
from tandem.distributed.topology import DeviceModel, Link, Topology
from tandem.errors import ValueRangeError
from tandem.graph.ir import Builder, Graph, Node, Type, Value
from tandem.graph.symbolic import Sym, hint
from tandem.graph.work import operations_of, size_of
from tandem.ops.define import Movement, add_input
from tandem.placement.where import task_of

_MESSAGE = 2e-4  # seconds of a value from task to task besides its bytes: 160 to 200 us between processes of a host


class PlacementCosts:
    """Costs on some devices.

    models: what each device can do; links: a Link for all pairs, or a function of two positions that gives one
    times: seconds of nodes as measured (`measure_nodes`), on a device whose speed is 1
    speeds: how many times as fast each device is as the one that was measured
    together: the part of its speed that a device has while the others compute, too, as where they share a host

    >>> costs = td.distributed.PlacementCosts.of(td.distributed.Topology.processors(2))
    >>> round(costs.link(0, 1).time(4e9))
    1
    """

    def __init__(
        self, models: Sequence[DeviceModel], links, times: Mapping[Node, float] | None = None,
        speeds: Sequence[float] | None = None, together: float = 1.0,
    ):  # fmt: skip
        self.models = list(models)
        self.link = links if callable(links) else lambda a, b: links
        self.times = dict(times or {})
        self.together = together
        self._mean: tuple[float, float] | None = None
        self.speeds = [1.0] * len(self.models) if speeds is None else list(speeds)
        if len(self.speeds) != len(self.models) or any(s <= 0 for s in self.speeds):
            raise ValueRangeError(
                "place", f"speeds={self.speeds} for {len(self.models)} devices; there must be a positive one for each"
            )

    @classmethod
    def of(cls, topology: Topology, times: Mapping[Node, float] | None = None) -> PlacementCosts:
        """Those of the devices of a cluster, in order."""
        return cls([topology.device] * topology.devices, lambda a, b: topology.link([a, b]), times)

    @classmethod
    def of_names(cls, devices: Sequence[str]) -> PlacementCosts:
        """Those of processors, where nothing was measured: what crosses between tasks is a message."""
        topology = Topology.processors(len(devices))
        tasks = [task_of(canonical(name)) for name in devices]
        message = Link(topology.inside.bandwidth, _MESSAGE)
        return cls([topology.device] * len(devices), lambda a, b: topology.inside if tasks[a] == tasks[b] else message)

    def seconds(self, node: Node, device: int) -> float:
        """How long a device takes for a node: as measured, or the larger of what computing and memory take."""
        known = self.times.get(node)
        if known is not None:
            return known / self.speeds[device]
        if isinstance(node.op, Movement) or not node.inputs:
            return 0.0
        model = self.models[device]
        moved = sum(map(size_of, (*node.inputs, *node.outputs)))
        return model.launch + max(operations_of(node) / model.operations, moved / model.bandwidth)

    def size(self, value: Value) -> int:
        """Bytes."""
        return size_of(value)

    def crossing(self, value: Value) -> int:
        """Bytes that cross, in a step, where a value is read on another device."""
        return self.size(value)

    def transfer(self, size: float, source: int, destination: int) -> float:
        return 0.0 if source == destination else self.link(source, destination).time(size)

    def mean_transfer(self, size: float) -> float:
        """Between two devices that are not known yet."""
        if self._mean is None:
            n = len(self.models)
            links = [self.link(a, b) for a in range(n) for b in range(n) if a != b]
            count = max(len(links), 1)
            self._mean = sum(k.latency for k in links) / count, sum(1 / k.bandwidth for k in links) / count
        latency, per_byte = self._mean
        return latency + size * per_byte

    def memory(self, device: int) -> float:
        return self.models[device].memory


def measure_nodes(graph: Graph, repeats: int = 3) -> dict[Node, float]:
    """Seconds of each node here, by running it alone on tensors of its shapes: the least of several. Nodes of the same operator on
    the same types are measured once. What is a view, or a number, takes no time.

    >>> f = td.compile(lambda x: td.relu(x @ x))
    >>> y = f(td.ones(8, 8))
    >>> times = td.distributed.measure_nodes(f.graph())
    >>> min(times.values()) > 0
    True
    """
    known: dict[tuple, float | None] = {}
    found = {}
    for node in graph.nodes:
        if node.op.is_input or isinstance(node.op, Movement) or not node.inputs or node.op.effect:
            continue
        types = tuple((v.dtype, tuple(map(hint, v.shape))) for v in node.inputs)
        key = (node.op, types)
        if key not in known:
            known[key] = _seconds(node, types, repeats)
        if known[key] is not None:
            found[node] = known[key]
    return found


def _seconds(node: Node, types: tuple, repeats: int) -> float | None:
    """None where the operator cannot run by itself on ones."""
    graph = Graph(name=node.op.name)
    _runtime.enter_trace()
    try:
        with Builder(graph) as builder:
            values = tuple(add_input(builder, Type(dtype, shape)) for dtype, shape in types)
            graph.outputs = list(builder.add(node.op.substitute(_numbers), values).outputs)
    finally:
        _runtime.exit_trace()
    tensors = [F.full(shape, 1, dtype=dtype) for dtype, shape in types]
    best = None
    try:
        with no_grad():
            graph.run(*tensors)  # compiles
            for _ in range(repeats):
                start = time.perf_counter()
                for result in graph.run(*tensors):
                    result.data_ptr()
                seconds = time.perf_counter() - start
                best = seconds if best is None else min(best, seconds)
    except (ValueError, IndexError, ArithmeticError):
        return None
    return best


def _numbers(sizes):
    return tuple(map(_numbers, sizes)) if isinstance(sizes, tuple) else hint(sizes) if isinstance(sizes, Sym) else sizes
