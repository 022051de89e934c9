"""td.vertex: a function of one vertex, run over structures that are data.

See Note [Vertex programs].
"""

# Note [Vertex programs]
# The function is taken down once a call for each number of children that occurs, on tensors without values, and becomes an
# operator function, found again by what was noted: parameters and closures are looked at afresh every time, and nothing is compiled
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
from tandem.control.regions import Draws
from tandem.errors import DTypeError, ShapeError, UnsupportedError, ValueRangeError
from tandem.graph.ir import Value
from tandem.structure import Structure
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
        program = _Program(functools.partial(self._fn, *bound), structure, inputs, states, single)
        made = _apart(program) if _runtime.capturing() else program.run()
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
        if isinstance(x, Value):
            raise UnsupportedError(
                "vertex", "a vertex program is no part of a deferred graph", fix="call it eagerly or in td.compile"
            )
        if not isinstance(x, _runtime.Tensor):
            raise DTypeError("vertex", f"an argument is a {type(x).__name__}; inputs and states are tensors")
    if structure.num_vertices == 0:
        raise ShapeError("vertex", "the structure has no vertices")
    for x in inputs:
        if x.ndim == 0 or x.shape[0] != structure.num_vertices:
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
        self.stand_ins: dict = {}  # {id of a constant: what is used in its place}
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
                    children = [F.full((0, *s.shape), 0, dtype=s.dtype) for s in states]
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
            _check_results(result, states, count)

            def build(body, tensors, consts, generator):
                draws = Draws(generator.seed, generator.take(body.draws)) if body.random else None
                return body.trace(list(tensors), list(consts), draws)

            function = prepare("vertex", result, len(specs), generator_state, (), build)
            taken = result.taken
            made[count] = function, list(taken.consts), taken.plain_numbers(), taken.all_ints()
        return made

    def _replaced(self, functions: dict) -> dict:
        return {
            k: (op, [self.stand_ins.get(id(c), c) for c in consts], numbers, ints)
            for k, (op, consts, numbers, ints) in functions.items()
        }

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


def _check_results(result, states: list, count: int):
    if len(result.leaves) < len(states):
        raise ValueRangeError(
            "vertex", f"the function gave {len(result.leaves)} tensors; a state has {len(states)}, as given by state="
        )
    for i, (made, state) in enumerate(zip(result.leaves, states, strict=False)):
        if tuple(made.shape) != tuple(state.shape) or made.dtype is not state.dtype:
            raise ShapeError(
                "vertex",
                f"with {count} children the function gave {tuple(made.shape)} of {made.dtype} for state {i}, "
                f"which is {tuple(state.shape)} of {state.dtype}",
                fix="give an example of a vertex's state as state=, and return what has its shape and type",
            )


def _apart(program: _Program) -> tuple:
    """Inside td.compile: the program before ends here, another one begins after."""
    inputs = program.inputs
    constants = list({id(c): c for _, consts, _, _ in program.functions.values() for c in consts}.values())
    given = [*inputs, *constants]
    kept: list = []

    class Apart(Function):
        @staticmethod
        def forward(ctx, *tensors):
            for t in given:
                _runtime.materialize(t)
            with _runtime.PauseCapture(), enable_grad():
                own = [t.detach().requires_grad_(t.requires_grad) for t in given]
                program.inputs = own[: len(inputs)]
                program.stand_ins = dict(zip(map(id, constants), own[len(inputs) :], strict=True))
                made = program.run()
            kept[:] = own, made
            return tuple(t.detach() for t in made)

        @staticmethod
        def backward(ctx, *grads):
            own, made = kept
            wanted = [t for t in own if t.requires_grad]
            for g in grads:
                if g is not None:
                    _runtime.materialize(g)
            with _runtime.PauseCapture():
                roots = [(t, g) for t, g in zip(made, grads, strict=True) if g is not None and t.requires_grad]
                found = iter(grad([t for t, _ in roots], wanted, [g for _, g in roots], allow_unused=True))
            return tuple(next(found) if t.requires_grad else None for t in own)

    made = Apart.apply(*given)
    return made if isinstance(made, tuple) else (made,)
