"""place: a device for every operator of a graph, found automatically."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tandem import _runtime, files
from tandem.distributed.automatic.step import whole_step
from tandem.distributed.placer.costs import PlacementCosts, measure_nodes
from tandem.distributed.placer.deferred import DeferredCosts, Needed, bind
from tandem.distributed.placer.exact import solve_exactly
from tandem.distributed.placer.search import Search
from tandem.distributed.placer.units import Problem, problem_of
from tandem.distributed.topology import Topology
from tandem.distributed.traced import trace_loss
from tandem.errors import DeviceError, OutOfMemoryError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Builder, Graph, Node, Type, Value, placed, source_scope
from tandem.graph.view import render, show_bytes
from tandem.ops.define import add_input
from tandem.placement.partition import Partition, partition
from tandem.session.graph import Graph as DeferredGraph


class PlacementPlan:
    """Where the nodes of a graph run: made by `td.distributed.place`.

    seconds: of a step, as expected; alone: the same on the best single device, None if it fits on none
    idle: seconds that each device waits; bytes, transfers: what crosses between devices in a step
    memory: bytes that each device holds at most; bound: no placement takes less, if it is known; optimal: whether it is reached
    """

    def __init__(self, graph: Graph, problem: Problem, placement: list[int], search: Search, bound: float | None):
        self.source, self._problem, self._placement = graph, problem, placement
        self.devices = list(problem.devices)
        self._outcome = outcome = search.value(placement)[1]
        self.seconds, self.bytes, self.transfers = outcome.seconds, outcome.bytes, outcome.transfers
        self.idle, self.memory, self.bound = outcome.idle, outcome.peaks, bound
        single = [search.value(p)[1] for p in search.one_device().values()]
        fitting = [o.seconds for o in single if not o.excess(problem)]
        self.alone = min(fitting, default=None)
        self.evaluations = search.evaluations
        self._device = {node: problem.devices[placement[unit.group]] for unit in problem.units for node in unit.nodes}

    @property
    def optimal(self) -> bool:
        return self.bound is not None and self.seconds <= self.bound * (1 + 1e-6)

    def device_of(self, what: Node | Value) -> str | None:
        """Where a node runs, or a value is made; None: wherever it is read, as it is made of numbers alone."""
        return self._device.get(what.node if isinstance(what, Value) else what)

    @property
    def inputs(self) -> list[str | None]:
        """Where each input of the graph is held."""
        return [self.device_of(v) for v in self.source.inputs]

    def schedule(self) -> list[tuple[float, float, str, str]]:
        """(begin, end, device, operators) of all that takes time, as expected."""
        made = []
        for unit, start in zip(self._problem.units, self._outcome.starts, strict=True):
            d = self._placement[unit.group]
            if unit.seconds[d]:
                made.append((start, start + unit.seconds[d] * self._outcome.slower, self.devices[d], unit.name))
        return sorted(made)

    def explain(self) -> str:
        """What each device does, what crosses, and why it takes as long as it does."""
        against = "" if self.alone is None else f"; one device alone: {_show_time(self.alone)}"
        proof = "" if self.bound is None else ", optimal" if self.optimal else f", bound {_show_time(self.bound)}"
        lines = [
            f"{_show_time(self.seconds)} a step{proof}{against}; {self.transfers} values cross, {show_bytes(self.bytes)}"
        ]
        for d, device in enumerate(self.devices):
            busy = self._outcome.busy[d]
            units = [u for u in self._problem.units if self._placement[u.group] == d and u.seconds[d]]
            share = busy / self.seconds if self.seconds else 0.0
            lines.append(
                f"  {device}: {len(units)} units, busy {_show_time(busy)} ({share:.0%}), idle {_show_time(self.idle[d])}, "
                f"at most {show_bytes(int(self.memory[d]))}"
            )
        for (a, b), size in sorted(self._outcome.sent.items()):
            lines.append(f"  {self.devices[a]} -> {self.devices[b]}: {show_bytes(size)}")
        longest = sorted(self.schedule(), key=lambda s: s[0] - s[1])[:5]
        lines += [f"  longest: {name} on {device}, {_show_time(end - begin)}" for begin, end, device, name in longest]
        return "\n".join(lines)

    def view(self, path=None) -> str:
        """The graph as a page, coloured by device. Written to path, if there is one; gives the HTML text."""
        graph = self.source if isinstance(self.source, Graph) else self.source.graph
        title = f"{graph.name or 'graph'}, {_show_time(self.seconds)} a step"
        text = render(graph, title=title, devices=self._device)
        if path is not None:
            files.write(path, text, durable=False)
        return text

    def graph(self) -> Graph:
        """The graph with every node bound to its device."""
        made, copies, nodes = Graph(self.source.symbols, self.source.name), {}, {}
        builder = Builder(made)
        _runtime.enter_trace()
        try:
            with builder:
                for node in self.source.nodes:
                    if node.op.is_input:
                        v = node.outputs[0]
                        copies[v] = add_input(builder, Type(v.dtype, v.shape, v.type.weak))
                        continue
                    control = [nodes[n] for n in node.control if n in nodes]
                    with source_scope(node.source), placed(builder, control, self.device_of(node)):
                        nodes[node] = builder.add(node.op, tuple(copies[v] for v in node.inputs))
                    copies.update(zip(node.outputs, nodes[node].outputs, strict=True))
        finally:
            _runtime.exit_trace()
        made.outputs = [None if v is None else copies[v] for v in self.source.outputs]
        made.mutations = [(position, copies[v]) for position, v in self.source.mutations]
        return made

    def apply(self):
        """Binds the nodes of a deferred graph that no scope of td.device binds to their devices, before a session has run them."""
        if not isinstance(self.source, Needed):
            raise UnsupportedError(
                "apply", "nodes of a graph of primitives do not change", fix="plan.graph() is one that is bound"
            )
        for node, device in self._device.items():
            bind(node, device)

    def partition(self, main: str | None = None) -> Partition:
        """The graph cut into a part for each device and stage. main: where results are that could be anywhere."""
        return partition(self.graph(), self.inputs, main or self.devices[0])


def place(
    graph, devices: Sequence[str], args=None, *, costs: PlacementCosts | None = None, topology: Topology | None = None,
    measure: bool = False, colocate: Iterable = (), hold=None, time_limit: float = 5.0, exact: bool | None = None,
    fetches=None, batch: int = 32,
) -> PlacementPlan:  # fmt: skip
    """Finds a device for every node of a graph, so that a step takes little time.

    graph: of primitives, such as td.compile's; or a function that gives a loss, with `args` of the shapes of a batch: then the
    graph has its gradients, too, and each is wanted where its parameter is
    devices: names, of this process ("cpu", "cuda:0") or of tasks of a cluster ("/job:worker/task:1/device:cpu")
    costs: of nodes, links and memory; those of `topology`, or of processors and messages between tasks, otherwise; measure=True has
    nodes measured here
    graph may be deferred (td.Graph): then `fetches` says what is run of it, `batch` stands for sizes that are not known, and
    `plan.apply()` binds its nodes
    colocate: sequences of nodes or values that must sit together; hold: {node, value or position of an input: device}. Names may
    leave out the task. What is written into an input sits with it
    time_limit: seconds for the search; exact: whether an integer program is solved besides; by default for few units

    >>> w1, w2 = td.ones(64, 64, requires_grad=True), td.ones(64, 64, requires_grad=True)
    >>> def loss(x, y):  # two towers
    ...     return (td.relu(x @ w1) * td.relu(y @ w2)).sum()
    >>> batch = td.ones(512, 64), td.ones(512, 64)
    >>> plan = td.distributed.place(loss, ["/job:worker/task:0", "/job:worker/task:1"], batch)
    >>> plan.seconds <= plan.alone
    True
    """
    graph, hold, colocate = _graph(graph, args, hold, colocate, fetches)
    if not devices or len(set(devices)) != len(devices):
        raise DeviceError("place", f"devices={list(devices)}; there must be one at least, and each once")
    devices = [
        d if not d.startswith("/") or "device:" in d else f"{d.rstrip('/')}/device:cpu" for d in map(str, devices)
    ]
    if costs is None:
        costs = PlacementCosts.of(topology) if topology else PlacementCosts.of_names(devices)
    if measure and isinstance(graph, Graph):
        costs.times |= measure_nodes(graph)
    if len(costs.models) < len(devices):
        raise ValueRangeError("place", f"costs of {len(costs.models)} devices were given for {len(devices)}")
    costs = PlacementCosts(
        costs.models[: len(devices)], costs.link, costs.times, costs.speeds[: len(devices)], costs.together
    )
    if isinstance(graph, Needed):
        costs = DeferredCosts(costs, batch, graph.differentiated)
        if measure:
            costs.measure(graph.nodes)
    problem = problem_of(graph, devices, costs, colocate, hold)
    search = Search(problem)
    placement, outcome = search.run(time_limit)
    excess = outcome.excess(problem)
    if excess:
        needs = ", ".join(
            f"{d} {show_bytes(int(p))} of {show_bytes(int(costs.memory(i)))}"
            for i, (d, p) in enumerate(zip(devices, outcome.peaks, strict=True))
        )
        raise OutOfMemoryError(
            "place", f"the graph does not fit: the best placement found takes {needs}",
            fix="give more devices or memory, a smaller batch, or recompute (td.checkpoint)",
        )  # fmt: skip
    bound = None
    if exact or (exact is None and _is_small(problem)):
        found = solve_exactly(problem, outcome.seconds, time_limit)
        bound = min(found.bound, outcome.seconds)
        if found.placement is not None and search.value(found.placement)[0] < search.value(placement)[0]:
            placement = found.placement
    return PlacementPlan(graph, problem, placement, search, bound)


def _is_small(problem: Problem) -> bool:
    return sum(max(u.seconds) > 0 for u in problem.units) <= 10 and len(problem.devices) <= 3


def _graph(graph, args, hold, colocate, fetches) -> tuple[Graph | Needed, dict, list]:
    hold, colocate = dict(hold or {}), list(colocate)
    if isinstance(graph, DeferredGraph):
        needed = Needed(graph, [] if fetches is None else fetches)
        return needed, hold, [*colocate, *needed.together()]
    if isinstance(graph, Graph):
        return graph, hold, colocate
    if args is None:
        raise ValueRangeError("place", "a function was given without args", fix="place(fn, devices, args=(x, y))")
    step = whole_step(trace_loss("place", graph, args))
    gradients = step.graph.outputs[step.forward :]
    made = Graph(step.graph.symbols, getattr(graph, "__name__", "step"))
    made.inputs, made.nodes, made.outputs = step.graph.inputs, step.graph.nodes, step.graph.outputs
    # A gradient is written where its parameter is, as an optimiser there would.
    made.mutations = list(zip(step.weights, gradients, strict=True))
    return made, hold, colocate


def _show_time(seconds: float) -> str:
    return (
        f"{seconds:.3g} s"
        if seconds >= 1
        else f"{seconds * 1e3:.3g} ms"
        if seconds >= 1e-3
        else f"{seconds * 1e6:.3g} us"
    )
