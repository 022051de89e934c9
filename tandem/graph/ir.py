"""The intermediate representation: Type, Value, Node, Graph, and the Builder that makes them.

A Graph is a list of nodes in topological order. A Value is one output of a node; user code meets Values as symbolic tensors
while a function is traced, so they carry the same operators and methods as Tensor (attached in tandem/ops/methods.py).
"""

from __future__ import annotations

from tandem import dtypes, files, hooks
from tandem.errors import DTypeError, UnsupportedError
from tandem.graph.building import _local, _stack
from tandem.graph.printer import print_graph
from tandem.graph.substitution import substitute
from tandem.graph.symbolic import Dim, Sym, Symbols, product
from tandem.tree import flatten


class Type:
    """dtype and shape of a Value. `weak` marks a Python number, which adapts to the tensors it meets."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, dtype: dtypes.DType, shape: tuple[Dim, ...], weak: bool = False):
        self.dtype = dtype
        self.shape = tuple(shape)
        self.weak = weak

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dim:
        return product(self.shape)

    def with_shape(self, shape) -> Type:
        return Type(self.dtype, shape)

    def with_dtype(self, dtype) -> Type:
        return Type(dtype, self.shape)

    def __eq__(self, other):
        return isinstance(other, Type) and self.dtype is other.dtype and self.shape == other.shape

    def __hash__(self):
        return hash((self.dtype, self.shape))

    def __repr__(self):
        return f"{self.dtype.short}[{','.join(str(d) for d in self.shape)}]"


class _Immutable:
    """What nobody outside changes. Constructors set slots by their descriptors; `revise` is for the few who may."""

    __slots__ = ()

    def __setattr__(self, name: str, value):
        raise AttributeError(
            f"{name!r} of a {type(self).__name__} cannot be changed: graphs are immutable\n"
            "  fix: make another graph, as passes do (tandem/passes/rebuild.py)"
        )


revise = object.__setattr__  # for what happens while a graph is being built; see Node


class Value(_Immutable):
    """One output of a node: a symbolic tensor."""

    __slots__ = ("node", "index", "type", "__weakref__")
    _in_parts = is_sparse = False  # as tensors say

    def __init__(self, node: Node, index: int, type: Type):
        _set_node(self, node)
        _set_index(self, index)
        _set_type(self, type)

    @property
    def shape(self):
        return self.type.shape

    @property
    def dtype(self):
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def op(self):
        return self.node.op

    def recorder(self, name: str) -> Builder:
        """What records calls on this value outside of every trace; `name` is called. Deferred graphs have one."""
        raise UnsupportedError(
            name, f"{self!r} is only meant for use inside the function that was traced",
            fix="to build a graph by hand use td.placeholder and td.Variable",
        )  # fmt: skip

    def __repr__(self):
        return f"<symbolic {self.type!r} from {self.node.op.name}>"

    def __bool__(self):
        raise TypeError(
            f"the truth of a symbolic {self.type!r} is not known while tracing\n"
            "  fix: use td.where(condition, a, b) or td.cond(condition, f, g)"
        )


_set_node, _set_index, _set_type = Value.node.__set__, Value.index.__set__, Value.type.__set__


class Node(_Immutable):
    """An operator applied to values. Immutable once built, but for two things that happen while its graph is: sizes that turn out
    to be equal, and outputs that gradients ask a region for (autodiff/regions.py).

    control   nodes that have run before this one does, whether it reads their results or not (Note [Control inputs])
    device    where it must run; None: where its operands are
    """

    __slots__ = ("op", "inputs", "outputs", "source", "id", "control", "device")

    def __init__(
        self, op, inputs: tuple[Value, ...], types: tuple[Type, ...], source, id: int, control=(), device=None
    ):
        _set_op(self, op)
        _set_inputs(self, inputs)
        _set_outputs(self, tuple([Value(self, i, t) for i, t in enumerate(types)]))
        _set_source(self, source)
        _set_id(self, id)
        _set_control(self, control)
        _set_device(self, device)

    def __repr__(self):
        return f"<node {self.id}: {self.op!r}>"


_set_op, _set_inputs, _set_outputs = Node.op.__set__, Node.inputs.__set__, Node.outputs.__set__
_set_source, _set_id = Node.source.__set__, Node.id.__set__
_set_control, _set_device = Node.control.__set__, Node.device.__set__


class Graph:
    """Nodes in topological order.

    inputs    Values of `Input` nodes, in the order of the call
    outputs   Values returned
    mutations [(input position, Value)]: the Value's elements are stored into that input's memory
    symbols   the Symbols that its sizes are written in

    Once sealed, as fn.graph() hands it out, nothing of it can be changed.
    """

    _sealed = False
    from_file = False  # whether nobody has checked what its operators are applied to

    def __init__(self, symbols: Symbols | None = None, name: str = ""):
        self.name = name
        self.symbols = symbols or Symbols()
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.outputs: list[Value] = []
        self.mutations: list[tuple[int, Value]] = []
        self.schedule = None  # of a compiled program: its steps, and
        self.memory: dict | None = None  # what they take, and
        self.labels = None  # what its calls and inputs are called (tracing/labels.py)

    def __repr__(self):
        what = f" of {self.name}" if self.name not in ("", "graph", "program") else ""
        counts = ((self.nodes, "node"), (self.inputs, "input"), (self.outputs, "output"))
        return f"<Graph{what}: {', '.join(f'{len(c)} {n}' + 's' * (len(c) != 1) for c, n in counts)}; print it, or view() it>"

    def __str__(self):
        return print_graph(self)

    def __setattr__(self, name: str, value):
        if self._sealed:
            raise AttributeError(
                f"{name!r} of this graph cannot be changed: it describes a program that was compiled\n"
                "  fix: make another graph, as passes do (tandem/passes/rebuild.py)"
            )
        object.__setattr__(self, name, value)

    def seal(self) -> Graph:
        if not self._sealed:
            self.inputs, self.nodes, self.outputs = tuple(self.inputs), tuple(self.nodes), tuple(self.outputs)
            self.mutations = tuple(self.mutations)
            self._sealed = True
        return self

    def run(self, *inputs, memory_budget: float | None = None):
        """Computes the outputs from tensors and numbers for the inputs, and writes what the graph writes.

        It is compiled once for all sizes that its shape rules allow. memory_budget: what the program may take, as in td.compile.

        >>> double = td.compile(lambda x: x * 2.0)
        >>> y = double(td.ones(2))
        >>> double.graph().run(td.ones(3), 2.0)
        [tensor([2., 2., 2.])]
        """
        return hooks.run_graph(self, inputs, memory_budget)

    def explain(self) -> str:
        """What `run` has compiled the graph to, as text: programs, sizes, memory, times.

        >>> double = td.compile(lambda x: x * 2.0)
        >>> y = double(td.ones(2))
        >>> graph = double.graph()
        >>> y = graph.run(td.ones(3), 2.0)
        >>> graph.explain().splitlines()[0]
        'program: 1 sequences of operators, 1 programs'
        """
        return "\n".join(report.explain(self.name or "graph", len(report)) for report in hooks.graph_reports(self))

    def to_json(self) -> str:
        """The graph as text that `Graph.from_json` reads (tandem/graph/serialize.py)."""
        from tandem.graph.serialize import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Graph:
        """The graph that `to_json` wrote, of primitives or deferred. A CheckpointError says what is wrong with other text."""
        from tandem.graph.serialize import from_json

        return from_json(text)

    def save(self, path):
        """Writes the graph to a file that `Graph.load` reads, in another process too. An old file is replaced whole."""
        files.write(path, self.to_json())

    @staticmethod
    def load(path) -> Graph:
        """The graph of a file that `save` wrote. A CheckpointError says what is wrong with another file."""
        from tandem.graph.serialize import load

        return load(path)

    def view(self, path=None) -> str:
        """The graph as a page that needs nothing else: to zoom, search, open and close by phase and module, with names of
        parameters and inputs, estimated costs, memory and source lines (tandem/graph/view.py).

        Written to path, if there is one; gives the HTML text. It carries the text of the source files that it points to. Fused
        steps, modules and names are known for graphs of compiled functions. Notebooks show it by themselves.

        >>> double = td.compile(lambda x: x * 2)
        >>> y = double(td.ones(2))
        >>> "mul" in double.graph().view()
        True
        """
        from tandem.graph.view import render

        text = render(self, self.schedule, peak=self.memory["peak"] if self.memory else None)
        if path is not None:
            files.write(path, text, durable=False)
        return text

    def _repr_html_(self) -> str:
        from tandem.pages import frame

        return frame(self.view(), title=self.name or "graph")

    def roots(self) -> list[Value]:
        return [v for v in self.outputs if v is not None] + [v for _, v in self.mutations]


# Note [Control inputs]
# A node runs after its control inputs. So a live node keeps them alive, and a pass may neither merge it with a node that waits for
# something else nor replace it: it stays what it is, on other inputs at most (passes/rebuild.py). What waits for a node that was
# replaced waits for what stands for it. Code generation gives it a kernel of its own kind of place: it shares none with anything
# before what it waits for, and what is computed along the way of its users waits in its stead (codegen/fuse.py, order.py).
# A device says where a node must run; nodes of different devices are never one, and what replaces a node keeps its device.


class Builder:
    """Appends nodes to a graph. The same operator on the same inputs, in the same place, gives the same node."""

    records_calls = (
        False  # whether calls of operator functions become nodes themselves (tandem/session) instead of being inlined
    )
    place: tuple[tuple[Node, ...], object] | None = None  # (control inputs, device) of the nodes being made, if any
    checks = False  # whether nodes come from a file, so that nobody has checked what operators are applied to

    def __init__(self, graph: Graph):
        self.graph = graph
        self._seen: dict = {}
        if getattr(_local, "checks", False):
            self.checks = True

    def add(self, op, inputs: tuple[Value, ...], types: tuple[Type, ...] | None = None) -> Node:
        """A node; types: of its outputs, where the rule was asked about the same operator on such inputs before."""
        place = self.place
        key = (op._key, *map(id, inputs))  # a value is one object
        if place is not None:
            key = (*key, place)
        node = self._seen.get(key)
        if node is None:
            if types is None:
                if not op.takes_complex:
                    _refuse_complex(op, inputs)
                if self.checks:
                    inputs = op.checked_inputs(inputs, self.graph.symbols)
                types = op.infer(*[v.type for v in inputs])
                if type(types) is Type:
                    types = (types,)
            node = Node(op, tuple(inputs), tuple(types), current_source(), len(self.graph.nodes), *(place or _ANYWHERE))
            self.graph.nodes.append(node)
            if not op.effect:
                self._seen[key] = node
        return node

    def again(
        self, node: Node, inputs: tuple[Value, ...], copies: dict[Node, tuple[Node, ...]], op=None, types=None
    ) -> Node:
        """node of another graph on inputs of this one, or another operator in its place. It waits for what stands for those it
        waited for: `copies`, which has this one afterwards. types: as of `add`"""
        if node.control or node.device is not None:
            with self.in_place_of(node, copies):
                new = self.add(op or node.op, inputs, types)
        else:
            new = self.add(op or node.op, inputs, types)
        copies[node] = (new,)
        return new

    def in_place_of(self, node: Node, copies: dict[Node, tuple[Node, ...]]) -> placed:
        """For making what stands for a node: it waits and runs where the node did."""
        return placed(self, [c for n in node.control for c in copies.get(n, ())], node.device)

    def adopt(self, node: Node) -> Node:
        """Takes over a node of another graph, whose inputs are in this one, or gives the equal one that is here already."""
        key = (node.op._key, *map(id, node.inputs))
        if node.control or node.device is not None:
            key = (*key, (node.control, node.device))
        found = node if node.op.effect else self._seen.setdefault(key, node)
        if found is node:
            self.graph.nodes.append(node)
        return found

    def __enter__(self):
        _stack().append(self)
        return self

    def __exit__(self, *exc):
        _stack().pop()


_ANYWHERE = ((), None)


class placed:
    """Nodes that a builder makes inside wait for these nodes, besides those of the scopes around, and run on this device."""

    __slots__ = ("before", "builder", "place")

    def __init__(self, builder: Builder, control=(), device=None):
        self.builder = builder
        self.before = builder.place
        around, around_device = self.before or _ANYWHERE
        place = (tuple(dict.fromkeys([*around, *control])), around_device if device is None else device)
        self.place = None if place == _ANYWHERE else place

    def __enter__(self):
        self.builder.place = self.place
        return self

    def __exit__(self, *exc):
        self.builder.place = self.before


def _refuse_complex(op, inputs):
    for v in inputs:
        if v.type.dtype.is_complex:
            raise DTypeError(
                op.name,
                f"x is {v.type.dtype}; {op.name} is not defined for complex numbers",
                fix="take x.real, x.imag or abs(x) first",
            )


class kept_builders:
    """Leaves the graphs being built as they were: an interrupt may come between a builder's entering and its noting to leave."""

    __slots__ = ("_count",)

    def __enter__(self):
        self._count = len(_stack())

    def __exit__(self, *exc):
        del _stack()[self._count :]


