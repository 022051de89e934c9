"""Steps that may fail go before the first step that writes memory from outside, where nothing forbids it.

So a program that fails has, as a rule, changed nothing yet, and its calls can be run again by the fallback, to fail where eager
code fails (Note [Early checks] in src/capture/capture.h). Where a step that may fail depends on what is written, the write is put
off: the value is kept beside, and copied to its place at the end (`groups_before_failures`).
"""

from __future__ import annotations

from typing import NamedTuple

from tandem.codegen.buffer import root_of, same
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.schedule import (
    EpilogueStep,
    KernelStep,
    LibraryStep,
    PartStep,
    RegionStep,
    TransferStep,
    UpdateStep,
)
from tandem.ops.failing import checks_of, may_fail, will_not_fail


def groups_before_failures(fusion) -> set:
    """Groups that something which may fail depends on. They must not write memory from outside, or a failure would leave it written
    although the calls before could not be made undone."""
    checked = checks_of(fusion.nodes)
    failing = [
        g for g in fusion.groups if g.kind == "library" and may_fail(g.node.op) and not will_not_fail(g.node, checked)
    ]
    found: set = set()
    stack = list(failing)
    while stack:
        group = stack.pop()
        if group in found:
            continue
        found.add(group)
        reads = group.node.inputs if group.kind == "library" else group.reads
        stack.extend(g for g in map(fusion.provider.get, reads) if g is not None)
        if group.parts_of is not None:
            stack.append(group.parts_of)
    return found


@lowering_step
def failures_first(lowering: Lowering):
    """Steps that may fail come before the first that writes memory from outside, where nothing forbids it."""
    if lowering.target.fails_first and lowering.graph.mutations:
        lowering.steps = reordered(lowering.steps)


def reordered(steps: list) -> list:
    begin = next((i for i, step in enumerate(steps) if writes_input(step)), len(steps))
    failing = [i for i in range(begin + 1, len(steps)) if step_may_fail(steps[i])]
    if not failing:
        return steps
    uses = [uses_of(step) for step in steps[: failing[-1] + 1]]
    failing = [i for i in failing if not was_checked(steps, uses, i)]
    moved: set[int] = set()
    for i in failing:
        needed = _before(i, begin, uses, moved)
        if not any(writes_input(steps[k]) for k in needed):
            moved |= needed
    order = [*range(begin), *sorted(moved), *(i for i in range(begin, len(steps)) if i not in moved)]
    return [steps[i] for i in order]


def _before(step: int, begin: int, uses: list, moved: set[int]) -> set[int]:
    """The step and those before it that must stay before it."""
    needed = {step}
    for i in range(step, begin - 1, -1):
        if i in needed:
            needed.update([k for k in range(begin, i) if k not in moved and must_precede(uses[k], uses[i])])
    return needed


def must_precede(a: Uses, b: Uses) -> bool:
    """Whether a step that comes before another must stay there: one writes what the other reads or writes, or waits for it."""
    if a.writes & b.reads or a.writes & b.writes or a.reads & b.writes or (a.effect and b.effect):
        return True
    return bool(b.waits) and not b.waits.isdisjoint(a.nodes)


def was_checked(steps: list, uses: list, k: int) -> bool:
    """Whether step k is a scatter by positions that were found to be in range before, as those of an embedding's gradient are.
    uses: of all steps before it."""
    scatter = steps[k]
    if type(scatter) is not LibraryStep or scatter.routine != "scatter":
        return False
    bounds = scatter.outputs[0].shape
    for axis, index in enumerate(scatter.inputs[2:]):
        checks = (
            i for i in range(k)
            if type(steps[i]) is LibraryStep and steps[i].routine == "check_index" and steps[i].inputs[0] is index
            and same(steps[i].ints[0], bounds[axis]) and not steps[i].ints[1]
        )  # fmt: skip
        first = next(checks, None)
        if first is None or any(id(root_of(index)) in uses[i].writes for i in range(first, k)):
            return False
    return True


def step_may_fail(step) -> bool:
    if isinstance(step, RegionStep):
        return any(step_may_fail(inner) for part in step.parts for inner in part.schedule.steps)
    if isinstance(step, PartStep):
        return any(map(step_may_fail, step.schedule.steps))
    if isinstance(step, TransferStep):
        return False
    if isinstance(step, KernelStep):
        return getattr(step.kernel, "reports", False)  # on devices, what checks is a kernel
    # a call through the host waits for the device, and stays where it is
    return step.node.op.may_fail and step.routine == step.node.op.routine


def writes_input(step) -> bool:
    """Whether a step cannot be made undone: it writes memory from outside, or has an effect there, as collectives have."""
    return has_effect(step) or any(b.kind == "input" for b in map(root_of, _written(step)))


def has_effect(step) -> bool:
    if isinstance(step, PartStep):
        return any(map(has_effect, step.schedule.steps))
    return not isinstance(step, KernelStep) and step.node.op.effect


def _written(step) -> list:
    if isinstance(step, PartStep):
        return [*step.writes, *step.outputs]
    return step.writes if isinstance(step, KernelStep) else step.outputs


class Uses(NamedTuple):
    """What decides the order of steps: identities of buffers; nodes that the step runs, and those that it waits for."""

    reads: set[int]
    writes: set[int]
    waits: set
    nodes: list
    effect: bool


def uses_of(step) -> Uses:
    """What a kernel writes it may read as well."""
    read = step.buffers if isinstance(step, KernelStep) else step.inputs
    nodes = step.nodes if isinstance(step, (KernelStep, EpilogueStep, UpdateStep)) else [step.node]
    waits = {n for node in nodes for n in node.control}
    effect = any(node.op.effect for node in nodes)
    return Uses({id(root_of(b)) for b in read}, {id(root_of(b)) for b in _written(step)}, waits, nodes, effect)
