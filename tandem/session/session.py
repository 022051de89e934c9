"""Session: runs parts of a graph and keeps its variables."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from tandem import _runtime, forks
from tandem.errors import CancelledError, DeadlineError, DTypeError, ShapeError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Value
from tandem.program.report import check_budget
from tandem.session.current import _current, active_session
from tandem.session.flow_program import FlowProgram
from tandem.session.graph import (
    Graph,
    StepNode,
    SymbolicTensor,
    default_graph,
    derived_seed,
    outside_graphs,
    show_shape,
)
from tandem.session.lower import LoweredFunction
from tandem.session.nodes import RANKS, map_leaves
from tandem.session.primitives import Primitive
from tandem.session.program import Program, is_host, is_variable, needed, passed_through, written_by
from tandem.tensors.constructors import asarray, tensor


def make_program(
    graph: Graph,
    wanted: list,
    fed: list,
    regions: str,
    memory_budget: float | None = None,
    soft_placement: bool = False,
) -> Program | FlowProgram:
    """One plan for all of it, where that is possible. The tagged executor where branches and loops were wired by hand, or where
    a Python function or a queue comes after a write, which must happen first and once."""
    steps = needed(wanted, set(fed) - passed_through(wanted, set(fed)))
    wired = any(isinstance(n.op, Primitive) for n in steps)
    first_write = next((k for k, n in enumerate(steps) if written_by(n)), len(steps))
    if wired or any(is_host(n) for n in steps[first_write:]):
        return FlowProgram(graph, wanted, fed, None, memory_budget, soft_placement)
    lowered = LoweredFunction if regions == "primitives" else None
    return Program(graph, wanted, fed, lowered, memory_budget, soft_placement)


class Session:
    """Runs a graph. Variables keep their values from run to run; several threads may run at once.

    >>> graph = td.Graph()
    >>> with graph:
    ...     x = td.placeholder(td.float32, (None,), name="x")
    ...     y = (x * x).sum()
    >>> td.Session(graph).run({"sum of squares": y}, {x: [1, 2, 3]})
    {'sum of squares': tensor(14.)}

    regions: how td.cond, td.while_loop and td.scan run: as native loops, or lowered to Switch, Merge and the like ("primitives").
    memory_budget: what a program may take at its peak, as in td.compile; `memory` tells what was reached.
    soft_placement: nodes that are bound to devices that are not here run where they can instead of failing.
    target: a td.distributed.Cluster, on whose tasks the graph then runs (docs/cluster.md). placer: see its place.py.
    """

    max_programs = 256
    advice = ""  # what else there is to do about variables without values

    def __new__(cls, *args, target=None, **options):
        return super().__new__(cls if target is None else target.session_class)

    def __init__(
        self,
        graph: Graph | None = None,
        regions: str = "native",
        memory_budget: float | None = None,
        soft_placement: bool = False,
        target=None,
    ):
        if regions not in ("native", "primitives"):
            raise ValueRangeError("Session", f"regions is {regions!r}; it must be 'native' or 'primitives'")
        if graph is not None and not isinstance(graph, Graph):
            raise DTypeError(
                "Session",
                f"a session runs a td.Graph, and got a {type(graph).__name__}",
                fix="pass the graph, or nothing for the default one",
            )
        self.graph = default_graph() if graph is None else graph
        self.regions = regions
        self.memory_budget = check_budget("Session", memory_budget)
        self.soft_placement = soft_placement
        self.lock = _runtime.RunLock()  # variables: many runs that read, or one that writes
        self._cells: dict[Value, _runtime.VariableCell] = {}
        self._programs: OrderedDict[tuple, Program | FlowProgram] = OrderedDict()  # least recently used first
        self._mutex = forks.lock()  # guards _programs, _waiting, _closed, _generator, _runs_of
        self._waiting: set = set()
        self._closed = False
        self._generator = None
        self._runs_of: dict[
            Value, int
        ] = {}  # seed of a stream of random numbers -> runs that drew from it, but for one

    def __repr__(self):
        state = "closed" if self._closed else f"{len(self._cells)} variables, {self.num_programs} programs"
        return f"<Session of a graph of {len(self.graph.nodes)} nodes: {state}>"

    @property
    def num_programs(self) -> int:
        """How many sets of fetches and feeds are kept compiled; at most `max_programs`, those used last."""
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
        """Lets go of variables and programs. Runs that wait for a queue end with an error; later runs are refused."""
        with self._mutex:
            self._closed = True
            waiting = list(self._waiting)
            self._programs.clear()
        for cancellation in waiting:
            cancellation.cancel()
        with self.writing():
            self._cells.clear()

    def _check_open(self):
        if self._closed:
            raise ValueRangeError("run", "the session is closed", fix="make a new td.Session")

    def run(self, fetches, feed_dict=None, timeout: float | None = None) -> Any:
        """Values of the fetches: a tensor, an operation (None), a name, or lists, tuples and dicts of these.

        feed_dict: tensors of the graph (any of them, or their names) -> what they are in this run. timeout: seconds after which a
        run that waits for a queue, or goes round in a hand-wired loop, ends with DeadlineError.
        """
        wanted: list = []
        structure = self._flatten(fetches, wanted)
        if feed_dict is not None and not isinstance(feed_dict, Mapping):
            raise DTypeError(
                "run", f"feed_dict is a {type(feed_dict).__name__}, not a dict", fix="pass {placeholder: array}"
            )
        feeds = {self._feedable(k): v for k, v in feed_dict.items()} if feed_dict else {}
        with outside_graphs():
            program = self._program(wanted, list(feeds))
            fed = [self._feed(k, v) for k, v in feeds.items()]
            if program.missing is not None:
                node = program.missing
                raise ValueRangeError(
                    "run",
                    f"placeholder {node.name!r} {show_shape(node.outputs[0].type.shape)}, built at {node.source}, must be fed",
                    fix="pass feed_dict={placeholder: array}",
                )
            if _runtime.capturing():
                raise UnsupportedError(
                    "run", "a session cannot run inside a compiled function", fix="call it outside td.compile"
                )
            results = program.execute(self, fed) if timeout is None else self._execute_within(timeout, program, fed)
        return _rebuild(structure, iter(results))

    def compiled_graph(self, fetches, feeds=()):
        """The graph of primitives, after all passes, that a run of these fetches with these tensors fed was compiled to last.

        Its inputs are the variables that the run reads, what is fed, tensors that the graph holds, and seed and counter of the
        random numbers, in this order. It can be printed, drawn, saved and run like that of a compiled function.
        """
        wanted: list = []
        self._flatten(fetches, wanted)
        program = self._program(wanted, [self._feedable(k) for k in feeds])
        found = program.compiled
        if found is None:
            raise ValueRangeError(
                "compiled_graph",
                "these fetches with these feeds were not compiled to one program",
                fix="run them first; hand-wired loops, and writes before a Python function, run as many small programs",
            )
        return found.seal()

    def explain(self, fetches=None, feeds=()) -> str:
        """Which programs runs of these fetches with these tensors fed were compiled to, as text; None: those of all runs so far.

        >>> x = td.placeholder(td.float32, (None,), name="x")
        >>> session = td.Session()
        >>> y = session.run(x * 2, {x: [1.0, 2.0]})
        >>> print(session.explain().splitlines()[0])
        run: 1 sequences of operators, 1 programs
        """
        return "\n".join(r.explain("run", len(r)) for r in self._reports(fetches, feeds) if r or fetches is not None)

    def memory(self, fetches=None, feeds=()) -> dict | None:
        """What the largest of these programs takes, in bytes, as `memory` of a compiled function does; None if there is none."""
        found = [r.largest() for r in self._reports(fetches, feeds)]
        return max(filter(None, found), key=lambda memory: memory["peak"], default=None)

    def _reports(self, fetches, feeds) -> list:
        if fetches is None:
            with self._mutex:
                return [report for program in self._programs.values() for report in program.reports]
        wanted: list = []
        self._flatten(fetches, wanted)
        return self._program(wanted, [self._feedable(k) for k in feeds]).reports

    def _execute_within(self, timeout: float, program, fed: list) -> list:
        late = threading.Event()
        started: list = []

        def stop():
            late.set()
            for cancellation in list(started):
                cancellation.cancel()

        _current.started = started, late
        timer = threading.Timer(timeout, stop)
        timer.daemon = True
        timer.start()
        try:
            return program.execute(self, fed)
        except CancelledError:
            if not late.is_set():
                raise
            raise DeadlineError("run", f"not done within {timeout:g} s") from None
        finally:
            timer.cancel()
            _current.started = None

    def _program(self, wanted: list, fed: list) -> Program | FlowProgram:
        key = (tuple(map(id, wanted)), tuple(map(id, fed)))
        with self._mutex:
            self._check_open()
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
                return program
        program = self._make_program(wanted, fed)
        with self._mutex:
            program = self._programs.setdefault(key, program)
            while len(self._programs) > self.max_programs:
                self._programs.popitem(last=False)
        return program

    def _make_program(self, wanted: list, fed: list) -> Program | FlowProgram:
        return make_program(self.graph, wanted, fed, self.regions, self.memory_budget, self.soft_placement)

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
            if RANKS[given.dtype.kind] > RANKS[key.dtype.kind]:
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

    # -- what programs use

    def cell(self, variable) -> _runtime.VariableCell:
        """Where a variable's value is kept."""
        found = self._cells.get(variable)
        if found is None:
            made = _runtime.VariableCell()
            made.tensor = variable.shared
            found = self._cells.setdefault(variable, made)
        return found

    def keep(self, variable, value: _runtime.Tensor):
        """Makes value what a variable is: its new memory, or what the tensor that it shares holds."""
        if variable.shared is None:
            self.cell(variable).tensor = value
        elif value is not variable.shared:
            variable.shared.detach().copy_(value)
            self.cell(variable).tensor = variable.shared

    def note_writes(self, variables):
        """A run has written these in their memory: what records saved of it is not what it holds any more."""
        for v in variables:
            if v.shared is not None:
                _runtime.note_write(v.shared)

    def read(self, variables) -> list:
        return [self.check_value(v) for v in variables]

    def check_value(self, v) -> _runtime.Tensor:
        value = self.cell(v).tensor
        if value is None:
            self._check_open()
            raise ValueRangeError(
                "run", f"variable {v.name!r}, built at {v.node.source}, has no value in this session",
                fix="run td.global_variables_initializer() first, or restore a checkpoint" + self.advice,
            )  # fmt: skip
        return value

    def reading(self) -> _Held:
        return _Held(self.lock.acquire_read, self.lock.release_read)

    def writing(self) -> _Held:
        return _Held(self.lock.acquire_write, self.lock.release_write)

    def cancellable(self) -> _Cancellable:
        """Something that waits; `close` cancels it."""
        return _Cancellable(self)

    def generator(self):
        if self.graph.seed is None:
            return _runtime.default_generator()
        with self._mutex:
            if self._generator is None:
                self._generator = _runtime.Generator(self.graph.seed)
        return self._generator

    def next_seed(self) -> int:
        """A seed for a run that draws numbers in more than one program, or in a loop: its own stream, reproducible from ours."""
        generator = self.generator()
        with self._mutex:
            seed, offset = generator.get_state()
            generator.set_state((seed, offset + 1))
        return (seed * 0x9E3779B97F4A7C15 + offset * 0xD6E8FEB86659FD93 + 1) % 2**63

    def held(self, values) -> list:
        """Tensors that the graph holds, for one run. Streams of random numbers go on to their next seed."""
        return [self._next_of(v) if v.node.op.name == "seed" else v.node.op.tensor for v in values]

    def _next_of(self, stream) -> _runtime.Tensor:
        with self._mutex:
            runs = self._runs_of[stream] = self._runs_of.get(stream, -1) + 1
        return stream.node.op.tensor if runs == 0 else tensor(derived_seed(stream.node.op.tensor.item(), runs))

    # -- variables from outside

    def value_of(self, variable) -> _runtime.Tensor:
        """A copy of a variable's value."""
        return self.values_of([variable])[0]

    def values_of(self, variables) -> list:
        """Copies of the values of variables, all from between the same two writes."""
        with self.reading(), outside_graphs():
            made = []
            for v in variables:
                value = self.cell(v).tensor
                if value is None:
                    self._check_open()
                    raise ValueRangeError("value_of", f"variable {v.name!r} has no value in this session")
                made.append(value.clone())
            return made

    def load(self, variable, value):
        """Gives a variable a value."""
        self.load_all({variable: value})

    def load_all(self, values: dict):
        """Gives variables values, in one step that no run sees by half."""
        for variable in values:
            if not is_variable(variable):
                raise DTypeError("load", f"{variable!r} is no variable")
        with outside_graphs():
            ready = {v: self._feed(v, x).clone() for v, x in values.items()}
        with self.writing():
            for v, x in ready.items():
                self.keep(v, x)


