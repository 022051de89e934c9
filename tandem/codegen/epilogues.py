"""epilogues: elementwise kernels that follow a product run on blocks of its result, as soon as each is computed.

Note [Epilogues] in src/library/epilogue.h says how they run. This file decides which kernels become one: those of one elementwise
group that read a product's result where it was written, element by element (an activation, an addition, the optimiser's update of
the parameter whose gradient the product is). A result that nobody else reads gets no memory.

The kernel comes forward to its product, and with it what it needs and the product does not: reading and writing memory says what
may pass what, as in order.py. Blocks are written while other threads still read the product's operands, so the kernel must not
write these. Updates of inputs do not pass steps that may fail (Note [Early checks] in src/capture/capture.h).
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, is_zero, root_of, same
from tandem.codegen.computes import Group
from tandem.codegen.elementwise import one_space, transposed_loads
from tandem.codegen.expr import Expr, substitute, topological
from tandem.codegen.loops import Loop, Store, expression_cost
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.nest import ITEM, Nest, unroll_for
from tandem.codegen.order import must_precede, step_may_fail, uses_of, was_checked, writes_input
from tandem.codegen.peak import buffer_bytes
from tandem.codegen.repeats import Form, Made
from tandem.codegen.schedule import EpilogueStep, KernelStep, LibraryStep
from tandem.graph.symbolic import product
from tandem.switches import SKIP

WORTH = 1 << 16  # bytes of a result that make it worthwhile: smaller ones stay in the cache anyway
FARTHEST = 400  # steps that a kernel may pass
MOST_BUFFERS, MOST_INTS = 60, 150  # what the runtime has room for

# Integers of the kernel that the runtime fills in for each block, before all others.
FIRST, LAST, PITCH = "first column", "last column", "elements between rows"


def follows_product(step: KernelStep, group: Group, products: set[int]) -> bool:
    """Whether the kernel of a group may become an epilogue; `products`: identities of results."""
    if group.kind != "elementwise" or any(m.role != "full" for m in group.members) or "epilogues" in SKIP:
        return False
    return any(id(root_of(b)) in products for b in step.buffers)


def is_product(step) -> bool:
    if type(step) is not LibraryStep or step.routine != "matmul":
        return False
    result = step.outputs[0]
    return result.kind == "alloc" and result.dtype is dtypes.float32 and buffer_bytes(result) >= WORTH


@lowering_step
def epilogues(lowering: Lowering):
    """Joins kernels to the products whose results they read. What they update is not that of a region's body, which writes all
    of its results into inputs."""
    groups = lowering.joining
    if not groups:
        return
    fusion, steps = lowering.fusion, list(lowering.steps)
    kept = {id(root_of(fusion.buffer_of[v])) for v in (*fusion.graph.outputs, *fusion.saved) if v in fusion.buffer_of}
    uses = [uses_of(s) for s in steps]
    kernels = _BlockKernels(fusion)
    j = 0
    while j < len(steps):
        group = groups.get(id(steps[j]))
        found = _join(kernels, steps, uses, j, group, kept, lowering.body) if group is not None else None
        if found is None:
            j += 1
        else:  # there is one step less, and the next one has this place
            steps, uses = found
    lowering.steps = steps
    lowering.target.begin([s for s in steps if id(s) in groups or isinstance(s, EpilogueStep)])


def _join(kernels: _BlockKernels, steps: list, uses: list, j: int, group: Group, kept: set[int], body: bool):
    """The steps and what they use after kernel j has joined the product whose result it reads, or None."""
    kernel = steps[j]
    operands = {id(root_of(b)) for b in kernel.buffers}
    i = next(
        (i for i in range(j - 1, max(j - FARTHEST, 0) - 1, -1) if uses[i].writes & operands and is_product(steps[i])),
        None,
    )
    if i is None:
        return None
    source = steps[i]
    result = source.outputs[0]
    if uses[i].reads & uses[j].writes or id(result) in uses[j].writes:
        return None
    updates = writes_input(kernel)
    before = needed_between(uses, i, j)
    if before is None or (updates and not body and buffer_bytes(result) < kernels.fusion.target.costs.update_bytes):
        return None
    after = [k for k in range(i + 1, j) if k not in before]
    if updates and any(step_may_fail(steps[k]) and not was_checked(steps, uses, k) for k in after):
        return None
    block = kernels.of(group, result)
    if block is None:
        return None
    others = [k for k in range(len(steps)) if k not in (i, j) and id(result) in uses[k].reads | uses[k].writes]
    keeps = id(result) in kept or bool(others)
    joined = EpilogueStep(source, *block, keeps)
    order = [*range(i), *before, -1, *after, *range(j + 1, len(steps))]
    return (
        [joined if k < 0 else steps[k] for k in order],
        [uses_of(joined) if k < 0 else uses[k] for k in order],
    )


def needed_between(uses: list, i: int, j: int) -> list[int] | None:
    """Steps between i and j that must come before j, in order; None if one of them has to come after i."""
    needed = {j}
    for s in range(j, i, -1):
        if s in needed:
            needed.update([k for k in range(i + 1, s) if k not in needed and must_precede(uses[k], uses[s])])
    needed.discard(j)
    return None if any(must_precede(uses[i], uses[k]) for k in needed) else sorted(needed)


class BlockNest(Nest):
    """A kernel over blocks of rows and columns."""

    def __init__(self, fusion, group: Group, splits=()):
        super().__init__(fusion, group, splits)
        for number in (FIRST, LAST, PITCH):
            self.e.dim(number)


class _BlockKernels:
    """Kernels over blocks of results, made once for groups that are alike (repeats.py)."""

    def __init__(self, fusion):
        self.fusion = fusion
        self._made: dict[tuple, tuple | None] = {}

    def of(self, group: Group, result: Buffer) -> tuple | None:
        """As _block_kernel."""
        form = Form(self.fusion, group)
        key = form.key, result.shape, tuple([root_of(b) is result for b in form.buffers])
        if key in self._made:
            found = self._made[key]
            return found and (found[0].on(group, form), *found[1:])
        block = _block_kernel(self.fusion, group, result)
        made = block and Made(block[0], group, form)
        if block is None or made.is_whole:
            self._made[key] = block and (made, *block[1:])
        return block


def _block_kernel(fusion, group: Group, result: Buffer) -> tuple | None:
    """(kernel step, slot of the result, slots of memory that lies alike) for a group, if the result is read at the very element
    that is computed."""
    found = []

    def loops(nest: Nest, before: list, body: list, after: list, partials: list, roots: list):
        step = _loops(nest, body, roots, result)
        if step is not None:
            found.append(step)

    one_space(fusion, group, BlockNest, loops)
    return found[0] if found else None


def _loops(nest: Nest, body: list[Store], roots: list[Expr], result: Buffer) -> tuple | None:
    e, b, order = nest.e, nest.e.b, nest.order
    slots = [slot for slot, buffer in enumerate(e.buffers) if root_of(buffer) is result]
    if len(slots) != 1 or len(order) < 2 or not same(nest.sizes[order[-1]], result.shape[-1]):
        return None
    (slot,) = slots
    vector = order[-1]
    dense = {}
    step = 1
    for v in reversed(order):
        dense[v] = step
        step = step * nest.sizes[v]
    if not same(step, product(result.shape)):
        return None
    own = [load for load, form in e.loads if load.attr == slot and _is_dense(form, dense)]
    if any(x.op in ("load", "load_if") and x.attr == slot and all(x is not o for o in own) for x in _all(nest, body)):
        return None
    outer = nest.merge(order[:-1])
    if transposed_loads(nest, [*outer, vector]) is not None:
        return None
    lying_alike = {load.attr for load, form in e.loads if _is_dense(form, dense)}
    lying_alike |= {s.slot for s in body if s.offset.op == "linear" and _is_dense(e.linears[s.offset.attr], dense)}
    alike = sorted(s for s in lying_alike if s != slot and s >= 0 and e.buffers[s].dtype.itemsize == 4)
    # The result lies in blocks whose rows are as far apart as the runtime says.
    row = outer[0] if len(outer) == 1 else ITEM
    here = e.linear(e.forms.make(0, {row: PITCH, vector: 1}))
    turned = b.make("load", (here,), result.dtype, slot)
    for s, value in zip(body, substitute(b, [s.value for s in body], {load.id: turned for load in own})):
        s.value = value
    inner = Loop(vector, e.dim(FIRST), e.dim(LAST), body, "vector", unroll_for(expression_cost(roots), body))
    if len(outer) == 1:
        begin, end = b.make("begin", (), dtypes.int64), b.make("end", (), dtypes.int64)
        loop, counters = Loop(row, begin, end, [inner]), [row, vector]
    else:
        loop = nest.items([(v, nest.sizes[v]) for v in outer], [inner])
        counters = [ITEM, *outer, vector]
    rows = product([nest.sizes[v] for v in outer])
    step = nest.step([loop], counters, rows, nest.sizes[vector], roots)
    if len(step.buffers) > MOST_BUFFERS or len(step.ints) > MOST_INTS:
        return None
    step.ints = step.ints[3:]
    return step, slot, alike


def _is_dense(form, dense: dict) -> bool:
    if not is_zero(form.const) or len(form.terms) != len(dense):
        return False
    return all(v in form.terms and same(form.terms[v], step) for v, step in dense.items())


def _all(nest: Nest, body: list[Store]) -> list[Expr]:
    """All expressions of the stores, those in their indices as well."""
    roots = [x for s in body for x in (s.offset, s.value)]
    seen: dict[int, Expr] = {}
    while roots:
        more = []
        for x in topological(roots):
            if x.id not in seen:
                seen[x.id] = x
                if x.op == "linear":
                    more += [a for a in nest.e.linears[x.attr].terms if type(a) is not int]
        roots = [x for x in more if x.id not in seen]
    return list(seen.values())
