"""Branches and loops written as functions, and wired from primitives while the functions run.

While a function runs, its branch or loop is a *scope* of the graph: nodes built then belong to it, and tensors from outside come
in by a Switch, or by a constant Enter, when they are first used. Everything inside waits for the scope's pivot, so that nodes which
take nothing from the scope do not run when the branch is not taken.
"""

from __future__ import annotations

import contextlib

from tandem.errors import ShapeError
from tandem.session import primitives as ops
from tandem.session.build import as_tensor, graph_of, identity
from tandem.session.graph import Graph, StepNode, SymbolicTensor
from tandem.session.nodes import Fed
from tandem.session.unknown import show_shape
from tandem.tree import flatten, unflatten


class Scope:
    """A branch or loop being wired."""

    def __init__(self, graph: Graph, enter, own_frame: bool):
        self.graph = graph
        self.own_frame = own_frame
        self.members: set[SymbolicTensor] = set()  # values inside that were built outside: what came in
        self.depth = len(graph._wired)
        self.controls = graph._controls
        self.outside: dict[SymbolicTensor, SymbolicTensor] = {}
        self._enter = enter  # v -> what v is inside

    def bring_in(self, v: SymbolicTensor) -> SymbolicTensor:
        if self in v.node.wired or v in self.members:
            return v
        if isinstance(v.node.op, Fed) and v.node.op.name != "placeholder":  # constants and variables are everywhere
            return v
        if v not in self.outside:
            with self.around():
                self.outside[v] = self.take_in(self._enter(v))
        return self.outside[v]

    def take_in(self, v: SymbolicTensor) -> SymbolicTensor:
        self.members.add(v)
        return v

    @contextlib.contextmanager
    def around(self):
        """Nodes built in here are built where the scope began."""
        graph = self.graph
        before = graph._wired, graph._controls
        graph._wired, graph._controls = graph._wired[: self.depth], self.controls
        try:
            yield
        finally:
            graph._wired, graph._controls = before

    @contextlib.contextmanager
    def within(self, pivot: StepNode | None = None):
        graph = self.graph
        before = graph._wired, graph._controls
        graph._wired = [*graph._wired[: self.depth], self]
        # What a loop waits for, its Enters wait for: values of another frame must not be waited for inside.
        graph._controls = [*([] if self.own_frame else self.controls), *([] if pivot is None else [(pivot,)])]
        try:
            with graph:
                yield
        finally:
            graph._wired, graph._controls = before


def wire_cond(pred, true_fn, false_fn, name: str):
    graph = graph_of(pred)
    pred = as_tensor(graph, pred)
    ops._check_predicate("cond", pred)
    with graph.name_scope(name):
        branches = []
        for k, fn in enumerate((false_fn, true_fn)):
            scope = Scope(graph, lambda v, k=k: ops.switch(v, pred)[k], False)
            with scope.around():
                chosen = scope.take_in(identity(ops.switch(pred, pred)[k], name="pivot"))
            with scope.within(chosen.node):
                results, structure = flatten(fn())
                made = [_result(graph, r, chosen) for r in results]
            branches.append((made, structure))
        (no, structure), (yes, other) = branches
        if structure != other:
            raise ShapeError("cond", f"false_fn gives {structure!r} and true_fn gives {other!r}; they must be alike")
        return unflatten(structure, [ops.merge(list(pair)).output for pair in zip(no, yes, strict=True)])


def _result(graph: Graph, result, chosen) -> SymbolicTensor:
    """A result of a branch, as a value of it: an operation becomes the predicate, once it is done."""
    if isinstance(result, StepNode):
        with graph.control_dependencies([result]):
            return identity(chosen)
    return identity(as_tensor(graph, result))


def wire_while(test, body, variables, parallel: int, name: str, shapes=None):
    """shapes: of the variables, None where a size may change; without them, sizes that are unknown at the start may."""
    several = isinstance(variables, (list, tuple))
    start = list(variables) if several else [variables]
    graph = graph_of(*start)
    start = [as_tensor(graph, v) for v in start]
    with graph.name_scope(name) as frame:
        enter = lambda v, constant: ops.enter(v, frame, is_constant=constant, parallel_iterations=parallel)
        scope = Scope(graph, lambda v: enter(v, True), True)
        with scope.around():
            entered = [scope.take_in(enter(v, False)) for v in start]
        with scope.within():
            shapes = [_open_sizes(v) for v in entered] if shapes is None else shapes
            merged = [ops.merge([v], shape=shape).output for v, shape in zip(entered, shapes, strict=True)]
        with scope.within(merged[0].node):
            going = ops.loop_cond(as_tensor(graph, test(*merged)))
        with scope.within():
            pairs = [ops.switch(m, going) for m in merged]
            pivot = identity(pairs[0].output_true, name="pivot")
        with scope.within(pivot.node):
            after = body(*(p.output_true for p in pairs))
            after = list(after) if isinstance(after, (list, tuple)) else [after]
            if len(after) != len(start):
                raise ShapeError("while_loop", f"the body gives {len(after)} variables for {len(start)}")
            following = [
                ops.next_iteration(identity(as_tensor(graph, v, None if isinstance(v, SymbolicTensor) else m.dtype)))
                for v, m in zip(after, merged, strict=True)
            ]
        with scope.within():
            for m, v in zip(merged, following, strict=True):
                ops.close_loop(m, v)
        with graph.control_dependencies(None):  # an Exit runs inside: it cannot wait for what is around
            results = [ops.exit(p.output_false) for p in pairs]
    return type(variables)(results) if several else results[0]


def _open_sizes(v: SymbolicTensor):
    """The shape to declare for a loop variable: sizes unknown at the start may change."""
    shape = show_shape(v.type.shape)
    return shape if any(n is None for n in shape) else None
