"""Many processes, one model: process groups, collectives, and ways to start ranks.

tandem run -n 4 train.py          the program on four ranks of this host

td.distributed.init_process_group()
td.distributed.all_reduce(x)      in place, under PyTorch's names
td.distributed.functional         with gradients, for compiled functions and deferred graphs too
"""

from tandem.distributed import checkpoint, elastic, functional, pipeline, simulator
from tandem.distributed.automatic import ParallelPlan, load_plan, parallelize
from tandem.distributed.available import (
    get_node_local_rank,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from tandem.distributed.cluster import Cluster, ClusterSpec, Server, replica_device_setter
from tandem.distributed.collectives import (
    P2POp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_coalesced,
    gather,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from tandem.distributed.data_parallel import DistributedDataParallel, data_parallel, join, no_sync
from tandem.distributed.experts import ExpertParallel, MixtureOfExperts
from tandem.distributed.fully_shard import ShardedParameter, full_state_dict, fully_shard, load_full_state_dict
from tandem.distributed.group import (
    GroupMember,
    ProcessGroup,
    destroy_process_group,
    flight_record,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
    new_group,
)
from tandem.distributed.measure import measured
from tandem.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from tandem.distributed.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    distribute_module,
    parallelize_module,
)
from tandem.distributed.pipeline import Pipeline, stage
from tandem.distributed.placer import PlacementCosts, PlacementPlan, measure_cluster, measure_nodes, place
from tandem.distributed.reduction import ReduceOp
from tandem.distributed.servers import ParameterServer, ShardedEmbedding
from tandem.distributed.sharding import (
    DeviceMesh,
    DTensor,
    Mesh,
    NamedSharding,
    Partial,
    PartitionSpec,
    Placement,
    Replicate,
    Shard,
    ShardingReport,
    distribute_tensor,
    explain,
    from_local,
    implicit_replication,
    init_device_mesh,
    redistribute,
    shard_map,
    sharding_report,
    with_sharding_constraint,
)
from tandem.distributed.spawning import launch, spawn
from tandem.distributed.store import Store
from tandem.distributed.topology import DeviceModel, Link, Topology
from tandem.distributed.work import Work

__all__ = [
    "Cluster", "ClusterSpec", "ColwiseParallel", "DTensor", "DeviceMesh", "DeviceModel", "DistributedDataParallel",
    "ExpertParallel", "GroupMember", "Link", "Mesh", "MixtureOfExperts", "NamedSharding", "P2POp", "ParallelPlan",
    "ParallelStyle", "ParameterServer", "Partial", "PartitionSpec", "Pipeline", "Placement", "PlacementCosts",
    "PlacementPlan", "PrepareModuleInput", "PrepareModuleOutput", "ProcessGroup", "ReduceOp", "Replicate", "RowwiseParallel",
    "SequenceParallel", "Server", "Shard", "ShardedEmbedding", "ShardedParameter", "ShardingReport", "Store", "Topology",
    "Work", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_reduce_coalesced", "all_to_all",
    "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_coalesced", "broadcast_object_list",
    "checkpoint", "data_parallel", "destroy_process_group", "distribute_module", "distribute_tensor", "elastic", "explain",
    "flight_record", "from_local", "full_state_dict", "fully_shard", "functional", "gather", "gather_object", "get_backend",
    "get_global_rank", "get_group_rank", "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size",
    "implicit_replication", "init_device_mesh", "init_process_group", "irecv", "is_available", "is_gloo_available",
    "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "isend", "join", "launch",
    "load_full_state_dict", "load_plan", "measure_cluster", "measure_nodes", "measured", "monitored_barrier", "new_group",
    "new_subgroups", "new_subgroups_by_enumeration", "no_sync", "parallelize", "parallelize_module", "pipeline", "place",
    "recv", "recv_object_list", "redistribute", "reduce", "reduce_scatter", "reduce_scatter_tensor", "replica_device_setter",
    "scatter", "scatter_object_list", "send", "send_object_list", "shard_map", "sharding_report", "simulator", "spawn",
    "stage", "with_sharding_constraint",
]  # fmt: skip
