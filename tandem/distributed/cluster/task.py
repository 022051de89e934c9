"""A task: a part of a cluster that holds devices, variables, queues and programs, and runs steps.

Note [Once]
A call may reach a task twice: who made it saw the connection break and makes it again. So every call may be made twice. Programs
are known by their hash, messages by their key, values of variables are set, not changed; and a step is a number: asked again for a
step that it has done or is doing, the task gives the same answer. A step names the incarnation of the task that it was meant for.
A task that was started again is another one, and refuses.
"""

from __future__ import annotations

import importlib
import secrets
import threading
from collections import OrderedDict

from tandem import _runtime
from tandem.distributed.cluster.errors import restored
from tandem.distributed.cluster.part_program import PartProgram, Step
from tandem.distributed.cluster.parts import ReadPart, queue_spec
from tandem.distributed.cluster.peers import Peer
from tandem.distributed.cluster.rendezvous import Rendezvous
from tandem.distributed.cluster.rpc import Server
from tandem.errors import CancelledError, TandemError, TaskError, ValueRangeError
from tandem.session import queues
from tandem.session.graph import outside_graphs

MAX_PROGRAMS = 256
_ANSWERS = 16  # of steps that are over, for who asks again; what is larger than this is not kept:
_SMALL = 1 << 16  # bytes

extensions: list = []  # of other subjects: functions of a task that give further calls, by name
_EXTENDED_BY = ("tandem.distributed.servers.service",)  # which build on this module
local: dict[str, Task] = {}  # address -> task of this process, to which tensors need no way


