"""Many processes, one model: process groups, collectives, and ways to start ranks.

tandem run -n 4 train.py          the program on four ranks of this host

td.distributed.init_process_group()
td.distributed.all_reduce(x)      in place, under PyTorch's names
td.distributed.functional         with gradients, for compiled functions and deferred graphs too

Modules are imported when something of theirs is first used: ranks start sooner.
"""

from __future__ import annotations

import importlib

from tandem.names import missing

_MODULES = ("checkpoint", "elastic", "functional", "nn", "pipeline", "simulator")
_HOMES = {
    "automatic": ("ParallelPlan", "load_plan", "parallelize"),
    "available": (
        "Backend", "get_node_local_rank", "is_gloo_available", "is_mpi_available", "is_nccl_available",
        "is_torchelastic_launched", "new_subgroups", "new_subgroups_by_enumeration",
    ),
    "cluster": ("Cluster", "ClusterSpec", "Server", "replica_device_setter"),
    "collectives": (
        "P2POp", "all_gather", "all_gather_into_tensor", "all_reduce", "all_reduce_coalesced", "all_to_all",
        "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_coalesced", "gather", "irecv",
        "isend", "monitored_barrier", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "send",
    ),
    "ddp": ("DistributedDataParallel", "data_parallel", "join", "no_sync"),
    "experts": ("ExpertParallel", "MixtureOfExperts"),
    "fsdp": ("ShardedParameter", "full_state_dict", "fully_shard", "load_full_state_dict"),
    "group": (
        "GroupMember", "ProcessGroup", "destroy_process_group", "flight_record", "get_backend", "get_global_rank",
        "get_group_rank", "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group",
        "is_available", "is_initialized", "new_group",
    ),
    "measure": ("measured",),
    "objects": (
        "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
        "send_object_list",
    ),
    "parallel": (
        "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleOutput", "RowwiseParallel",
        "SequenceParallel", "distribute_module", "parallelize_module",
    ),
    "pipeline": ("Pipeline", "stage"),
    "placer": ("PlacementCosts", "PlacementPlan", "measure_cluster", "measure_nodes", "place"),
    "reduction": ("ReduceOp",),
    "servers": ("ParameterServer", "ShardedEmbedding"),
    "sharding": (
        "DeviceMesh", "DTensor", "Mesh", "NamedSharding", "Partial", "PartitionSpec", "Placement", "Replicate",
        "Shard", "ShardingReport", "distribute_tensor", "explain", "from_local", "implicit_replication",
        "init_device_mesh", "redistribute", "shard_map", "sharding_report", "with_sharding_constraint",
    ),
    "spawning": ("launch", "spawn"),
    "store": ("Store",),
    "topology": ("DeviceModel", "Link", "Topology"),
    "work": ("Work",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted((*_MODULES, *_HOME))


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(importlib.import_module(f"tandem.distributed.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _HOMES or name in _MODULES:
        return importlib.import_module(f"tandem.distributed.{name}")
    raise missing("tandem.distributed", name)


def load_all():
    """Imports all that there is, before threads do so in different orders (Note [Imports in threads], machine/preload.py)."""
    for name in (*_MODULES, *_HOMES):
        importlib.import_module(f"tandem.distributed.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
