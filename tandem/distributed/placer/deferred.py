"""Deferred graphs as the placer sees them: the nodes that some fetches need, with state that binds what writes it."""

from __future__ import annotations

import math
import time

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.devices import known
from tandem.distributed.placer.costs import PlacementCosts
from tandem.errors import TandemError, ValueRangeError
from tandem.graph.ir import Node, Value, revise
from tandem.session.graph import Graph, StepNode, outside_graphs
from tandem.session.nodes import Call, Fed, Gradients, Number, Operand, Store, map_leaves
from tandem.session.program import written_by

_FREE = (Fed, Store)  # take no time of their own


class Needed:
    """What fetches need of a graph. nodes: without what is fed and constants, which every task has"""

    mutations = ()
    inputs = ()

    def __init__(self, graph: Graph, fetches):
        self.graph, self.name, self.symbols = graph, graph.name, graph.symbols
        fetches = list(fetches) if isinstance(fetches, (list, tuple)) else [fetches]
        nodes = [f.node if isinstance(f, Value) else f for f in fetches]
        if not nodes or not all(isinstance(n, StepNode) and n.graph is graph for n in nodes):
            raise ValueRangeError(
                "place",
                "a deferred graph is placed for what is fetched of it",
                fix="place(graph, devices, fetches=[loss])",
            )
        found: dict[StepNode, None] = {}
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = None
                stack.extend([*(v.node for v in node.inputs), *node.control, *(v.node for v in written_by(node))])
        order = sorted(found, key=lambda n: n.id)
        self.differentiated = {n for g in order if isinstance(g.op, Gradients) for n in _between(g)}
        self.nodes = [n for n in order if not _is_anywhere(n) and not isinstance(n.op, Gradients)]
        self.outputs = [v for n in nodes for v in n.outputs]

    def together(self) -> list[tuple]:
        """What writes a variable sits with it; so does what was built to run where another node does."""
        here = set(self.nodes)
        pairs = [(v.node, n) for n in self.nodes for v in written_by(n)]
        return pairs + [(n.beside, n) for n in self.nodes if n.beside in here]


def _is_anywhere(node: StepNode) -> bool:
    return isinstance(node.op, Fed) and not node.op.is_variable


class DeferredCosts(PlacementCosts):
    """batch: what stands for sizes that are not known before a run; differentiated: nodes whose gradients are asked for

    Gradients are computed where the forward pass was, which is computed again there (cluster/cut.py): a node takes as long as
    itself twice, and its gradients about as long as two of it. Where its value crossed, a gradient comes back.
    """

    def __init__(self, costs: PlacementCosts, batch: int, differentiated: set):
        super().__init__(costs.models, costs.link, costs.times, costs.speeds, costs.together)
        self.batch, self.differentiated = batch, differentiated
        self.crosses_back = differentiated | {v.node for n in differentiated for v in n.inputs}

    def shape(self, value: Value) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else self.batch for d in value.type.shape)

    def size(self, value: Value) -> int:
        return value.dtype.itemsize * math.prod(self.shape(value))

    def crossing(self, value: Value) -> int:
        return self.size(value) * (2 if value.node in self.crosses_back else 1)

    def seconds(self, node: Node, device: int) -> float:
        return self._once(node, device) * (4 if node in self.differentiated else 1)

    def _once(self, node: Node, device: int) -> float:
        found = self.times.get(node)
        if found is not None:
            return found / self.speeds[device]
        if isinstance(node.op, _FREE) or not node.inputs or not node.outputs:
            return 0.0
        model = self.models[device]
        moved = sum(map(self.size, (*node.inputs, *node.outputs)))
        return model.launch + max(self._operations(node) / model.operations, moved / model.bandwidth)

    def _operations(self, node: Node) -> float:
        out = math.prod(self.shape(node.outputs[0]))
        if node.op.name in ("matmul", "linear", "dot", "mm"):
            return 2.0 * out * self.shape(node.inputs[0])[-1]
        if node.op.name.startswith("conv"):
            return 2.0 * out * math.prod(self.shape(node.inputs[1])[1:])
        return float(out)

    def measure(self, nodes: list[StepNode], repeats: int = 3):
        """Times of calls of operators, on tensors of ones."""
        known_times: dict[tuple, float | None] = {}
        for node in nodes:
            if isinstance(node.op, Call) and node.inputs and not node.op.written:
                key = (node.op.function, str(node.op.args), tuple((v.dtype, self.shape(v)) for v in node.inputs))
                if key not in known_times:
                    known_times[key] = self._time(node, repeats)
                if known_times[key] is not None:
                    self.times[node] = known_times[key]

    def _time(self, node: StepNode, repeats: int) -> float | None:
        tensors = [F.full(self.shape(v), 1, dtype=v.dtype) for v in node.inputs]

        def change(x):
            return tensors[x.index] if isinstance(x, Operand) else x.value if isinstance(x, Number) else x

        args, kwargs = map_leaves(change, node.op.args), map_leaves(change, node.op.kwargs)
        best = None
        try:
            with outside_graphs(), no_grad():
                node.op.function(*args, **kwargs)
                for _ in range(repeats):
                    began = time.perf_counter()
                    node.op.function(*args, **kwargs)
                    took = time.perf_counter() - began
                    best = took if best is None else min(best, took)
        except (TandemError, ArithmeticError, TypeError):
            return None
        return best


def _between(node: StepNode) -> list[StepNode]:
    """What gradients go back through."""
    ends = {v.node for v in node.inputs[node.op.ys : node.op.ys + node.op.xs]}
    found: dict[StepNode, None] = {}
    stack = [v.node for v in node.inputs[: node.op.ys]]
    while stack:
        n = stack.pop()
        if n not in found and n not in ends and not isinstance(n.op, (Fed, Gradients)):
            found[n] = None
            stack.extend(v.node for v in n.inputs)
    return list(found)


def bind(node: StepNode, device: str):
    """Has a node of a graph that no run has used yet run on a device."""
    if node.device is None:
        revise(node, "device", known(device))
