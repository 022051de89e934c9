"""td.vertex: a function of one vertex, run over structures that are data.

See Note [Vertex programs].
"""

# Note [Vertex programs]
# The function is traced once a call for each number of children that occurs, on tensors without values, and becomes an
# operator function, found again by what was captured: parameters and closures are looked at every time, and nothing is compiled
# for a new structure. The runtime runs it frontier by frontier (Note [Frontiers] in src/autobatch/frontiers.h); the structure is
# only data. Backward goes over the frontiers the other way round. Where the function has no batching rule or a vertex fails, the
# runtime defers one call a vertex instead, as td.autobatch does (src/autobatch/vertices.cc).

from __future__ import annotations

import functools
import types

import numpy as np

import tandem.ops as F
from tandem import _runtime
from tandem.autograd import Function, enable_grad, grad
from tandem.compiling.structure import Structure
from tandem.control.mode import deferred
from tandem.control.regions import Draws
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.host_call import call_on_host
from tandem.tensors.constructors import zeros
from tandem.transforms.traced import prepare, take


class Vertex:
    """A vertex program; what `td.vertex` gives. Call it with a structure and the inputs of all vertices."""

    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self._fn = fn

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args, state, direction: str = "up"):
        at = next((i for i, a in enumerate(args) if isinstance(a, Structure)), None)
        if at is None:
            raise DTypeError("vertex", "no argument is a structure", fix="call it as program(structure, x, state=h)")
        bound, structure, inputs = args[:at], args[at], list(args[at + 1 :])
        single = not isinstance(state, (tuple, list))
        states = [state] if single else list(state)
        if direction not in ("up", "down"):
            raise ValueRangeError("vertex", f"direction is {direction!r}; it must be 'up' or 'down'")
        _check(structure, inputs, states)
        if direction == "down":
            structure = structure.reversed
        fn = functools.partial(self._fn, *bound)
        if recorder := deferred(inputs, states, fn):
            made = _recorded(recorder, fn, structure, inputs, states, single)
            return made[0] if single and len(made) == 1 else tuple(made)
        program = _Program(fn, structure, inputs, states, single)
        made = _captured(program) if _runtime.capturing() else program.run()
        return made[0] if single and len(made) == 1 else tuple(made)


def vertex(fn):
    """A function of one vertex, run over all vertices of structures that come as data: trees, chains, acyclic graphs, any mix.

    fn(children, *inputs) -> state: children are the states of the vertex's children, a tensor (k, *s) for k children or a tuple of
    such tensors, inputs are the vertex's own, without the axis of vertices. It gives the vertex's state: (*s), or a tuple of these,
    as children have them; what it gives beyond is output.

    program(structure, *inputs, state=h) runs it: structure is a td.Structure, inputs have a row for each vertex, state says what
    the state of one vertex looks like (its shape and type; a tuple for several tensors). It gives states and outputs of all
    vertices, (n, *s) each. With direction="down", children are a vertex's parents: programs go from the roots to the leaves.

    Vertices that can be computed at the same time run together, one operator for each number of children; a new structure, batch or
    depth compiles nothing. Gradients reach inputs and parameters. fn cannot look at values (`if x > 0`), but may look at k,
    children.shape[0].

    >>> @td.vertex
    ... def total(children, x):
    ...     return x + children.sum(0)
    >>> tree = td.Structure.from_parents([2, 2, 3, -1])
    >>> total(tree, td.tensor([1.0, 2.0, 3.0, 4.0]), state=td.tensor(0.0))
    tensor([ 1.,  2.,  6., 10.])
    """
    if not callable(fn):
        raise DTypeError("vertex", f"a {type(fn).__name__} cannot be called", fix="decorate a function")
    return Vertex(fn)


