"""overlap_collectives: collectives that run beside what is computed begin as soon as they can and are awaited as late as possible.

Note [Overlap]
A collective that says `beside` (Note [Beside] in ops/collective.py) moves up to the last step that it depends on, past steps that
have no effect and cannot fail. So the reduction of a gradient begins as soon as the gradient is there. Gathers stay where they are,
as what they give takes memory: passes/prefetch_gathers.py moves them. Over hosts it becomes two
steps: one that begins it, and one that waits for it, right before the first step that touches its results or writes its operands,
such as the update of a parameter. On devices the runtime waits by itself (Note [Side work] in src/device/cuda/side_work.h).

Collectives keep their order, and no step but they depends on another rank: ranks whose steps lie otherwise fit together all the
same. Nothing is computed otherwise, so that results have the same bits.

What a collective holds on to while it runs, such as the whole gradients that reduce-scatters divide, would be there until the
updates. So there are never more bytes under way that nobody else needs than twice those of the largest operand: before the next
one begins, the first ones are waited for.
"""

from __future__ import annotations

from tandem.codegen.buffer import root_of
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.order import Uses, has_effect, must_precede, step_may_fail, uses_of
from tandem.codegen.peak import buffer_bytes
from tandem.codegen.schedule import AwaitStep, BeginStep, LibraryStep


@lowering_step
def overlap_collectives(lowering: Lowering):
    """Begins collectives early, and waits for them late."""
    steps = lowering.steps
    if lowering.body or not lowering.whole or not any(map(_runs_beside, steps)):
        return
    steps = _early(steps)
    lowering.steps = _late(steps) if lowering.target.awaits_collectives else steps


def _runs_beside(step) -> bool:
    return type(step) is LibraryStep and step.routine.endswith("collective") and step.node.op.beside


def _early(steps: list) -> list:
    """The same with each collective behind the last step that it needs."""
    made: list = []
    uses: list[Uses] = []
    for step in steps:
        its, at = uses_of(step), len(made)
        if _runs_beside(step) and step.node.op.name != "all_gather":  # which has its place (passes/prefetch_gathers.py)
            while at and not (
                has_effect(made[at - 1]) or step_may_fail(made[at - 1]) or must_precede(uses[at - 1], its)
            ):
                at -= 1
        made.insert(at, step)
        uses.insert(at, its)
    return made


def _late(steps: list) -> list:
    """The same with two steps for each collective that something can be computed beside."""
    most = 2 * max(sum(map(buffer_bytes, s.inputs)) for s in steps if _runs_beside(s))
    made: list = []
    open_: list[tuple[LibraryStep, Uses]] = []

    def wait(which: list):
        for one in which:
            open_.remove(one)
            if type(made[-1]) is BeginStep and made[-1].node is one[0].node:
                made[-1] = one[0]  # nothing is computed beside it
            else:
                made.append(AwaitStep(one[0]))

    for step in steps:
        its = uses_of(step)
        wait([one for one in open_ if _meets(one[1], its)])
        if not _runs_beside(step):
            made.append(step)
            continue
        while open_ and _held(step) and sum(_held(one) for one, _ in open_) + _held(step) > most:
            wait(open_[:1])
        made.append(BeginStep(step))
        open_.append((step, its))
    wait(list(open_))
    return made


def _meets(under_way: Uses, step: Uses) -> bool:
    """Whether a step touches what a collective writes, or writes what it reads."""
    touched = step.reads | step.writes
    waits = bool(step.waits) and not step.waits.isdisjoint(under_way.nodes)
    return waits or bool(under_way.writes & touched or under_way.reads & step.writes)


def _held(step: LibraryStep) -> int:
    """Bytes of operands in memory of the program's own that are not its results as well."""
    results = {id(root_of(b)) for b in step.outputs}
    roots = {id(r): r for r in map(root_of, step.inputs) if r.kind == "alloc" and id(r) not in results}
    return sum(map(buffer_bytes, roots.values()))
