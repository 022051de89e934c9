"""Program: what one set of fetches and feeds of a graph compiles to.

Note [Runs]
The nodes that the fetches need are traced, in the order in which they were built, into one graph of primitives, by an operator
function of everything that comes in: variables, fed tensors, tensors the graph holds. So a program is compiled like any operator:
with symbolic sizes, guards, and a plan for each signature.

Variables are read where the program reads them: after the assignments before that point which belong to the run. A variable that is
read and written is changed in its memory; one that is only written gets new memory, so it need not have had any.

What a node waits for by control_dependencies is in the run, before it: writes, prints and Python functions keep the order in which
they were built. In the graph of primitives, nodes have as control inputs those that may fail among what they wait for, whose
results may be read by nobody; the rest cannot be noticed (Note [Control inputs] in graph/ir.py). Nodes bound to a device run there,
the others where their operands are (placing.py): a run may be on several devices.

A Python function in the middle (py_func) divides a run into several programs. Each traces everything before it again and computes
what its function needs, from the values that variables had at the beginning; only the last one stores into variables. That keeps
gradients through all of it possible, and repeats work only where the graph says so.

A tensor that is fed has the fed value wherever it is used, and nothing before it runs for its sake. Gradients are another matter:
those that pass through it go on to what it was made of, as they were asked to when the graph was built. So what lies between them
and the fed tensor is part of the run, and the tensor is both (Replaced in nodes.py).
"""

from __future__ import annotations

import contextlib
import copy
import sys

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import ShapeError, TandemError
from tandem.graph import ir
from tandem.graph.ir import Node, Origin, Value, current_builder, placed, source_scope
from tandem.graph.substitution import substitute, symbol_indices
from tandem.graph.symbolic import hint
from tandem.ops.define import ParameterSpec, Role, make_function
from tandem.ops.failing import may_fail
from tandem.ops.prepare import as_value, cast
from tandem.program.report import Report
from tandem.session.build import ancestors
from tandem.session.graph import Graph, StepNode, SymbolicTensor
from tandem.session.nodes import Call, Fed, Gradients, Host, Identity, Print, Random, Replaced, Step, Store, map_leaves
from tandem.session.placing import Places, Transfers, run_device
from tandem.session.unknown import show_shape, unknown_index

_NOTHING = contextlib.nullcontext()
PARAMETERS = [
    ParameterSpec("inputs", "tensors", True, None, False),
    ParameterSpec("generator", "generator", False, None, False),
]


def is_variable(v: Value) -> bool:
    return v.node.op.is_variable


def is_host(node: StepNode) -> bool:
    """Whether a node is done by Python between programs: a Python function, an operation on a queue."""
    return isinstance(node.op, Host)


def host_task(node: StepNode):
    """A host node, for the tagged executor."""
    return _runtime.python_task(
        lambda operands, *place: node.op.call(node, operands, *place), node.op.blocking, node.op.placed
    )


def written_by(node: StepNode) -> tuple:
    """Variables that a node writes."""
    if isinstance(node.op, Store):
        return (node.op.variable,)
    return node.op.written if isinstance(node.op, Call) else ()


def draws_from_the_run(op: Step) -> bool:
    """Whether random numbers are drawn that have no seed of their own."""
    if isinstance(op, Call):
        return None in streams_of(op)
    return any(draws_from_the_run(n.op) for body in op.bodies for n in body.graph.nodes)


def streams_of(call: Call) -> list[int | None]:
    """What each generator among the arguments of a call is: an operand that is its seed, or the run's (None)."""
    found = []
    map_leaves(lambda x: isinstance(x, Random) and found.append(x.index), [call.args, call.kwargs])
    return found