def _check(structure: Structure, inputs: list, states: list):
    for x in (*inputs, *states):
        if not isinstance(x, (_runtime.Tensor, Value)):
            raise DTypeError("vertex", f"an argument is a {type(x).__name__}; inputs and states are tensors")
    if structure.num_vertices == 0:
        raise ShapeError("vertex", "the structure has no vertices")
    for x in inputs:
        if x.ndim == 0 or (isinstance(x.shape[0], int) and x.shape[0] != structure.num_vertices):
            raise ShapeError(
                "vertex",
                f"an input is {tuple(x.shape)}, and the structure has {structure.num_vertices} vertices; "
                "inputs have a row for each",
            )


class _Program:
    """A vertex function, and what it is called with."""

    def __init__(self, fn, structure: Structure, inputs: list, states: list, single: bool):
        self.fn, self.structure, self.single = fn, structure, single
        self.inputs, self.states = inputs, states
        self.places: dict = {}  # {id of a constant: its place among those that are used in their stead}
        self.constants: list = []
        self.random = False
        self.rows: tuple = ()  # (dtype, shape) of what a vertex gives
        self.functions = self._functions(stacked=True)

    def _functions(self, stacked: bool) -> dict:
        """{number of children: what the runtime calls}. stacked: the children's states are one operand, not one each."""
        grad = _runtime.grad_enabled()
        inputs, states = self.inputs, self.states
        made: dict = {}
        for count in np.unique(self.structure.counts).tolist():

            def one(*values, count=count):
                own, rest = values[: len(inputs)], values[len(inputs) :]
                if not count:
                    children = [F.full((0, *s.shape), 0, dtype=s.dtype, device=s.device) for s in states]
                elif stacked:
                    children = list(rest)
                else:
                    children = [F.stack(list(rest[i * count : (i + 1) * count])) for i in range(len(states))]
                return self.fn(children[0] if self.single else tuple(children), *own)

            specs = [(x.dtype, list(x.shape[1:]), x.requires_grad) for x in inputs]
            if stacked and count:
                specs += [(s.dtype, [count, *s.shape], grad) for s in states]
            else:
                specs += [(s.dtype, list(s.shape), grad) for s in states for _ in range(count)]
            result, generator_state = take("vertex", one, specs, [*inputs, *states])
            _check_results(result.leaves, states, count)

            def build(body, tensors, consts, generator):
                draws = Draws(generator.seed, generator.take(body.draws)) if body.random else None
                return body.trace(list(tensors), list(consts), draws)

            function = prepare("vertex", result, len(specs), generator_state, (), build)
            taken = result.taken
            self.random |= bool(taken.draws)
            self.rows = tuple((leaf.dtype.name, tuple(leaf.shape)) for leaf in result.leaves)
            made[count] = function, list(taken.consts), taken.plain_numbers(), taken.all_ints()
        return made

    def _replaced(self, functions: dict) -> dict:
        if not self.places:
            return functions
        return {
            k: (op, [self.constants[c if type(c) is int else self.places[id(c)]] for c in consts], numbers, ints)
            for k, (op, consts, numbers, ints) in functions.items()
        }

    def take_apart(self) -> tuple[list, list]:
        """(inputs, constants) of the program, which holds them no longer: `place` gives it others."""
        inputs, self.inputs = self.inputs, []
        constants = list({id(c): c for _, consts, _, _ in self.functions.values() for c in consts}.values())
        self.places = {id(c): i for i, c in enumerate(constants)}
        self.functions = {
            k: (op, [self.places[id(c)] for c in consts], numbers, ints)
            for k, (op, consts, numbers, ints) in self.functions.items()
        }
        return inputs, constants

    def place(self, inputs: list, constants: list):
        self.inputs, self.constants = inputs, constants

    def run(self) -> list:
        offsets, children = self.structure.offsets, self.structure.children
        inputs = [x.contiguous() for x in self.inputs]
        made = _runtime.run_frontiers(offsets, children, self._replaced(self.functions), inputs, self.states)
        if made is not None:
            return made
        scope = _runtime.BatchScope()
        scope.enter()
        try:
            functions = self._replaced(self._functions(stacked=False))
            return scope.vertices(offsets, children, functions, self.inputs, len(self.states))
        finally:
            scope.exit(False)


