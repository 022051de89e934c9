"""A cluster in numbers: devices, fast islands of them, and the links between. Real, or only planned."""

from __future__ import annotations

import dataclasses
import math

from tandem.errors import ValueRangeError


@dataclasses.dataclass(frozen=True)
class Link:
    """bandwidth: bytes a second that one device sends; latency: seconds of a message."""

    bandwidth: float
    latency: float = 5e-6

    def time(self, size: float) -> float:
        """Seconds of one message."""
        return self.latency + size / self.bandwidth

    def bucket(self, total: float) -> float:
        """Bytes that are sent at once of `total` that become ready one after the other, while something else is done (Note
        [Buckets] in ddp.py)."""
        return math.sqrt(total * self.latency * self.bandwidth)


@dataclasses.dataclass(frozen=True)
class DeviceModel:
    """What one device can do.

    operations: a second, of large matrix products in the type that is trained in, as reached, not as advertised
    bandwidth: bytes a second of its memory, as reached; memory: bytes
    launch: seconds that a kernel takes at least
    action: seconds that a stage of a pipeline takes for a micro-batch besides computing: to receive, to begin a program, to send
    cache: bytes of a processor's caches that one device has for itself; what is more is read from memory
    peak: operations a second as advertised, by which utilisation is counted; that of `operations` by default
    times: of operators that were measured, by which plans are made where there are some (automatic/op_times.py)
    """

    operations: float
    bandwidth: float
    memory: float
    launch: float = 4e-6
    peak: float | None = None
    times: object = dataclasses.field(default=None, compare=False, repr=False)
    cache: float = 16e6
    action: float = 0.0

    @property
    def advertised(self) -> float:
        return self.operations if self.peak is None else self.peak


@dataclasses.dataclass(frozen=True)
class Topology:
    """nodes of `per_node` devices each: a fast link inside, a slower one between.

    >>> cluster = td.distributed.Topology.a100(nodes=2)
    >>> cluster.devices, cluster.link([0, 7]) is cluster.inside, cluster.link([0, 8]) is cluster.between
    (16, True, True)
    """

    nodes: int
    per_node: int
    device: DeviceModel
    inside: Link
    between: Link

    def __post_init__(self):
        if self.nodes < 1 or self.per_node < 1:
            raise ValueRangeError(
                "topology", f"{self.nodes} nodes of {self.per_node} devices; there must be one at least"
            )

    @classmethod
    def a100(cls, nodes: int, per_node: int = 8) -> Topology:
        """Nodes of A100-80GB with NVLink 3 (300 GB/s each way) and a 200 Gb/s InfiniBand adapter for each device; bfloat16."""
        device = DeviceModel(operations=225e12, bandwidth=1.6e12, memory=80e9, peak=312e12)
        return cls(nodes, per_node, device, Link(230e9, 8e-6), Link(20e9, 12e-6))

    @classmethod
    def h100(cls, nodes: int, per_node: int = 8) -> Topology:
        """Nodes of H100-SXM with NVLink 4 (450 GB/s each way) and a 400 Gb/s adapter for each device; bfloat16."""
        device = DeviceModel(operations=640e12, bandwidth=2.8e12, memory=80e9, peak=989e12)
        return cls(nodes, per_node, device, Link(350e9, 8e-6), Link(40e9, 12e-6))

    @classmethod
    def processors(cls, ranks: int) -> Topology:
        """Ranks of one host, a processor core each, with memory between them; float32."""
        device = DeviceModel(operations=40e9, bandwidth=8e9, memory=8e9, launch=2e-6)
        return cls(1, ranks, device, Link(4e9, 5e-6), Link(4e9, 5e-6))

    @property
    def devices(self) -> int:
        return self.nodes * self.per_node

    def link(self, ranks) -> Link:
        """The slowest link that a ring over these devices takes."""
        return self.inside if len({r // self.per_node for r in ranks}) <= 1 else self.between

    def all_reduce(self, size: float, ranks) -> float:
        """Seconds to sum `size` bytes over devices, on a ring."""
        return 2 * self._ring(size, ranks)

    def all_gather(self, size: float, ranks) -> float:
        """Seconds until each device has all `size` bytes, of which each has a part; reduce_scatter takes as long."""
        return self._ring(size, ranks)

    def _ring(self, size: float, ranks) -> float:
        n = len(ranks)
        if n < 2:
            return 0.0
        link = self.link(ranks)
        return size * (n - 1) / n / link.bandwidth + link.latency * math.log2(n)
