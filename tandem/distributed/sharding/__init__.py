"""Sharded tensors: tensors whose elements lie on several ranks, with the operators of all others."""

from tandem.distributed.sharding.call import add_gradients, run_from_dispatch
from tandem.distributed.sharding.explain import ShardingReport, explain, sharding_report
from tandem.distributed.sharding.mapped import shard_map
from tandem.distributed.sharding.mesh import DeviceMesh, Mesh, init_device_mesh
from tandem.distributed.sharding.parts import implicit_replication
from tandem.distributed.sharding.placements import Partial, PartitionSpec, Placement, Replicate, Shard
from tandem.distributed.sharding.tensor import (
    DTensor,
    NamedSharding,
    attach,
    distribute_tensor,
    from_local,
    redistribute,
    with_sharding_constraint,
)

attach(run_from_dispatch, add_gradients)
