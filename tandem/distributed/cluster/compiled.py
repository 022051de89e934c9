"""Functions compiled for a cluster: td.compile(fn, target=cluster).

Note [Compiled functions on tasks]
The function's Python code runs here at every call, as that of every compiled function, and what it calls is captured: forward,
backward, the optimiser's writes (Note [Elsewhere] in src/capture/capture.h). A sequence of calls that was not met before is joined
into one graph of primitives, as for a program that runs here, and written as a deferred graph in which each primitive is a node,
bound to the task whose scope its call was made in; backward of a call is bound to the task of the call. From there on it is a
session's graph: placed, cut, registered once, and run by messages between the tasks.

Tensors of the caller stay its own. Data is sent to the tasks that read it, at each call. State, which has a gradient or is written,
becomes a variable of the task where it is used: it is sent when its bits are not those that the task has, and what is written there
comes back at the end of the call. A program is made for sizes as they are; other sizes make another one.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict

from tandem import dtypes, forks
from tandem.devices import device_of_scope
from tandem.distributed.cluster.peers import gather
from tandem.distributed.cluster.session import ClusterProgram, ClusterSession
from tandem.errors import UnsupportedError, module_calls
from tandem.graph.ir import Graph as PrimitiveGraph
from tandem.graph.ir import Type, Value, revise
from tandem.session.build import Variable
from tandem.session.graph import Graph, StepNode, outside_graphs
from tandem.session.nodes import Fed, Primitive, Store
from tandem.tensors.constructors import tensor
from tandem.tracing.compile import NUMBER_DTYPES, resolve_sizes
from tandem.tracing.describe import ROW_MAJOR, Captured, capture_of, spec_of
from tandem.tracing.program import join

MAX_SIZES = 16  # programs of one sequence of calls that are kept, for different sizes

_numbers = itertools.count()


class RemoteFunction:
    """What a compiled function's programs are made by: called once for each sequence of calls (ProgramCache.set_remote)."""

    def __init__(self, cluster, name: str):
        self.cluster, self.name = cluster, name
        self.id = f"{cluster.id}/{name}_{next(_numbers)}"
        self.programs: list[RemoteProgram] = []

    def __call__(self, calls, leaves, numbers, ints, outputs, writes, first) -> RemoteProgram:
        captured = capture_of(calls, leaves, numbers, ints, outputs, writes, False, "", None, first)
        made = RemoteProgram(self.cluster, f"{self.id}/{len(self.programs)}", captured)
        self.programs.append(made)
        return made

    def explain(self) -> str:
        """The parts of each program, and what crosses between them, as text."""
        found = [program.explain() for program in self.programs]
        return "\n".join([f"{self.name}: {len(found)} sequences of operators on {self.cluster!r}", *found])


class RemoteProgram:
    """A sequence of calls, run on a cluster."""

    def __init__(self, cluster, name: str, captured: Captured):
        self.cluster, self.name, self.captured = cluster, name, captured
        self.places = module_calls.places(captured.first, len(captured.calls))
        self._sizes: OrderedDict[tuple, _Sized] = OrderedDict()  # least recently used first
        self._held: dict[tuple[str, str], tuple] = {}  # (task, variable) -> life of the task, what it holds
        self._mutex = forks.lock()  # one run at a time: they share variables

    def __call__(self, tensors: list, numbers: list, ints: list) -> list:
        with self._mutex, outside_graphs():
            key = (tuple(tuple(t.shape) for t in tensors), tuple(ints))
            sized = self._sizes.get(key)
            if sized is None:
                sized = self._sizes[key] = _Sized(self, tensors, numbers, ints)
                if len(self._sizes) > MAX_SIZES:
                    self._sizes.popitem(last=False)
            self._sizes.move_to_end(key)
            try:
                return sized.run(tensors, numbers)
            except BaseException:
                self._held.clear()  # some tasks may have written what others have not
                raise

    def explain(self) -> str:
        return "\n".join(sized.program.cut.explain() for sized in self._sizes.values())

    def bring(self, variables: dict[Variable, object], task_of: dict):
        """Sends what tasks do not have as it is here."""
        wanted: dict[str, list] = {}
        for v, value in variables.items():
            task = task_of[v]
            life, held = self._held.get((task, v.node.name), (None, None))
            if life != self.cluster.life(task) or not _same_bits(held, value):
                wanted.setdefault(task, []).append((v.node.name, value))
        calls = [
            self.cluster.peer(task).begin("load", [n for n, _ in pairs], False, tensors=[x for _, x in pairs])
            for task, pairs in wanted.items()
        ]
        gather(calls)
        for task, pairs in wanted.items():
            for name, value in pairs:
                self.keep(task, name, value.clone())

    def keep(self, task: str, name: str, value):
        self._held[task, name] = self.cluster.life(task), value


