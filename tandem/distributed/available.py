"""What there is, under PyTorch's names, for programs that choose by it."""

from __future__ import annotations

import os

from tandem.distributed.group import GroupMember, ProcessGroup, new_group, this_rank
from tandem.errors import ValueRangeError


class Backend(str):
    """The name of a way to communicate, in small letters, as programs compare it with what get_backend() gives.

    >>> td.distributed.Backend("GLOO") == td.distributed.Backend.GLOO == "gloo"
    True
    """

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"

    def __new__(cls, name: str):
        return super().__new__(cls, name.lower())


def is_gloo_available() -> bool:
    """Whether backend "gloo" is taken: always; it means shared memory on one host, and Gloo or MPI on several.

    >>> td.distributed.is_gloo_available()
    True
    """
    return True


def is_mpi_available() -> bool:
    """Whether an MPI library with the standard ABI is found, which ranks on several hosts need."""
    from tandem.distributed.mpi import find_library  # for several hosts alone

    return find_library() is not None


def is_nccl_available() -> bool:
    """Whether NCCL is found, which tensors on CUDA devices go by."""
    from tandem.codegen.cuda.libraries import find

    return find("nccl") is not None


def is_torchelastic_launched() -> bool:
    """Whether a launcher, `tandem run` or torchrun, has started this process."""
    return "TANDEM_STORE" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number among those of its host, as its launcher says."""
    text = os.environ.get("LOCAL_RANK")
    if text is None and fallback_rank is None:
        raise ValueRangeError(
            "get_node_local_rank", "LOCAL_RANK is not in the environment", fix="start the program by `tandem run`"
        )
    return int(fallback_rank if text is None else text)


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None) -> tuple[ProcessGroup | object, list]:
    """Groups of these ranks; gives this rank's own and all of them, as far as it is in them. All ranks must call it."""
    rank, own, groups = this_rank("new_subgroups_by_enumeration").rank, GroupMember.NON_GROUP_MEMBER, []
    flat = [r for ranks in ranks_per_subgroup_list for r in ranks]
    if len(flat) != len(set(flat)):
        raise ValueRangeError("new_subgroups_by_enumeration", f"{ranks_per_subgroup_list} has a rank in two groups")
    for ranks in ranks_per_subgroup_list:
        made = new_group(ranks, timeout)
        groups.append(made)
        own = made if rank in ranks else own
    return own, groups


def new_subgroups(group_size: int | None = None, timeout=None) -> tuple[ProcessGroup | object, list]:
    """Groups of so many ranks that follow one another (of those of a host, unless given); gives this rank's own and all."""
    size = this_rank("new_subgroups").size
    each = int(os.environ.get("LOCAL_WORLD_SIZE", size)) if group_size is None else group_size
    if each < 1 or size % each:
        raise ValueRangeError("new_subgroups", f"{size} ranks cannot be divided into groups of {each}")
    return new_subgroups_by_enumeration([list(range(a, a + each)) for a in range(0, size, each)], timeout)
