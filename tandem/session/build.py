"""What users put into graphs besides operators: placeholders, variables, assignments, gradients, printing, Python functions."""

from __future__ import annotations

from tandem import _runtime, devices, dtypes
from tandem.devices import Device
from tandem.errors import DeviceError, DTypeError, ShapeError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Type, Value, call_recorder, revise
from tandem.session import nodes
from tandem.session.current import current_session
from tandem.session.graph import (
    Graph,
    StepNode,
    SymbolicTensor,
    as_node,
    default_graph,
    infer,
    outside_graphs,
    show_shape,
)
from tandem.session.recorder import Recorder
from tandem.tensors.constructors import tensor


def graph_of(*values) -> Graph:
    """The graph that something made of these belongs to."""
    recorder = call_recorder()
    if (
        recorder is not None and recorder.graph.is_body
    ):  # of a loop or branch: tensors from around it come in when they are used
        return recorder.graph
    for v in values:
        if isinstance(v, SymbolicTensor):
            return v.graph
        if isinstance(v, StepNode):
            return v.graph
    return default_graph()


def as_tensor(graph: Graph, value, dtype=None) -> SymbolicTensor:
    """value as a tensor of the graph: symbolic ones as they are, numbers and arrays as constants."""
    if isinstance(value, SymbolicTensor):
        return value
    with outside_graphs():
        made = value if isinstance(value, _runtime.Tensor) and dtype is None else tensor(value, dtype=dtype)
    return graph.hold(made)


def placeholder(dtype=None, shape=(), name: str = "placeholder") -> SymbolicTensor:
    """A tensor that each run is given. None in `shape` is a size that may differ from run to run.

    >>> x = td.placeholder(td.float32, (None, 3), name="x")
    >>> td.Session().run(x.sum(0), {x: [[1, 2, 3], [4, 5, 6]]})
    tensor([5., 7., 9.])
    """
    graph = default_graph()
    if shape is None:
        raise ShapeError(
            "placeholder",
            "shape is None: how many axes there are must be known",
            fix="give each axis, None where its size is open: (None, 10)",
        )
    dtype = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    name = graph.unique_name(name)
    sizes = tuple(
        graph.symbols.new_unknown(name, axis) if d is None or d == -1 else int(d) for axis, d in enumerate(shape)
    )
    del graph._names[name]
    node = graph.add_node(nodes.Fed("placeholder"), (), (Type(dtype, sizes),), name.rpartition("/")[2])
    return node.outputs[0]


class Variable(SymbolicTensor):
    """A tensor that a session keeps from run to run; `initial` is what the initialiser gives it.

    >>> with td.Graph() as graph:
    ...     w = td.Variable([1.0, 2.0])
    ...     init = td.global_variables_initializer()
    >>> session = td.Session(graph)
    >>> session.run(init)
    >>> session.run(w * 2)
    tensor([2., 4.])
    """

    __slots__ = ("initial", "trainable", "__dict__")

    shared: _runtime.Tensor | None = None  # the tensor whose memory it is: see shared_variable

    def __init__(self, initial, trainable: bool = True, name: str = "Variable", dtype=None):
        if isinstance(trainable, str):  # Variable(initial, name, trainable), as our own signature reads
            name, trainable = trainable, True if isinstance(name, str) else bool(name)
        graph = graph_of(initial)
        if graph.is_body:
            raise UnsupportedError(
                "Variable",
                "a variable cannot be made inside a loop or branch",
                fix="make it outside, and use it inside",
            )
        if callable(initial) and not isinstance(initial, (Value, _runtime.Tensor)):
            with graph:
                initial = initial()
        if dtype is not None:
            dtype = dtypes.as_dtype(dtype)
        elif isinstance(initial, float):
            dtype = dtypes.default_float()
        initial = as_tensor(graph, initial, dtype)
        if dtype is not None and initial.dtype is not dtype:
            initial = initial.astype(dtype)
        if not all(isinstance(d, int) for d in initial.type.shape):
            raise ShapeError(
                "Variable", f"the initial value is {show_shape(initial.shape)}; a variable's sizes must be known"
            )
        node = graph.add_node(nodes.Fed("variable"), (), (initial.type,), name)
        self._become(node, initial, trainable and initial.dtype.is_inexact)

    def _become(self, node: StepNode, initial: SymbolicTensor, trainable: bool):
        """Makes this the variable of a node."""
        super().__init__(node, 0, initial.type)
        revise(node, "outputs", (self,))
        revise(self, "initial", initial)
        self.trainable = trainable
        node.graph._variables.append(self)

    def __setattr__(self, name: str, value):
        if name in ("node", "index", "type", "initial"):
            super().__setattr__(name, value)  # which refuses
        revise(self, name, value)

    __delattr__ = object.__delattr__

    @classmethod
    def of(cls, node: StepNode, initial: SymbolicTensor, trainable: bool) -> Variable:
        """The variable of a node that is there already, as in a graph that was loaded."""
        made = cls.__new__(cls)
        made._become(node, initial, trainable)
        return made

    @property
    def initial_value(self) -> SymbolicTensor:
        return self.initial

    def initialized_value(self) -> SymbolicTensor:
        return self.initial

    @property
    def initializer(self) -> StepNode:
        return _store("initialize", self, self.initial).node

    def value(self) -> SymbolicTensor:
        """The value at this point of the program, before later assignments."""
        return identity(self)

    read_value = value

    def assign(self, value) -> SymbolicTensor:
        return assign(self, value)

    def assign_add(self, value) -> SymbolicTensor:
        return assign_add(self, value)

    def assign_sub(self, value) -> SymbolicTensor:
        return assign_sub(self, value)

    def load(self, value, session=None):
        """Gives the variable a value in a session, without running the graph."""
        (session or current_session()).load(self, value)

    def __repr__(self):
        return f"<variable {self.name!r}, shape {tuple(self.shape)}, {self.dtype}>"


