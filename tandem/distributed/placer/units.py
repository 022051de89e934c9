"""A graph as units that are placed whole.

Note [Units]
Operators that a device would fuse anyway are one unit: an elementwise operator or a view joins the only one that reads it, or the
only one that it reads. Neither can close a cycle, so units can be ordered as nodes can. What is made of nothing but numbers is
computed wherever it is read, and belongs to no unit.

Units that must sit together are one group: what is written into an input and the input; what the caller says; nodes bound to one
device are held to it, not grouped. A group may be held to some devices by names of its nodes. Where two nodes of a group leave no
device, both lines are in the error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tandem.devices import canonical, named
from tandem.distributed.placer.costs import PlacementCosts
from tandem.errors import DeviceError
from tandem.graph.ir import Graph, Node, Value
from tandem.ops.define import Elementwise, Movement


@dataclasses.dataclass
class Unit:
    """nodes: what runs as one; seconds: on each device; held: bytes that it holds between steps (inputs)
    group: what it sits with"""

    nodes: list[Node]
    seconds: list[float]
    held: float = 0.0
    group: int = 0
    sources: set = dataclasses.field(default_factory=set)  # units that it needs

    @property
    def name(self) -> str:
        return "+".join(dict.fromkeys(n.op.name for n in self.nodes if not isinstance(n.op, Movement))) or "view"


@dataclasses.dataclass(frozen=True)
class Flow:
    """A value between units. readers: units that need it; kept: whether it is a result"""

    value: Value | None
    size: int
    producer: int
    readers: tuple[int, ...]
    kept: bool = False


@dataclasses.dataclass
class Problem:
    """What is to be placed. allowed: devices that each group may be on."""

    units: list[Unit]
    flows: list[Flow]
    allowed: list[list[int]]
    devices: list[str]
    costs: PlacementCosts

    def __post_init__(self):
        self.made: list[list[int]] = [[] for _ in self.units]  # flows of each unit
        for i, flow in enumerate(self.flows):
            self.made[flow.producer].append(i)
            for reader in flow.readers:
                self.units[reader].sources.add(flow.producer)

    @property
    def members(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.allowed]
        for i, unit in enumerate(self.units):
            found[unit.group].append(i)
        return found


def problem_of(
    graph: Graph, devices: Sequence[str], costs: PlacementCosts, colocate: Iterable = (), hold=None
) -> Problem:
    """hold: {node, value or position of an input: device}, besides what nodes are bound to."""
    return _Maker(graph, [canonical(d) for d in devices], costs).problem(colocate, hold or {})


class _Sets:
    """Sets that are joined."""

    def __init__(self):
        self.parent: dict = {}

    def find(self, x):
        root = x
        while self.parent.setdefault(root, root) is not root:
            root = self.parent[root]
        while self.parent[x] is not root:
            self.parent[x], x = root, self.parent[x]
        return root

    def join(self, a, b):
        self.parent[self.find(b)] = self.find(a)


class _Maker:
    def __init__(self, graph: Graph, devices: list[str], costs: PlacementCosts):
        self.graph, self.devices, self.costs = graph, devices, costs
        self.anywhere = _anywhere(graph)
        self.nodes = [n for n in graph.nodes if n not in self.anywhere]
        self.readers: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for node in self.nodes:
            for source in dict.fromkeys([*(v.node for v in node.inputs), *node.control]):
                if source in self.readers:
                    self.readers[source].append(node)
        self.results = {v for v in graph.outputs if v is not None}
        self.holds: dict[Node, list[tuple[str, object]]] = {}

    def problem(self, colocate: Iterable, hold: dict) -> Problem:
        for node in self.nodes:
            device = node.op.device if node.op.name == "transfer" else node.device
            if device is not None:
                self._hold(node, str(device), node.source)
        for what, device in hold.items():
            self._hold(self._node(what), str(device), None)
        units = self._units()
        unit_of = {node: i for i, unit in enumerate(units) for node in unit.nodes}
        for position, _ in self.graph.mutations:  # the write itself: where the input is, once all else has run
            source = self.graph.inputs[position].node
            unit_of.setdefault((source, "write"), len(units))
            units.append(Unit([], [0.0] * len(self.devices)))
        flows = self._flows(units, unit_of)
        self._groups(units, unit_of, colocate)
        allowed = self._allowed(units)
        return Problem(units, flows, allowed, self.devices, self.costs)

    def _node(self, what) -> Node:
        if isinstance(what, int):
            return self.graph.inputs[what].node
        return what.node if isinstance(what, Value) else what

    def _hold(self, node: Node, device: str, source):
        self.holds.setdefault(node, []).append((device, source))

    # -- units

    def _units(self) -> list[Unit]:
        """See Note [Units]."""
        sets = _Sets()
        joins = lambda n: _cheap(n) and self._inner(n)
        for node in self.nodes:  # to what it reads
            sets.find(node)
            sources = {sets.find(n) for n in self._sources(node) if not is_input(n)}
            if joins(node) and len(sources) == 1 and self._inner(next(iter(sources))):
                sets.join(next(iter(sources)), node)
        costly = {sets.find(n) for n in self.nodes if not joins(n)}
        kept = {sets.find(v.node) for v in self.results if v.node in self.readers}
        after: dict[Node, set[Node]] = {}
        for node in self.nodes:
            after.setdefault(sets.find(node), set()).update(self.readers[node])
        for part in reversed(list(after)):  # to what reads it
            readers = {sets.find(n) for n in after[part]} - {part}
            if part not in costly and part not in kept and len(readers) == 1:
                reader = next(iter(readers))
                if self._inner(reader):
                    sets.join(reader, part)
        found: dict[Node, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(sets.find(node), []).append(node)
        return self._ordered(list(found.values()))

    def _inner(self, node: Node) -> bool:
        """Whether others may join a node."""
        return not is_input(node) and not node.op.effect and node not in self.holds

    def _sources(self, node: Node) -> list[Node]:
        return [n for n in (*(v.node for v in node.inputs), *node.control) if n in self.readers]

    def _ordered(self, parts: list[list[Node]]) -> list[Unit]:
        """Units so that each comes after those that it needs."""
        part_of = {node: i for i, part in enumerate(parts) for node in part}
        needs = [{part_of[s] for node in part for s in self._sources(node)} - {i} for i, part in enumerate(parts)]
        order, state = [], [0] * len(parts)
        for first in range(len(parts)):
            stack = [first]
            while stack:
                i = stack[-1]
                if state[i] == 0:
                    state[i] = 1
                    stack.extend(j for j in needs[i] if state[j] == 0)
                else:
                    stack.pop()
                    if state[i] == 1:
                        state[i] = 2
                        order.append(i)
        return [self._unit(parts[i]) for i in order]

    def _unit(self, nodes: list[Node]) -> Unit:
        held = sum(float(self.costs.size(v)) for n in nodes if is_input(n) for v in n.outputs)
        seconds = [sum(self.costs.seconds(n, d) for n in nodes) for d in range(len(self.devices))]
        return Unit(nodes, seconds, held)

    def _flows(self, units: list[Unit], unit_of: dict) -> list[Flow]:
        readers: dict[Value, dict[int, None]] = {}
        orders: dict[tuple[int, int], None] = {}  # control inputs: nothing moves but a word
        for i, unit in enumerate(units):
            for node in unit.nodes:
                for v in node.inputs:
                    if unit_of.get(v.node, i) != i:
                        readers.setdefault(v, {})[i] = None
                for n in node.control:
                    if unit_of.get(n, i) != i:
                        orders[unit_of[n], i] = None
        for position, v in self.graph.mutations:
            write = unit_of[self.graph.inputs[position].node, "write"]
            if v.node in unit_of:
                readers.setdefault(v, {})[write] = None
        flows = []
        for i, unit in enumerate(units):
            for node in unit.nodes:
                for v in node.outputs:
                    if v in readers or v in self.results:
                        flows.append(Flow(v, self.costs.crossing(v), i, tuple(readers.get(v, ())), v in self.results))
        return flows + [Flow(None, 0, a, (b,)) for a, b in orders]

    # -- groups

    def _groups(self, units: list[Unit], unit_of: dict, colocate: Iterable):
        sets = _Sets()
        for i in range(len(units)):
            sets.find(i)
        for position, _ in self.graph.mutations:
            source = self.graph.inputs[position].node
            sets.join(unit_of[source], unit_of[source, "write"])
        for together in colocate:
            first, *rest = [self._node(x) for x in together]
            for node in rest:
                if first in unit_of and node in unit_of:
                    sets.join(unit_of[first], unit_of[node])
        numbers: dict[int, int] = {}
        for i, unit in enumerate(units):
            unit.group = numbers.setdefault(sets.find(i), len(numbers))

    def _allowed(self, units: list[Unit]) -> list[list[int]]:
        count = 1 + max((u.group for u in units), default=-1)
        allowed = [list(range(len(self.devices))) for _ in range(count)]
        reasons: list[list[tuple[Node, str, object]]] = [[] for _ in range(count)]
        for unit in units:
            for node in unit.nodes:
                for device, source in self.holds.get(node, ()):
                    fits = [d for d in allowed[unit.group] if _matches(device, self.devices[d])]
                    reasons[unit.group].append((node, device, source))
                    if not fits:
                        raise self._contradiction(reasons[unit.group])
                    allowed[unit.group] = fits
        return allowed

    def _contradiction(self, reasons: list) -> DeviceError:
        *before, (node, device, source) = reasons
        says = lambda n, d, s: f"{n.op.name!r} is to be on {d} ({s or n.source or 'by the caller'})"
        against = next((r for r in before if not _meet(r[1], device, self.devices)), None)
        if against is None:
            return DeviceError(
                "place", f"{says(node, device, source)}; there are {', '.join(self.devices)}",
                fix="name a device that is there", source=source,
            )  # fmt: skip
        return DeviceError(
            "place", f"{says(*against)} and {says(node, device, source)}, but they must sit together",
            fix="bind both to one device, or leave one of them to the placer", source=source,
        )  # fmt: skip


def is_input(node: Node) -> bool:
    """Whether a node is what a graph begins with: an input, or a variable of a deferred graph."""
    return node.op.name in ("input", "variable")


def _cheap(node: Node) -> bool:
    return isinstance(node.op, (Elementwise, Movement))


def _anywhere(graph: Graph) -> set[Node]:
    """Nodes that are made of numbers and sizes alone."""
    found: set[Node] = set()
    for node in graph.nodes:
        number = node.op.is_input and not node.outputs[0].ndim and node.outputs[0].type.weak
        made = not is_input(node) and bool(node.outputs) and not node.op.effect and node.device is None
        if number or (made and all(v.node in found for v in node.inputs)):
            found.add(node)
    return found


def _matches(asked: str, device: str) -> bool:
    """Whether a device is one that a name asks for; a name may leave out the task, or the device."""
    if canonical(named(asked)) == device:
        return True
    wanted, have = _fields(asked), _fields(device)
    return all(have.get(k) == v for k, v in wanted.items())


def _fields(name: str) -> dict[str, str]:
    if not name.startswith("/"):
        return {"device": canonical(name)}
    found = dict(part.partition(":")[::2] for part in name.strip("/").split("/"))
    if "device" in found:
        found["device"] = canonical(found["device"])
    return found


def _meet(a: str, b: str, devices: list[str]) -> bool:
    return any(_matches(a, d) and _matches(b, d) for d in devices)
