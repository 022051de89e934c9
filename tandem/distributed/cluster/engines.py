"""How the tasks of a cluster are started: as threads of this process, processes of this host, or Ray actors."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

from tandem.distributed.cluster.spec import ClusterSpec
from tandem.distributed.cluster.task import Task
from tandem.errors import TaskError, ValueRangeError

_LONGEST = 80  # of a folder's name: that of a socket has 107 characters at most


class Engine:
    """addresses: task -> where it listens. key: what who connects must know."""

    name = ""

    def __init__(self, spec: ClusterSpec):
        self.spec = spec
        self.addresses: dict[str, str] = {}
        self.key = secrets.token_bytes(16)

    def restart(self, task: str):
        raise NotImplementedError

    def kill(self, task: str):
        raise NotImplementedError

    def close(self):
        raise NotImplementedError


class _OneHost(Engine):
    """Sockets lie in a folder that only its owner can open."""

    def __init__(self, spec: ClusterSpec):
        super().__init__(spec)
        self.folder = tempfile.mkdtemp(prefix="tandem-cluster-")
        if len(self.folder) > _LONGEST:
            os.rmdir(self.folder)
            self.folder = tempfile.mkdtemp(prefix="tandem-cluster-", dir="/tmp")
        self._count = 0

    def new_address(self, task: str) -> str:
        """Where a task listens: the same when it is started again, so that who knew it finds it there."""
        if task in self.addresses:
            return self.addresses[task]
        self._count += 1
        return f"unix:{self.folder}/{self._count}"

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Threads(_OneHost):
    """Tasks are objects of this process, with threads of their own."""

    name = "threads"

    def __init__(self, spec: ClusterSpec):
        super().__init__(spec)
        self.tasks: dict[str, Task] = {}
        for task in spec.tasks:
            self.restart(task)

    def restart(self, task: str):
        self.kill(task)
        made = self.tasks[task] = Task(task, self.new_address(task), self.key)
        self.addresses[task] = made.address

    def kill(self, task: str):
        old = self.tasks.pop(task, None)
        if old is not None:
            old.close()

    def close(self):
        for task in list(self.tasks):
            self.kill(task)
        super().close()


class Processes(_OneHost):
    """Each task is a process, which ends with this one."""

    name = "processes"

    def __init__(self, spec: ClusterSpec, threads: int | None):
        super().__init__(spec)
        self.threads = threads
        self.processes: dict[str, subprocess.Popen] = {}
        for task in spec.tasks:
            self._start(task)
        for task in spec.tasks:
            self._await(task)

    def _start(self, task: str):
        self.addresses[task] = self.new_address(task)
        environment = dict(os.environ)
        if self.threads is not None:
            environment["TANDEM_NUM_THREADS"] = str(self.threads)
        process = self.processes[task] = subprocess.Popen(
            [sys.executable, "-m", "tandem.distributed.cluster.worker", task, self.addresses[task]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        process.stdin.write(self.key.hex().encode() + b"\n")  # and stays open: its end is the end of this process
        process.stdin.flush()

    def _await(self, task: str):
        process = self.processes[task]
        line = process.stdout.readline()
        if line.strip() != b"ready":
            raise TaskError("Cluster", f"{task} ended with status {process.wait()} when it was started")

    def restart(self, task: str):
        self.kill(task)
        self._start(task)
        self._await(task)

    def kill(self, task: str):
        process = self.processes.get(task)
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def close(self):
        for process in self.processes.values():
            with contextlib.suppress(OSError, ValueError):  # it has ended, or was killed here
                process.stdin.write(b"end\n")
                process.stdin.close()
        end = time.monotonic() + 5
        for process in self.processes.values():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        super().close()


class Connected(Engine):
    """Tasks that somebody else began."""

    name = "connected"

    def __init__(self, spec: ClusterSpec, addresses: dict[str, str], key: bytes):
        super().__init__(spec)
        self.addresses, self.key = addresses, key

    def restart(self, task: str):
        pass  # whoever began it does; this connects again

    def kill(self, task: str):
        raise ValueRangeError("kill", f"{task} was begun by another program")

    def close(self):
        pass


def start_engine(engine, address, spec: ClusterSpec, threads, addresses=None, key=b"") -> Engine:
    if engine is None:
        engine = "processes" if address is None else "ray"
    if engine == "threads":
        return Threads(spec)
    if engine == "processes":
        return Processes(spec, threads)
    if engine == "connected":
        return Connected(spec, addresses, key)
    if engine == "ray":
        from tandem.distributed.cluster.ray_engine import Actors

        return Actors(spec, address, threads)
    raise ValueRangeError("Cluster", f"engine is {engine!r}; it may be 'threads', 'processes' or 'ray'")