def shared_variable(graph: Graph, tensor: _runtime.Tensor) -> Variable:
    """The variable of a graph that is this tensor: runs read and write its memory, as eager code does.

    Parameters become such variables when they meet a graph, and so does what an operator writes in place. All sessions share them.
    """
    found = graph._shared.get(id(tensor))
    if found is None:
        if id(tensor) in graph._held:
            raise UnsupportedError(
                None,
                f"a tensor {tuple(tensor.shape)} is written that the graph has read as a constant before",
                fix="write it before it is read, or make it a parameter (requires_grad_())",
            )
        type = Type(tensor.dtype, tuple(tensor.shape))
        initial = graph.add_node(nodes.Fed("constant", tensor), (), (type,), "initial").outputs[0]
        node = graph.add_node(nodes.Fed("variable"), (), (type,), "parameter" if tensor.requires_grad else "buffer")
        found = graph._shared[id(tensor)] = Variable.of(node, initial, tensor.requires_grad)
        found.shared = tensor
    return found


Recorder.share = staticmethod(shared_variable)


def _store(name: str, variable, value) -> SymbolicTensor:
    if isinstance(variable, _runtime.Tensor):
        variable = shared_variable(graph_of(value), variable)
    if not isinstance(variable, Variable):
        raise DTypeError(name, f"{variable!r} is no variable, so nothing can be assigned to it")
    value = as_tensor(variable.graph, value, None if isinstance(value, SymbolicTensor) else variable.dtype)
    return store(nodes.Store(name, variable), (value,))


def store(op: nodes.Store, operands: tuple) -> SymbolicTensor:
    """A node that writes a variable, after a check that what it writes has its shape."""
    variable, change = op.variable, op.change
    (result,) = infer(
        variable.graph,
        lambda _, v: [v[0] if change is None else change(*v)],
        operands if change is None else [variable, *operands],
    )
    if tuple(result.shape) != tuple(variable.shape) and (change is not None or len(result.shape) != variable.ndim or any(
        isinstance(d, int) and d != n for d, n in zip(result.shape, variable.shape, strict=True)
    )):  # fmt: skip
        raise ShapeError(
            op.name,
            f"the value is {show_shape(result.shape)} but variable {variable.name!r} is {tuple(variable.shape)}",
        )
    return graph_of(variable).add_node(op, operands, (variable.type,)).outputs[0]


def assign(variable, value, use_locking: bool = True, name=None) -> SymbolicTensor:
    """Stores value in a variable when run; gives the new value. use_locking: see state.py."""
    return _store("assign", variable, value)


def assign_add(variable, value, use_locking: bool = True, name=None) -> SymbolicTensor:
    """Adds value to a variable when run, as one step that no other run interrupts; gives the new value."""
    return _store("assign_add", variable, value)


def assign_sub(variable, value, use_locking: bool = True, name=None) -> SymbolicTensor:
    """Subtracts value from a variable when run; gives the new value."""
    return _store("assign_sub", variable, value)