class Program:
    """The part of a graph that some fetches need, ready to run."""

    def __init__(
        self,
        graph: Graph,
        fetches: list,
        fed: list[SymbolicTensor],
        lowered=None,
        memory_budget: float | None = None,
        soft_placement: bool = False,
    ):
        self.graph = graph
        self.fetches = [f for f in fetches if isinstance(f, Value)]
        self.fed = fed
        self.passed = passed_through(fetches, set(fed))
        self.steps = needed(fetches, set(fed) - self.passed)
        self.missing = next((n for n in self.steps if n.op.is_placeholder), None)
        self.places = Places(self.steps, soft_placement)
        self.waits = any(n.control for n in self.steps)
        self.held = [n.outputs[0] for n in self.steps if isinstance(n.op, Fed) and n.op.tensor is not None]
        self._holds_arrays = any(v.ndim for v in self.held)
        self.steps = [n for n in self.steps if not isinstance(n.op, Fed)]
        self.hosts = [n for n in self.steps if is_host(n)]
        self._find_variables()
        asked = set(needed(fetches, set(fed))) if self.passed else self.steps
        self.printing = [n for n in self.steps if isinstance(n.op, Print) and n in asked]
        self._direct = [self._find_direct(host) for host in [*self.hosts, None]]
        stored = [0] * len(self.hosts) + [len(self.replaced)]
        self.reports = [Report(memory_budget) for _ in stored]  # of the program before each host, and the last one
        if lowered is not None:  # regions lowered to primitives (lower.py)
            self.functions = [
                lowered(self._body(h), n, report)
                for h, n, report in zip([*self.hosts, None], stored, self.reports, strict=True)
            ]
            return
        self.functions = [
            make_function("run", self._body(h), PARAMETERS, role=Role(whole=True, own_results=n, report=report))
            for h, n, report in zip([*self.hosts, None], stored, self.reports, strict=True)
        ]

    @property
    def compiled(self) -> ir.Graph | None:
        """What the latest plan was made of."""
        report = self.reports[-1]
        if not report:
            return None
        compiled = report.graph(report[-1])
        # Sizes are those of arguments of the operator function, of which the first is how many tensors there are.
        symbols = copy.copy(compiled.symbols)
        symbols.origins = [o if o[0] == "local" else (o[0], o[1] - 1, *o[2:]) for o in symbols.origins]
        graph = ir.Graph(symbols, "run")
        for name in ("inputs", "nodes", "outputs", "mutations"):
            setattr(graph, name, list(getattr(compiled, name)))
        return graph

    def _find_variables(self):
        read, written = {}, {}
        fed = set(self.fed)
        for node in self.steps:
            reads = [v for v in node.inputs if is_variable(v)]
            if isinstance(node.op, Store) and node.op.reads:
                reads.append(node.op.variable)
            for v in reads:
                if v not in written and v not in fed:
                    read[v] = None
            for v in written_by(node):
                written[v] = None
        for v in self.fetches:
            if is_variable(v) and v not in written and v not in fed:
                read[v] = None
        self.read = list(read)
        self.in_place = [v for v in written if v in read]
        self.replaced = [v for v in written if v not in read]

    @property
    def writes(self) -> bool:
        return bool(self.in_place or self.replaced)

    def keys(self, host: StepNode | None) -> list[SymbolicTensor]:
        """What comes in, in the order of the arguments: variables, feeds, held tensors, results of Python functions so far."""
        before = self.hosts if host is None else self.hosts[: self.hosts.index(host)]
        return [*self.read, *self.fed, *self.held, *(v for n in before for v in n.outputs)]

    def _find_direct(self, host: StepNode | None) -> list[int] | None:
        """Where each operand is among feeds, held tensors and hosts' results, if that is all of them: then nothing has to run."""
        at = {v: k for k, v in enumerate(self.keys(host)[len(self.read) :])}
        wanted = self.fetches if host is None else host.inputs
        return [at[v] for v in wanted] if all(v in at for v in wanted) else None

    def _body(self, host: StepNode | None):
        keys = self.keys(host)
        steps = self.steps if host is None else self.steps[: self.steps.index(host)]

        def body(inputs, generator):
            trace = Trace(self, keys, inputs, generator)
            for node in steps:
                trace.step(node)
            trace.check_guards()
            if host is not None:
                return tuple(trace.value(v) for v in host.inputs)
            return self._finish(trace, inputs)

        return body

    def _finish(self, trace, inputs):
        """Stores into variables; gives what is fetched, what is printed, and the new memory of variables."""
        graph = current_builder().graph
        replaced = [trace.state[v] for v in self.replaced]
        results = [trace.value(v) for v in self.fetches]
        printed = [v for n in self.printing for v in trace.prints[n]]
        for v in self.in_place:
            target = inputs[self.read.index(v)]
            value = trace.state[v]
            if value is not target:
                graph.mutations.append((graph.inputs.index(target), value))
        return (*results, *printed, *replaced)

    # -- running

    def execute(self, session, fed: list) -> list:
        held = session.held(self.held)
        if self.places.device is None and not self._holds_arrays:
            return self._execute(session, fed, held)
        with run_device(self.places, [*fed, *session.read(self.read)], fed, held) as (fed, held):
            return self._execute(session, fed, held)

    def _execute(self, session, fed: list, held: list) -> list:
        known: list = []  # results of hosts so far
        seed = None

        def random():
            # Programs of one run must draw the same numbers, whatever other runs draw meanwhile.
            nonlocal seed
            if not self.hosts:
                return session.generator()
            if seed is None:
                seed = session.next_seed()
            return _runtime.Generator(seed)

        for host, function, direct in zip(self.hosts, self.functions, self._direct, strict=False):
            if direct is not None:
                given = [*fed, *held, *known]
                operands = [given[k] for k in direct]
            else:
                with session.reading() if self.read else _NOTHING:
                    operands = self._call(function, [*session.read(self.read), *fed, *held, *known], random())
            known += self._call_host(session, host, operands)
        if self.hosts and self._direct[-1] is not None and not self.writes and not self.printing:
            first = len(fed) + len(held)
            if all(k >= first for k in self._direct[-1]):  # nothing but what hosts gave, which is theirs to give
                return [known[k - first] for k in self._direct[-1]]
        with session.writing() if self.writes else session.reading() if self.read else _NOTHING:
            inputs = [*session.read(self.read), *fed, *held, *known]
            results = self._call(self.functions[-1], inputs, random())
            first_new = len(results) - len(self.replaced)
            for v, value in zip(self.replaced, results[first_new:], strict=True):
                session.keep(v, value)
            session.note_writes(self.in_place)
        at = len(self.fetches)
        for node in self.printing:
            count = len(node.inputs) - 1
            print_line(node, results[at : at + count])
            at += count
        return results[: len(self.fetches)]

    def _call(self, function, inputs, generator):
        before = _runtime.set_grad_enabled(False)
        try:
            return function(inputs, generator)
        except TandemError as error:
            for node in self.steps:
                if node.op.name == error.op and node.source is not None and node.source != error.source:
                    error.add_note(f"  {node.name!r} was built at {node.source}")
            raise
        finally:
            _runtime.set_grad_enabled(before)

    @staticmethod
    def _call_host(session, host: StepNode, operands) -> list:
        if not host.op.blocking:
            return host.op.call(host, operands, None)
        with session.cancellable() as cancellation:
            return host.op.call(host, operands, cancellation)


