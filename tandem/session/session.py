"""Session: runs parts of a graph and keeps its variables."""

from __future__ import annotations

import contextlib
import threading

from tandem import _runtime
from tandem.constructors import asarray
from tandem.errors import DTypeError, ShapeError, TandemError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Value
from tandem.session.graph import Graph, StepNode, SymbolicTensor, default_graph, outside_graphs, show_shape
from tandem.session.program import Program, is_variable, print_line

_KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
_current = threading.local()


def current_session() -> Session:
    """The session of the innermost `with session:`."""
    sessions = getattr(_current, "sessions", None)
    if not sessions:
        raise ValueRangeError(
            None, "no session is active here", fix="use `with td.Session() as session:`, or session.run(...)"
        )
    return sessions[-1]


class Session:
    """Runs a graph. Variables keep their values from run to run; several threads may run at once.

    >>> graph = td.Graph()
    >>> with graph:
    ...     x = td.placeholder(td.float32, (None,), name="x")
    ...     y = (x * x).sum()
    >>> td.Session(graph).run({"sum of squares": y}, {x: [1, 2, 3]})
    {'sum of squares': tensor(14.)}
    """

    def __init__(self, graph: Graph | None = None):
        self.graph = default_graph() if graph is None else graph
        self.variables: dict[Value, _runtime.Tensor] = {}
        self._programs: dict[tuple, Program] = {}
        self._lock = ReadWriteLock()
        self._generator = None

    @property
    def num_programs(self) -> int:
        """How many sets of fetches and feeds were compiled."""
        return len(self._programs)

    def __enter__(self) -> Session:
        if not hasattr(_current, "sessions"):
            _current.sessions = []
        _current.sessions.append(self)
        return self

    def __exit__(self, *exc):
        _current.sessions.remove(self)

    def as_default(self) -> Session:
        return self

    def close(self):
        """Lets go of variables and programs."""
        self.variables.clear()
        self._programs.clear()

    def run(self, fetches, feed_dict=None):
        """Values of the fetches: a tensor, an operation (None), a name, or lists, tuples and dicts of these.

        feed_dict: tensors of the graph (any of them, or their names) -> what they are in this run.
        """
        wanted: list = []
        structure = self._flatten(fetches, wanted)
        feeds = {self._feedable(k): v for k, v in feed_dict.items()} if feed_dict else {}
        key = (tuple(map(id, wanted)), tuple(map(id, feeds)))
        program = self._programs.get(key)
        if program is None:
            program = self._programs.setdefault(key, Program(self.graph, wanted, list(feeds)))
        with outside_graphs():
            fed = [self._feed(k, v) for k, v in feeds.items()]
            results = self._execute(program, fed)
        return _rebuild(structure, iter(results))

    # -- fetches and feeds

    def _flatten(self, fetches, wanted: list):
        if isinstance(fetches, str):
            fetches = self.graph.find(fetches)
        if isinstance(fetches, Value):
            self._check_owner(fetches.node)
            wanted.append(fetches)
            return True
        if isinstance(fetches, StepNode):
            self._check_owner(fetches)
            wanted.append(fetches)
            return None
        if isinstance(fetches, (list, tuple)):
            parts = [self._flatten(f, wanted) for f in fetches]
            return (
                parts
                if isinstance(fetches, list)
                else type(fetches)(*parts)
                if hasattr(fetches, "_fields")
                else tuple(parts)
            )
        if isinstance(fetches, dict):
            return {k: self._flatten(f, wanted) for k, f in fetches.items()}
        if fetches is None:
            return None
        raise DTypeError(
            "run", f"a {type(fetches).__name__} cannot be fetched; tensors, operations and names of the graph can"
        )

    def _check_owner(self, node):
        if getattr(node, "graph", None) is not self.graph:
            raise ValueRangeError("run", f"{node!r} belongs to another graph than this session's")

    def _feedable(self, key) -> SymbolicTensor:
        if isinstance(key, str):
            key = self.graph.find(key if ":" in key else key + ":0")
        if not isinstance(key, SymbolicTensor):
            raise DTypeError("run", f"a {type(key).__name__} cannot be fed; only tensors of the graph can")
        self._check_owner(key.node)
        return key

    def _feed(self, key: SymbolicTensor, value):
        if isinstance(value, Value):
            raise DTypeError(
                "run", f"{key.name!r} is fed {value!r}, which has no value yet", fix="feed arrays, tensors or numbers"
            )
        given = asarray(value)
        if given.dtype is not key.dtype:
            if _KINDS[given.dtype.kind] > _KINDS[key.dtype.kind]:
                raise DTypeError(
                    "run",
                    f"{key.name!r} is {key.dtype} and is fed {given.dtype}",
                    fix=f"convert it first: x.astype({key.dtype})",
                    source=None,
                )
            given = given.astype(key.dtype)
        shape = given.shape
        if len(shape) != key.ndim or any(
            isinstance(n, int) and n != m for n, m in zip(key.type.shape, shape, strict=True)
        ):
            error = ShapeError(
                "run",
                f"{key.name!r} is {show_shape(key.type.shape)} and is fed {tuple(shape)}",
                fix="feed an array of that shape",
            )
            error.add_note(f"  {key.name!r} was built at {key.node.source}")
            raise error
        return given

    # -- running

    def _execute(self, program: Program, fed: list):
        if program.missing is not None:
            node = program.missing
            raise ValueRangeError(
                "run",
                f"placeholder {node.name!r} {show_shape(node.outputs[0].type.shape)}, built at {node.source}, must be fed",
                fix="pass feed_dict={placeholder: array}",
            )  # fmt: skip
        if _runtime.capturing():
            raise UnsupportedError(
                "run", "a session cannot run inside a compiled function", fix="call it outside td.compile"
            )
        held = [v.node.op.tensor for v in program.held]
        host_results: list = []
        for host, function in zip(program.hosts, program.functions, strict=False):
            with self._lock.reading():
                operands = self._call(
                    program, function, [*self._read(program), *fed, *held, *host_results], self._generator_copy()
                )
            host_results += _call_host(host, operands)
        with self._lock.writing() if program.writes else self._lock.reading():
            inputs = [*self._read(program), *fed, *held, *host_results]
            results = self._call(program, program.functions[-1], inputs, self._generator_of_run())
            first_new = len(results) - len(program.replaced)
            self.variables.update(zip(program.replaced, results[first_new:], strict=True))
        at = len(program.fetches)
        for node in program.printing:
            count = len(node.inputs) - 1
            print_line(node, results[at : at + count])
            at += count
        return results[: len(program.fetches)]

    def _call(self, program, function, inputs, generator):
        before = _runtime.set_grad_enabled(False)
        try:
            return function(inputs, generator)
        except TandemError as error:
            for node in program.steps:
                if node.op.name == error.op and node.source is not None and node.source != error.source:
                    error.add_note(f"  {node.name!r} was built at {node.source}")
            raise
        finally:
            _runtime.set_grad_enabled(before)

    def _read(self, program: Program) -> list:
        try:
            return [self.variables[v] for v in program.read]
        except KeyError as missing:
            v = missing.args[0]
            raise ValueRangeError(
                "run", f"variable {v.name!r}, built at {v.node.source}, has no value in this session",
                fix="run td.global_variables_initializer() first, or restore a checkpoint",
            ) from None  # fmt: skip

    def _generator_of_run(self):
        if self.graph.seed is None:
            return _runtime.default_generator()
        if self._generator is None:
            self._generator = _runtime.Generator(self.graph.seed)
        return self._generator

    def _generator_copy(self):
        copy = _runtime.Generator(0)
        copy.set_state(self._generator_of_run().get_state())
        return copy

    # -- variables from outside

    def value_of(self, variable) -> _runtime.Tensor:
        """A copy of a variable's value."""
        if variable not in self.variables:
            raise ValueRangeError("value_of", f"variable {variable.name!r} has no value in this session")
        with self._lock.reading(), outside_graphs():
            return self.variables[variable].clone()

    def load(self, variable, value):
        """Gives a variable a value."""
        if not is_variable(variable):
            raise DTypeError("load", f"{variable!r} is no variable")
        with outside_graphs():
            value = self._feed(variable, value).clone()
        with self._lock.writing():
            self.variables[variable] = value


