"""A PMI-1 service: what an MPI library asks when it begins, answered from our key-value service.

Note [PMI]
An MPI library learns from its launcher which rank it is and how to reach the others: over a socket (PMI_PORT, PMI_ID), in lines
such as `cmd=put kvsname=k key=a value=b`. Here each rank answers its own library, from a thread, and keeps what ranks tell one
another in the store. So MPI begins inside any process that has a store, whoever started it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid

from tandem.distributed.store import Store, StoreError

_KEPT = "PMI_PORT", "PMI_ID", "PMI_FD", "PMI_RANK", "PMI_SIZE", "PMIX_NAMESPACE", "PMIX_RANK"


class Service:
    """Answers the library of this process. A context manager: inside, the environment names the service."""

    def __init__(self, store: Store, rank: int, size: int):
        self.store, self.rank, self.size = store, rank, size
        self._barriers = 0
        self.failure: str | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True, name="tandem pmi").start()
        self._before = {name: os.environ.pop(name, None) for name in _KEPT}
        os.environ.update(PMI_PORT=f"127.0.0.1:{self._listener.getsockname()[1]}", PMI_ID=str(self.rank))
        return self

    def __exit__(self, *_):
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    def end(self):
        """At the end of Python: what the library asks last, after Python's threads have ended, is answered beforehand."""
        with contextlib.suppress(OSError):
            self._connection.sendall(b"cmd=finalize_ack rc=0\n")

    def _serve(self):
        """Until the library ends, which may be at the end of the process."""
        connection, _ = self._listener.accept()
        self._connection = connection
        self._listener.close()
        with connection.makefile("rw", newline="\n") as lines, contextlib.suppress(OSError):
            for line in lines:
                for answer in self._answer(line.strip()):
                    lines.write(answer + "\n")
                lines.flush()

    def _answer(self, line: str) -> list[str]:
        words = dict(part.partition("=")[::2] for part in line.split())
        command = words.get("cmd", "")
        if command == "initack":
            return ["cmd=initack rc=0", f"cmd=set size={self.size}", f"cmd=set rank={self.rank}", "cmd=set debug=0"]
        if command == "put":
            self.store.set(f"value/{words['key']}", line.partition(" value=")[2])
            return ["cmd=put_result rc=0 msg=success"]
        if command == "get":
            value = self._value(words["key"])
            return [f"cmd=get_result rc={-1 if value is None else 0} msg=_ value={value or 'unknown'}"]
        if command == "barrier_in":
            return [f"cmd=barrier_out rc={self._barrier()}"]
        fixed = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=4096",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_universe_size": f"cmd=universe_size rc=0 size={self.size}",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self._name()}",
            "finalize": "cmd=finalize_ack rc=0",
        }
        return [fixed.get(command, f"cmd={command} rc=-1 msg=unknown")]

    def _value(self, key: str) -> str | None:
        """What a rank has put before the latest barrier."""
        if (
            key == "PMI_process_mapping"
        ):  # (first host, hosts, ranks of each): each rank is taken to be on a host of its own, for
            return (
                f"(vector,(0,{self.size},1))"  # memory that libraries share has names that stay when a rank is killed
            )
        try:
            return self.store.get(f"value/{key}", timeout=0)
        except StoreError:
            return None

    def _name(self) -> str:
        """Of this set of ranks; another for every other set on the same hosts."""
        if self.rank == 0:
            self.store.set("name", f"tandem-{uuid.uuid4().hex}")
        return self.store.get("name")

    def _barrier(self) -> int:
        self._barriers += 1
        name = f"barrier/{self._barriers}"
        try:
            if self.store.add(name, 1) == self.size:
                self.store.set(name + "/passed", True)
            self.store.get(name + "/passed")
        except StoreError as error:
            self.failure = str(error)
            return -1
        return 0
