"""What the environment says about this process's place among others: torchrun's variables, MPI's, Slurm's."""

from __future__ import annotations

import os
from typing import NamedTuple

from tandem.errors import ValueRangeError

# (rank, world size, local rank, local size) as launchers call them; the first that has rank and size counts.
_NAMES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # tandem run, torchrun
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),  # Open MPI
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
    ("PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)


class Place(NamedTuple):
    """A process among others."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    store: str | None  # host:port of a key-value service that runs already
    master: tuple[str, int]  # where one is to run if not


def _int(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueRangeError(
            "init_process_group", f"{name} is {text!r} in the environment; it must be an integer"
        ) from None


def place(rank: int | None = None, size: int | None = None) -> Place | None:
    """This process's place, by the environment and what is given; None where neither says."""
    local_rank = local_size = None
    for names in _NAMES:
        found = [_int(n) for n in names]
        if found[0] is not None and found[1] is not None:
            rank = found[0] if rank is None else rank
            size = found[1] if size is None else size
            local_rank, local_size = found[2], found[3]
            break
    if rank is None or size is None:
        return None
    master = os.environ.get("MASTER_ADDR", "127.0.0.1"), _int("MASTER_PORT") or 29500
    return Place(
        rank, size, rank if local_rank is None else local_rank, size if local_size is None else local_size,
        os.environ.get("TANDEM_STORE"), master,
    )  # fmt: skip
