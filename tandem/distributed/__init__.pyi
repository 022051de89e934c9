from tandem.distributed import checkpoint as checkpoint
from tandem.distributed import elastic as elastic
from tandem.distributed import functional as functional
from tandem.distributed import nn as nn
from tandem.distributed import pipeline as pipeline
from tandem.distributed import simulator as simulator
from tandem.distributed.automatic import (
    ParallelPlan as ParallelPlan,
    load_plan as load_plan,
    parallelize as parallelize,
)
from tandem.distributed.available import (
    Backend as Backend,
    get_node_local_rank as get_node_local_rank,
    is_gloo_available as is_gloo_available,
    is_mpi_available as is_mpi_available,
    is_nccl_available as is_nccl_available,
    is_torchelastic_launched as is_torchelastic_launched,
    new_subgroups as new_subgroups,
    new_subgroups_by_enumeration as new_subgroups_by_enumeration,
)
from tandem.distributed.cluster import (
    Cluster as Cluster,
    ClusterSpec as ClusterSpec,
    Server as Server,
    replica_device_setter as replica_device_setter,
)
from tandem.distributed.collectives import (
    P2POp as P2POp,
    all_gather as all_gather,
    all_gather_into_tensor as all_gather_into_tensor,
    all_reduce as all_reduce,
    all_reduce_coalesced as all_reduce_coalesced,
    all_to_all as all_to_all,
    all_to_all_single as all_to_all_single,
    barrier as barrier,
    batch_isend_irecv as batch_isend_irecv,
    broadcast as broadcast,
    broadcast_coalesced as broadcast_coalesced,
    gather as gather,
    irecv as irecv,
    isend as isend,
    monitored_barrier as monitored_barrier,
    recv as recv,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    reduce_scatter_tensor as reduce_scatter_tensor,
    scatter as scatter,
    send as send,
)
from tandem.distributed.ddp import (
    DistributedDataParallel as DistributedDataParallel,
    data_parallel as data_parallel,
    join as join,
    no_sync as no_sync,
)
from tandem.distributed.experts import ExpertParallel as ExpertParallel, MixtureOfExperts as MixtureOfExperts
from tandem.distributed.fsdp import (
    ShardedParameter as ShardedParameter,
    full_state_dict as full_state_dict,
    fully_shard as fully_shard,
    load_full_state_dict as load_full_state_dict,
)
from tandem.distributed.group import (
    GroupMember as GroupMember,
    ProcessGroup as ProcessGroup,
    destroy_process_group as destroy_process_group,
    flight_record as flight_record,
    get_backend as get_backend,
    get_global_rank as get_global_rank,
    get_group_rank as get_group_rank,
    get_process_group_ranks as get_process_group_ranks,
    get_rank as get_rank,
    get_world_size as get_world_size,
    init_process_group as init_process_group,
    is_available as is_available,
    is_initialized as is_initialized,
    new_group as new_group,
)
from tandem.distributed.measure import measured as measured
from tandem.distributed.objects import (
    all_gather_object as all_gather_object,
    broadcast_object_list as broadcast_object_list,
    gather_object as gather_object,
    recv_object_list as recv_object_list,
    scatter_object_list as scatter_object_list,
    send_object_list as send_object_list,
)
from tandem.distributed.parallel import (
    ColwiseParallel as ColwiseParallel,
    ParallelStyle as ParallelStyle,
    PrepareModuleInput as PrepareModuleInput,
    PrepareModuleOutput as PrepareModuleOutput,
    RowwiseParallel as RowwiseParallel,
    SequenceParallel as SequenceParallel,
    distribute_module as distribute_module,
    parallelize_module as parallelize_module,
)
from tandem.distributed.pipeline import Pipeline as Pipeline, stage as stage
from tandem.distributed.placer import (
    PlacementCosts as PlacementCosts,
    PlacementPlan as PlacementPlan,
    measure_cluster as measure_cluster,
    measure_nodes as measure_nodes,
    place as place,
)
from tandem.distributed.reduction import ReduceOp as ReduceOp
from tandem.distributed.servers import ParameterServer as ParameterServer, ShardedEmbedding as ShardedEmbedding
from tandem.distributed.sharding import (
    DeviceMesh as DeviceMesh,
    DTensor as DTensor,
    Mesh as Mesh,
    NamedSharding as NamedSharding,
    Partial as Partial,
    PartitionSpec as PartitionSpec,
    Placement as Placement,
    Replicate as Replicate,
    Shard as Shard,
    ShardingReport as ShardingReport,
    distribute_tensor as distribute_tensor,
    explain as explain,
    from_local as from_local,
    implicit_replication as implicit_replication,
    init_device_mesh as init_device_mesh,
    redistribute as redistribute,
    shard_map as shard_map,
    sharding_report as sharding_report,
    with_sharding_constraint as with_sharding_constraint,
)
from tandem.distributed.spawning import launch as launch, spawn as spawn
from tandem.distributed.store import Store as Store
from tandem.distributed.topology import DeviceModel as DeviceModel, Link as Link, Topology as Topology
from tandem.distributed.work import Work as Work
