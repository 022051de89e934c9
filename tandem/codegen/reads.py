"""What a compute reads from memory, and how its iteration space is laid out by that."""

from __future__ import annotations

import math

from tandem.codegen import buffer as memory
from tandem.codegen.buffer import Buffer, is_one, is_zero, same
from tandem.codegen.computes import Compute, Group
from tandem.codegen.costs import hinted_size
from tandem.codegen.kept import Kept
from tandem.codegen.target import Target
from tandem.graph.ir import Graph, Value
from tandem.graph.symbolic import hint
from tandem.ops.complexes import AsComplex, AsReal, Part
from tandem.ops.create import RandomBits
from tandem.ops.define import Elementwise, Movement
from tandem.ops.index import Gather
from tandem.ops.movement import Diagonal, Embed, Expand, Permute, Slice
from tandem.ops.reduce import Reduce

WORTH_TILING = 1 << 13  # elements of a tensor from which on it is better transposed in tiles than gathered


class Reads(Kept):
    """`buffer_of`: the memory of every value that may need some; `provider`: the group that computes it, None for inputs."""

    def __init__(self, graph: Graph, saved, target: Target, exact_views: bool = False, in_pieces: bool = False):
        super().__init__(graph, saved, target, exact_views, in_pieces)
        self.buffer_of: dict[Value, Buffer] = {}
        self.provider: dict[Value, Group | None] = {}
        self._image_axes = target.image_axes(graph)
        self._shown = _shown(graph)

    def _walk(self, start) -> tuple[list, float, list, list]:
        """Everything in memory that `start` [(value, axis map)] is made from, and what an element costs beside the operators.

        An axis map says, per axis of a value, which axis of the iteration space indexes it: -1 for none (size 1), -2 for a
        computed position, -3 - a for a computed position that runs along axis a. Reads with computed positions have None for a
        map; the third result has them with theirs, the last one is the elementwise operators.
        """
        reads, seen, cost, along, operators = [], set(), 0.0, [], []
        stack = list(start)
        while stack:
            value, axis_map = stack.pop()
            key = (value, axis_map)
            if key in seen:
                continue
            seen.add(key)
            op, node = value.op, value.node
            if value in self.provider and not (isinstance(op, Movement) and self.buffer_of[value].kind == "view"):
                exact = min(axis_map, default=0) >= -1
                reads.append((value, axis_map if exact else None))
                if not exact:
                    along.append((value, axis_map))
                continue
            if isinstance(op, Elementwise):
                operators.append(node)
                stack.extend((v, axis_map if v.type.shape else ()) for v in node.inputs)
            elif isinstance(op, Gather):
                cost += 8
                rank = len(node.inputs[1].type.shape)
                stack.extend((v, axis_map[:rank]) for v in node.inputs[1:])
                lead = (-2,) * (len(node.inputs) - 1)
                stack.append((node.inputs[0], self._ones(node.inputs[0], lead + axis_map[rank:])))
            elif node.inputs:
                if isinstance(op, RandomBits):
                    cost += 60
                    stack.extend((v, ()) for v in node.inputs)
                else:
                    cost += 2 if isinstance(op, Embed) else 0
                    stack.append((node.inputs[0], self._ones(node.inputs[0], self._moved(op, node, axis_map))))
        return reads, cost, along, operators

    def _ones(self, value: Value, axis_map: tuple) -> tuple:
        return tuple([-1 if is_one(n) else a for n, a in zip(self.shape_of(value), axis_map)])

    def _moved(self, op, node, axis_map: tuple) -> tuple:
        if isinstance(op, Permute):
            moved = [0] * len(axis_map)
            for i, axis in enumerate(op.axes):
                moved[axis] = axis_map[i]
            return tuple(moved)
        if isinstance(op, (Expand, Reduce, Part)):
            return axis_map
        if isinstance(op, Diagonal):
            return (*axis_map[:-1], _running(axis_map[-1]), _running(axis_map[-1]))
        if isinstance(op, AsReal):
            return axis_map[:-1]
        if isinstance(op, AsComplex):
            return (*axis_map, -2)
        inner, outer = self.shape_of(node.inputs[0]), self.shape_of(node.outputs[0])
        if isinstance(op, (Slice, Embed)):
            moved = []
            for a, n, m, start, step in zip(axis_map, inner, outer, op.starts, op.steps):
                whole = same(n, m) and is_zero(self.resolve(start)) and is_one(self.resolve(step))
                moved.append(a if whole else _running(a))
            return tuple(moved)
        moved = [-1] * len(inner)
        for left, right in memory.factor_groups(inner, outer):
            if len(left) == 1 and len(right) == 1 and same(inner[left[0]], outer[right[0]]):
                moved[left[0]] = axis_map[right[0]]
            else:
                for i in left[:-1]:
                    moved[i] = -2
                if left:
                    moved[left[-1]] = _running(axis_map[right[-1]]) if right else -2
        return tuple(moved)

    def _compute(self, value: Value, space: Value, start) -> Compute:
        shape = self.shape_of(space)
        axes = tuple([i for i, n in enumerate(shape) if not is_one(n)])
        reads, cost, along, operators = self._walk(start)
        compute = Compute(value, axes, tuple([shape[a] for a in axes]), reads, cost, operators)
        self._choose_order(compute, along)
        if self.target.separates_units:
            compute.units = self._units(reads, along)
        if self.target.keeps_runs:
            compute.run = self._run(compute, along)
        return compute

    def _run(self, compute: Compute, along: list) -> int:
        """Elements that the innermost loop runs through, about: neighbouring axes are one loop if every tensor that is read has
        both, as one, or neither."""
        sizes = dict(zip(compute.axes, compute.domain))
        cuts = {0}  # positions in the order at which a loop begins
        for value, axis_map in (*compute.reads, *along):
            if axis_map is None:
                continue
            order = self.buffer_of[value].order
            exact = [a for a in axis_map if a >= 0]
            runs = [-3 - a for a in axis_map if a < -2]
            dense = order is not None and [axis_map[a] for a in order if axis_map[a] >= 0] == [
                a for a in compute.order if a in exact
            ]
            for i in range(1, len(compute.order)):
                before, after = compute.order[i - 1], compute.order[i]
                together = dense or before not in exact
                if (before in exact) != (after in exact) or after in runs or before in runs or not together:
                    cuts.add(i)
        return math.prod(hint(sizes[a]) for a in compute.order[max(cuts) :])

    def _units(self, reads: list, along: list) -> frozenset:
        """The axes along which large tensors that are read lie in memory. One alone if no tensor that varies along it lies
        otherwise: what is the same all along an axis is a scalar in a loop along it."""
        found: dict[int, set] = {}  # unit -> the other axes that its tensors vary along
        for value, axis_map in (*reads, *along):
            unit = self.buffer_of[value].unit
            if axis_map is None or unit is None or hinted_size(self.shape_of(value)) < WORTH_TILING:
                continue
            axis = _runs_along(axis_map[unit])
            if axis >= 0:
                found.setdefault(axis, set()).update(map(_runs_along, axis_map))
        for axis in found:
            if all(axis not in others for unit, others in found.items() if unit != axis):
                return frozenset((axis,))
        return frozenset(found)

    def _choose_order(self, compute: Compute, along: list):
        """The memory order that all tensors read in full agree on, else row-major; and the axis along which fewest are read with
        steps, or that most of them run along. Tensors that are the same all along an axis do not mind it. Where
        nobody outside looks at it and none is read in full, parts of tensors say it: what is padded or cut out lies as they do."""
        orders, units, running, runs = [], {}, [], []
        for value, axis_map in along:
            buffer, axes = self.buffer_of[value], [_runs_along(a) for a in axis_map]
            runs.append((buffer, axes))
            if buffer.order is not None and -2 not in axis_map:
                running.append(tuple([axes[a] for a in buffer.order if axes[a] >= 0]))
            if buffer.unit is not None and axes[buffer.unit] >= 0:
                units[axes[buffer.unit]] = units.get(axes[buffer.unit], 0) + len(compute.axes)
        for value, axis_map in compute.reads:
            if axis_map is None:
                continue
            buffer = self.buffer_of[value]
            runs.append((buffer, axis_map))
            if buffer.order is not None:
                mapped = tuple([axis_map[a] for a in buffer.order if axis_map[a] >= 0])
                if len(mapped) == len(compute.axes):
                    orders.append(mapped)
                if mapped:
                    units[mapped[-1]] = units.get(mapped[-1], 0) + len(mapped)
            elif buffer.unit is not None and axis_map[buffer.unit] >= 0:
                units[axis_map[buffer.unit]] = units.get(axis_map[buffer.unit], 0) + len(compute.axes)
        if not orders and compute.value not in self._shown:
            orders = [o for o in running if len(set(o)) == len(o) == len(compute.axes)]
        agreed = bool(orders) and all(o == orders[0] for o in orders)
        compute.order = orders[0] if agreed else compute.axes
        if orders and not agreed and compute.axes not in orders and compute.value not in self._shown:
            # None of them is row-major: the one that most tensors run along with.
            compute.order = max(orders, key=lambda order: units.get(order[-1], 0))
        if orders and not agreed and self._image_axes:
            # Images are channels-last because somebody asked for it: gradients that are not become so again.
            last = (compute.axes[0], *compute.axes[2:], *compute.axes[1:2])
            if len(last) >= self._image_axes and last in orders:
                compute.order = last
        if units:
            gathered = {a: sum(_gathers(buffer, axes, a) for buffer, axes in runs) for a in units}
            compute.unit = max(units, key=lambda a: (-gathered[a], units[a], a))
        elif compute.axes:
            compute.unit = compute.axes[-1]


def _shown(graph: Graph) -> set[Value]:
    """Values whose order in memory the caller sees: results, and what they are views of."""
    found: set[Value] = set()
    for value in graph.outputs:
        found.add(value)
        while isinstance(value.op, Movement) and not isinstance(value.op, Embed):
            value = value.node.inputs[0]
            found.add(value)
    return found


def _runs_along(a: int) -> int:
    """The axis that a position of an axis map runs along, computed or not; negative if none."""
    return -3 - a if a < -2 else a


def _running(a: int) -> int:
    """The axis map of a computed position that runs along what `a` maps."""
    return -3 - a if a >= 0 else a if a < -2 else -2


def _gathers(buffer: Buffer, axes, axis: int) -> bool:
    """Whether a tensor, whose axes run along these, is read with steps in a loop along an axis."""
    if axis not in axes:
        return False
    mapped = [axes[a] for a in buffer.order if axes[a] >= 0] if buffer.order is not None else []
    return axis != (mapped[-1] if mapped else axes[buffer.unit] if buffer.unit is not None else None)