class _Sized:
    """The program for one set of sizes."""

    def __init__(self, owner: RemoteProgram, tensors: list, numbers: list, ints: list):
        self.owner = owner
        captured = owner.captured
        leaves = [
            leaf._replace(shape=tuple(t.shape), layout=ROW_MAJOR, strides=(), order=None)
            for leaf, t in zip(captured.leaves, tensors, strict=True)
        ]
        kinds = [spec_of(n) for n in numbers]
        graph, _, joined = join(
            captured.calls, leaves, kinds, ints, [set()] * len(leaves), [False] * len(ints), places=owner.places,
            bind=lambda call: device_of_scope(call.device),
        )  # fmt: skip
        graph.outputs = [joined[site] for site in captured.outputs]
        graph.mutations = [(leaf, joined[call, output]) for leaf, call, output in captured.writes]
        resolve_sizes(graph)
        state = {k for k, leaf in enumerate(leaves) if leaf.requires_grad} | {k for k, _ in graph.mutations}
        self._deferred = _Deferred(graph, state, owner.name)
        self.session = ClusterSession(self._deferred.graph, target=owner.cluster)
        self._fed = [k for k in range(len(graph.inputs)) if k not in state]
        placeholders = [self._deferred.inputs[k] for k in self._fed]
        self.program = ClusterProgram(self.session, self._deferred.fetches, placeholders)
        self._count = len(leaves)

    def run(self, tensors: list, numbers: list) -> list:
        deferred, owner = self._deferred, self.owner
        place = self.program.cut.place
        used = {v: tensors[k].detach() for k, v in deferred.variables.items() if v.node in place}
        owner.bring(used, {v: place[v.node] for v in used})
        fed = [
            tensors[k].detach() if k < self._count else _number(spec_of(numbers[k - self._count])) for k in self._fed
        ]
        results = self.program.execute(self.session, fed)
        written = results[len(results) - len(deferred.written) :]
        for v, value in zip(deferred.written, written, strict=True):
            owner.keep(place[v.node], v.node.name, value.clone())
        return results


class _Deferred:
    """A graph of primitives as a deferred one. state: positions of inputs that become variables; others are placeholders.

    inputs: what stands for each input. variables: position -> Variable. written: variables that it writes.
    fetches: results, values of what is written, and the nodes that write.
    """

    def __init__(self, graph: PrimitiveGraph, state: set[int], name: str):
        self.graph = Graph("compiled")
        self.variables: dict[int, Variable] = {}
        homes = _homes(graph, state)
        made: dict[Value, Value] = {}
        self.inputs = []
        for position, v in enumerate(graph.inputs):
            kind = "variable" if position in state else "placeholder"
            shape = "x".join(map(str, v.shape))
            node = self._add(Fed(kind), (), [v], f"{name}/{position}_{shape}")
            if position in state:
                revise(node, "device", homes.get(v))
                self.variables[position] = Variable.of(node, node.outputs[0], False)
            made[v] = node.outputs[0]
            self.inputs.append(made[v])
        numbers: dict[Value, object] = {}  # constants are made wherever they are read: they need not cross
        for node in graph.nodes:
            if node.op.is_input:
                continue
            self._check(node)
            if not node.inputs:
                numbers[node.outputs[0]] = node
            copies = {v: self._step(numbers[v], ()).outputs[0] for v in node.inputs if v in numbers}
            step = self._step(node, [copies[v] if v in copies else made[v] for v in node.inputs])
            made.update(zip(node.outputs, step.outputs, strict=True))
        values = [made[v] for v in graph.outputs]
        self.written = [self.variables[position] for position, _ in graph.mutations]
        new = [made[v] for _, v in graph.mutations]
        stores = [
            self._add(Store("assign", v), [value], [v], "assign") for v, value in zip(self.written, new, strict=True)
        ]
        self.fetches = [*values, *new, *stores]

    def _step(self, node, inputs) -> StepNode:
        step = self._add(Primitive(node.op), inputs, node.outputs, node.op.name)
        revise(step, "device", node.device if inputs else None)
        revise(step, "source", node.source and node.source.source)
        return step

    def _add(self, op, inputs, outputs, name: str) -> StepNode:
        return self.graph.add_node(op, inputs, [Type(v.dtype, tuple(v.shape)) for v in outputs], name)

    @staticmethod
    def _check(node):
        if node.op.effect:
            raise UnsupportedError(
                node.op.name, "a function compiled for a cluster cannot run it: it belongs to the ranks of a group",
                fix="leave out target=", source=node.source and node.source.source,
            )  # fmt: skip
        if not all(isinstance(d, int) for v in node.outputs for d in v.shape):
            raise UnsupportedError(
                node.op.name, "the sizes of its result depend on values, which programs on a cluster cannot have",
                fix="call it outside of the compiled function", source=node.source and node.source.source,
            )  # fmt: skip


def _homes(graph: PrimitiveGraph, state: set[int]) -> dict:
    """Where variables are: with the first call for a task that reads them, else with what is written into them or read along."""
    inputs = {graph.inputs[k] for k in state}
    found: dict = {}
    for node in graph.nodes:
        if node.device is not None:
            for v in node.inputs:
                if v in inputs:
                    found.setdefault(v, node.device)
    for _ in range(2):  # what is found tells more
        place = dict(found)
        for node in graph.nodes:
            device = node.device or next((place[v] for v in node.inputs if place.get(v) is not None), None)
            place.update((v, device) for v in node.outputs)
        for position, value in graph.mutations:
            if place.get(value) is not None:
                found.setdefault(graph.inputs[position], place[value])
        for node in graph.nodes:
            device = place.get(node.outputs[0]) if node.outputs else None
            for v in node.inputs:
                if v in inputs and device is not None:
                    found.setdefault(v, device)
    return found


def _number(spec):
    return tensor(spec.value, dtype=NUMBER_DTYPES.get(spec.kind, dtypes.int64))


def _same_bits(held, value) -> bool:
    if held is None or held.dtype is not value.dtype or tuple(held.shape) != tuple(value.shape):
        return False
    a, b = (x.contiguous().reshape(-1).view("uint8") for x in (held, value))
    return bool((a == b).all())
