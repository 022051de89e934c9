"""Decides what is computed together: which values get memory or a register, and which share one kernel.

A *compute* is a value that a kernel produces; everything between computes is recomputed inside the kernels that need it. Computes
are put into *groups*, one kernel each (two for reductions that are split in chunks). Groups are a list in execution order, and a
compute may only join a group that comes no earlier than anything it reads, so no search for cycles is needed.

Note [Kinds of groups]
elementwise  one iteration space; every member is computed once per point. Reductions over all axes take part as one partial
             result per block of the space, which a later group combines.
rows         reduced axes run innermost along memory: for each kept index, passes over the reduced axes (softmax is one such
             group with three passes), with elementwise work of both ranks between them. On devices, sums across the rows may
             take part, as partial results per chunk of rows: gradients of a normalisation's weights.
columns      memory runs along a kept axis: blocks of columns accumulate in local arrays while rows stream by. The rows are split
             in chunks, combined in order by a second `columns` group, so that few columns still occupy all cores.
library      a call into the kernel library.
"""

from __future__ import annotations

import math

from tandem.codegen import buffer as memory
from tandem.codegen.buffer import Buffer, is_one, same, same_shape
from tandem.codegen.computes import Compute, Group
from tandem.codegen.lowering import Lowering, lowering_step
from tandem.codegen.reads import Reads
from tandem.codegen.target import Target
from tandem.graph.ir import Graph, Value
from tandem.graph.symbolic import hint, product
from tandem.ops.again import Again
from tandem.ops.arithmetic import Cast
from tandem.ops.complexes import AsComplex, AsReal, Part
from tandem.ops.define import Elementwise, Input, LibraryOp, Movement
from tandem.ops.index import CheckIndex
from tandem.ops.movement import Diagonal, Embed, Expand, Permute, Reshape, Slice
from tandem.ops.reduce import Reduce

GROUP_COST = 1500  # cost units, and
GROUP_READS = 40  # tensors read, that one kernel may reach: longer kernels spill registers and compile slowly
MANY_ROWS = 256  # rows that occupy a device, and
VECTOR = 16  # elements of a vector: shorter loops take as long
WORTH_STORING = (
    32  # cost units an element that joining a loop of short runs may add: a value is stored and read again for less
)
SMALL_SHARE = 64  # the part of their elements that something small has at most


