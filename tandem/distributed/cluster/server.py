"""Server: one task of a cluster in this process, as each process of a classic distributed program starts one."""

from __future__ import annotations

import os
import threading
import time

from tandem.distributed.cluster.cluster import Cluster
from tandem.distributed.cluster.rpc import connect
from tandem.distributed.cluster.spec import ClusterSpec, parse_task, task_name
from tandem.distributed.cluster.task import Task
from tandem.distributed.cluster.wire import Closed
from tandem.errors import TaskError, ValueRangeError

_HERE = ("localhost", "127.0.0.1", "::1")


def key_from_environment() -> bytes:
    """What all processes of the cluster know: TANDEM_CLUSTER_KEY."""
    return os.environ.get("TANDEM_CLUSTER_KEY", "").encode()


class Server:
    """A task of a cluster whose spec has addresses: Server({"ps": ["host:port"], "worker": [...]}, "worker", 0).

    Sessions of any process run graphs on the cluster by `Session(server.target)`; they wait until all tasks have started. On more
    than one host all processes must have the same TANDEM_CLUSTER_KEY: who knows it may run graphs.
    """

    def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None, config=None, start=True):
        self.spec = self.server_def = ClusterSpec(server_or_cluster_def)
        if job_name is None:
            if len(self.spec.jobs) > 1:
                raise ValueRangeError(
                    "Server", f"there are jobs {', '.join(self.spec.jobs)}; job_name says which it is"
                )
            job_name = self.spec.jobs[0]
        index = 0 if task_index is None else task_index
        if index not in self.spec.task_indices(job_name):
            raise ValueRangeError("Server", f"job {job_name!r} has no task {index}")
        address = self.spec.task_address(job_name, index)
        if address is None:
            raise ValueRangeError(
                "Server",
                f"the spec has no address for {task_name(job_name, index)}",
                fix='write {"ps": ["host:port"], ...}',
            )
        self._key = key_from_environment()
        host = address.rpartition(":")[0]
        if not self._key and host not in _HERE:
            raise ValueRangeError(
                "Server",
                f"{address} can be reached from other hosts, and whoever reaches it could run programs there",
                fix="set TANDEM_CLUSTER_KEY to the same secret in all processes of the cluster",
            )
        self.name = task_name(job_name, index)
        self._address = f"tcp:{address}"
        self._task: Task | None = None
        if start:
            self.start()

    def start(self):
        if self._task is None:
            self._task = Task(self.name, self._address, self._key)
            self._task.cluster = {
                task: f"tcp:{self.spec.task_address(*parse_task(task))}" for task in self.spec.tasks
            }  # fmt: skip

    @property
    def target(self) -> str:
        """For Session: Session(server.target)."""
        return "tandem://" + self._address.removeprefix("tcp:")

    def join(self):
        """Waits until the server is stopped, which may be never."""
        if self._task is not None:
            self._task.closed.wait()

    def stop(self):
        if self._task is not None:
            self._task.close()

    @staticmethod
    def create_local_server(config=None, start=True) -> Server:
        """A cluster of one task, on this host."""
        import socket

        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        return Server({"local": [f"127.0.0.1:{port}"]}, start=start)


_clusters: dict[str, Cluster] = {}
_lock = threading.Lock()  # guards _clusters


def cluster_at(target: str, patience: float = 60.0) -> Cluster:
    """The cluster of a server, "tandem://host:port" or "grpc://host:port"; the same for all sessions of this process."""
    scheme, _, place = target.partition("://")
    if scheme not in ("tandem", "grpc") or not place.rpartition(":")[2].isdigit():
        raise ValueRangeError("Session", f"{target!r} is no target", fix="pass server.target, or tandem://host:port")
    with _lock:
        found = _clusters.get(place)
        if found is None or found._closed:
            found = _clusters[place] = _find(place, time.monotonic() + patience)
        return found


def _find(place: str, end: float) -> Cluster:
    key = key_from_environment()
    described = _ask(f"tcp:{place}", f"the server at {place}", key, end)
    addresses = described["cluster"] or {described["name"]: f"tcp:{place}"}
    for task, address in addresses.items():
        _ask(address, task, key, end)
    return Cluster.connect(addresses, key, default=described["name"])


def _ask(address: str, what: str, key: bytes, end: float) -> dict:
    """What a task says of itself, once it has started."""
    while True:
        try:
            connection = connect(address, key)
            connection.send(["describe"])
            (_, value), _ = connection.receive()
            connection.close()
            return value
        except Closed as error:
            if time.monotonic() > end:
                made = TaskError("Session", f"{what} ({address}) cannot be reached: {error}", fix="start its Server")
                made.task = what
                raise made from None
            time.sleep(0.05)
