"""Parts of tensors under other placements, outside of any graph: what redistribute and reductions of operands do."""

from __future__ import annotations

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.distributed.sharding.layout import Placements, grid_of
from tandem.distributed.sharding.local import local_function
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.move import Mover
from tandem.distributed.sharding.parts import need_parts, state
from tandem.graph.ir import Builder, Graph, Type
from tandem.ops.define import add_input
from tandem.tracing.compile import Tracing

_moves: dict = {}
_MOST = 4096


class _Move:
    """A redistribution on this rank: an operator function, and what it moves."""

    def __init__(self, mesh: Mesh, shape, dtype, old: Placements, new: Placements, tag: int):
        grid = grid_of(mesh)
        graph, mover = Graph(name="redistribute"), Mover(grid, tag)
        with Builder(graph) as builder, Tracing():
            value = add_input(builder, Type(dtype, grid.local_shape(shape, old)))
            made = mover.move(value, shape, old, new)
            graph.outputs = [F.Copy()(made) if made is value else made]
        self.moved = mover.moved
        self.function = local_function("redistribute", graph, [False])


def moved(local, mesh: Mesh, shape, old: Placements, new: Placements, tag: int = 0):
    """This rank's part under other placements; no history."""
    if old == new:
        return local
    key = tuple(shape), local.dtype, old, new, mesh.shape, mesh.coordinate, tuple(g.token for g in mesh.groups), tag
    found = _moves.get(key)
    if found is None:
        if len(_moves) >= _MOST:
            _moves.pop(next(iter(_moves), None), None)  # another rank's thread may be here too
        found = _moves[key] = _Move(mesh, tuple(shape), local.dtype, old, new, tag)
    for report in state.reports:
        report.add_move(tuple(shape), old, new, found.moved)
    with no_grad():
        return found.function([local], [])[0]


def reduce_in_place(tensor, new: Placements):
    """A partial tensor under placements that are not: the same elements, so that whoever uses them next finds them reduced."""
    parts = need_parts(tensor, "redistribute")
    parts.local = moved(parts.local, parts.mesh, tensor.shape, parts.placements, new)
    parts.placements = new