def current_builder() -> Builder:
    return _stack()[-1]


def is_tracing() -> bool:
    return bool(_stack())


def call_recorder() -> Builder | None:
    """What records calls of operator functions whole, if that is what happens now."""
    stack = _stack()
    return stack[-1] if stack and stack[-1].records_calls else None


def recorder_of(name: str, args, kwargs) -> Builder:
    """For a call outside of every trace: the recorder of the deferred graph that the arguments belong to."""
    leaves, _ = flatten([list(args), kwargs])
    recorders = [x.recorder(name) for x in leaves if isinstance(x, Value)]
    return recorders[0]


class checking:
    """Operators are held to their rules (ops/rules.py) inside, by the current builder and by those that are made: for nodes of
    files, which nobody has checked. What holds for some sizes only becomes a guard; what depends on values is checked at run."""

    __slots__ = ("before", "builder", "on")

    def __init__(self, on: bool = True):
        self.on = on

    def __enter__(self):
        self.builder = _stack()[-1] if _stack() else None
        self.before = getattr(_local, "checks", False), self.builder and self.builder.checks
        if self.on:
            _local.checks = True
            if self.builder is not None:
                self.builder.checks = True
        return self

    def __exit__(self, *exc):
        _local.checks, checks = self.before
        if self.builder is not None:
            self.builder.checks = checks


