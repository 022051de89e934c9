"""shard_map: a function of parts as a function of sharded tensors."""

from __future__ import annotations

import functools
import math

from tandem import _runtime
from tandem.distributed.objects import all_gather_object
from tandem.distributed.sharding.layout import Placements
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.parts import check_member, parts_of
from tandem.distributed.sharding.placements import Partial, PartitionSpec, Placement, Replicate, Shard, as_placements
from tandem.distributed.sharding.tensor import _from_local, _to_local, distribute_tensor, redistribute
from tandem.errors import ValueRangeError
from tandem.tree import flatten, unflatten


def _is_spec(given) -> bool:
    return given is None or isinstance(given, (PartitionSpec, Placement)) or (
        isinstance(given, (list, tuple)) and bool(given) and all(isinstance(p, Placement) for p in given))  # fmt: skip


def _spread(specs, leaves: int, name: str) -> list:
    if _is_spec(specs):
        return [specs] * leaves
    specs = list(specs)
    if len(specs) != leaves:
        raise ValueRangeError("shard_map", f"{name} has {len(specs)} entries for {leaves} tensors")
    return specs


def shard_map(fn, mesh: Mesh, in_specs, out_specs):
    """fn, written for one rank's parts, as a function of sharded tensors: inside it, collectives of td.distributed.functional on
    mesh.get_group(axis) are what ranks do together.

    in_specs, out_specs: a PartitionSpec or placements for all tensors, or one for each. Along mesh axes that an out_spec does not
    name, results must be the same on all ranks.

    >>> td.distributed.init_process_group()
    >>> mesh, P = td.distributed.Mesh(1, "data"), td.distributed.PartitionSpec
    >>> total = lambda x: td.distributed.functional.all_reduce(x.sum(), group=mesh.get_group("data"))
    >>> td.distributed.shard_map(total, mesh, P("data"), P())(td.ones(4)).item()
    4.0
    >>> td.distributed.destroy_process_group()
    """

    @functools.wraps(fn)
    def wrapped(*args):
        check_member(mesh, "shard_map")
        leaves, structure = flatten(list(args))
        tensors = [x for x in leaves if isinstance(x, _runtime.Tensor)]
        specs = iter(_spread(in_specs, len(tensors), "in_specs"))
        inside = [_part(x, mesh, next(specs)) if isinstance(x, _runtime.Tensor) else x for x in leaves]
        made, shape = flatten(fn(*unflatten(structure, inside)))
        specs = iter(_spread(out_specs, len(made), "out_specs"))
        return unflatten(shape, [_whole(t, mesh, next(specs)) for t in made])

    return wrapped


def _part(x, mesh: Mesh, spec):
    """This rank's part. What all ranks have of it gets the sum of their gradients: the loss is the sum of what ranks compute."""
    wanted = as_placements(spec, mesh, x.ndim, "shard_map")
    x = distribute_tensor(x, mesh, wanted, src_data_rank=None) if parts_of(x) is None else redistribute(x, mesh, wanted)
    return _to_local(x, tuple(Partial() if isinstance(p, Replicate) else p for p in wanted))


def _whole(t, mesh: Mesh, spec):
    """The sharded tensor of the parts. Where all ranks have the same, each owns a share of it, and of its gradient."""
    new: Placements = as_placements(spec, mesh, t.ndim, "shard_map")
    shape, shares = list(t.shape), 1
    for n, p in zip(mesh.shape, new, strict=True):
        if isinstance(p, Shard):
            shape[p.dim] *= n
        elif isinstance(p, Replicate):
            shares *= n
    back = tuple(Replicate() if isinstance(p, Partial) else p for p in new)
    sizes = _sizes(t, mesh, new) if any(isinstance(p, Shard) for p in new) else tuple(shape)
    return _from_local(t, mesh, new, sizes, back, scale=1 / shares if math.prod(mesh.shape) > 1 else 1.0)


def _sizes(t, mesh: Mesh, new: Placements) -> tuple[int, ...]:
    """The shape of the whole, of parts that may be uneven."""
    shape = list(t.shape)
    for m in reversed(range(mesh.ndim)):
        if isinstance(new[m], Shard) and mesh.shape[m] > 1:
            every: list = [None] * mesh.shape[m]
            all_gather_object(every, shape[new[m].dim], group=mesh.get_group(m))
            shape[new[m].dim] = sum(every)
    return tuple(shape)
