"""Graph: a deferred program, built by calling operators on symbolic tensors.

A node stands for a whole call of an operator (`matmul`, `softmax`, ...), with the user's line. Its type is inferred when it is
built, so errors show up there; a run traces the calls that it needs again, with the sizes it has, into one program (program.py).
"""

from __future__ import annotations

import contextlib

import tandem.ops as F
from tandem import _runtime, dtypes, forks
from tandem.constructors import tensor
from tandem.devices import Device, as_device, known
from tandem.errors import DTypeError, IndexRangeError, TandemError, UnsupportedError, ValueRangeError, user_source
from tandem.graph import ir
from tandem.graph.ir import Builder, Node, Type, Value, revise
from tandem.graph.symbolic import Sym, hint, product, symbol_indices
from tandem.ops.define import Op, add_input
from tandem.ops.memory_format import MemoryFormat
from tandem.ops.torch_names import Size
from tandem.session.nodes import Call, Detach, Fed, Identity, Number, Operand, Primitive, Random, as_results, map_leaves
from tandem.session.tensor_shape import TensorShape
from tandem.session.unknown import UnknownSizes, name_unknown, show_shape
from tandem.tracing.compile import RandomState


def _fixed(name: str, owner: str) -> AttributeError:
    return AttributeError(
        f"{name!r} of {owner} cannot be changed: what was built into a graph stays as it is\n"
        "  fix: call operators to build more, or feed a tensor to give it another value in a run"
    )


def sized(shape: tuple, name: str):
    """x.size for a shape: the number of elements, which gives the shape when it is called."""
    total = product(shape)
    made = Size(total) if isinstance(total, int) else _UnknownSize(total, name)
    made.shape = shape
    return made


class _UnknownSize:
    __call__ = Size.__call__

    def __init__(self, total: Sym, name: str):
        self.total, self.name = total, name

    def __int__(self) -> int:
        raise UnsupportedError(
            "size",
            f"how many elements {self.name!r} has is unknown and cannot become a Python number",
            fix="use x.numel(), which may be passed on as a size",
        )

    __index__ = __float__ = __int__

    def __repr__(self):
        return str(self.total)


class SymbolicTensor(Value):
    """A tensor that a run of its graph computes. Has all operators and methods of Tensor."""

    __slots__ = ()

    def __setattr__(self, name: str, value):
        raise _fixed(name, f"tensor {self.name!r}")

    def __delattr__(self, name: str):
        raise _fixed(name, f"tensor {self.name!r}")

    @property
    def shape(self):
        """Sizes. An unknown one is a symbol, which may be computed with and given to operators as a size."""
        return tuple(
            d if isinstance(d, int) else self.node.graph.size_symbol(self, axis)
            for axis, d in enumerate(self.type.shape)
        )

    @property
    def graph(self) -> Graph:
        return self.node.graph

    @property
    def name(self) -> str:
        return f"{self.node.name}:{self.index}"

    @property
    def op(self):
        return self.node

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("len() of a tensor without axes")
        if not isinstance(self.type.shape[0], int):
            raise UnsupportedError(
                "len",
                f"the size of axis 0 of {self.name!r} is unknown and cannot become a Python number",
                fix="use x.shape[0]",
            )
        return self.type.shape[0]

    @property
    def size(self):
        """How many elements there are; x.size() is the shape, x.size(0) the size of an axis, as of Tensor."""
        return sized(self.shape, self.name)

    def numel(self):
        """How many elements there are: a number, or a symbol where a size is unknown."""
        return product(self.shape)

    nelement = numel

    @property
    def device(self):
        """Where it must be computed, by the scope of td.device that it was built in; None: where its operands are."""
        return self.node.device

    def to(self, *args, dtype=None, device=None, non_blocking: bool = False, copy: bool = False, memory_format=None):
        """This tensor with another dtype, in another memory format, or computed on another device, as of Tensor."""
        for a in args:
            if isinstance(a, (SymbolicTensor, _runtime.Tensor)):
                dtype, device = a.dtype, a.device
            elif isinstance(a, dtypes.DType) or a in (float, int, bool, complex):
                dtype = a
            elif isinstance(a, MemoryFormat):
                memory_format = a
            elif isinstance(a, str) and dtypes.is_name(a):
                dtype = a
            elif not isinstance(a, bool):
                device = a
        result = self
        with contextlib.nullcontext() if device is None else self.graph.device(device):
            if dtype is not None and dtypes.as_dtype(dtype) is not self.dtype:
                result = F.converted(result, dtypes.as_dtype(dtype))
            if memory_format is not None:
                result = F.contiguous(result, memory_format)
            if result is self and (copy or (device is not None and as_device(device) != self.device)):
                result = self.graph.add_node(Identity(), (self,), (self.type,)).outputs[0]
        return result

    def get_shape(self) -> TensorShape:
        """The shape, with None for sizes that are not known; `as_list()` gives it as a list."""
        return TensorShape(show_shape(self.type.shape))

    def eval(self, feed_dict=None, session=None):
        """The value, by a run of the session (the innermost one, unless given)."""
        from tandem.session.session import current_session

        return (session or current_session()).run(self, feed_dict)

    def recorder(self, name: str) -> Recorder:
        return self.node.graph._recorder

    def detach(self) -> SymbolicTensor:
        """The same values, through which no gradients pass."""
        return self.graph.add_node(Detach(), (self,), (self.type,)).outputs[0]

    def _no_value(self, *args, **kwargs):
        raise UnsupportedError(
            None,
            f"{self!r} has no value until a session runs it",
            fix="use session.run(x), or td.where and the like inside the graph",
        )

    item = tolist = numpy = __bool__ = __int__ = __float__ = __array__ = _no_value

    def __setitem__(self, key, value):
        raise UnsupportedError(
            None,
            f"{self!r} cannot be changed by assigning to its items",
            fix="make a new tensor with td.where or td.concat; rows of a variable change when "
            "tandem.session.scatter_update(variable, indices, rows) is run",
        )

    def __iter__(self):
        size = self.shape[0] if self.ndim else None
        if not isinstance(size, int):
            raise UnsupportedError(None, f"{self!r} cannot be iterated over: the size of its first axis is not known")
        return (self[i] for i in range(size))

    def __repr__(self):
        return f"<symbolic tensor {self.name!r}, shape {show_shape(self.type.shape)}, {self.dtype}>"