def current_source():
    return getattr(_local, "source", None)


class Origin(str):
    """Where a node comes from: as text "train.py:7", with the operator that the user called there, the whole Source, and which of
    a program's calls it was. place: in which module, for errors that show late (tandem/errors/module_calls.py)."""

    __slots__ = ("call", "op", "place", "source")

    def __new__(cls, op: str, source, call: int | None = 0, place: tuple | None = None):
        self = super().__new__(cls, source.short)
        self.op = op
        self.source = source
        self.call = call
        self.place = place
        return self


class source_scope:
    """Nodes made inside carry this source, "train.py:7"; best an Origin, so that an error can tell all."""

    __slots__ = ("before", "source")

    def __init__(self, source: str | None):
        self.source = source

    def __enter__(self):
        self.before = current_source()
        _local.source = self.source
        return self

    def set(self, source: str | None):
        """Another source from now on."""
        _local.source = source

    def __exit__(self, *exc):
        _local.source = self.before


def replay(graph: Graph, inputs: list[Value], sizes: dict[int, Dim]) -> list[Value]:
    """Rebuild graph's nodes in the current builder on other inputs; `sizes` maps its symbols to Dims of this trace."""
    made: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    builder = current_builder()
    copies: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        if node.op.is_input:
            continue
        op = node.op.substitute(lambda d: substitute(d, sizes))
        new = builder.again(node, tuple(made[v] for v in node.inputs), copies, op)
        for old, fresh in zip(node.outputs, new.outputs, strict=True):
            made[old] = fresh
    return [made[v] if v is not None else None for v in graph.outputs]


def has_symbols(dims) -> bool:
    return any(isinstance(d, Sym) for d in dims)