def identity(x, name: str = "identity") -> SymbolicTensor:
    """x at this point of the program."""
    graph = graph_of(x)
    return graph.add_node(nodes.Identity(), (as_tensor(graph, x),), (as_tensor(graph, x).type,), name).outputs[0]


def group(*operations, name: str = "group") -> StepNode:
    """One operation that runs all of these."""
    members = [as_node(o) for o in operations]
    graph = graph_of(*members)
    with graph.control_dependencies(members):
        return graph.add_node(nodes.Group(), (), (), name)


def no_op(name: str = "no_op") -> StepNode:
    return group(name=name)


def tuple_of(tensors) -> list[SymbolicTensor]:
    """The tensors, once all of them are computed."""
    tensors = list(tensors)
    with graph_of(*tensors).control_dependencies([t for t in tensors if t is not None]):
        return [None if t is None else identity(t) for t in tensors]


def variables_initializer(variables, name: str = "init") -> StepNode:
    """An operation that gives the variables their initial values."""
    variables = list(variables)
    graph = graph_of(*variables)
    variables = [v for v in variables if v.shared is None]  # those have a value
    with graph.control_dependencies(None):
        return (
            group(*(v.initializer for v in variables), name=name)
            if variables
            else graph.add_node(nodes.Group(), (), (), name)
        )


def global_variables_initializer() -> StepNode:
    """An operation that gives every variable of the graph its initial value."""
    graph = default_graph()
    with graph.control_dependencies(None):
        if not graph.variables:
            return graph.add_node(nodes.Group(), (), (), "init")
    return variables_initializer(graph.variables)


def gradients(ys, xs, grad_ys=None) -> list:
    """Gradients of the sum of ys with respect to each of xs; None where ys do not depend on it.

    >>> x = td.placeholder(td.float32, ())
    >>> (slope,) = td.gradients(x * x, [x])
    >>> td.Session().run(slope, {x: 3.0})
    tensor(6.)
    """
    ys = list(ys) if isinstance(ys, (list, tuple)) else [ys]
    xs = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    graph = graph_of(*ys)
    xs = [shared_variable(graph, x) if isinstance(x, _runtime.Tensor) else x for x in xs]
    if grad_ys is None:
        grad_ys = [None] * len(ys)
    elif not isinstance(grad_ys, (list, tuple)):
        grad_ys = [grad_ys]
    if len(grad_ys) != len(ys):
        raise ValueRangeError("gradients", f"{len(ys)} results but {len(grad_ys)} gradients of them")
    for v in [*ys, *xs]:
        if not isinstance(v, SymbolicTensor):
            raise DTypeError("gradients", f"{type(v).__name__} is no tensor of a graph")
    for y in ys:
        if not y.dtype.is_inexact:
            raise DTypeError("gradients", f"{y.name!r} is {y.dtype}; only floating tensors have gradients")
    given = [_incoming(graph, y, g) for y, g in zip(ys, grad_ys, strict=True) if g is not None]
    reached = ancestors(ys)
    wanted = [x for x in xs if x in reached]
    for v in reached:
        if v.node.op.hand_wired and any(x in ancestors(v.node.inputs) for x in wanted):
            raise UnsupportedError(
                "gradients",
                f"{v.name!r} is between: gradients do not pass through primitives wired by hand (built at {v.node.source})",
                fix="write the branch with td.cond, the loop with td.while_loop",
            )
    if not wanted:
        return [None] * len(xs)
    op = nodes.Gradients(len(ys), len(wanted), tuple(g is not None for g in grad_ys))
    made = dict(
        zip(wanted, graph.add_node(op, (*ys, *wanted, *given), tuple(x.type for x in wanted)).outputs, strict=True)
    )
    return [made.get(x) for x in xs]


def _incoming(graph: Graph, y: SymbolicTensor, g) -> SymbolicTensor:
    """A gradient that is given for y: of its shape, or one that is expanded to it."""
    g = as_tensor(graph, g)
    sizes, own = show_shape(y.type.shape), show_shape(g.type.shape)
    pairs = zip(reversed(sizes), reversed(own), strict=False)
    if len(own) > len(sizes) or any(n is not None and m not in (None, 1, n) for n, m in pairs):
        raise ShapeError(
            "gradients",
            f"the gradient given for {y.name!r} is {own}, and {y.name!r} is {sizes}; it must have that shape or expand to it",
            fix="pass grad_ys as many tensors as there are ys, each of the shape of its y",
        )
    if g.dtype.is_complex and not y.dtype.is_complex:
        raise DTypeError("gradients", f"the gradient given for {y.name!r} is {g.dtype}, and {y.name!r} is {y.dtype}")
    return g