def _call_host(host: StepNode, operands) -> list:
    import numpy

    from tandem.constructors import tensor

    results = host.op.function(*(t.numpy() for t in operands))
    if len(host.outputs) == 1 and not isinstance(results, (list, tuple)):
        results = [results]
    if results is None or len(results) != len(host.outputs):
        raise ValueRangeError(
            "py_func",
            f"the function of {host.name!r} gave {0 if results is None else len(results)} results, not {len(host.outputs)}",
        )
    made = []
    for value, v in zip(results, host.outputs, strict=True):
        t = tensor(numpy.asarray(value), dtype=v.dtype)
        if t.ndim != v.ndim or any(isinstance(n, int) and n != m for n, m in zip(v.type.shape, t.shape, strict=True)):
            raise ShapeError(
                "py_func",
                f"{v.name!r} is {show_shape(v.type.shape)} and the function gave {tuple(t.shape)}",
                fix="pass shape= to py_func",
            )
        made.append(t)
    return made


def _rebuild(structure, results):
    if structure is True:
        return next(results)
    if isinstance(structure, list):
        return [_rebuild(s, results) for s in structure]
    if isinstance(structure, tuple):
        parts = [_rebuild(s, results) for s in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    if isinstance(structure, dict):
        return {k: _rebuild(s, results) for k, s in structure.items()}
    return None


class ReadWriteLock:
    """Many runs that only read variables at once, or one that writes them."""

    def __init__(self):
        self._changed = threading.Condition(threading.Lock())
        self._readers = 0
        self._writing = False
        self._waiting = 0  # writers: they go before new readers, or steady reading would keep them out for ever

    @contextlib.contextmanager
    def reading(self):
        with self._changed:
            while self._writing or self._waiting:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def writing(self):
        with self._changed:
            self._waiting += 1
            while self._writing or self._readers:
                self._changed.wait()
            self._waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


class Function:
    """A graph as a Python function of its placeholders, given in order or by name."""

    def __init__(self, inputs, outputs, session: Session):
        self.inputs = list(inputs)
        self.outputs = outputs
        self.session = session
        self._by_name = {v.node.name: v for v in self.inputs}

    def __call__(self, *args, **named):
        if len(args) > len(self.inputs):
            raise ValueRangeError("function", f"{len(args)} arguments for {len(self.inputs)} inputs")
        feeds = dict(zip(self.inputs, args, strict=False))
        for name, value in named.items():
            if name not in self._by_name:
                raise ValueRangeError("function", f"there is no input {name!r}; inputs are {', '.join(self._by_name)}")
            feeds[self._by_name[name]] = value
        return self.session.run(self.outputs, feeds)


def function(inputs, outputs, session: Session | None = None) -> Function:
    """A Python function that runs a graph: f(A=..., B=...) for placeholders named A and B.

    >>> a, b = td.placeholder(td.float32, (None,), name="A"), td.placeholder(td.float32, (None,), name="B")
    >>> f = td.function([a, b], a * b + 1)
    >>> f(A=[1, 2], B=[3, 4])
    tensor([4., 9.])
    """
    inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    return Function(inputs, outputs, session or Session(inputs[0].graph if inputs else None))
