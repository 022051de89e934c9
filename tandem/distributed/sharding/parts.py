"""What a sharded tensor is made of: a mesh, placements, and this rank's part."""

from __future__ import annotations

import threading

from tandem import _runtime
from tandem.distributed.sharding.layout import Placements, grid_of
from tandem.distributed.sharding.mesh import Mesh
from tandem.errors import ShardingError


class Parts:
    """Of a tensor; views of it that are the same elements share it. `local` is this rank's part."""

    def __init__(self, mesh: Mesh, placements: Placements, local):
        self.mesh, self.placements, self.local = mesh, placements, local


def parts_of(tensor) -> Parts | None:
    return _runtime.parts_of(tensor)


def need_parts(tensor, op: str) -> Parts:
    parts = _runtime.parts_of(tensor)
    if parts is None:
        raise ShardingError(
            op, "the tensor is not sharded", fix="use td.distributed.distribute_tensor(x, mesh, placements)"
        )
    return parts


def make(mesh: Mesh, placements: Placements, local, shape, writable: bool = True):
    """A sharded tensor of `shape`, of which this rank has `local`."""
    device = 0 if local.device == "cpu" else local.device.index + 1
    return _runtime.make_sharded(Parts(mesh, placements, local), tuple(shape), local.dtype, device, writable)


def check_member(mesh: Mesh, op: str):
    if mesh.coordinate is None:
        raise ShardingError(op, f"this rank is not in {mesh!r}")


def local_shape(mesh: Mesh, shape, placements: Placements) -> tuple[int, ...]:
    return grid_of(mesh).local_shape(tuple(shape), placements)


class _State(threading.local):
    replicates = False  # whether plain tensors count as replicated
    gathers = False  # whether operands that are divided differently are gathered, as nobody can say which
    reports: tuple = ()  # that take down what calls do (explain.py)


state = _State()


class implicit_replication:
    """While inside, tensors that are not sharded count as replicated where they meet sharded ones: all ranks must have the same.

    >>> with td.distributed.implicit_replication():
    ...     pass
    """

    def __enter__(self):
        self._before, state.replicates = state.replicates, True

    def __exit__(self, *exc):
        state.replicates = self._before
