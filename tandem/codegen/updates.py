"""updates: the update of a parameter is done to blocks of its averaged gradient, by the rank that averages them.

Note [Joined updates]
An all-reduce on one host is a pass over memory that all ranks can look at, each doing its share of it; the update of the parameters
that follows is another one, over gradients and parameters. Where an elementwise kernel reads a result of an all-reduce element by
element, both become one pass: who reduces a block of gradients runs the kernel on it, once for the memory of every rank, with that
rank's numbers. So each rank's parameter becomes what its own kernel would have made of it, whether or not ranks have the same, and
the averaged gradient need not be written down. src/collectives/updates.cc decides at run time, by what all ranks have published;
where ranks do not see one another's memory, or have other kernels, each runs its own after the all-reduce.

This file decides which kernels are joined: flat ones, whose operands are a result, inputs of the program that lie as it does, and
single numbers. What they write are inputs. As in epilogues.py, a kernel comes forward to its collective.
"""

from __future__ import annotations

from tandem.codegen.buffer import root_of
from tandem.codegen.epilogues import FARTHEST, needed_between
from tandem.codegen.expr import Expr, topological
from tandem.codegen.loops import Kernel, Loop, Store
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.order import step_may_fail, uses_of, was_checked
from tandem.codegen.schedule import KernelStep, LibraryStep, Update, UpdateStep

MOST_DENSE, MOST_NUMBERS = 6, 12  # what the runtime has room for (src/collectives/board.h)


@lowering_step
def join_updates(lowering: Lowering):
    """Joins kernels to the all-reduces whose results they read."""
    steps = list(lowering.steps)
    if not lowering.epilogues or lowering.body or not any(map(reduces, steps)):
        return
    fusion = lowering.fusion
    kept = {id(root_of(fusion.buffer_of[v])) for v in (*fusion.graph.outputs, *fusion.saved) if v in fusion.buffer_of}
    uses = [uses_of(s) for s in steps]
    j = 0
    while j < len(steps):
        found = _join(steps, uses, j, kept) if type(steps[j]) is KernelStep and steps[j].block else None
        if found is None:
            j += 1
        else:  # there is one step less, and the next one has this place
            steps, uses = found
    lowering.steps = steps


def reduces(step) -> bool:
    """Whether it is an all-reduce that other steps may join: one that runs on the processors that compute them."""
    if type(step) not in (LibraryStep, UpdateStep) or step.routine != "collective":
        return False
    return step.node.op.name == "all_reduce" and not step.node.op.beside


def _join(steps: list, uses: list, j: int, kept: set[int]):
    """The steps and what they use after kernel j has joined the all-reduce whose result it reads, or None."""
    kernel = steps[j]
    operands = {id(root_of(b)) for b in kernel.buffers}
    i = next(
        (i for i in range(j - 1, max(j - FARTHEST, 0) - 1, -1) if uses[i].writes & operands and reduces(steps[i])),
        None,
    )
    if i is None:
        return None
    collective = steps[i]
    update = _update(collective, kernel)
    if update is None:
        return None
    before = needed_between(uses, i, j)
    if before is None:
        return None
    after = [k for k in range(i + 1, j) if k not in before]
    if any(step_may_fail(steps[k]) and not was_checked(steps, uses, k) for k in after):
        return None
    result = id(root_of(collective.outputs[update.piece]))
    others = any(result in uses[k].reads | uses[k].writes for k in range(i + 1, len(steps)) if k != j)
    update = update._replace(keeps=result in kept or others)
    joined = UpdateStep(collective, [*getattr(collective, "updates", ()), update])
    order = [*range(i), *before, -1, *after, *range(j + 1, len(steps))]
    return (
        [joined if k < 0 else steps[k] for k in order],
        [uses_of(joined) if k < 0 else uses[k] for k in order],
    )


def _update(collective: LibraryStep, kernel: KernelStep) -> Update | None:
    """The kernel as an update by one of the collective's results, if it can be one."""
    lies = _slots(kernel.kernel)
    if lies is None:
        return None
    results = [root_of(b) for b in collective.outputs]
    found = [(slot, results.index(root_of(b))) for slot, b in enumerate(kernel.buffers) if root_of(b) in results]
    if len(found) != 1:
        return None
    slot, piece = found[0]
    taken = {u.piece for u in getattr(collective, "updates", ())}
    dense = [s for s in range(len(kernel.buffers)) if lies[s] and s != slot]
    numbers = [s for s in range(len(kernel.buffers)) if not lies[s]]
    if piece in taken or not lies[slot] or len(dense) > MOST_DENSE or len(numbers) > MOST_NUMBERS:
        return None
    written = {id(root_of(b)) for b in kernel.writes}
    if any(root_of(kernel.buffers[s]).kind != "input" for s in dense) or id(results[piece]) in written:
        return None
    if any(kernel.buffers[s].dtype.itemsize > 8 or id(root_of(kernel.buffers[s])) in written for s in numbers):
        return None
    if written & {id(root_of(b)) for b in collective.inputs}:
        return None
    return Update(kernel, slot, piece, dense, True)


def _slots(kernel: Kernel) -> list[bool] | None:
    """Of each pointer of a flat kernel, whether it is read and written at the very element that is computed; False: at its first
    one alone. None if one of them is neither."""
    (loop,) = kernel.body
    if not isinstance(loop, Loop) or any(type(s) is not Store for s in loop.body) or kernel.locals:
        return None
    found: dict[int, bool] = {}
    accesses: list[tuple[int, Expr]] = [(s.slot, s.offset) for s in loop.body]
    for x in topological([s.value for s in loop.body]):
        if x.op == "load_if":
            return None
        if x.op == "load":
            accesses.append((x.attr, x.args[0]))
    for slot, offset in accesses:
        place = kernel.linear[offset.attr] if offset.op == "linear" else offset
        if place.op == "var" and place.attr == loop.var:
            dense = True
        elif place.op == "const" and place.attr == 0:
            dense = False
        else:
            return None
        if found.setdefault(slot, dense) is not dense:
            return None
    return [found[s] for s in range(len(kernel.pointers))] if len(found) == len(kernel.pointers) else None
