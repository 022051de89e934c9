"""join_products: gradients that are products of matrices are averaged by exchanging what they are products of.

Note [Joined products]
The gradient of a linear layer's weight is a product that sums over a batch, a b with a (m, k) and b (k, n), and its average over
ranks is a sum over all of their batches: one product over all k, of which each rank computes its rows. So instead of writing m n
elements and reading those of all ranks again, ranks read one another's a and b, which are smaller where the batch is. Arithmetic is
the same in total, and in longer sums. Rounding is another one than that of ranks' own products, the same on all ranks.

This file leaves such products to the all-reduce: who runs it, computes them. src/collectives/products.cc decides at run time, by
what all ranks have published; where ranks do not see one another's memory, have nothing that fits, or too long a batch, each
computes its own product, as before. Updates (Note [Joined updates]) run on blocks of either.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, is_one, root_of, same
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.order import uses_of
from tandem.codegen.peak import buffer_bytes
from tandem.codegen.schedule import Factors, LibraryStep, UpdateStep
from tandem.codegen.updates import reduces
from tandem.graph.symbolic import hint

WORTH = 1 << 16  # bytes of a product; smaller ones are done together with others, at one copy


@lowering_step
def join_products(lowering: Lowering):
    """Has all-reduces compute those of their operands that are products."""
    steps = list(lowering.steps)
    if not lowering.epilogues or lowering.body or lowering.waits or not any(map(reduces, steps)):
        return
    fusion = lowering.fusion
    kept = {id(root_of(fusion.buffer_of[v])) for v in fusion.saved if v in fusion.buffer_of}
    uses = [uses_of(s) for s in steps]
    i = 0
    while i < len(steps):
        taken = _products(steps, uses, i, kept) if reduces(steps[i]) else {}
        if taken:
            steps[i] = UpdateStep(steps[i], getattr(steps[i], "updates", ()), tuple(taken.values()))
            uses[i] = uses_of(steps[i])
            left = [k for k in range(len(steps)) if k not in taken]
            steps, uses = [steps[k] for k in left], [uses[k] for k in left]
        i += 1 - len(taken)
    lowering.steps = steps


def _products(steps: list, uses: list, i: int, kept: set[int]) -> dict[int, Factors]:
    """Steps before the all-reduce i that compute products for it alone."""
    op = steps[i].node.op
    if op.reduction not in ("sum", "avg") or op.size < 2:
        return {}
    collective = getattr(steps[i], "collective", steps[i])
    operands = [root_of(b) for b in collective.inputs]
    results = [root_of(b) for b in collective.outputs]
    writer: dict[int, int] = {}
    for k in range(i):
        for written in uses[k].writes:
            writer[written] = k
    found = {}
    for piece, (operand, result) in enumerate(zip(operands, results, strict=True)):
        k = writer.get(id(operand))
        if k is None or operand is not result or operands.count(operand) > 1 or id(operand) in kept:
            continue
        if _is_product(steps[k], operand, op.size) and _may_wait(uses, k, i, id(operand)):
            a, b = steps[k].inputs
            found[k] = Factors(steps[k], a, b, piece)
    return found


def _is_product(step, result: Buffer, size: int) -> bool:
    """Whether a step is a product that it may be worth to compute from all ranks' factors: less to read than there is to write."""
    if (
        type(step) is not LibraryStep
        or step.routine != "matmul"
        or len(step.inputs) != 2
        or step.outputs[0] is not result
    ):
        return False
    a, b = step.inputs
    if result.kind != "alloc" or any(x.dtype is not dtypes.float32 or len(x.shape) != 2 for x in (a, b, result)):
        return False
    m, n = result.shape
    if type(m) is not int or type(n) is not int or not same(result.strides[0], n) or not is_one(result.strides[1]):
        return False
    return buffer_bytes(result) >= WORTH and size * hint(a.shape[1]) * (m // size + n) < m * n


def _may_wait(uses: list, k: int, i: int, result: int) -> bool:
    """Whether nobody needs the result of step k before step i, and its operands are there until then, and not written by i."""
    if any(result in uses[j].reads | uses[j].writes for j in range(k + 1, i)):
        return False
    return not any(uses[k].reads & uses[j].writes for j in range(k + 1, i + 1))
