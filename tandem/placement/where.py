"""Where values of a graph are: by the devices of its inputs, transfers, and what nodes are bound to."""

from __future__ import annotations

from collections.abc import Sequence

from tandem.devices import canonical
from tandem.errors import DeviceError
from tandem.graph.ir import Graph, Node, Value
from tandem.ops.transfer import Transfer

CPU = "cpu"


class Where(dict):
    """Value -> name of its device; None: anywhere, as it is a number or made of nothing but numbers and sizes.

    inputs: devices of the graph's inputs, None for numbers.
    """

    def __init__(self, graph: Graph, inputs: Sequence[str | None]):
        super().__init__(zip(graph.inputs, inputs, strict=True))
        self._graph = graph
        self._seen = 0
        self.update_nodes()

    def update_nodes(self) -> None:
        """Takes in the nodes that the graph has got since."""
        nodes = self._graph.nodes
        for node in nodes[self._seen :]:
            if not node.op.is_input:
                device = self.device_of(node)
                for v in node.outputs:
                    self[v] = device
        self._seen = len(nodes)

    def device_of(self, node: Node) -> str | None:
        """Where a node runs: where it is bound to, or where its operands are."""
        if isinstance(node.op, Transfer):
            return canonical(node.op.device)
        if node.device is not None:
            return canonical(node.device)
        found = self.common(node.inputs)
        if len(found) > 1 and hasattr(node.op, "graphs"):  # operands of a region are brought to where it runs
            return next(device for device in found if not is_cpu(device))
        if len(found) > 1:
            raise on_different_devices(node.op.name, [self[v] for v in node.inputs if self[v]], node.source)
        return next(iter(found), None)

    def common(self, operands: Sequence[Value]) -> dict[str, None]:
        """The devices of operands, of which there is one unless they cannot be used together. A single element on the CPU may go
        with tensors elsewhere."""
        placed = [v for v in operands if self[v] is not None]
        found = dict.fromkeys(self[v] for v in placed if v.ndim or not is_cpu(self[v]))
        return found or dict.fromkeys(self[v] for v in placed)


def goes_along(value: Value, source: str, destination: str) -> bool:
    """Whether a kernel of another device of the process takes the value as it is: a single element on the host."""
    return value.ndim == 0 and is_cpu(source) and not is_cpu(destination) and task_of(source) == task_of(destination)


def on_different_devices(op: str, devices: Sequence, source=None) -> DeviceError:
    """What is wrong with a call of tensors on these devices."""
    return DeviceError(
        op,
        f"its tensors are on different devices: {', '.join(map(str, devices))}",
        fix="move them together: x.to(y.device)",
        source=getattr(source, "source", source),
    )


def is_cpu(device: str) -> bool:
    return device.rpartition("device:")[2].startswith(CPU)


def task_of(device: str) -> str:
    """The process that has a device: "/job:worker/task:3", "" for this one."""
    return device.rpartition("/device:")[0]


def spans_devices(graph: Graph, device: str) -> bool:
    """Whether a node must run elsewhere, or moves something; what is inside of regions is theirs to look at."""
    return any(
        isinstance(node.op, Transfer) or (node.device is not None and canonical(node.device) != device)
        for node in graph.nodes
    )