class _Held:
    """A lock, for `with`. Written out because every run takes one."""

    __slots__ = ("_acquire", "_release")

    def __init__(self, acquire, release):
        self._acquire, self._release = acquire, release

    def __enter__(self):
        self._acquire()

    def __exit__(self, *exc):
        self._release()


class _Cancellable:
    """A cancellation that the session knows while it is in use."""

    __slots__ = ("_cancellation", "_session")

    def __init__(self, session: Session):
        self._session = session

    def __enter__(self) -> _runtime.Cancellation:
        cancellation = self._cancellation = _runtime.Cancellation()
        with self._session._mutex:
            self._session._check_open()
            self._session._waiting.add(cancellation)
        deadline = getattr(_current, "started", None)
        if deadline is not None:
            deadline[0].append(cancellation)
            if deadline[1].is_set():
                cancellation.cancel()
        return cancellation

    def __exit__(self, *exc):
        with self._session._mutex:
            self._session._waiting.discard(self._cancellation)


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


class Function:
    """A graph as a Python function of its placeholders, given in order or by name."""

    def __init__(self, inputs, outputs, session: Session | None = None):
        self.inputs = list(inputs)
        self.outputs = outputs
        found = [*self.inputs]
        map_leaves(lambda x: found.append(x) if isinstance(x, (SymbolicTensor, StepNode)) else None, outputs)
        self.graph = found[0].graph if found else default_graph()
        self._session = session or active_session(self.graph)
        self._own: Session | None = None
        self._by_name = {v.node.name: v for v in self.inputs}

    def __call__(self, *args, **named):
        if len(args) > len(self.inputs):
            raise ValueRangeError("function", f"{len(args)} arguments for {len(self.inputs)} inputs")
        feeds = dict(zip(self.inputs, args, strict=False))
        for name, value in named.items():
            if name not in self._by_name:
                raise ValueRangeError("function", f"there is no input {name!r}; inputs are {', '.join(self._by_name)}")
            if self._by_name[name] in feeds:
                raise ValueRangeError("function", f"input {name!r} is given twice: in order and by name")
            feeds[self._by_name[name]] = value
        return self.session.run(self.outputs, feeds)

    @property
    def session(self) -> Session:
        """Where it runs: the session it was given, the one that was active where it was made, the one that is active now, or one of
        its own."""
        found = self._session or active_session(self.graph) or self._own
        if found is None:
            found = self._own = Session(self.graph)
            found.advice = "; td.function(..., session=session) uses the variables of a session"
        return found


def function(inputs, outputs, session: Session | None = None) -> Function:
    """A Python function that runs a graph: f(A=..., B=...) for placeholders named A and B.

    session: where it runs and whose variables it reads; the active one (`with session:`) unless given, or else one of its own.

    >>> a, b = td.placeholder(td.float32, (None,), name="A"), td.placeholder(td.float32, (None,), name="B")
    >>> f = td.function([a, b], a * b + 1)
    >>> f(A=[1, 2], B=[3, 4])
    tensor([4., 9.])
    """
    inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    return Function(inputs, outputs, session)
