"""Vertex programs in deferred graphs: the function of a vertex is recorded once for each number of children, and the program is
a step that runs frontiers (Note [Host calls] in tandem/ops/host_call.py). The structure belongs to the graph."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd import enable_grad, grad, no_grad
from tandem.control.body import _PARAMETERS
from tandem.control.graphs import Bound, Control, add_region
from tandem.errors import ShapeError, UnsupportedError
from tandem.graph.ir import Type
from tandem.ops.define import Role, make_function
from tandem.ops.host_call import HostCall, HostFunction, keep_function
from tandem.session.bodies import Recorded, record_body
from tandem.session.graph import Recorder
from tandem.tensors.constructors import zeros


class Vertices(Control):
    """The node of a vertex program. step: what runs it, given inputs and what bodies lifted; rows: (dtype, shape) of results."""

    def __init__(self, bodies: list[Recorded], operands: int, step: HostFunction, rows: tuple):
        super().__init__("vertex", bodies, operands)
        self.step, self.rows = step, rows
        self.number = keep_function(step)

    def build(self, trace, bodies, operands, consts, generator):
        made = HostCall(self.rows)(F.full((), self.number, dtype=dtypes.int64), *operands, *consts)
        return list(made) if isinstance(made, tuple) else [made]


class _Step:
    """Runs may overlap, so nothing is kept for backward: it computes the results again."""

    def __init__(self, structure, bodies: dict[int, Recorded], inputs: int, states: list[Type]):
        self.structure, self.inputs, self.states = structure, inputs, states
        lifted = list(dict.fromkeys(v for body in bodies.values() for v in body.graph.lifted))
        at = {count: [lifted.index(v) for v in body.graph.lifted] for count, body in bodies.items()}
        self.stacked, self.apart = (
            {count: (_function(body, inputs, len(states), count, stacked), at[count]) for count, body in bodies.items()}
            for stacked in (True, False)
        )

    def _run(self, operands: list) -> list:
        inputs, consts = [x.contiguous() for x in operands[: self.inputs]], operands[self.inputs :]
        for x in inputs:
            if x.shape[0] != self.structure.num_vertices:  # what was fed
                raise ShapeError(
                    "vertex",
                    f"an input is {tuple(x.shape)}, and the structure has {self.structure.num_vertices} vertices; "
                    "inputs have a row for each",
                )
        offsets, children = self.structure.offsets, self.structure.children
        states = [zeros(s.shape, dtype=s.dtype) for s in self.states]
        given = lambda functions: {k: (op, [consts[i] for i in at], [], []) for k, (op, at) in functions.items()}
        made = _runtime.run_frontiers(offsets, children, given(self.stacked), inputs, states)
        if made is not None:
            return made
        scope = _runtime.BatchScope()
        scope.enter()
        try:
            return scope.vertices(offsets, children, given(self.apart), inputs, len(states))
        finally:
            scope.exit(False)

    def run(self, operands: list) -> list:
        with no_grad():
            return self._run([t.detach() for t in operands])

    def backward(self, operands: list, grads: list) -> list:
        with enable_grad():
            own = [t.detach().requires_grad_(t.dtype.is_inexact) for t in operands]
            made = self._run(own)
        wanted = [t for t in own if t.requires_grad]
        roots = [(t, g) for t, g in zip(made, grads, strict=True) if g is not None and t.requires_grad]
        found = iter(grad([t for t, _ in roots], wanted, [g for _, g in roots], allow_unused=True) if roots else ())
        return [next(found, None) if t.requires_grad else None for t in own]


def _function(body: Recorded, inputs: int, states: int, count: int, stacked: bool):
    """The operator function of a recorded body, as the runtime calls it. stacked: children's states are one operand."""
    rest = states * (1 if stacked else count) if count else 0

    def fn(tensors, numbers, ints, generator):
        given, consts = list(tensors[: inputs + rest]), tensors[inputs + rest :]
        if rest and not stacked:
            given[inputs:] = [F.stack(given[inputs + s * count : inputs + (s + 1) * count]) for s in range(states)]
        return tuple(Bound(body, None, list(range(len(consts)))).trace(given, consts, None))

    return make_function("vertex", fn, _PARAMETERS, role=Role(whole=True))


def record_vertices(recorder: Recorder, functions: dict, structure, inputs: list, states: list, check) -> list:
    """A vertex program over a td.Structure as a node. functions: {number of children: fn(*inputs, *states)}; check(results, number
    of children) complains of what they give."""
    operands = [recorder._operand(x) for x in inputs]
    types = [Type(s.dtype, tuple(s.shape)) for s in states]
    bodies = {}
    for count, fn in functions.items():
        given = [Type(v.dtype, v.type.shape[1:]) for v in operands]
        given += [Type(s.dtype, (count, *s.shape)) for s in types] if count else []
        body = bodies[count] = record_body(recorder.graph, "vertex", given, fn)
        check(body.results, count)
        if body.random:
            raise UnsupportedError(
                "vertex", "the function takes random numbers, which a vertex program in a deferred graph cannot",
                fix="call it eagerly or in td.compile",
            )  # fmt: skip
    rows = tuple((v.dtype.name, tuple(v.type.shape)) for v in next(iter(bodies.values())).results)
    step = _Step(structure, bodies, len(operands), types)
    return add_region(recorder, Vertices(list(bodies.values()), len(operands), step, rows), operands)
