"""Ranks as threads, for tests."""

from __future__ import annotations

import math

import tandem as td
from tandem import distributed as dist

R, S, P = dist.Replicate(), dist.Shard, dist.Partial


def on_mesh(shape, fn, *args) -> list:
    """What fn(mesh, *args) gives on each rank of a mesh."""

    def work():
        return fn(dist.Mesh(shape, tuple("abc"[: len(shape)])), *args)

    return dist.spawn(work, math.prod(shape), engine="threads", timeout=300)


def sharded(array, mesh, placements, requires_grad: bool = False):
    made = dist.distribute_tensor(td.tensor(array), mesh, src_data_rank=None).redistribute(placements=placements)
    made.requires_grad = requires_grad
    return made
