"""Mutations: what becomes the contents of an input is written there by the kernel that computes it, where nobody can see the
difference; the rest is copied at the end."""

from __future__ import annotations

from tandem.codegen.buffer import Buffer, allocate, root_of, same_shape
from tandem.codegen.fuse import Fusion
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.order import groups_before_failures
from tandem.codegen.repeats import Copies
from tandem.graph.ir import Value
from tandem.ops.define import LibraryOp
from tandem.ops.index import CheckIndex, Scatter
from tandem.ops.movement import Permute


@lowering_step
def write_in_place(lowering: Lowering):
    """Lets kernels and routines write straight into mutated inputs where nobody can see the difference.

    What something that may fail depends on is not written before (order.py).
    """
    fusion, graph = lowering.fusion, lowering.graph
    if not graph.mutations:
        return
    early = groups_before_failures(fusion) if lowering.target.fails_first and not lowering.body else ()
    routines_write = lowering.body or not lowering.target.guards_writes  # only kernels are guarded; effects cannot be
    readers = _readers(fusion)
    for number, (position, value) in enumerate(graph.mutations):
        target = fusion.buffer_of[graph.inputs[position]]
        reading = readers.get(id(target), ())
        if value is graph.inputs[position] or (early and fusion.provider.get(_unpermuted(value)[1]) in early):
            continue
        if _can_store_directly(fusion, value, target, reading):
            fusion.computes[value].targets.append(target)
            lowering.written.add(number)
        elif _scatter_directly(fusion, value, target, reading) or (
            (routines_write or value.op.effect) and _library_directly(fusion, value, target, reading)
        ):
            lowering.written.add(number)


@lowering_step(optional=False)
def copy_mutations(lowering: Lowering):
    """What is not written in place is copied at the end; what is overwritten before, but needed then, is copied first."""
    fusion, graph = lowering.fusion, lowering.graph
    copies = Copies(fusion, lowering.target.nests()["copy"])
    late = []
    for number, (position, value) in enumerate(graph.mutations):
        if number not in lowering.written and value is not graph.inputs[position]:
            late.append((value, fusion.buffer_of[graph.inputs[position]]))
            if value in fusion.computes:
                fusion.computes[value].stored = True
            else:
                fusion._need(value)
    mutated = {id(fusion.buffer_of[graph.inputs[position]]) for position, _ in graph.mutations}
    for value, target in late:
        source = fusion.buffer_of[value]
        if id(root_of(source)) in mutated:  # it may have changed before its turn comes
            kept = allocate(source.dtype, source.shape)
            lowering.steps.append(copies.step(source, kept, value.node))
            source = kept
        lowering.copies.append(copies.step(source, target, value.node))


def _readers(fusion: Fusion) -> dict[int, list]:
    """Who reads memory: id of a buffer -> [(group, compute, axis map)]."""
    readers: dict[int, list] = {}
    for group in fusion.groups:
        for member in group.members:
            for value, axis_map in member.reads:
                readers.setdefault(id(root_of(fusion.buffer_of[value])), []).append((group, member, axis_map))
        if group.kind == "library":
            for value in group.node.inputs:
                readers.setdefault(id(root_of(fusion.buffer_of[value])), []).append((group, None, None))
    return readers


def _scatter_directly(fusion: Fusion, value: Value, target: Buffer, readers) -> bool:
    """Lets a scatter into (a permutation of) the mutated input write there, if nothing reads that memory afterwards."""
    after, scattered = _unpermuted(value)
    if not isinstance(scattered.op, Scatter):
        return False
    before, source = _unpermuted(scattered.node.inputs[0])
    if fusion.buffer_of.get(source) is not target or [before[a] for a in after] != list(range(len(after))):
        return False
    if scattered in fusion.saved or (scattered is not value and scattered in fusion.graph.outputs):
        return False
    if any(len(fusion.users.get(v, ())) > 1 for v in (scattered, value)):
        return False
    position = fusion.provider[scattered].position
    if any(group.position > position for group, _, _ in readers):
        return False
    old, new = fusion.buffer_of[scattered], fusion.buffer_of[scattered.node.inputs[0]]
    views = [b for b in fusion.buffer_of.values() if b.kind == "view" and b.base is old]
    if views and (new.kind == "view" or not same_shape(old.strides, new.strides)):
        return False
    for b in views:  # what shows parts of the result shows them there
        b.base = new
    fusion.buffer_of[scattered] = new
    fusion.buffer_of[value] = target
    return True


def _library_directly(fusion: Fusion, value: Value, target: Buffer, readers) -> bool:
    """Lets a routine write its result into an input that nothing reads, or that it reads itself and may write over."""
    if not isinstance(value.op, LibraryOp) or isinstance(value.op, CheckIndex):
        return False
    if readers and not _overwrites(fusion, value, target, readers):
        return False
    if sum(v is value for _, v in fusion.graph.mutations) > 1:
        return False
    buffer = fusion.buffer_of[value]
    if value in fusion.saved or value in fusion.graph.outputs or buffer.kind != "alloc":
        return False
    if not same_shape(buffer.shape, target.shape) or not same_shape(buffer.strides, target.strides):
        return False
    if any(b is not buffer and b.kind == "view" and b.base is buffer for b in fusion.buffer_of.values()):
        return False
    fusion.buffer_of[value] = target
    return True


def _overwrites(fusion: Fusion, value: Value, target: Buffer, readers) -> bool:
    """Whether a routine that may write its results over its operands has this input in the result's place, as its last reader."""
    node = value.node
    if not node.op.overwrites or fusion.buffer_of[node.inputs[value.index]] is not target:
        return False
    position = fusion.provider[value].position
    return sum(v is node.inputs[value.index] for v in node.inputs) == 1 and all(
        group.position <= position for group, _, _ in readers
    )


def _unpermuted(value: Value) -> tuple[list[int], Value]:
    """(axes, source): value is Permute(axes) of source, by any number of permutations."""
    axes = list(range(len(value.type.shape)))
    while isinstance(value.op, Permute):
        axes = [value.op.axes[a] for a in axes]
        value = value.node.inputs[0]
    return axes, value


def _can_store_directly(fusion: Fusion, value: Value, target: Buffer, readers) -> bool:
    compute = fusion.computes.get(value)
    if compute is None:
        return False
    of_columns = fusion.target.writes_columns and compute.role == "kept" and compute.group.kind == "columns"
    if not of_columns and (compute.role != "full" or compute.group.kind != "elementwise"):
        return False
    roles = ("kept",) if of_columns else ("full", "partial")
    if not same_shape(fusion.shape_of(value), target.shape):
        return False
    for group, member, axis_map in readers:
        if group.position < compute.group.position:
            continue
        if group is not compute.group or member is None or axis_map is None or member.role not in roles:
            return False
        for axis, space_axis in enumerate(axis_map):
            if space_axis >= 0 and member.axis_of[space_axis] != compute.axis_of.get(axis):
                return False
        if len([a for a in axis_map if a >= 0]) != len(compute.axis_of):
            return False
    return True
