"""Where the nodes of a run are: those bound to a device there, the others where their operands are; what crosses is transferred."""

from __future__ import annotations

import contextlib

from tandem import _runtime
from tandem.devices import CPU, DEVICES, Device, as_device, canonical, code_of
from tandem.errors import DeviceError
from tandem.graph.ir import Value, current_builder
from tandem.ops.define import tracing
from tandem.ops.transfer import Transfer
from tandem.placement.where import Where, goes_along, on_different_devices
from tandem.session.graph import StepNode
from tandem.session.nodes import Call, Fed, Identity, Store


class Places:
    """Where the nodes of a run must be.

    soft: where a node cannot be where it must, it goes to the first device that is here among those asked for, or the CPU.
    """

    def __init__(self, steps: list[StepNode], soft: bool = False):
        bound = [n for n in steps if n.device is not None and not (isinstance(n.op, Fed) and not n.op.is_variable)]
        instead = None
        if soft:
            instead = next((d for d in map(_here, bound) if d is not None), CPU)
        self._device = {n: _device(n, instead) for n in bound}
        for n in steps:
            if isinstance(n.op, Store) and n.device is None:  # a variable stays where it is, whoever writes it
                variable = n.op.variable.node
                if variable.device is not None:
                    self._device[n] = _device(variable, instead)

    def of(self, node: StepNode) -> Device | None:
        """Where a node must be, or None. Feeds and constants have no place of their own."""
        return self._device.get(node)

    @property
    def device(self) -> Device | None:
        """Where all of a run must be that must be somewhere, if that is one device."""
        found = {canonical(d): d for d in self._device.values()}
        return next(iter(found.values())) if len(found) == 1 else None

    @property
    def several(self) -> bool:
        return len({canonical(d) for d in self._device.values()}) > 1


def _here(node: StepNode) -> Device | None:
    try:
        return as_device(node.device)
    except DeviceError:
        return None


def _device(node: StepNode, instead: Device | None) -> Device:
    try:
        return as_device(node.device)
    except DeviceError as error:
        if instead is not None:
            return instead
        raise DeviceError(
            node.op.name,
            f"{node.name!r} is to run on {node.device}, where it cannot: {error.rule}",
            fix="build it in the scope of a device that is here, or use td.Session(graph, soft_placement=True)",
            source=node.source,
        ) from None


@contextlib.contextmanager
def run_device(places: Places, operands, fed: list, held: list):
    """Feeds and tensors of the graph, where a run takes them, which is on its device as long as this lasts. Where no node is bound
    to a device it is the one of operands on an accelerator, for the graph's own tensors: feeds and variables stay where they are.
    A run on several devices takes all of them where they are."""
    if places.several:
        yield fed, held
        return
    device = places.device
    there = next(filter(None, map(_runtime.device_index, operands)), 0) if device is None else code_of(device)
    if device is None and not there:
        yield fed, held
        return
    if device is not None:
        fed = [_moved(t, there) for t in fed]
    held = [t if device is None and t.ndim == 0 else _moved(t, there) for t in held]  # numbers go anywhere
    before = _runtime.set_default_device(there)
    try:
        yield fed, held
    finally:
        _runtime.set_default_device(before)


def _moved(tensor, device: int):
    return tensor if _runtime.device_index(tensor) == device else tensor.to(DEVICES[device])


class Transfers:
    """While a run over several devices is traced: operands that are elsewhere are transferred to where a node runs.

    movable: what comes in from outside and has no place of its own: feeds, constants.
    """

    def __init__(self, places: Places, movable: set[Value]):
        self.places, self.movable = places, movable
        graph = current_builder().graph
        self.where = Where(graph, [tracing.devices.get(v) for v in graph.inputs])

    @staticmethod
    def needed(places: Places) -> bool:
        """Whether the run that is being traced is over several devices."""
        devices = set(tracing.devices.values())
        if places.device is not None:
            devices.add(canonical(places.device))
        return places.several or len(devices) > 1

    def operands(self, node: StepNode, operands: list[Value]) -> list[Value]:
        """Those of a node, where it runs."""
        if not isinstance(node.op, (Call, Store, Identity)):
            return operands
        self.where.update_nodes()
        place = self.places.of(node)
        if place is not None:
            return [self.bring(v, canonical(place)) for v in operands]
        found = self.where.common([v for v in operands if v not in self.movable]) or self.where.common(operands)
        if len(found) > 1:
            raise on_different_devices(node.op.name, [self.where[v] for v in operands if self.where[v]])
        device = next(iter(found), None)
        return operands if device is None else [self.bring(v, device) for v in operands]

    def bring(self, value: Value, device: str) -> Value:
        source = self.where[value]
        if source in (None, device) or goes_along(value, source, device):
            return value
        return self._transfer(value, device, source)

    def like(self, value: Value, other: Value) -> Value:
        """A value on the device of another one."""
        self.where.update_nodes()
        source, device = self.where[value], self.where[other]
        return value if source in (None, device) or device is None else self._transfer(value, device, source)

    def _transfer(self, value: Value, device: str, source: str) -> Value:
        made = Transfer(device, source)(value)
        self.where.update_nodes()
        return made
