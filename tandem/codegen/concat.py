"""Operands of a concatenation that kernels compute straight into their part of its result."""

from __future__ import annotations

from tandem.codegen.buffer import root_of
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.graph.symbolic import hint
from tandem.ops.join import Concat

VECTOR = 16  # elements of a vector, of most types or of half of it
COPY = 64  # cost units of copying a short run


@lowering_step
def write_into_concats(lowering: Lowering):
    """Makes memory of operands a part of that of the result, wherever an elementwise kernel writes it and nobody is to find it
    elsewhere. The routine sees that there is nothing to copy. Results of a region's body are inputs."""
    if not lowering.target.joins_concats:
        return
    fusion, body = lowering.fusion, lowering.body
    joins = [g for g in fusion.groups if g.kind == "library" and isinstance(g.node.op, Concat)]
    if not joins:
        return
    stays = {id(root_of(fusion.buffer_of[v])) for v in (*fusion.graph.outputs, *fusion.saved) if v in fusion.buffer_of}
    looked_into = {id(b.base) for b in fusion.buffer_of.values() if b.kind == "view"}
    for group in joins:
        node = group.node
        whole, axis = fusion.buffer_of[node.outputs[0]], node.op.axis
        if whole.kind != "alloc" and not (body and whole.kind == "input"):
            continue
        start = 0
        for value in node.inputs:
            compute, part = fusion.computes.get(value), fusion.buffer_of[value]
            length = part.shape[axis]
            alone = id(part) not in stays and id(part) not in looked_into and sum(v is value for v in node.inputs) == 1
            written = compute is not None and compute.role == "full" and compute.group.kind == "elementwise"
            if (
                written
                and alone
                and part.kind == "alloc"
                and not compute.targets
                and _pays(fusion, compute, whole, axis)
            ):
                part.kind, part.base, part.offset = "view", whole, start * whole.strides[axis]
                part.strides, part.order, part.unit = whole.strides, None, whole.unit
            start = start + length


def _pays(fusion, compute, whole, axis: int) -> bool:
    """Whether computing an operand in its place costs no more than copying it there: where it lies in short runs, each of them
    takes as long to compute as a vector, and so does what else reads it there."""
    idle = VECTOR - hint(fusion.shape_of(compute.value)[axis]) * hint(whole.strides[axis])
    return idle <= 0 or (compute.weight * idle <= COPY and len(fusion.users[compute.value]) == 1)