class Task:
    """name: "/job:worker/task:3". address: where it listens, "unix:path" or "tcp:host:port"."""

    def __init__(self, name: str, address: str, key: bytes = b""):
        self.name = name
        self.incarnation = secrets.randbits(48)
        self.lock = _runtime.RunLock()  # variables: many steps that read, or one that writes
        self.cells: dict[str, _runtime.VariableCell] = {}
        self.queues: dict[str, queues.Queue] = {}
        self.programs: OrderedDict[str, PartProgram] = OrderedDict()  # least recently used first
        self.rendezvous = Rendezvous()
        self.peers: dict[str, Peer] = {}
        self.cluster: dict[str, str] = {}  # task -> address, where they were known from the start
        self.counts = {"steps": 0, "registered": 0, "messages": 0, "bytes_sent": 0}
        self._key = key
        self._steps: dict[str, Step] = {}
        self._answers: OrderedDict[str, tuple] = OrderedDict()
        self._mutex = threading.Lock()  # guards all tables above
        self._registering = threading.Lock()
        self._controllers: dict = {}
        self.closed = threading.Event()
        self.on_close: list = []  # functions
        self.calls = {
            "ping": self._ping,
            "attach": self._attach,
            "register": self._register,
            "run": self._run,
            "values": self._values,
            "load": self._load,
            "describe": self._describe,
            "reset": self._reset,
            "shutdown": self._shutdown,
        }
        self.notices = {"message": self._message, "abort": self._abort}
        for module in _EXTENDED_BY:
            importlib.import_module(module)
        for extend in extensions:
            self.calls.update(extend(self))
        self.server = Server(self, address, key)
        self.address = self.server.address
        local[self.address] = self

    def __repr__(self):
        return f"<task {self.name}: {len(self.cells)} variables, {len(self.programs)} programs>"

    def close(self):
        with self._mutex:
            if self.closed.is_set():
                return
            self.closed.set()
            if local.get(self.address) is self:  # a task that was started again has the same address
                del local[self.address]
        for function in self.on_close:
            function()
        self.server.close()
        with self._mutex:
            steps = list(self._steps.values())
        for step in steps:
            step.abort(self._gone())
        for queue in list(self.queues.values()):
            queue._queue.close(True)
        for peer in self.peers.values():
            peer.close()

    def _gone(self, what: str = "closed") -> TaskError:
        error = TaskError("run", f"{self.name} is gone: it was {what} while the step was under way")
        error.task = self.name
        return error

    # -- calls: (connection, arguments, tensors) -> (value, tensors)

    def _ping(self, connection, arguments, tensors):
        return self.incarnation, ()

    def _attach(self, connection, arguments, tensors):
        """A controller, with the addresses of all tasks. When this connection breaks its steps are over."""
        controller, addresses = arguments
        with self._mutex:
            self._controllers[connection] = controller
            for name, address in addresses.items():
                peer = self.peers.get(name)
                if peer is None or peer.address != address:
                    self.peers[name] = Peer(name, address, self._key)
        return {"incarnation": self.incarnation, "name": self.name}, ()

    def left(self, connection):
        with self._mutex:
            controller = self._controllers.pop(connection, None)
            if controller is None or controller in self._controllers.values():  # it has attached again since
                return
            steps = [s for name, s in self._steps.items() if name.startswith(controller)]
        # Connections break too when it is this task that ends: who still hears of it must not blame another.
        gone = (
            self._gone if self.closed.is_set() else lambda: CancelledError("run", "the controller of this step is gone")
        )
        for step in steps:
            step.abort(gone())
        self.rendezvous.end_all(controller)

    def _register(self, connection, arguments, tensors):
        name, text = arguments
        with self._registering:
            if name not in self.programs:
                with outside_graphs():
                    part = ReadPart(text, self.queue)
                    for spec, queue in part.queues:
                        self._check_queue(spec, queue)
                    program = PartProgram(self, part)
                with self._mutex:
                    self.programs[name] = program
                    while len(self.programs) > MAX_PROGRAMS:
                        self.programs.popitem(last=False)
                    self.counts["registered"] += 1
        return self.incarnation, ()

    def _run(self, connection, arguments, tensors):
        return self.run(*arguments, tensors)

    def run(self, number: str, name: str, incarnation: int, seed: int, tensors) -> tuple:
        """A step of a program, with what is fed. Gives None for the value if the program is not here."""
        if incarnation != self.incarnation:
            raise self._gone("started again")
        with self._mutex:
            done = self._answers.get(number)
            running = self._steps.get(number)
            program = self.programs.get(name)
            if done is None and running is None:
                if program is None:
                    return None, ()
                self.programs.move_to_end(name)
                messages = self.rendezvous.step(number)
                if messages is None:
                    raise CancelledError("run", "the step was aborted")
                running = self._steps[number] = Step(self, number, messages)
                mine = True
            else:
                mine = False
        if not mine:
            if done is None:
                running.over.wait()
                done = self._answers.get(number, (TaskError("run", "the answer of the step was not kept"), ()))
            if isinstance(done[0], BaseException):
                raise done[0]
            return done
        try:
            with outside_graphs():
                answer = True, program.run(running, tensors, seed)
        except BaseException as error:
            answer = self._located(running, error), ()
        with self._mutex:
            self.counts["steps"] += 1
            del self._steps[number]
            if sum(t.numel() * t.dtype.itemsize for t in answer[1]) <= _SMALL:
                self._answers[number] = answer
            while len(self._answers) > _ANSWERS:
                self._answers.popitem(last=False)
        self.rendezvous.end(number)
        running.over.set()
        if isinstance(answer[0], BaseException):
            raise answer[0]
        return answer

    def _located(self, step: Step, error: BaseException) -> BaseException:
        if step.reason is not None and isinstance(error, CancelledError):
            return step.reason
        if isinstance(error, TandemError):
            error.add_note(f"  on {self.name}")
        return error

    def _values(self, connection, arguments, tensors):
        """Values of variables, all from between the same two writes; names of those that have none."""
        (names,) = arguments
        self.lock.acquire_read()
        try:
            found = [self.cell(n).tensor for n in names]
            return [t is not None for t in found], [t.clone() for t in found if t is not None]
        finally:
            self.lock.release_read()

    def _load(self, connection, arguments, tensors):
        names, only_new = arguments
        self.lock.acquire_write()
        try:
            for name, value in zip(names, tensors, strict=True):
                cell = self.cell(name)
                if not only_new or cell.tensor is None:
                    cell.tensor = value.clone()
        finally:
            self.lock.release_write()
        return None, ()

    def _describe(self, connection, arguments, tensors):
        with self._mutex:
            variables = {
                n: [c.tensor.dtype.name, list(c.tensor.shape)] for n, c in self.cells.items() if c.tensor is not None
            }
            return {
                "name": self.name, "incarnation": self.incarnation, "variables": variables, "queues": list(self.queues),
                "programs": list(self.programs), "steps": len(self._steps), "waiting": self.rendezvous.waiting,
                "counts": dict(self.counts), "cluster": self.cluster,
            }, ()  # fmt: skip

    def _reset(self, connection, arguments, tensors):
        """Lets go of variables and queues."""
        self.lock.acquire_write()
        try:
            for cell in self.cells.values():
                cell.tensor = None
        finally:
            self.lock.release_write()
        with self._mutex:
            old, self.queues = list(self.queues.values()), {}
            self.programs.clear()
        for queue in old:
            queue._queue.close(True)
        return None, ()

    def _shutdown(self, connection, arguments, tensors):
        threading.Timer(0.01, self.close).start()
        return None, ()

    # -- notices

    def _message(self, arguments, tensors):
        step, edge, iteration, dead = arguments
        self.rendezvous.put(step, (edge, iteration), None if dead else tensors)

    def _abort(self, arguments, tensors):
        number, reason = arguments
        error = restored(reason)
        with self._mutex:
            step = self._steps.get(number)
        if step is None:
            self.rendezvous.end(number)
        else:
            step.abort(error)

    # -- state

    def cell(self, name: str) -> _runtime.VariableCell:
        found = self.cells.get(name)
        return self.cells.setdefault(name, _runtime.VariableCell()) if found is None else found

    def queue(self, spec: dict) -> queues.Queue:
        """The queue of this name, made if it is not there."""
        with self._mutex:
            found = self.queues.get(spec["name"])
            if found is None:
                found = self.queues[spec["name"]] = _make_queue(spec)
            return found

    def _check_queue(self, spec: dict, found: queues.Queue):
        there = queue_spec(found)
        different = next((k for k in spec if k != "seed" and spec[k] != there[k]), None)
        if different is not None:
            raise ValueRangeError(
                "run",
                f"queue {spec['name']!r} has {different}={spec[different]!r} here, and on {self.name} there is another of its "
                f"name, with {there[different]!r}",
                fix="queues of a cluster are shared by name: give them different names, or cluster.reset()",
            )

    def deliver(self, step: str, destination: str, edge: int, iteration: int, tensors):
        peer = self.peers[destination]
        self.counts["messages"] += 1
        if tensors is not None:
            self.counts["bytes_sent"] += sum(t.numel() * t.dtype.itemsize for t in tensors)
        here = local.get(peer.address)
        if here is not None:
            here.rendezvous.put(step, (edge, iteration), tensors)
        else:
            peer.notify("message", step, edge, iteration, tensors is None, tensors=tensors or ())


def _make_queue(spec: dict) -> queues.Queue:
    kinds = {
        k.__name__: k
        for k in (queues.FIFOQueue, queues.PaddingFIFOQueue, queues.RandomShuffleQueue, queues.PriorityQueue)
    }
    made = kinds[spec["kind"]].__new__(kinds[spec["kind"]])
    shapes = [None if s is None else tuple(s) for s in spec["shapes"]]
    queues.Queue.__init__(
        made, spec["capacity"], spec["dtypes"], shapes, None, spec["name"], spec["least"], spec["seed"]
    )
    return made
