"""Optimisers in deferred graphs: the classes of tandem.optim, whose update rules become nodes that write variables."""

from __future__ import annotations

import contextlib

from tandem.errors import ValueRangeError
from tandem.session.build import Variable, assign_add, gradients, group, identity
from tandem.session.graph import StepNode, SymbolicTensor
from tandem.session.program import written_by


class _Slots(dict):
    """The state of one variable: what an optimiser puts in becomes a variable too, and a name names its owner."""

    def __init__(self, owner: Variable, kind: str):
        self.owner = owner
        self.kind = kind

    def __setitem__(self, name, value):
        if isinstance(value, SymbolicTensor) and not isinstance(value, Variable):
            value = Variable(value, trainable=False, name=f"{self.owner.node.name}/{self.kind}/{name}")
        super().__setitem__(name, value)

    def update(self, values):
        for name, value in values.items():
            self[name] = value


class _State(dict):
    def __init__(self, kind: str):
        self.kind = kind

    def __missing__(self, variable):
        made = self[variable] = _Slots(variable, self.kind)
        return made


def apply_gradients(optimizer, pairs, global_step=None, name: str | None = None) -> StepNode:
    """An operation that makes one step of the optimiser: pairs are (gradient, variable)."""
    pairs = [(g, v) for g, v in pairs if g is not None]
    if not pairs:
        raise ValueRangeError(
            "minimize", "no variable has a gradient", fix="is the loss a function of td.Variables with trainable=True?"
        )
    graph = pairs[0][1].graph
    if not isinstance(optimizer.state, _State):
        optimizer.state = _State(type(optimizer).__name__)
    before = len(graph._nodes)
    # Gradients first, all of the values before the step: what is written below must not be read above it.
    gradient_of = {}
    for g, v in pairs:
        with _beside(v):  # a gradient goes to its variable, and nowhere else on the way
            gradient_of[v] = identity(g)
    with graph:
        for v, g in gradient_of.items():
            v.grad = g
        try:
            for settings, members in _groups(optimizer, gradient_of):
                for device, here in _by_device(members):  # what belongs to a variable is where it is
                    with contextlib.nullcontext() if device is None else graph.device(device):
                        optimizer.update({**settings, "params": here})
        finally:
            for v in gradient_of:
                del v.grad
    kind = type(optimizer).__name__
    written = [n for n in graph._nodes[before:] if written_by(n)]
    if global_step is None:
        return group(*written, name=name or kind)
    device = global_step.node.device
    with graph.control_dependencies([group(*written, name=kind)]):
        with contextlib.nullcontext() if device is None else graph.device(device):
            counted = assign_add(global_step, 1)
        return group(counted, name=name or "train")


def _beside(variable):
    device = variable.node.device
    return contextlib.nullcontext() if device is None else variable.graph.device(device)


def _by_device(variables: list) -> list[tuple]:
    found: dict = {}
    for v in variables:
        device = v.node.device
        found.setdefault(None if device is None else str(device), (device, []))[1].append(v)
    return list(found.values())


def _groups(optimizer, variables) -> list[tuple[dict, list]]:
    """The optimiser's groups with their variables; the first takes those that no group names."""
    named = {v for g in optimizer.param_groups for v in g["params"] if isinstance(v, Variable)}
    groups = [
        (g, [v for v in g["params"] if isinstance(v, Variable) and v in variables]) for g in optimizer.param_groups
    ]
    groups[0][1].extend(v for v in variables if v not in named)
    return [(settings, members) for settings, members in groups if members]


def minimize(optimizer, loss, variables=None, global_step=None, name: str | None = None) -> StepNode:
    """An operation that makes one step down the gradient of the loss with respect to the variables: those given, those the
    optimiser was made with, or all that are trainable."""
    if variables is None:
        own = [v for g in optimizer.param_groups for v in g["params"] if isinstance(v, Variable)]
        variables = own or loss.graph.trainable_variables
    variables = list(variables)
    return apply_gradients(optimizer, zip(gradients(loss, variables), variables, strict=True), global_step, name)
