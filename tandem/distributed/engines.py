"""Engines: how the ranks of a group reach one another.

An engine makes, for a rank, its part in a group: a `Communicator` (src/collectives/communicator.h), whose `run` does every
collective, send and receive. All else (operators, order, handles, gradients, messages) is the same for all engines.

    threads          ranks are threads of one process: for tests, and to look at programs of many ranks
    shared_memory    ranks are processes of one host; tensors are read and written where they lie (Note [Direct and staged])
    mpi, gloo        ranks are processes of several hosts (network.py)
"""

from __future__ import annotations

import os
import threading

from tandem import _runtime
from tandem.distributed.store import Store, StoreError
from tandem.errors import DistributedError, UnsupportedError


class Engine:
    """What a rank needs of an engine."""

    name = ""
    answers_itself = False  # whether it has a thread that tells other ranks where this one is

    def communicator(self, token: int, ranks: tuple[int, ...], rank: int):
        """This rank's part in the group of these ranks. All of them ask for it, at about the same time."""
        raise NotImplementedError

    def leave(self, failure: str | None):
        """This rank's part in all groups has ended, as it should or by a failure."""

    def close(self):
        """No further groups."""


class ThreadsEngine(Engine):
    name = "threads"

    def __init__(self, rank: int, boards: _Boards):
        self.rank, self._boards = rank, boards

    def communicator(self, token, ranks, rank):
        return _runtime.Member(self._boards.get(token, ranks), rank, list(ranks))


class _Boards:
    """Those of a set of threads: whoever comes first makes one."""

    def __init__(self):
        self._made: dict = {}
        self._lock = threading.Lock()  # guards _made

    def get(self, token: int, ranks: tuple[int, ...]):
        with self._lock:
            if (token, ranks) not in self._made:
                self._made[token, ranks] = _runtime.Board.create(len(ranks), False)
            return self._made[token, ranks]


def threads(size: int) -> list[ThreadsEngine]:
    """The engines of `size` threads."""
    boards = _Boards()
    return [ThreadsEngine(rank, boards) for rank in range(size)]


class SharedMemoryEngine(Engine):
    """Ranks tell one another in the store which process they are and which descriptors their memory has there. The memory has no
    name in the file system: it goes when the last process that has it goes."""

    name = "shared_memory"

    def __init__(self, store: Store, rank: int, size: int):
        self.store, self.rank, self.size = store, rank, size
        self._boards: list = []
        heap = _runtime.begin_shared_heap()
        store.set(f"rank/{rank}", {"pid": os.getpid(), "heap": heap, "host": host()})
        self._peers = [ask(store, f"rank/{r}", rank) for r in range(size)]
        elsewhere = [r for r, peer in enumerate(self._peers) if peer["host"] != self._peers[rank]["host"]]
        if elsewhere:
            raise UnsupportedError(
                "init_process_group",
                f"rank {rank} and rank {elsewhere[0]} are on different hosts; the shared-memory engine serves one",
                fix='use backend="mpi" or "gloo", or start all ranks on one host',
            )  # fmt: skip

    def communicator(self, token, ranks, rank):
        if rank == 0:
            board = _runtime.Board.create(len(ranks), True)
            self.store.set(f"board/{token}", [os.getpid(), board.descriptor])
        else:
            board = _runtime.Board.attach(_open(*ask(self.store, f"board/{token}", self.rank)))
        self._boards.append(board)
        member = _runtime.Member(board, rank, list(ranks))
        for r, peer in enumerate(ranks):
            if r != rank:
                member.connect(r, self._peers[peer]["pid"], _open(self._peers[peer]["pid"], self._peers[peer]["heap"]))
        return member

    def close(self):
        _runtime.pause_shared_heap()
        self._boards.clear()


def _open(pid: int, descriptor: int) -> int:
    """A descriptor of another process of this user as one of ours; -1: it has none, or may not be looked at."""
    if descriptor < 0:
        return -1
    try:
        return os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise DistributedError("init_process_group", f"process {pid} has ended while ranks were meeting") from None


def ask(store: Store, key: str, rank: int):
    """What another rank has set, or will."""
    try:
        return store.get(key)
    except StoreError as error:
        raise DistributedError("init_process_group", f"rank {rank}: {error}") from None


def host() -> str:
    """Equal in processes that can see one another's memory. TANDEM_HOST: a name for it, where several hosts are played on one;
    {rank} in it is this rank's number."""
    if name := os.environ.get("TANDEM_HOST"):
        return name.replace("{rank}", os.environ.get("RANK", ""))
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