class Fusion(Reads):
    """Groups of a graph, in order. `buffer_of` has the memory of every value that may need some."""

    def __init__(self, graph: Graph, layouts, saved, target: Target, exact_views: bool = False, in_pieces: bool = False,
                 on_host=frozenset()):  # fmt: skip
        super().__init__(graph, saved, target, exact_views, in_pieces)
        self.groups: list[Group] = []
        self.computes: dict[Value, Compute] = {}
        self._recent: dict = {}
        self._second_stage: dict = {}
        for value, layout in zip(graph.inputs, layouts):
            self.buffer_of[value] = memory.input_buffer(
                value.dtype, self.shape_of(value), value.op.position, layout, self.resolve
            )
            self.buffer_of[value].on_host = target.has_own_memory and value in on_host
            self.provider[value] = None
        self.saved = set(saved)
        self._after: dict[Value, int] = {}  # the last group that a value not in memory waits for; see _wait
        self._library_group: dict = {}
        for node in self.nodes:
            if self.waits:
                self._wait(node)
            self._visit(node)

    # -- nodes in order

    def _visit(self, node):
        op = node.op
        if isinstance(op, Input):
            return
        if isinstance(op, LibraryOp):
            self._library(node)
            return
        value = node.outputs[0]
        if value in self.kept:
            if isinstance(op, Reduce) and any(not is_one(self.shape_of(node.inputs[0])[a]) for a in op.axes):
                self._reduce(value)
            else:
                self._elementwise(value)
        elif value in self.forced or value in self.mutated:
            if self._place_view(value):
                self._need(node.inputs[0])
            else:
                self._elementwise(value)

    def _wait(self, node):
        """Notes which groups a node must come after: those of its control inputs, and what its operands wait for unless they are
        computes, which have waited themselves (Note [Control inputs] in graph/ir.py)."""
        after = -1
        for n in node.control:
            groups = [self.provider.get(v) for v in n.outputs] or [self._library_group.get(n)]
            after = max([after, *(g.position for g in groups if g is not None)])
        for v in node.inputs:
            if v not in self.computes:
                after = max(after, self._after.get(v, -1))
        if after >= 0:
            for v in node.outputs:
                self._after[v] = after

    def _place_view(self, value: Value) -> bool:
        """Whether value lies in memory, if need be as a view through a chain of movements of something that does."""
        if value in self.provider:
            return True
        op, node = value.op, value.node
        if not isinstance(op, Movement) or isinstance(op, Embed) or not self._place_view(node.inputs[0]):
            return False
        view = self._view(op, node)
        if view is None:
            return False
        self.buffer_of[value] = view
        self.provider[value] = self.provider[node.inputs[0]]
        return True

    def _library(self, node):
        group = self._new_group("library", node=node)
        self._library_group[node] = group
        for v in node.inputs:
            self._need(v)
        for index, value in enumerate(node.outputs):
            if isinstance(node.op, (CheckIndex, Again)):
                self.buffer_of[value] = self.buffer_of[node.inputs[0]]
            else:
                shape, order, strides = self.shape_of(value), None, None
                if node.op.output_strides is not None:
                    strides = node.op.output_strides(
                        [v.type for v in node.inputs], [self.buffer_of[v] for v in node.inputs]
                    )
                    if strides is not None and strides and isinstance(strides[0], tuple):
                        strides = strides[index]
                if strides is None:
                    strides = self.target.output_strides(node, [self.buffer_of[v] for v in node.inputs])
                if strides is None:
                    self.buffer_of[value] = self._allocate(value, tuple(range(len(shape))))
                else:
                    strides = tuple(self.resolve(s) for s in strides)
                    order = _order_of(shape, strides)
                    self.buffer_of[value] = Buffer(value.dtype, shape, strides, "alloc", order=order)
            self.provider[value] = group

    def _need(self, value: Value):
        """value must be in memory: someone other than its own kernel looks at it."""
        while value not in self.computes:
            buffer = self.buffer_of[value]
            if buffer.kind != "view":
                return
            value = value.node.inputs[0]
        self.computes[value].stored = True

    def _view(self, op, node) -> Buffer | None:
        source = self.buffer_of.get(node.inputs[0])
        if source is None or isinstance(op, Embed):
            return None
        if isinstance(op, Permute):
            return memory.permute(source, op.axes)
        if isinstance(op, Diagonal):
            return memory.diagonal(source)
        if isinstance(op, Part):
            return memory.part(source, op.index)
        if isinstance(op, AsReal):
            return memory.as_real(source)
        if isinstance(op, AsComplex):
            return memory.as_complex(source, node.outputs[0] in self.looks)
        shape = self.shape_of(node.outputs[0])
        if isinstance(op, Expand):
            return memory.expand(source, shape)
        if isinstance(op, Slice):
            return memory.slice_(source, map(self.resolve, op.starts), map(self.resolve, op.steps), shape)
        found = memory.reshape(source, shape, node.outputs[0] in self.looks)
        if found is None and self.exact_views and any(memory.has_sym(n) for n in shape):
            # A copy; knowing which axes belong together, it need not divide.
            memory.learn_groups(source.shape, shape)
            self._shapes.clear()
            self.resolve.forget()
        return found

    # -- placing computes

    def _elementwise(self, value: Value):
        rank = len(value.type.shape)
        compute = self._compute(value, value, [(value, self._ones(value, tuple(range(rank))))])
        group = self._find(compute) or self._find_rows(compute)
        if group is None:
            group = self._new_group("elementwise", compute.domain, compute.domain)
            group.order = self._positions(compute)
        self._join(compute, group)
        # what shares a loop is written in the order in which the loop runs
        own_axis = {g: a for a, g in compute.axis_of.items()}
        compute.order = tuple([own_axis[g] for g in group.order if g in own_axis])
        ones = tuple([a for a in range(rank) if a not in compute.order])
        self._finish(compute, self._allocate(value, ones + compute.order))

    def _reduce(self, value: Value):
        node = value.node
        source = node.inputs[0]
        rank = len(source.type.shape)
        compute = self._compute(value, source, [(source, self._ones(source, tuple(range(rank))))])
        some = not set(compute.axes).issubset(node.op.axes)
        if some and len(compute.units) > 1 and isinstance(source.op, Elementwise) and source not in self.computes:
            self._elementwise(
                source
            )  # its kernel transposes in tiles what lies otherwise; those of reductions would gather
            self.kept.add(source)
            compute = self._compute(value, source, [(source, self._ones(source, tuple(range(rank))))])
        compute.reduced = frozenset(a for a in compute.axes if a in node.op.axes)
        kept = tuple([a for a in compute.axes if a not in compute.reduced])
        is_arg = node.op.kind in ("argmax", "argmin")
        order = tuple([a for a in compute.order if a not in compute.reduced])
        ones = tuple([a for a in range(rank) if a not in order])
        target = memory.allocate(value.dtype, self.shape_of(value), ones + order)
        compute._weight += 1
        if self.target.reads_across(compute, kept, node.op.kind):
            compute.unit = kept[-1]
        rows = not kept or compute.unit in compute.reduced
        whole = not kept and not self.target.reduces_alone(product(compute.domain))  # all elements, by many
        split = not is_arg and (whole or not rows)
        compute.role = "partial" if split else "reduce"
        if split:
            partial = compute
            group = self._find(partial)
            if group is None:
                group = self._new_group("elementwise" if not kept else "columns", partial.domain, partial.domain)
                group.order = self._positions(partial)
            if kept and group.kind == "elementwise":
                group.kind = "columns"
                group.order = self._positions(partial)
            self._join(partial, group)
            if group.kind != "rows":
                group.unit = partial.axis_of[partial.unit]
            if kept and group.kind != "rows":
                group.reduced = frozenset(partial.axis_of[a] for a in partial.reduced)
                group.split = True
            self._combine(value, partial, kept, target)
            return
        self._finish(compute, target)
        group = self._find(compute)
        if group is None:
            group = self._new_group("rows" if rows else "columns", compute.domain, compute.domain)
            group.order = self._positions(compute)
        self._join(compute, group)
        group.kind = "rows" if rows else "columns"
        group.unit = compute.axis_of[compute.unit]
        group.reduced = frozenset(compute.axis_of[a] for a in compute.reduced)

    def _combine(self, value: Value, partial: Compute, kept: tuple, target: Buffer):
        """The second stage of a split reduction: over the chunks, in order."""
        first = partial.group
        shape = self.shape_of(value)
        compute = Compute(value, kept, tuple([shape[a] for a in kept]), [], 1.0, [])
        compute.role, compute.partial_of = "combine", partial
        compute.order = tuple([a for a in partial.order if a not in partial.reduced])
        self._finish(compute, target)
        key = ("parts", first)
        group = self._second_stage.get((first, kept))
        if group is None:
            group = self._new_group("columns" if kept else "rows", (None, *compute.domain), key, frozenset((0,)))
            self._second_stage[first, kept] = group
            group.order = tuple(range(len(kept) + 1))
            group.parts_of = first
        compute.group = group
        compute.axis_of = {a: i + 1 for i, a in enumerate(kept)}
        group.members.append(compute)
        self.provider[value] = group

    def _allocate(self, value: Value, order: tuple) -> Buffer:
        shape = self.shape_of(value)
        if value not in self.saved and value not in self.mutated:
            if all(value is not v for v in self.graph.outputs):
                return self.target.allocate(value, shape, order, self.users)
        return memory.allocate(value.dtype, shape, order)

    def _positions(self, compute: Compute) -> tuple:
        place = {a: i for i, a in enumerate(compute.axes)}
        return tuple([place[a] for a in compute.order])

    def _finish(self, compute: Compute, target: Buffer):
        value = compute.value
        self.computes[value] = compute
        self.buffer_of[value] = target
        compute.stored = value in self.forced

    def _new_group(self, kind: str, domain=(), key=None, reduced=frozenset(), node=None) -> Group:
        group = Group(kind, len(self.groups), domain, key, reduced, node)
        self.groups.append(group)
        if kind != "library":
            self._recent.setdefault(key, []).append(group)
        return group

    def _find(self, compute: Compute) -> Group | None:
        """A group that compute can join: that of the last thing it reads, or a later one that reads the same tensors."""
        latest = None
        for value, _ in compute.reads:
            group = self.provider[value]
            if group is not None and (latest is None or group.position > latest.position):
                latest = group
        floor = -1 if latest is None else latest.position
        after = self._after.get(compute.value, -1)
        if after < floor:
            if latest.kind != "library" and self._fits(compute, latest):
                return latest
        floor = max(floor, after)
        reads = {value for value, _ in compute.reads}
        for group in reversed(self._recent.get(compute.domain, ())[-4:]):
            if group.position > floor and not reads.isdisjoint(group.reads) and self._fits(compute, group):
                return group
        return None

    def _find_rows(self, compute: Compute) -> Group | None:
        """On devices, a kernel over rows that could go on with compute, which reads its rows again, if small results that compute
        needs as well came before it: they are moved there. So the gradient of a loss is taken while its rows are in cache."""
        if not self.target.sums_rows_on or self.waits:
            return None
        reads = dict.fromkeys(value for value, axis_map in compute.reads if axis_map is not None)
        for group in dict.fromkeys(self.provider[value] for value in reads):
            if group is None or group.kind != "rows" or group.parts_of is not None or group.reads.isdisjoint(reads):
                continue
            if len(compute.domain) != len(group.domain) or not self._fits(compute, group):
                continue
            if math.prod([hint(group.domain[a]) for a in group.kept]) < MANY_ROWS or self._sums_across(compute, group):
                continue
            small = self._small_needs(compute, group)
            if small:
                self._move(small, group)
                return group
        return None

    def _sums_across(self, compute: Compute, group: Group) -> bool:
        """Whether somebody sums compute along other axes than the rows: a kernel that does both is worth more."""
        stack = [compute.value]
        while stack:
            for node in self.users.get(stack.pop(), ()):
                if isinstance(node.op, Reduce) and {compute.axis_of.get(a, a) for a in node.op.axes} != group.reduced:
                    return True
                if isinstance(node.op, (Cast, Reshape)):
                    stack.extend(node.outputs)
        return False

    def _small_needs(self, compute: Compute, group: Group) -> list[Group]:
        """The groups behind `group` that compute needs; none if one of them needs `group`, is large, or cannot be moved."""
        found: list[Group] = []
        largest = math.prod(map(hint, group.domain)) // SMALL_SHARE
        stack = [g for g in (self.provider[v] for v, _ in compute.reads) if g is not None and g is not group]
        while stack:
            g = stack.pop()
            if g.position < group.position or g in found:
                continue
            values = [m.value for m in g.members]
            if g is group or g.kind == "library" or any(v in self.updates or v in self.mutated for v in values):
                return []
            if any(math.prod(map(hint, m.domain)) > largest for m in g.members):
                return []
            found.append(g)
            for m in g.members:
                stack += [p for p in (self.provider[v] for v, _ in m.reads) if p is not None]
                stack += [m.partial_of.group] if m.partial_of is not None else []
        return found

    def _move(self, groups: list[Group], before: Group):
        rest = [g for g in self.groups if g not in groups]
        at = rest.index(before)
        self.groups = rest[:at] + sorted(groups, key=lambda g: g.position) + rest[at:]
        for position, g in enumerate(self.groups):
            g.position = position

    def _fits(self, compute: Compute, group: Group) -> bool:
        """Whether compute can be one more member of group; sets compute.axis_of."""
        if group.cost + compute.weight > GROUP_COST or len(group.reads) + len(compute.reads) > GROUP_READS:
            return False
        if self.updates and not self._mixes(compute, group):
            return False
        role = compute.role
        n = len(group.domain)
        if len(compute.domain) == n and same_shape(compute.domain, group.domain):
            where = range(n)
            if role == "partial" and compute.reduced and len(compute.reduced) < n:
                reduced = frozenset(compute.axes.index(a) for a in compute.reduced)
                if group.kind == "elementwise":
                    if any(m.role != "full" for m in group.members):
                        return False
                elif group.kind == "rows":
                    if not self.target.sums_across(group, reduced, compute.value.dtype):
                        return False
                elif group.kind != "columns" or not group.split or group.reduced != reduced:
                    return False
            elif role == "partial":
                if group.kind != "elementwise":
                    return False
            elif role == "reduce":
                reduced = frozenset(compute.axes.index(a) for a in compute.reduced)
                rows = compute.unit in compute.reduced or len(compute.reduced) == n
                if group.kind == "elementwise":
                    if not rows or any(m.role != "full" for m in group.members):
                        return False
                elif group.kind != "rows" or not rows or group.reduced != reduced:
                    return False
        elif role == "full" and group.kind in ("rows", "columns") and not group.split and n > len(compute.domain):
            where = group.kept
            if not same_shape(compute.domain, [group.domain[a] for a in where]):
                return False
            role = "kept"
        else:
            return False
        axis_of = dict(zip(compute.axes, where))
        for value, axis_map in compute.reads:
            if self.provider[value] is not group:
                continue
            member = self.computes.get(value)
            if axis_map is None or member is None:
                return False
            if member.role == "full" and role == "kept":
                return False
            if group.kind == "columns" and member.role in ("reduce", "combine", "kept") and role != "kept":
                return False
            for axis, space_axis in enumerate(axis_map):
                if space_axis >= 0 and member.axis_of.get(axis) != axis_of.get(space_axis):
                    return False
            if len([a for a in axis_map if a >= 0]) != len([a for a in member.axis_of if a not in member.reduced]):
                return False
        if role == "full" and group.kind == "elementwise" and _idle(compute, group) > WORTH_STORING:
            return False
        whole = role == "full" or len(compute.reduced) == n  # elementwise kernels transpose in tiles
        if role != "kept" and not (whole and group.kind == "elementwise"):
            if len(group.units.union(axis_of[a] for a in compute.units)) > 1:
                return False
        compute.axis_of = axis_of
        if role == "kept":
            compute.role = role
        return True

    def _mixes(self, compute: Compute, group: Group) -> bool:
        """Whether a kernel of a program may compute both: one that writes inputs waits for the program's end, what others need must
        not (Note [Pieces] in src/replay/pieces.h). Updates of many inputs are one launch anyway (cuda/batch.py)."""
        if compute.value in self.updates:
            return compute.value not in self.mutated or all(m.value in self.updates for m in group.members)
        return all(m.value not in self.mutated for m in group.members)

    def _join(self, compute: Compute, group: Group):
        if not compute.axis_of:
            compute.axis_of = {a: i for i, a in enumerate(compute.axes)}
        compute.group = group
        group.members.append(compute)
        group.uncounted.append(compute)
        group.run = min(group.run, compute.run)
        if compute.role != "kept":
            group.units = group.units.union(compute.axis_of[a] for a in compute.units)
        for value, _ in compute.reads:
            group.reads.add(value)
            if self.provider[value] is not group:
                self._need(value)
        if compute.role != "partial":
            self.provider[compute.value] = group


@lowering_step(optional=False)
def fuse(lowering: Lowering):
    """Decides which values get memory, and which share a kernel."""
    lowering.fusion = Fusion(
        lowering.graph, lowering.layouts, lowering.saved, lowering.target, lowering.exact_views, lowering.in_pieces,
        lowering.on_host,
    )  # fmt: skip


def _idle(compute: Compute, group: Group) -> float:
    """Cost units that an element costs more if both share a loop, because one of them runs in short runs."""
    if compute.run == group.run:
        return 0.0
    slower = _vectors(min(compute.run, group.run))
    return compute.weight * (slower - _vectors(compute.run)) + group.cost * (slower - _vectors(group.run))


def _vectors(run: int) -> float:
    """What an element costs in a loop of so many, against one of whole vectors."""
    return -(-run // VECTOR) * VECTOR / max(run, 1)


def _order_of(shape, strides) -> tuple | None:
    """Axes from the largest stride to the smallest by concrete sizes, if the strides are those of a dense block."""
    order = tuple(sorted(range(len(shape)), key=lambda a: (-hint(strides[a]), a)))
    dense = memory.dense_strides(shape, order)
    return order if all(is_one(n) or same(s, t) for n, s, t in zip(shape, strides, dense)) else None
