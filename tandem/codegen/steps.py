"""make_steps: groups become steps of a schedule."""

from __future__ import annotations

from tandem.codegen.computes import Group
from tandem.codegen.epilogues import follows_product, is_product
from tandem.codegen.fuse import Fusion
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.regions import region_steps
from tandem.codegen.repeats import Repeats
from tandem.codegen.schedule import LibraryStep
from tandem.ops.again import Again
from tandem.ops.index import CheckIndex
from tandem.ops.region import Region


@lowering_step(optional=False)
def make_steps(lowering: Lowering):
    """A kernel for every group, a call for every routine; their compilation begins while others are still being made."""
    fusion, target = lowering.fusion, lowering.target
    repeats = Repeats(fusion, target.nests())
    begins = lowering.in_pieces or not target.starts_early
    ahead = _library_steps_ahead(lowering) if lowering.in_pieces else {}
    products: set[int] = set()  # results of large products
    steps = lowering.steps
    for group in fusion.groups:
        if group.kind != "library":
            steps.append(repeats.step(group))
            if products and follows_product(steps[-1], group, products):
                lowering.joining[id(steps[-1])] = group
            elif begins:
                target.begin(steps[-1:], alone=True)
        elif isinstance(group.node.op, Again):
            continue  # it only has a place in the order
        elif isinstance(group.node.op, Region):
            steps += region_steps(lowering, group.node)
        elif id(group) in ahead:
            steps += ahead[id(group)]
        else:
            steps += target.library_steps(fusion, _library_step(fusion, group))
            if lowering.epilogues and is_product(steps[-1]):
                products.add(id(steps[-1].outputs[0]))
    steps += lowering.copies
    if not lowering.body:
        target.guard(steps)


@lowering_step
def batch_launches(lowering: Lowering):
    """Launches of one kernel on different memory become one, where the target gains by it."""
    if not lowering.waits:
        lowering.steps = lowering.target.finish(lowering.steps)


def _library_steps_ahead(lowering: Lowering) -> dict[int, list]:
    """Steps of library groups, by the group's id: kernels written by hand are large, so their compilation begins first."""
    fusion, target = lowering.fusion, lowering.target
    ahead = {}
    for group in fusion.groups:
        if group.kind == "library" and not isinstance(group.node.op, (Again, Region)):
            ahead[id(group)] = target.library_steps(fusion, _library_step(fusion, group))
            target.begin(ahead[id(group)], alone=True)
    return ahead


def _library_step(fusion: Fusion, group: Group) -> LibraryStep:
    node = group.node
    ints, floats = node.op.attributes(*[v.type for v in node.inputs])
    outputs = [] if isinstance(node.op, CheckIndex) else [fusion.buffer_of[v] for v in node.outputs]
    inputs = [fusion.buffer_of[v] for v in node.inputs]
    return LibraryStep(node.op.routine, inputs, outputs, tuple([fusion.resolve(d) for d in ints]), tuple(floats), node)