def _recorded(recorder, fn, structure: Structure, inputs: list, states: list, single: bool) -> list:
    """In a deferred graph: a node of it."""

    def of(count: int):
        def one(*values):
            own, children = values[: len(inputs)], list(values[len(inputs) :])
            if not count:
                children = [F.full((0, *s.shape), 0, dtype=s.dtype, device=s.device) for s in states]
            return fn(children[0] if single else tuple(children), *own)

        return one

    from tandem.control.vertices import record_vertices

    functions = {count: of(count) for count in np.unique(structure.counts).tolist()}
    check = lambda results, count: _check_results(results, states, count)
    return record_vertices(recorder, functions, structure, inputs, states, check)


def _check_results(results: list, states: list, count: int):
    if len(results) < len(states):
        raise ValueRangeError(
            "vertex", f"the function gave {len(results)} tensors; a state has {len(states)}, as given by state="
        )
    for i, (made, state) in enumerate(zip(results, states, strict=False)):
        if tuple(made.shape) != tuple(state.shape) or made.dtype is not state.dtype:
            raise ShapeError(
                "vertex",
                f"with {count} children the function gave {tuple(made.shape)} of {made.dtype} for state {i}, "
                f"which is {tuple(state.shape)} of {state.dtype}",
                fix="give an example of a vertex's state as state=, and return what has its shape and type",
            )


class _Step:
    """A vertex program as a step of a compiled one: see Note [Host calls] in tandem/ops/host_call.py."""

    def __init__(self, program: _Program, inputs: int, wants: list[bool]):
        self.program, self.inputs, self.wants = program, inputs, wants
        self.kept = None

    def run(self, operands: list) -> list:
        with enable_grad():
            own = [t.detach().requires_grad_(wanted) for t, wanted in zip(operands, self.wants, strict=True)]
            self.program.place(own[: self.inputs], own[self.inputs :])
            made = self.program.run()
            self.program.place([], [])
        if any(self.wants):
            self.kept = own, made
        return [t.detach() for t in made]

    def backward(self, operands: list, grads: list) -> list:
        if self.kept is None:
            self.run(operands)
        (own, made), self.kept = self.kept, None
        wanted = [t for t in own if t.requires_grad]
        roots = [(t, g) for t, g in zip(made, grads, strict=True) if g is not None and t.requires_grad]
        found = iter(grad([t for t, _ in roots], wanted, [g for _, g in roots], allow_unused=True) if roots else ())
        return [next(found, None) if t.requires_grad else None for t in own]


def _captured(program: _Program) -> list | tuple:
    """Inside td.compile: a step of the program, where its operands are on the host; random numbers are those of eager code, which
    a program that ends there has."""
    on_host = not any(_runtime.device_index(t) for t in [*program.inputs, *program.states])
    with _runtime.PauseCapture():  # only their types and shapes matter
        program.states = [zeros(s.shape, dtype=s.dtype, device=s.device) for s in program.states]
    inputs, constants = program.take_apart()
    given = [*inputs, *constants]
    step = _Step(program, len(inputs), [_runtime.grad_enabled() and t.requires_grad for t in given])
    if inputs and on_host and not program.random and not any(map(_runtime.device_index, constants)):
        return call_on_host(step, given, program.rows)
    return _apart(step, given)


def _apart(step: _Step, given: list) -> tuple:
    """The program before ends here, another one begins after."""

    class Apart(Function):
        @staticmethod
        def forward(ctx, *tensors):
            for t in given:
                _runtime.materialize(t)
            with _runtime.PauseCapture():
                return tuple(step.run(given))

        @staticmethod
        def backward(ctx, *grads):
            for g in grads:
                if g is not None:
                    _runtime.materialize(g)
            with _runtime.PauseCapture():
                return tuple(step.backward(given, list(grads)))

    made = Apart.apply(*given)
    return made if isinstance(made, tuple) else (made,)