class StepNode(Node):
    """A node of a deferred graph; fetching it runs it."""

    __slots__ = ("graph", "name", "wired")

    def __init__(self, graph: Graph, op: Op, inputs, types, name: str, control: tuple, device):
        super().__init__(op, tuple(inputs), (), user_source(), len(graph._nodes), control, device)
        revise(self, "outputs", tuple([SymbolicTensor(self, i, t) for i, t in enumerate(types)]))
        revise(self, "graph", graph)
        revise(self, "name", name)
        revise(self, "wired", tuple(graph._wired))  # branches and loops that it was built in

    def __setattr__(self, name: str, value):
        raise _fixed(name, f"operation {self.name!r}")

    def __delattr__(self, name: str):
        raise _fixed(name, f"operation {self.name!r}")

    def run(self, feed_dict=None, session=None):
        from tandem.session.session import current_session

        (session or current_session()).run(self, feed_dict)

    def __repr__(self):
        return f"<operation {self.name!r} ({self.op.name})>"


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
            raise _fixed(name, f"graph {self.name!r}")
        object.__setattr__(self, name, value)

    # -- the context in which operators build this graph

    def __enter__(self) -> Graph:
        ir._stack().append(self._recorder)
        _runtime.enter_trace()
        return self

    def __exit__(self, *exc):
        _runtime.exit_trace()
        ir._stack().remove(self._recorder)

    def __str__(self):
        from tandem.session.printer import print_graph

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
        self._nodes.append(node)
        self._by_name[node.name] = node
        return node

    def _device_of(self, node: StepNode) -> Device | None:
        """Where a node is to run, by the scopes around: the innermost counts, which may leave the job to the next."""
        found = None
        for scope in reversed(self._devices):
            if scope is None:
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
        scopes around; a device without a job is one of the task that they name. A function of a node gives the device of each."""
        self._devices.append(device if device is None or callable(device) else known(device))
        try:
            yield
        finally:
            self._devices.pop()


def derived_seed(seed: int, k: int) -> int:
    """The seed itself for k = 0, and for other k one that has nothing to do with it."""
    return seed if k == 0 else (seed * 0x9E3779B97F4A7C15 + k * 0xD6E8FEB86659FD93 + 1) % 2**63


def as_node(x) -> StepNode:
    if isinstance(x, SymbolicTensor):
        return x.node
    if isinstance(x, StepNode):
        return x
    raise DTypeError(None, f"a {type(x).__name__} is neither an operation nor a tensor of a graph")


class Recorder(Builder):
    """Turns calls of operators into nodes of a deferred graph."""

    records_calls = True

    def add(self, op, inputs):
        inputs = tuple(self._operand(v) for v in inputs)
        types = infer(self.graph, lambda trace, values: _results(op(*values)), inputs)
        return self.graph.add_node(Primitive(op), inputs, types)

    def call(self, function, args, kwargs):
        operands: list[SymbolicTensor] = []

        def take(value):
            operands.append(value)
            return Operand(len(operands) - 1)

        def tensor(x):
            if x is None or isinstance(x, Sym):
                return x
            return Number(x) if isinstance(x, (bool, int, float)) else take(self._operand(x))

        def record(kind, x):
            if kind == "generator":
                if x is None:
                    return Random(None)
                operands.append(self.graph.stream(x))
                return Random(len(operands) - 1)
            if kind in ("tensor", "optional_tensor", "tensors"):
                if kind != "tensors" and isinstance(x, (list, tuple)):
                    return take(self._operand(x))
                return map_leaves(tensor, x)
            return map_leaves(lambda y: take(self._operand(y)) if isinstance(y, (Value, _runtime.Tensor)) else y, x)

        for x in args[: function.writes]:
            if isinstance(x, _runtime.Tensor) and not self.graph.is_body:
                self._shared(x)
        parameters = function.parameters
        kinds = {p.name: p.kind for p in parameters}
        recorded = [record(p.kind, a) for p, a in zip(parameters, args, strict=False)]
        recorded_keywords = {k: record(kinds[k], a) for k, a in kwargs.items()}
        written = [operands[i] for i in range(function.writes)]
        for v in written:
            if not isinstance(v.node.op, Fed) or v.node.op.name != "variable":
                raise UnsupportedError(
                    function.__name__, f"{v.name!r} is a value of a graph, which nothing can change in place",
                    fix=f"use the form that gives a new value, {function.__name__.rstrip('_')}, or a td.Variable",
                )  # fmt: skip
        op = Call(function, recorded, recorded_keywords)
        op.written = tuple(written)
        try:
            types = infer(self.graph, lambda trace, values: op.run(trace, None, values), operands)
        except TandemError as error:
            name_unknown(error)
            raise
        present = [t for t in types if t is not None]
        op.present = tuple(t is not None for t in types)
        if written:
            present = [v.type for v in written]
        measured = [v for v in self._measured(recorded, recorded_keywords) if v not in operands]
        node = self.graph.add_node(op, (*operands, *measured), present)
        if written:
            return node.outputs[0]
        outputs = iter(node.outputs)
        made = tuple(next(outputs) if has else None for has in op.present)
        return made if op.is_tuple else made[0]

    def _measured(self, *arguments) -> list[SymbolicTensor]:
        """Tensors whose sizes are among the arguments: a run that makes the call must know them."""
        found = set()
        map_leaves(lambda x: symbol_indices(x, found), arguments)
        origins = self.graph.symbols.origins
        return list(dict.fromkeys(origins[i][1] for i in sorted(found) if origins[i][0] == "axis"))

    def _operand(self, x) -> SymbolicTensor:
        if isinstance(x, SymbolicTensor):
            if x.node.graph is not self.graph:
                raise ValueRangeError(None, f"{x.name!r} belongs to another graph than the one being built")
            return x
        if isinstance(x, Value):
            raise UnsupportedError(None, f"{x!r} belongs to a function that is being traced, not to this graph")
        if isinstance(x, _runtime.Tensor):
            is_state = x.requires_grad and x.is_leaf and not self.graph.is_body and id(x) not in self.graph._held
            return self._shared(x) if is_state else self.graph.hold(x)
        with outside_graphs():
            return self.graph.hold(tensor(x))

    def _shared(self, x) -> SymbolicTensor:
        from tandem.session.build import shared_variable  # which builds on this module

        return shared_variable(self.graph, x)


class _Inference:
    """Stands in for a run while types are inferred."""

    def __init__(self, builder, symbols):
        self.builder = builder
        self.rng_advance = 0
        self.sizes = _Same(symbols)

    def random_state(self, seed):
        number = Type(dtypes.int64, ())
        return RandomState(add_input(self.builder, number), add_input(self.builder, number), self)

    def region_state(self, seeded):
        return self.random_state(None)


class _Same(dict):
    """Maps each symbol to itself."""

    def __init__(self, symbols):
        self.symbols = symbols

    def __missing__(self, index):
        return self.symbols._make({(("sym", index),): 1})


def infer(graph: Graph, run, operands) -> list[Type | None]:
    """Types of what run(trace, values) gives for values of the operands' types."""
    symbols = graph.symbols
    before = symbols.mark()
    builder = Builder(ir.Graph(symbols))
    ir._stack().append(builder)
    _runtime.enter_trace()
    symbols.inferring = True
    try:
        values = [add_input(builder, v.type) for v in operands]
        results = as_results(run(_Inference(builder, symbols), values))
        types = [None if v is None else Type(v.dtype, tuple(symbols.resolve(d) for d in v.shape)) for v in results]
    finally:
        _runtime.exit_trace()
        ir._stack().pop()
        symbols.inferring = False
        symbols.back_to(before)
    return types


def _results(result) -> list:
    return list(result) if isinstance(result, tuple) else [result]


# -- which graph


_default = Graph("default")
_lock = forks.lock()


def default_graph() -> Graph:
    """The graph being built here: that of the innermost `with graph:`, or the one that every program has."""
    for builder in reversed(ir._stack()):
        if isinstance(builder, Recorder):
            return builder.graph
    return _default


def reset_default_graph():
    """Starts the default graph anew; what was built stays with whoever holds it."""
    global _default
    _default = Graph("default")


class outside_graphs:
    """Operators run at once in here, whatever is being built around it."""

    __slots__ = ("_depth", "_saved")

    def __enter__(self):
        stack = ir._stack()
        self._depth = _runtime.enter_trace() - 1
        _runtime.exit_trace()
        self._saved = None
        if stack or self._depth:
            self._saved = stack[:]
            stack.clear()
            for _ in range(self._depth):
                _runtime.exit_trace()

    def __exit__(self, *exc):
        if self._saved is not None:
            for _ in range(self._depth):
                _runtime.enter_trace()
            ir._stack()[:] = self._saved