def needed(fetches, fed: set) -> list[StepNode]:
    found = set()
    stack = [f.node if isinstance(f, Value) else f for f in fetches if f not in fed]
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found.add(node)
        stack.extend(v.node for v in node.inputs if v not in fed)
        stack.extend(node.control)
    return sorted(found, key=position)


def passed_through(fetches, fed: set) -> set:
    """Fed tensors that gradients of these fetches pass through, on the way to something that they were computed from."""
    computed = {v for v in fed if v.node.op.differentiable}
    passed: set = set()
    while computed - passed:
        found = set()
        for node in needed(fetches, fed - passed):
            if isinstance(node.op, Gradients):
                ys, xs = node.inputs[: node.op.ys], node.inputs[node.op.ys : node.op.ys + node.op.xs]
                between = ancestors(ys) & computed
                found |= {v for v in between - passed if not ancestors(v.node.inputs).isdisjoint(xs)}
        if not found:
            break
        passed |= found
    return passed


def position(node: StepNode) -> tuple[int, int]:
    """Where a node stands in the order of the program. Initial values are assigned where their variable was built, so that initial
    values of later ones may be computed from it."""
    if isinstance(node.op, Store) and node.op.name == "initialize":
        return node.op.variable.node.id, node.id
    return node.id, 0


class Sizes(dict):
    """Unknown sizes of the graph -> sizes of the run."""

    def __init__(self, trace):
        self.trace = trace

    def __missing__(self, index):
        kind, owner, axis = self.trace.program.graph.symbols.origins[index]
        if kind == "axis":
            return self.trace.sized(owner).shape[axis]
        name = owner
        raise ShapeError(
            None, f"the size of axis {axis} of {name!r} is needed but not known in this run", fix=f"feed {name!r} too"
        )


