"""Bodies of loops and branches in deferred graphs: a graph of their own, with what they use of the graphs around lifted in."""

from __future__ import annotations

from tandem.errors import UnsupportedError, ValueRangeError
from tandem.graph.ir import Type
from tandem.session.graph import Graph, Recorder, SymbolicTensor
from tandem.session.nodes import Call, Fed, Host, Print, Store
from tandem.session.program import streams_of
from tandem.tree import Structure, flatten


class BodyGraph(Graph):
    """What a body does, in calls. `lifted`: tensors of the graphs around it -> what stands for them here."""

    is_body = True

    def __init__(self, outer: Graph, name: str):
        super().__init__(name)
        self.symbols = outer.symbols
        self.outer = outer
        self.lifted: dict[SymbolicTensor, SymbolicTensor] = {}
        self.random = False
        self._recorder = BodyRecorder(self)

    def argument(self, type: Type, name: str = "argument") -> SymbolicTensor:
        return super().add_node(Fed("argument"), (), (Type(type.dtype, type.shape),), name).outputs[0]

    def lift(self, v: SymbolicTensor) -> SymbolicTensor:
        if v.node.graph is self:
            return v
        around = self.outer
        while around is not v.node.graph:
            if not isinstance(around, BodyGraph):
                raise ValueRangeError(None, f"{v.name!r} belongs to another graph than the one being built")
            around = around.outer
        found = self.lifted.get(v)
        if found is None:
            found = self.lifted[v] = self.argument(v.type, "outer")
        return found

    def add_node(self, op, inputs=(), types=(), name=None):
        if isinstance(op, (Store, Host, Print)) or (isinstance(op, Call) and op.written):
            raise UnsupportedError(
                op.name,
                "a loop or branch cannot change variables, print, use queues or call Python",
                fix=f"return the value and {'print' if isinstance(op, Print) else 'assign'} it outside, or use "
                "td.graph_ops.cond and td.graph_ops.while_loop",
            )
        if op.hand_wired:
            raise UnsupportedError(op.name, "primitives cannot be wired inside a structured loop or branch")
        node = super().add_node(op, [self.lift(v) for v in inputs], types, name)
        self._check_task(node)
        return node

    def _check_task(self, node):
        """A loop or branch is one operator, and so on one task."""
        device = node.device
        if device is None or device.job is None:
            return
        around, outer = self.outer.current_device, self.outer
        while around is None and isinstance(outer, BodyGraph):
            outer = outer.outer
            around = outer.current_device
        if around is None or (around.job, around.task) != (device.job, device.task):
            raise UnsupportedError(
                node.op.name,
                f"a loop or branch runs on one task, and {node.name!r} inside is to run on {device}",
                fix="bind the whole loop by td.device(...) around it; td.graph_ops.cond and td.graph_ops.while_loop may have "
                "nodes on several tasks",
                source=node.source,
            )

    def hold(self, tensor, name: str = "constant") -> SymbolicTensor:
        return self.lift(self.outer.hold(tensor, name))

    def stream(self, generator) -> SymbolicTensor:
        return self.lift(self.outer.stream(generator))


class BodyRecorder(Recorder):
    def _operand(self, x) -> SymbolicTensor:
        return self.graph.lift(x) if isinstance(x, SymbolicTensor) else super()._operand(x)

    def call(self, function, args, kwargs):
        result = super().call(function, args, kwargs)
        recorded = self.graph._nodes[-1].op

        if isinstance(recorded, Call):
            self.graph.random |= bool(streams_of(recorded))
        return result


class Recorded:
    """A body with its results, and where each of its lifted tensors stands among the constants of the region."""

    def __init__(self, graph: BodyGraph, arguments: list, results: list, structure: Structure):
        self.graph, self.arguments, self.results, self.structure = graph, arguments, results, structure
        self.consts: list[int] = []

    @property
    def random(self) -> bool:
        return self.graph.random


def record_body(outer: Graph, name: str, types: list[Type], fn) -> Recorded:
    """The body fn(*tensors) -> nested results."""
    body = BodyGraph(outer, name)
    arguments = [body.argument(t) for t in types]
    with body:
        leaves, structure = flatten(fn(*arguments))
        results = [body._recorder._operand(leaf) for leaf in leaves]
    return Recorded(body, arguments, results, structure)