def ancestors(ys) -> set:
    """Tensors that ys depend on by a path along which gradients flow."""
    found = set()
    stack = list(ys)
    while stack:
        v = stack.pop()
        if v in found or not v.dtype.is_inexact:
            continue
        found.add(v)
        if v.node.op.differentiable:
            stack.extend(v.node.inputs)
    return found


def Print(
    input_, data, message: str = "", first_n: int | None = None, summarize: int | None = None, name: str = "print"
):
    """input_, and as a side effect of computing it, a line with the values of `data` on standard error after the run."""
    graph = graph_of(input_)
    data = list(data) if isinstance(data, (list, tuple)) else [data]
    input_ = as_tensor(graph, input_)
    op = nodes.Print(message, first_n, summarize)
    return graph.add_node(op, (input_, *(as_tensor(graph, d) for d in data)), (input_.type,), name).outputs[0]


def py_func(function, inputs, dtype, shape=None, name: str = "py_func"):
    """Results of a Python function of NumPy arrays, called at each run that needs them. Gradients do not pass through it.

    dtype: one, or a list of them, for as many results. shape: of each result; that of the first input unless given. The arrays are
    read-only, since their memory may be that of a feed or of a variable; the function changes a copy. A result whose values the
    dtype cannot have (complex ones for a float, floats for an integer) is refused.
    """
    inputs = list(inputs)
    graph = graph_of(*inputs)
    inputs = [as_tensor(graph, x) for x in inputs]
    several = isinstance(dtype, (list, tuple))
    kinds = [dtypes.as_dtype(d) for d in (dtype if several else [dtype])]
    if shape is None:
        shapes = [show_shape(inputs[0].type.shape) if inputs else ()] * len(kinds)
    else:
        shapes = [tuple(s) for s in shape] if several else [tuple(shape)]
    name = graph.unique_name(name)
    del graph._names[name]
    types = tuple(
        Type(d, tuple(graph.symbols.new_unknown(name, axis) if n is None else n for axis, n in enumerate(s)))
        for d, s in zip(kinds, shapes, strict=True)
    )
    node = graph.add_node(nodes.PyFunc(function, types), inputs, types, name.rpartition("/")[2])
    return list(node.outputs) if several else node.outputs[0]


def trainable_variables() -> list[Variable]:
    return default_graph().trainable_variables


def global_variables() -> list[Variable]:
    return list(default_graph().variables)


def name_scope(name: str, default_name=None, values=None):
    """Names of what is built inside begin with this; with None they begin again, outside of all scopes."""
    return default_graph().name_scope(name or default_name)


def control_dependencies(operations):
    """What is built inside runs after these operations, which a run that needs it then runs too."""
    operations = None if operations is None else list(operations)
    return (graph_of(*operations) if operations else default_graph()).control_dependencies(operations)


def device(device):
    """td.device, or with None a scope that lifts the device of the scopes around it. A device that is not here may be named: runs
    that need it are refused, or placed elsewhere by soft placement."""
    if device is None or callable(device) or not _is_here(device):
        return default_graph().device(device)
    return Device(device)


def _is_here(device) -> bool:
    try:
        devices.code_of(device)
    except DeviceError:
        return False
    return True


def colocate_with(x):
    """A scope: what is built inside runs where x does, whatever scopes of devices are around it, also where x has no device yet and
    gets one by its operands, a function of nodes, or `td.distributed.place`.

    x: a tensor or an operation of a deferred graph, or an eager tensor, next to which new tensors are then made.

    >>> x = td.placeholder(td.float32, (2,))
    >>> with td.device("cpu"):
    ...     y = x * 2
    >>> with td.colocate_with(y):
    ...     (x + y).device
    device('cpu')
    """
    if isinstance(x, _runtime.Tensor):
        return Device(x.device)
    node = as_node(x)
    return node.graph.device(node if node.device is None else node.device)


devices.scopes.append(lambda device: default_graph().device(device))


def set_random_seed(seed: int):
    """Random numbers of the graph depend on this seed alone, and on how many were drawn in a session."""
    default_graph().seed = int(seed)