class Trace:
    """A program being traced: what each tensor of the deferred graph is in it."""

    def __init__(self, program: Program, keys, inputs, generator, place_random: bool = False):
        self.program = program
        self.place_random = place_random
        self.passed = (
            program.passed
        )  # values that come in though they are computed: gradients go on to what they are computed of
        self.placed: StepNode | None = None
        self.generator = generator
        self.values: dict[Value, Value] = {}
        self.state: dict[Value, Value] = {}
        self.history: dict[Value, list] = {}
        self.prints: dict = {}
        self.order = Order(program.waits, program.places)
        self.transfers: Transfers | None = None
        if Transfers.needed(program.places):
            movable = {value for key, value in zip(keys, inputs, strict=True) if not is_variable(key)}
            self.transfers = Transfers(program.places, movable)
        self.sizes = Sizes(self)
        self.aliases: dict[Value, Value] = {}
        for key, value in zip(keys, inputs, strict=True):
            self._come_in(key, value)
            around = key
            while around.node.op.hand_wired and around.node.op.name in ("enter", "switch") and around.index < 2:
                around = around.node.inputs[0]
                self.aliases.setdefault(around, key)

    def _come_in(self, key: SymbolicTensor, value: Value):
        for axis, (known, actual) in enumerate(zip(key.type.shape, value.shape, strict=True)):
            if isinstance(known, int):
                if actual != known:  # asking also tells the code generator that it is this very size
                    raise ShapeError(None, f"{key.name!r} has size {known} in axis {axis}, and got {hint(actual)}")
            else:
                index = unknown_index(known)
                if index is not None:
                    self.sizes.setdefault(index, actual)
        if is_variable(key):
            self.state[key] = value
            self.history[key] = [((-1, 0), value)]
        else:
            self.values[key] = value

    def check_guards(self):
        """What the program that built the graph decided by comparing sizes must hold for these, where the run computes them."""
        origins = self.program.graph.symbols.origins
        for relation, expression in self.program.graph.symbols.guards:
            owners = [origins[i][1] for i in symbol_indices(expression)]
            if not all(v in self.values or v in self.state for v in owners):
                continue
            difference = substitute(expression, self.sizes)
            holds = {"==": difference == 0, "!=": difference != 0, "<": difference < 0, ">=": difference >= 0}[relation]
            if not holds:
                raise ShapeError(
                    None,
                    f"the program that built the graph asked whether {expression} {relation} 0 and took it to be so; "
                    f"in this run it is {hint(difference)}",
                    fix="give the placeholder its size when building, or decide with td.where",
                )

    def sized(self, v: Value) -> Value:
        """A value with the sizes of v: v itself, or what v is in the branch or loop that this is part of."""
        return self.values[self.aliases[v]] if v in self.aliases else self.value(v)

    def value(self, v: Value) -> Value:
        return self.state[v] if v in self.state else self.values[v]

    is_variable = staticmethod(is_variable)

    def variable(self, v: Value) -> Value:
        return self.state[v]

    def variable_at(self, v: Value, node: StepNode) -> Value:
        """What the variable held when that node ran."""
        return next((value for at, value in reversed(self.history[v]) if at < position(node)), self.state[v])

    def store(self, variable: Value, value: Value, node: StepNode) -> Value:
        if value.ndim != variable.ndim or any(a != b for a, b in zip(value.shape, variable.shape, strict=True)):
            raise ShapeError(
                node.op.name,
                f"the value is {tuple(hint(d) for d in value.shape)} but variable {variable.name!r} is {tuple(variable.shape)}",
            )
        value = cast(as_value(value), variable.dtype)
        if self.transfers is not None and variable in self.state:
            value = self.transfers.like(value, self.state[variable])
        self.state[variable] = value
        self.history.setdefault(variable, []).append((position(node), value))
        return value

    def random_state(self, seed: Value | None):
        """The generator of a call: the run's, or one that begins again with this seed."""
        if seed is None:
            return self.generator if self.placed is None else _Placed(self.placed.id, self.generator)
        # Iterations of a hand-wired loop have generators of their own.
        again = self.placed is not None and self.program.in_loop(self.placed)
        return _Seeded(F.Add()(seed, self.generator.seed) if again else seed)

    def region_state(self, seeded: bool):
        """The generator of a loop or branch; seeded: all that is drawn there has seeds of its own."""
        if seeded and (self.placed is None or not self.program.in_loop(self.placed)):
            return _Seeded(F.Constant(0, dtypes.int64)())
        return self.random_state(None)

    def printed(self, node, values):
        self.prints[node] = values

    def step(self, node: StepNode):
        if is_host(node):
            return
        if self.place_random:
            self.placed = node
        try:
            with source_scope(node.source and Origin(node.op.name, node.source)), self.order.of(node) as order:
                operands = order.operands([self.value(v) for v in node.inputs])
                if self.transfers is not None:
                    operands = self.transfers.operands(node, operands)
                results = node.op.run(self, node, operands)
                if written_by(node) and isinstance(node.op, Call):
                    results = [self.store(v, r, node) for v, r in zip(node.op.written, results, strict=False)]
                elif isinstance(node.op, Call):
                    results = [as_value(r) for r in results if r is not None]
        except TandemError as error:
            raise located(error, node) from None
        for v, result in zip(node.outputs, results, strict=True):
            if v not in self.values:  # unless it was fed
                self.values[v] = result
            elif v in self.passed:
                self.values[v] = self._replaced(node, result, self.values[v])

    @staticmethod
    def _replaced(node: StepNode, computed: Value, given: Value) -> Value:
        try:
            return Replaced()(computed, given)
        except TandemError as error:
            raise located(error, node) from None


