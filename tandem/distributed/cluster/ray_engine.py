"""Tasks as Ray actors: Ray decides where they are, and knows when they die. Nothing else here uses Ray.

Calls and tensors go by our own sockets, between actors of one host by shared memory: a call of an actor costs several times as
much, and tensors of a step need no store of objects.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time

from tandem.distributed.cluster.engines import Engine
from tandem.distributed.cluster.rpc import Server, boot, connect
from tandem.distributed.cluster.spec import ClusterSpec
from tandem.distributed.cluster.task import Task, local
from tandem.distributed.cluster.wire import Closed
from tandem.errors import TaskError, UnsupportedError

_STARTS_WITHIN = 120.0  # seconds
_ENDS_WITHIN = 10.0


def _ray():
    try:
        import ray
    except ImportError:
        raise UnsupportedError(
            "Cluster",
            "tasks on Ray need Ray, which is not installed",
            fix='pip install "tandem-dl[distributed]", or use engine="processes" on one host',
        ) from None
    return ray


class TaskActor:
    """What runs in an actor."""

    def __init__(self, name: str, key: bytes, host: str):
        self.task = Task(name, f"tcp:{host}:0", key)
        self.folder = tempfile.mkdtemp(prefix="tandem-cluster-")
        self.near = Server(self.task, f"unix:{self.folder}/task", key)
        self.address = f"{self.task.address} {self.near.address} {boot()}"
        local[self.address] = self.task

    def where(self) -> str:
        return self.address


class Actors(Engine):
    name = "ray"

    def __init__(self, spec: ClusterSpec, address: str | None, threads: int | None):
        super().__init__(spec)
        ray = self._module = _ray()
        self._began = not ray.is_initialized()
        if self._began:
            ray.init(address=address, log_to_driver=False, configure_logging=False, include_dashboard=False)
        self.threads = threads
        self.actors: dict = {}
        for task in spec.tasks:
            self._start(task)
        for task in spec.tasks:
            self._await(task)

    def _start(self, task: str):
        ray = self._module
        environment = {} if self.threads is None else {"TANDEM_NUM_THREADS": str(self.threads)}
        path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH"),) if p)
        if path:
            environment["PYTHONPATH"] = path
        actor = ray.remote(_Placed).options(
            num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD", runtime_env={"env_vars": environment}
        )
        self.actors[task] = actor.remote(task, self.key)

    def _await(self, task: str):
        try:
            self.addresses[task] = self._module.get(self.actors[task].where.remote(), timeout=_STARTS_WITHIN)
        except self._module.exceptions.RayError as error:
            made = TaskError("Cluster", f"{task} could not be started by Ray: {error}")
            made.task = task
            raise made from None

    def restart(self, task: str):
        self.kill(task)
        self._start(task)
        self._await(task)

    def kill(self, task: str):
        with contextlib.suppress(Exception):  # it may be dead already
            self._module.kill(self.actors[task], no_restart=True)
        end = time.monotonic() + _ENDS_WITHIN
        while task in self.addresses and time.monotonic() < end:  # Ray does it when it comes to it
            try:
                connect(self.addresses[task], self.key, 1.0).close()
            except Closed:
                return
            time.sleep(0.02)

    def close(self):
        for task in self.actors:
            self.kill(task)
        if self._began:
            self._module.shutdown()


class _Placed(TaskActor):
    """A task on the address that its node has."""

    def __init__(self, name: str, key: bytes):
        super().__init__(name, key, _ray().util.get_node_ip_address())
