"""Graph: a deferred program, built by calling operators on symbolic tensors.

A node stands for a whole call of an operator (`matmul`, `softmax`, ...), with the user's line. Its type is inferred when it is
built, so errors show up there (recorder.py); a run traces the calls that it needs again, with the sizes it has, into one program
(program.py).
"""

from __future__ import annotations

import contextlib

from tandem import _runtime, dtypes, forks
from tandem.devices import Device, known
from tandem.errors import DTypeError, IndexRangeError, ValueRangeError
from tandem.graph import ir
from tandem.graph.building import _stack, outside_graphs
from tandem.graph.ir import Type, revise
from tandem.graph.symbolic import Sym, hint
from tandem.ops.define import Op
from tandem.session.nodes import Fed, Identity
from tandem.session.parting import rows_in_order, rows_of_parts
from tandem.session.printer import print_graph
from tandem.session.recorder import Recorder, infer
from tandem.session.symbolic_tensor import StepNode, SymbolicTensor, as_node, fixed, sized
from tandem.session.unknown import UnknownSizes, show_shape
from tandem.tensors.constructors import tensor

__all__ = [
    "Graph", "Recorder", "StepNode", "SymbolicTensor", "as_node", "default_graph", "derived_seed", "infer", "outside_graphs",
    "reset_default_graph", "show_shape", "sized",
]  # fmt: skip


_PARTS = {"nodes", "variables", "inputs", "outputs", "mutations"}