class Order:
    """Control inputs of deferred nodes, while they are traced, as those of the primitives that they become. See Note [Runs]."""

    def __init__(self, waits: bool, places: Places | None = None):
        self.waits = waits  # whether any node does
        self.places = places  # None inside of a region
        self.noticed: dict[StepNode, dict[Node, None]] = {}  # what may fail in a step or in what it needs

    def of(self, node: StepNode) -> _Ordered:
        return _Ordered(self, node)


class _Ordered:
    """For tracing one step: what it makes waits for what the step waits for, and runs where the step must."""

    def __init__(self, order: Order, node: StepNode):
        self.order, self.node = order, node
        self.control = dict.fromkeys(n for c in node.control for n in order.noticed.get(c, ()))
        self.builder = current_builder()
        device = node.device if order.places is None else order.places.of(node)
        self.place = placed(self.builder, self.control, device)

    def __enter__(self):
        self.made = len(self.builder.graph.nodes)
        self.place.__enter__()
        return self

    def operands(self, operands: list[Value]) -> list[Value]:
        """One that is stored or passed on as it is becomes a value of its own, so that there is something to wait."""
        if self.control and operands and isinstance(self.node.op, (Store, Identity, Print)):
            operands[0] = F.Copy()(operands[0])
        return operands

    def __exit__(self, *exc):
        self.place.__exit__()
        if self.order.waits:
            noticed = self.order.noticed
            before = [n for v in self.node.inputs for n in noticed.get(v.node, ())]
            here = [n for n in self.builder.graph.nodes[self.made :] if n.op.effect or may_fail(n.op)]
            noticed[self.node] = dict.fromkeys([*self.control, *before, *here])


class _Stream:
    """Random numbers from a place on."""

    def __init__(self, seed: Value, start: int):
        self.seed = seed
        self._used = start

    def take(self, count):
        first = self._used
        self._used = first + count
        return F.Size(first, dtypes.int64)() if not isinstance(first, int) else F.Constant(first, dtypes.int64)()


class _Placed(_Stream):
    """Those of one node of a dataflow graph: the same wherever it is computed, which may be in several groups."""

    def __init__(self, node: int, state):
        super().__init__(state.seed, (node + 1) << 40)


class _Seeded(_Stream):
    """Those of a seed, from the first on."""

    def __init__(self, seed: Value):
        super().__init__(seed, 0)


def located(error: TandemError, node: StepNode) -> TandemError:
    """The error with the node's name, its operands, and the line that built it."""
    operands = ", ".join(f"{v.name} {show_shape(v.type.shape)}" for v in node.inputs)
    return type(error)(
        error.op or node.op.name, f"{error.rule}\n  in {node.name!r} of ({operands})", error.fix, node.source
    )


def print_line(node: StepNode, values):
    op = node.op
    if op.first_n is not None and op.first_n >= 0 and op.printed >= op.first_n:
        return
    op.printed += 1
    texts = []
    for v in values:
        flat = v.reshape(-1)
        count = 3 if op.summarize is None else op.summarize
        shown = flat.tolist() if count < 0 else flat[:count].tolist()
        texts.append(
            "["
            + " ".join(f"{x:g}" if isinstance(x, float) else str(x) for x in shown)
            + ("..." if len(shown) < v.numel() else "")
            + "]"
        )
    print(op.message + "".join(texts), file=sys.stderr)
