"""Servers that die are started again.

Note [Going back together]
In synchronous modes all servers write snapshots after the same updates. When one has died, it is started again, and all go back to
the newest version that every one of them has on disk; their generation rises, so that whoever waits is woken, what belongs to the
time before is dropped, and workers recompute those steps. As each step depends on its version and its data alone, the result
is that of a run without a failure, bit by bit. In asynchronous modes the server that died goes on from its own last snapshot, and
the others do not notice.
"""

from __future__ import annotations

import os
import threading

from tandem.errors import DistributedError, TaskError, ValueRangeError


class Watch:
    """Looks after the servers of a ParameterServer: `with server.watch(): ...`. One program does, the one that began the cluster.

    restarts: how often each server was started again
    """

    def __init__(self, server, interval: float = 0.1):
        if not server.snapshots:
            raise ValueRangeError(
                "watch", "servers write no snapshots", fix="ParameterServer(..., snapshots=folder, every=100)"
            )
        self.server, self.interval = server, interval
        self.restarts = dict.fromkeys(server.servers, 0)
        self.error: BaseException | None = None
        self._lost: dict[str, None] = {}  # servers that have not got their state back yet, as others died meanwhile
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="tandem watch of servers")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()
        if self.error is not None and exc[0] is None:
            raise self.error

    def _run(self):
        while not self._stop.wait(self.interval):
            try:
                self.check()
            except TaskError:
                continue  # one more has died meanwhile
            except BaseException as error:
                self.error = error
                return

    def check(self):
        """Starts servers again that do not answer, and brings all back to a common version."""
        server, cluster = self.server, self.server.cluster
        dead = [t for t in server.servers if not cluster.peer(t).is_alive(timeout=30.0)]
        lost = [t for t in server.servers if t not in dead and not self._has_all(t)]
        self._lost |= dict.fromkeys([*dead, *lost])
        for task in dead:
            cluster.restart(task)
            self.restarts[task] += 1
        if self._lost:
            recover(server, list(self._lost))
            self._lost.clear()

    def _has_all(self, task: str) -> bool:
        peer = self.server.cluster.peer(task)
        return all(peer.call("ps.describe", name)[0] is not None for name in self.server.names())


def recover(server, lost: list[str]):
    """Gives servers that were started again their state back."""
    names = server.names()
    specs = server.specs()
    tasks = server.servers
    peers = [server.cluster.peer(t) for t in tasks]
    for name, per_server in specs.items():
        for s, task in enumerate(tasks):
            if task in lost:
                values = server.values(name, s)
                peers[s].call("ps.make", name, {**per_server[s], "first": False}, tensors=values)
    described = {(n, s): peers[s].call("ps.describe", n)[0] for n in names for s in range(len(tasks))}
    generation = 1 + max(d["generation"] for d in described.values())
    if server.mode in ("sync", "backup"):
        common = set.intersection(*(set(d["snapshots"]) for d in described.values()))
        if not common:
            raise DistributedError(
                "recover", "there is no version that all servers have a snapshot of", fix="keep their folder"
            )
        version = max(common)
        for name in names:
            for peer in peers:
                peer.call("ps.restore", name, version, generation)
        return
    for name in names:
        for s, task in enumerate(tasks):
            versions = described[name, s]["snapshots"]
            if task in lost and versions:
                peers[s].call("ps.restore", name, max(versions), generation)


def has_snapshots(folder: str | None) -> bool:
    """Whether servers wrote to this folder before."""
    if not folder or not os.path.isdir(folder):
        return False
    return any(n.endswith(".safetensors") for _, _, names in os.walk(folder) for n in names)
