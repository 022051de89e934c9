"""Cluster: tasks, started as threads or processes of this host or as Ray actors, and the controller that speaks to them."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import secrets
import threading
import weakref

from tandem.distributed.cluster.compiled import RemoteFunction
from tandem.distributed.cluster.engines import start_engine
from tandem.distributed.cluster.peers import Peer, gather
from tandem.distributed.cluster.rpc import connect
from tandem.distributed.cluster.session import ClusterSession
from tandem.distributed.cluster.spec import ClusterSpec, parse_task, task_name
from tandem.distributed.cluster.wire import Closed
from tandem.errors import TaskError, ValueRangeError
from tandem.session.session import Session

_open: weakref.WeakSet = weakref.WeakSet()


class Cluster:
    """Tasks that run graphs together: `td.Session(graph, target=cluster)`.

    spec: {"ps": 2, "worker": 3}, numbers of tasks. engine: "threads" of this process, "processes" of this host, or "ray"; processes
    unless an address is given. address: of a Ray cluster ("auto", "host:port"), whose actors the tasks are then.
    threads: how many threads each task computes with, for processes.

    >>> cluster = td.distributed.Cluster({"ps": 1, "worker": 1}, engine="threads")
    >>> with td.Graph() as graph:
    ...     with td.device("/job:ps/task:0"):
    ...         w = td.Variable([1.0, 2.0])
    ...     with td.device("/job:worker/task:0"):
    ...         y = w * 3
    ...     init = td.global_variables_initializer()
    >>> session = td.Session(graph, target=cluster)
    >>> session.run(init)
    >>> session.run(y)
    tensor([3., 6.])
    >>> cluster.close()
    """

    _default: str | None = None

    def __init__(self, spec, engine: str | None = None, address: str | None = None, threads: int | None = None):
        self.spec = ClusterSpec(spec)
        self.engine = start_engine(engine, address, self.spec, threads)
        self._begin()

    @classmethod
    def connect(cls, addresses: dict[str, str], key: bytes = b"", default: str | None = None) -> Cluster:
        """A controller for tasks that run already: names of tasks and their addresses, as `addresses` of the cluster that began
        them has them. Closing it leaves the tasks as they are. default: the task of nodes that could be anywhere."""
        made = cls.__new__(cls)
        jobs: dict[str, dict] = {}
        for name in addresses:
            job, index = parse_task(name)
            jobs.setdefault(job, {})[index] = addresses[name]
        made.spec = ClusterSpec(jobs)
        made.engine = start_engine("connected", None, made.spec, None, dict(addresses), key)
        made._default = default
        made._begin()
        return made

    def _begin(self):
        self.id = secrets.token_hex(4)
        self.steps = itertools.count()
        self.incarnations: dict[str, int] = {}
        self._resets = 0
        self._known: dict[str, set[str]] = {}
        self._peers: dict[str, Peer] = {}
        self._attached: dict[str, object] = {}
        self._suspects: set[str] = set()
        self._lock = threading.RLock()  # guards the tables above
        self._attaching = (
            threading.RLock()
        )  # one thread at a time starts tasks again, which uses the connections of all
        self._closed = False
        _open.add(self)
        self._attach(self.tasks)

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks."""
        return self.spec.tasks

    @property
    def addresses(self) -> dict[str, str]:
        """Where each task listens."""
        return dict(self.engine.addresses)

    @property
    def key(self) -> bytes:
        """What others must know to connect."""
        return self.engine.key

    @property
    def default_task(self) -> str:
        """Where nodes are that could be anywhere: the first worker."""
        if self._default is not None:
            return self._default
        job = "worker" if "worker" in self.spec.jobs else self.spec.jobs[-1]
        return task_name(job, self.spec.task_indices(job)[0])

    def __repr__(self):
        jobs = ", ".join(f"{self.spec.num_tasks(j)} {j}" for j in self.spec.jobs)
        return f"<Cluster of {jobs}: {'closed' if self._closed else self.engine.name}>"

    def _attach(self, tasks):
        """Makes tasks known to one another and to this controller. A connection to each stays open: when it breaks, each side knows
        that the other is gone."""
        for task in tasks:
            address = self.engine.addresses[task]
            try:
                connection = connect(address, self.key)
                connection.send(["attach", self.id, self.addresses])
                (_, value), _ = connection.receive()
            except Closed as error:
                made = TaskError("Cluster", f"{task} at {address} cannot be reached: {error}")
                made.task = task
                raise made from None
            if value["name"] != task:
                raise ValueRangeError("Cluster", f"at {address} is {value['name']}, not {task}")
            with self._lock:
                before = self._attached.get(task), self._peers.get(task)
                self._attached[task] = connection
                self.incarnations[task] = value["incarnation"]
                self._known[task] = set()
                self._peers[task] = Peer(task, address, self.key)
                self._suspects.discard(task)
            for old in before:
                if old is not None:
                    old.close()

    def peer(self, task: str) -> Peer:
        """For calls of a task; see README.md here."""
        found = self._peers.get(task.partition("/device:")[0])
        if found is None:
            raise ValueRangeError("Cluster", f"there is no {task!r}; there are {', '.join(self.tasks)}")
        if self._closed:
            raise ValueRangeError("Cluster", "the cluster is closed")
        return found

    def tell(self, task: str, name: str, *arguments):
        """Tells a task something, if it is there."""
        with contextlib.suppress(TaskError):
            self.peer(task).notify(name, *arguments)

    def suspect(self, task: str | None):
        """A task did not answer: before its next step it is looked at again, as somebody may have restarted it."""
        if task is not None:
            with self._lock:
                self._suspects.add(task)

    def check(self, tasks):
        if self._suspects:
            with self._attaching:
                self._attach(self._suspects.intersection(tasks))

    # -- programs

    def knows(self, task: str, program: str) -> bool:
        return program in self._known[task]

    def register(self, task: str, part):
        incarnation, _ = self.peer(task).call("register", part.hash, part.text)
        with self._lock:
            if incarnation != self.incarnations[task]:
                self._known[task] = set()
                self.incarnations[task] = incarnation
            self._known[task].add(part.hash)

    def forget(self, task: str, program: str):
        with self._lock:
            self._known[task].discard(program)

    # -- tasks

    def describe(self, task: str | None = None) -> dict:
        """What a task has: variables, queues, programs, steps under way, counts. None: of all tasks, by name."""
        if task is not None:
            return self.peer(task).call("describe")[0]
        return dict(
            zip(self.tasks, (v for v, _ in gather([self.peer(t).begin("describe") for t in self.tasks])), strict=True)
        )

    def alive(self, timeout: float = 5.0) -> dict[str, bool]:
        """Which tasks answer."""
        return {task: self.peer(task).is_alive(timeout) for task in self.tasks}

    def restart(self, task: str):
        """Starts a task again that died, or that is to begin again. Its variables, queues and programs are gone; programs are sent
        again when a run needs them."""
        with self._attaching:
            if self._closed:
                raise ValueRangeError("Cluster", "the cluster is closed")
            self.engine.restart(task)
            self._attach([task])
            for other in self.tasks:
                if other != task:
                    connection = self._attached[other]
                    try:
                        connection.send(["attach", self.id, self.addresses])
                        connection.receive()
                    except Closed:
                        continue

    def kill(self, task: str):
        """Ends a task without warning, as a crash does: for tests of what happens then."""
        self.engine.kill(task)

    def life(self, task: str) -> tuple[int, int]:
        """What changes when a task has lost its variables, as far as this controller knows."""
        return self.incarnations[task], self._resets

    def reset(self):
        """Lets go of all variables and queues."""
        gather([self.peer(t).begin("reset") for t in self.tasks])
        with self._lock:
            self._resets += 1
            self._known = {t: set() for t in self.tasks}

    def session(self, graph=None, **options):
        """A session of a graph on this cluster."""
        return Session(graph, target=self, **options)

    def compiled_function(self, name: str):
        """What runs the programs of a function compiled for this cluster, for td.compile."""
        return RemoteFunction(self, name)

    @property
    def session_class(self) -> type:
        return ClusterSession

    def close(self):
        """Ends the tasks that it began."""
        with self._attaching:  # what is being started again would be left behind
            if self._closed:
                return
            self._closed = True
            for connection in self._attached.values():
                connection.close()
            for peer in self._peers.values():
                peer.close()
            self.engine.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc):
        self.close()


@atexit.register
def _close_all():
    for cluster in list(_open):
        cluster.close()