class Graph(ir.Graph):
    """A deferred program. `with graph:` makes operators build it; `td.Session(graph)` runs it; it can be saved and loaded.

    >>> with td.Graph() as graph:
    ...     x = td.placeholder(td.float32, (None,), name="x")
    ...     total = td.session.identity((x * x).sum(), name="total")
    >>> loaded = td.Graph.from_json(graph.to_json())  # or save(path) and load(path)
    >>> td.Session(loaded).run("total:0", {"x": [1, 2, 3]})
    tensor(14.)
    """

    is_body = False  # whether it is what a structured loop or branch does (tandem/control/graphs.py)

    def __init__(self, name: str = "graph"):
        super().__init__(UnknownSizes(), name)
        self._nodes: list[StepNode] = []
        self._variables: list = []
        self._shown: tuple = ()  # nodes, as others see them
        self.queue_runners: list = []
        self.seed: int | None = None
        self._names: dict[str, int] = {}
        self._scopes: list[str] = []
        self._controls: list[tuple] = []
        self._devices: list = []
        self._wired: list = []  # branches and loops being wired (wired.py), the innermost last
        self._sizes: dict[tuple, Sym] = {}
        self._held: dict[int, SymbolicTensor] = {}
        self._shared: dict[int, SymbolicTensor] = {}  # variables that are tensors of eager code, by their ids
        self._by_name: dict[str, StepNode] = {}
        self._recorder = Recorder(self)

    # -- what it consists of, which nothing but building changes

    @property
    def nodes(self) -> tuple[StepNode, ...]:
        if len(self._shown) != len(self._nodes):
            self._shown = tuple(self._nodes)
        return self._shown

    @property
    def variables(self) -> tuple:
        return tuple(self._variables)

    inputs = outputs = mutations = property(lambda self: ())  # it is no function; a session's fetches and feeds are

    def __setattr__(self, name: str, value):
        if name in _PARTS:
            if "_nodes" not in self.__dict__:  # ir.Graph's own, before ours are there
                return
            raise fixed(name, f"graph {self.name!r}")
        object.__setattr__(self, name, value)

    # -- the context in which operators build this graph

    def __enter__(self) -> Graph:
        _stack().append(self._recorder)
        _runtime.enter_trace()
        return self

    def __exit__(self, *exc):
        _runtime.exit_trace()
        _stack().remove(self._recorder)

    def __str__(self):
        return print_graph(self)

    def to_json(self) -> str:
        """The program as text that `td.Graph.from_json` reads, in another process too (session/serialize.py). Tensors that it
        holds are written with the values that they have now; values of variables are a session's, which a Saver keeps."""
        from tandem.session.serialize import write

        return write(self)

    def as_default(self) -> Graph:
        return self

    # -- building

    def add_node(self, op: Op, inputs=(), types=(), name: str | None = None) -> StepNode:
        for v in inputs:
            if v.node.graph is not self:
                raise ValueRangeError(op.name, f"{v.name!r} belongs to another graph")
        for scope in self._wired:
            inputs = [scope.bring_in(v) for v in inputs]
        # What comes from outside waits for nothing.
        control = () if isinstance(op, Fed) else tuple(dict.fromkeys(n for group in self._controls for n in group))
        node = StepNode(self, op, inputs, types, self.unique_name(name or op.name), control, None)
        revise(node, "device", self._device_of(node))
        revise(node, "beside", self._beside_of(node))
        self._nodes.append(node)
        self._by_name[node.name] = node
        return node

    def _device_of(self, node: StepNode) -> Device | None:
        """Where a node is to run, by the scopes around: the innermost counts, which may leave the job to the next."""
        found = None
        for scope in reversed(self._devices):
            if scope is None or isinstance(scope, StepNode):
                break
            given = scope
            if callable(scope):
                if node.op.writes:  # it is where its variable is
                    continue
                given = scope(node)
                if given is None or given == "":
                    continue
                given = known(given)
            if found is None:
                found = given
            elif given.job is not None:
                found = Device._unchecked(found.type, found.index, given.job, given.task)
            if found.job is not None:
                break
        return found

    def _beside_of(self, node: StepNode) -> StepNode | None:
        if node.device is not None and node.device.job is not None:
            return None
        return next((s for s in reversed(self._devices) if s is None or isinstance(s, StepNode)), None)

    @property
    def current_device(self) -> Device | None:
        """The device of the scopes around, without those that are functions."""
        scopes, self._devices = self._devices, [s for s in self._devices if not callable(s)]
        try:
            return self._device_of(None)
        finally:
            self._devices = scopes

    def restore_node(self, node: StepNode):
        """Takes in a node of a file. Names of it and of its scopes are taken from then on."""
        self._nodes.append(node)
        self._by_name[node.name] = node
        parts = node.name.split("/")
        for end in range(1, len(parts) + 1):
            self._names.setdefault("/".join(parts[:end]), 1)
        if isinstance(node.op, Fed) and node.op.tensor is not None:
            self._held[id(node.op.tensor)] = node.outputs[0]

    def rename(self, node: StepNode, name: str):
        """Gives a node another name, one that nothing else has."""
        del self._by_name[node.name], self._names[node.name]
        revise(node, "name", name)
        self._by_name[name] = node
        self._names.setdefault(name, 1)

    def unique_name(self, name: str) -> str:
        full = unique = "/".join([*self._scopes, name.rstrip("_") or name])
        count = self._names.get(full, 0)
        while unique in self._names:
            unique = f"{full}_{count}"
            count += 1
        self._names[full] = max(count, 1)
        self._names.setdefault(unique, 1)
        return unique

    def hold(self, tensor, name: str = "constant") -> SymbolicTensor:
        """A tensor that is there already, as a value of this graph. It is read at each run."""
        held = self._shared.get(id(tensor), self._held.get(id(tensor)))
        if held is None:
            node = self.add_node(Fed("constant", tensor), (), (Type(tensor.dtype, tuple(tensor.shape)),), name)
            held = self._held[id(tensor)] = node.outputs[0]
        return held

    def stream(self, generator) -> SymbolicTensor:
        """The seed of a stream of random numbers, the next that the generator has for graphs. The first is its own seed, so that a
        first run draws what eager code draws."""
        seed, taken = generator.get_state()
        generator.set_state((seed, taken + 1))
        with outside_graphs():
            made = tensor(derived_seed(seed, -taken), dtype=dtypes.int64)
        return self.add_node(Fed("seed", made), (), (Type(made.dtype, ()),), "seed").outputs[0]

    def size_symbol(self, value: SymbolicTensor, axis: int) -> Sym:
        """The size that an axis of a tensor has in a run."""
        made = self._sizes.get((value, axis))
        if made is None:
            made = self.symbols.new(hint(value.type.shape[axis]), ("axis", value, axis), not_one=True)
            self._sizes[value, axis] = made
        return made

    def rows_of_parts(self, partitions: SymbolicTensor, count: int) -> list[SymbolicTensor]:
        """For dynamic_partition: numbers of the rows of each part."""
        return rows_of_parts(self, partitions, count)

    def rows_in_order(self, indices: list) -> SymbolicTensor:
        """For dynamic_stitch: where each row of the result is among all rows."""
        return rows_in_order(self, [i if isinstance(i, SymbolicTensor) else self.hold(i) for i in indices])

    def find(self, name: str):
        """The tensor ("loss:0") or operation ("train") of this name."""
        if not isinstance(name, str):
            raise DTypeError("find", f"a {type(name).__name__} is no name", fix='names are text: "loss:0", "train"')
        node_name, colon, index = name.partition(":")
        node = self._by_name.get(node_name)
        if node is None:
            raise ValueRangeError(None, f"the graph has nothing named {name!r}")
        if not colon:
            return node
        if not index.isdecimal():
            raise ValueRangeError(
                None,
                f"{name!r} names no tensor: what follows the colon must be the number of a result",
                fix=f"write {node_name + ':0'!r} for the first result, {node_name!r} for the operation",
            )
        if int(index) >= len(node.outputs):
            count = len(node.outputs)
            raise IndexRangeError(
                None,
                f"there is no {name!r}: operation {node_name!r} ({node.op.name}) has "
                + ("no results" if not count else "one result" if count == 1 else f"{count} results"),
                fix=f"{node_name!r} names the operation"
                + (f", {node_name + ':0'!r} its first result" if count else ""),
            )
        return node.outputs[int(index)]

    def get_tensor_by_name(self, name: str) -> SymbolicTensor:
        """The tensor of this name, "loss:0"."""
        found = self.find(name)
        if not isinstance(found, SymbolicTensor):
            raise ValueRangeError(
                None,
                f"{name!r} is the name of an operation, not of a tensor",
                fix=f"its first result is {name + ':0'!r}",
            )
        return found

    def get_operation_by_name(self, name: str) -> StepNode:
        """The operation of this name, "train"."""
        found = self.find(name)
        if not isinstance(found, StepNode):
            raise ValueRangeError(
                None, f"{name!r} is the name of a tensor, not of an operation", fix=f"use {found.node.name!r}"
            )
        return found

    def get_operations(self) -> list[StepNode]:
        """All operations, in the order in which they were built."""
        return list(self.nodes)

    @property
    def trainable_variables(self) -> list:
        return [v for v in self._variables if v.trainable]

    # -- contexts

    @contextlib.contextmanager
    def name_scope(self, name: str | None):
        if name is not None and not isinstance(name, str):
            raise DTypeError(
                "name_scope",
                f"the name is a {type(name).__name__}, not text",
                fix="pass text, or None to leave all scopes",
            )
        full = self.unique_name(name) if name else ""
        before, self._scopes = self._scopes, full.split("/") if full else []
        try:
            yield full
        finally:
            self._scopes = before

    @contextlib.contextmanager
    def control_dependencies(self, operations):
        before = self._controls
        self._controls = [] if operations is None else [*before, tuple(self._waited_for(o) for o in operations)]
        try:
            yield
        finally:
            self._controls = before

    def _waited_for(self, operation) -> StepNode:
        """The node to wait for. A Switch has run whichever output is live, so what waits for one output waits for its value."""
        node = as_node(operation)
        if isinstance(operation, SymbolicTensor) and node.op.hand_wired and len(node.outputs) > 1:
            return self.add_node(Identity(), (operation,), (operation.type,))
        return node

    @contextlib.contextmanager
    def device(self, device):
        """What is built inside is to run on this device: one that need not be here, as long as no run needs it. None lifts the
        scopes around; a device without a job is one of the task that they name. A function of a node gives the device of each. A
        node that is bound to none stands for wherever it will be."""
        self._devices.append(
            device if device is None or callable(device) or isinstance(device, StepNode) else known(device)
        )
        try:
            yield
        finally:
            self._devices.pop()


def derived_seed(seed: int, k: int) -> int:
    """The seed itself for k = 0, and for other k one that has nothing to do with it."""
    return seed if k == 0 else (seed * 0x9E3779B97F4A7C15 + k * 0xD6E8FEB86659FD93 + 1) % 2**63


# -- which graph


_default = Graph("default")
_lock = forks.lock()


def default_graph() -> Graph:
    """The graph being built here: that of the innermost `with graph:`, or the one that every program has."""
    for builder in reversed(_stack()):
        if isinstance(builder, Recorder):
            return builder.graph
    return _default


def reset_default_graph():
    """Starts another default graph; what was built stays with whoever holds it."""
    global _default
    _default = Graph("default")
