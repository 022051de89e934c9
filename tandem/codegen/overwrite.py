"""Results that take the place of an operand: the gradient of a loss over a large vocabulary lies where its scores lay, that of an
embedding where the zeros lay that it is added to."""

from __future__ import annotations

from tandem.codegen.buffer import Buffer, root_of, same, same_shape
from tandem.codegen.computes import Compute, Group
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.rows import levels_of
from tandem.graph.symbolic import hint
from tandem.ops.index import Scatter
from tandem.ops.matmul import Matmul

WORTH = 1 << 20  # bytes


@lowering_step
def overwrite_last_operands(lowering: Lowering):
    """Lets elementwise kernels write into the memory of an operand of the same shape that nothing reads later; on the CPU also
    those that sum columns on their way, on devices those that make passes over rows (Target.overwriting).

    Every thread reads the elements that it writes, and reads them first, if all large operands lie as the result does. What a
    kernel over rows writes before its last pass over them stays apart: a later pass may read the operand again.
    What somebody else is to find there stays as it is. The first to read a product may still be joined to it (epilogues.py), and
    then there is nothing to overwrite.
    """
    fusion, target = lowering.fusion, lowering.target
    last: dict[int, int] = {}  # id of memory -> the last group that uses it
    first: dict[int, int] = {}  # id of a product's memory -> the first group that reads it
    for group in fusion.groups:
        for value in _touched(group):
            buffer = fusion.buffer_of.get(value)
            if buffer is not None:
                last[id(root_of(buffer))] = group.position
        if target.joins_products:
            for member in group.members:
                for value, _ in member.reads:
                    if isinstance(value.node.op, Matmul):
                        first.setdefault(id(root_of(fusion.buffer_of[value])), group.position)
    stays = {id(root_of(fusion.buffer_of[v])) for v in (*fusion.graph.outputs, *fusion.saved) if v in fusion.buffer_of}
    stays |= {id(root_of(fusion.buffer_of[v])) for _, v in fusion.graph.mutations if v in fusion.buffer_of}
    taken: set[int] = set()

    def take_place(whole: Buffer, source: Buffer):
        taken.add(id(source))
        last[id(source)] = last[id(whole)]
        for buffer in fusion.buffer_of.values():
            if buffer.base is whole:
                buffer.base = source
        whole.kind, whole.base = "view", source

    for group in fusion.groups:
        if group.kind == "library" and isinstance(group.node.op, Scatter):
            whole = root_of(fusion.buffer_of[group.node.outputs[0]])
            if whole.kind == "alloc" and id(whole) not in stays:
                source = _base(fusion, group, whole, last, stays | taken)
                if source is not None:
                    take_place(whole, source)
        elif group.kind == "library" and group.node.op.overwrites:
            for result, operand in zip(group.node.outputs, group.node.inputs, strict=False):
                whole = root_of(fusion.buffer_of[result])
                if whole.kind == "alloc" and id(whole) not in stays:
                    source = _over_operand(fusion, group, operand, whole, last, stays | taken)
                    if source is not None:
                        take_place(whole, source)
        if group.kind != target.overwriting or group.parts_of is not None:
            if group.kind != "elementwise" or any(m.role != "full" for m in group.members):
                continue
        for member in group.members:
            if member.role != "full":
                continue
            result = fusion.buffer_of[member.value]
            whole = root_of(result)
            if whole.kind != "alloc" or not member.stored or member.targets or id(whole) in stays:
                continue
            if group.kind == "rows" and not _in_last_pass(group, member):
                continue
            source = _operand(fusion, group, member, result, last, stays | taken)
            if source is not None and first.get(id(source)) != group.position:
                take_place(whole, source)


def _in_last_pass(group: Group, member: Compute) -> bool:
    levels = levels_of(group)
    reduces = ("reduce", "combine")
    return levels[member.value] >= max(levels[m.value] - (m.role in reduces) for m in group.members)


def _base(fusion, group: Group, whole: Buffer, last: dict, stays: set) -> Buffer | None:
    """Memory of what a scatter begins with, if nobody reads that again and the scatter reads it in no other way."""
    base, *others = [root_of(fusion.buffer_of[v]) for v in group.node.inputs]
    if base.kind != "alloc" or id(base) in stays or last[id(base)] != group.position or any(b is base for b in others):
        return None
    given = fusion.buffer_of[group.node.inputs[0]]
    # The transpose of a square matrix has its shape, but not its strides.
    whole_base = same_shape(given.shape, base.shape) and _alike(given, whole)
    return base if whole_base and base.dtype is whole.dtype and _alike(base, whole) else None


def _over_operand(fusion, group: Group, operand, whole: Buffer, last: dict, stays: set) -> Buffer | None:
    """Memory of a routine's operand that its result may lie over, if nobody reads it again, and the routine only once."""
    given = fusion.buffer_of[operand]
    root = root_of(given)
    if root.kind != "alloc" or id(root) in stays or last[id(root)] != group.position:
        return None
    if sum(root_of(fusion.buffer_of[v]) is root for v in group.node.inputs) > 1:
        return None
    return root if root.dtype is whole.dtype and _alike(given, whole) and _alike(root, whole) else None


def _operand(fusion, group: Group, member: Compute, target: Buffer, last: dict, stays: set) -> Buffer | None:
    """Memory that `target` may take the place of."""
    straight = tuple([a if a in member.axes else -1 for a in range(len(target.shape))])
    found = None
    for other in group.members:
        for value, axis_map in other.reads:
            source = fusion.buffer_of[value]
            if fusion.provider[value] is group:
                continue
            if axis_map is None:
                return None
            if axis_map == straight and _alike(source, target):
                root = root_of(source)
                free = root.kind == "alloc" and id(root) not in stays and last[id(root)] == group.position
                fits = source.dtype is target.dtype and source.offset is target.offset and _alike(root, root_of(target))
                if other is member and free and fits and _bytes(source) >= WORTH:
                    found = root
            elif sum(a >= 0 for a in axis_map) == len(member.axes):
                return None
    if found is None or any(len(m.axes) != len(member.axes) for m in group.members if m.role != "kept"):
        return None
    reads = [m for other in group.members for v, m in other.reads if root_of(fusion.buffer_of[v]) is found]
    return found if all(m == straight for m in reads) else None


def _touched(group: Group):
    if group.kind == "library":
        yield from group.node.inputs
        yield from group.node.outputs
    for member in group.members:
        yield member.value
        for value, _ in member.reads:
            yield value


def _alike(a: Buffer, b: Buffer) -> bool:
    return len(a.shape) == len(b.shape) and all(map(same, (*a.shape, *a.strides), (*b.shape, *b.strides)))


def _bytes(b: Buffer) -> int:
    size = b.dtype.itemsize
    for d in b.shape:
        size *= hint(d)
    return size
