"""Sessions on a cluster: `td.Session(graph, target=cluster)`.

Note [Own part]
A task may be in the process that begins a step: that of a classic program's Server, or one of threads. Its part of the step is then
run by the calling thread, between the calls of other tasks and their answers, and no message is needed for it. Should another task
fail meanwhile, somebody must tell the own part: the lookout does, which takes answers from time to time while own parts run. Runs
with a time-out do without.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from tandem import dtypes
from tandem.distributed.cluster.cut import Cut
from tandem.distributed.cluster.errors import described
from tandem.distributed.cluster.peers import Gathering, gather, lookout
from tandem.distributed.cluster.place import Placement
from tandem.distributed.cluster.task import local
from tandem.errors import CancelledError, DTypeError, TaskError, ValueRangeError
from tandem.session.graph import outside_graphs
from tandem.session.program import is_variable
from tandem.session.session import Session
from tandem.tensors.constructors import tensor


class ClusterProgram:
    """What fetches and feeds compile to: a part for each task, registered there once."""

    compiled = None  # its tasks have programs

    def __init__(self, session: ClusterSession, fetches: list, fed: list):
        self.cut = Cut(
            session.graph, fetches, fed, session.cluster.spec, session.cluster.default_task, session.soft_placement,
            session.placer,
        )  # fmt: skip
        self.missing = self.cut.missing
        if self.missing is None:
            session.places.update({v: self.cut.place[v.node] for v in self.cut.variables})
        self.reports: list = []  # programs are compiled by tasks
        self._held = [] if self.missing else [(v.node.op.tensor, v.node.op.tensor._version) for v in self.cut.held]

    def is_stale(self) -> bool:
        """Whether a tensor that the graph holds has been written since."""
        return any(t._version != version for t, version in self._held)

    def execute(self, session: ClusterSession, fed: list, timeout: float | None = None) -> list:
        cut, cluster = self.cut, session.cluster
        cluster.check(cut.parts)
        session.bring_shared(cut.variables, cut)
        given = [*fed, *session.held(cut.seeds)]
        seed = 0
        if cut.draws.start:
            given += session.draw(cut.draws.advance)
        elif cut.draws.any:
            seed = session.next_seed()
        for task, part in cut.parts.items():
            if not cluster.knows(task, part.hash):
                cluster.register(task, part)
        step = Step(cluster, cut, given, seed)
        session.begin(step)
        try:
            answers = step.run(None if timeout is None else time.monotonic() + timeout)
        except TaskError as error:
            cluster.suspect(error.task)
            raise
        finally:
            session.end(step)
        results = dict(zip(cut.parts, (tensors for _, tensors in answers), strict=True))
        return [results[task][k] for task, k in cut.results]


class Step:
    """A step under way, as the controller sees it."""

    def __init__(self, cluster, cut: Cut, given: list, seed: int):
        self.cluster, self.cut, self.given, self.seed = cluster, cut, given, seed
        self.parts = list(cut.parts.items())
        self.number = f"{cluster.id}:{next(cluster.steps)}"

    def run(self, deadline: float | None) -> list[tuple]:
        """What each task answers."""
        own = self._own() if deadline is None else None
        calls = []
        try:
            for k in range(len(self.parts)):
                if k != own:
                    calls.append(self._begin(k))
        except BaseException as error:
            for call in calls:
                call.forget()
            self.abort(error)
            raise
        if own is None:
            return gather(calls, self.abort, deadline, self._again)
        others = Gathering(calls, self.abort, lambda k: self._again(k + (k >= own)))
        if calls:
            lookout.begin(others)
        try:
            answer = self._run_own(own)
        except BaseException as error:
            with others.lock:
                others.fail(error)
        finally:
            if calls:
                lookout.end(others)
        answers = others.finish()
        return [*answers[:own], answer, *answers[own:]]

    def _own(self) -> int | None:
        """Which part this thread may run itself: that of a task of this process."""
        if not local:
            return None
        here = [k for k, (task, _) in enumerate(self.parts) if self.cluster.peer(task).address in local]
        return here[-1] if here else None

    def _run_own(self, k: int) -> tuple:
        task, part = self.parts[k]
        cluster = self.cluster
        found = local.get(cluster.peer(task).address)
        if found is None:
            raise cluster.peer(task).lost("it was closed")
        tensors = [self.given[i].clone() for i in self.cut.feeds[task]]  # as a message would
        order = self.number, part.hash, cluster.incarnations[task], self.seed
        try:
            value, results = found.run(*order, tensors)
            if value is None:
                cluster.register(task, part)
                value, results = found.run(*order, tensors)
        except CancelledError:
            if found.closed.is_set():
                raise cluster.peer(task).lost("it was closed") from None
            raise
        return value, [t.clone() for t in results]

    def abort(self, error: BaseException):
        """Ends it at all tasks."""
        reason = described(error)
        for task, _ in self.parts:
            self.cluster.tell(task, "abort", self.number, reason)

    def _begin(self, k: int):
        task, part = self.parts[k]
        cluster = self.cluster
        tensors = [self.given[i] for i in self.cut.feeds[task]]
        return cluster.peer(task).begin(
            "run", self.number, part.hash, cluster.incarnations[task], self.seed, tensors=tensors
        )

    def _again(self, k: int):
        """The task has let go of the program, as of all that were not used for long."""
        self.cluster.register(*self.parts[k])
        return self._begin(k)


class ClusterSession(Session):
    """A session whose nodes run on the tasks of a cluster. Variables belong to their tasks, which all sessions of the cluster share
    by name."""

    def __init__(
        self, graph=None, regions="native", memory_budget=None, soft_placement=False, target=None, placer=None
    ):
        super().__init__(graph, regions, memory_budget, soft_placement)
        self.cluster = target
        self.placer = placer
        self.places: dict = {}  # variable -> its task, as runs have found it
        self._shared: set = set()
        self._steps: set = set()  # under way

    def draw(self, count: int) -> list:
        """Seed and offset of the random numbers of a run that draws so many blocks of them."""
        generator = self.generator()
        with self._mutex:
            seed, offset = generator.get_state()
            generator.set_state((seed, offset + count))
        return [tensor(n - 2**64 if n >= 2**63 else n, dtype=dtypes.int64) for n in (seed, offset)]

    def begin(self, step: Step):
        with self._mutex:
            self._check_open()
            self._steps.add(step)

    def end(self, step: Step):
        with self._mutex:
            self._steps.discard(step)

    def __repr__(self):
        return f"<Session of a graph of {len(self.graph.nodes)} nodes on {self.cluster!r}>"

    def _make_program(self, wanted: list, fed: list):
        return ClusterProgram(self, wanted, fed)

    def _program(self, wanted: list, fed: list):
        program = super()._program(wanted, fed)
        if program.is_stale():
            with self._mutex:
                self._programs.pop((tuple(map(id, wanted)), tuple(map(id, fed))), None)
            program = super()._program(wanted, fed)
        return program

    def _execute_within(self, timeout: float, program, fed: list) -> list:
        return program.execute(self, fed, timeout)

    def close(self):
        """Lets go of programs, and ends steps that are under way with an error. Variables stay on their tasks."""
        with self._mutex:
            self._closed = True
            self._programs.clear()
            steps = list(self._steps)
        for step in steps:
            step.abort(CancelledError("run", "the session was closed while this ran"))

    def task_of(self, variable) -> str:
        """Where a variable is."""
        found = self.places.get(variable)
        if found is None:
            cluster = self.cluster
            place = Placement([variable.node], cluster.spec, cluster.default_task, self.soft_placement, self.placer)
            found = self.places[variable] = place[variable.node]
        return found

    def explain(self, fetches=None, feeds=()) -> str:
        """Which part of a run each task has: nodes, and what it sends where. None: of all runs so far."""
        if fetches is None:
            with self._mutex:
                programs = list(self._programs.values())
        else:
            wanted: list = []
            self._flatten(fetches, wanted)
            programs = [self._program(wanted, [self._feedable(k) for k in feeds])]
        return "\n".join(program.cut.explain() for program in programs if program.missing is None)

    def bring_shared(self, variables, cut: Cut):
        """Parameters of eager code begin with the value that they have here, when a run first meets them."""
        new = [v for v in variables if v.shared is not None and v not in self._shared]
        for v in new:
            self.cluster.peer(cut.place[v.node]).call("load", [v.node.name], True, tensors=[v.shared.detach()])
            self._shared.add(v)

    # -- variables from outside

    def values_of(self, variables) -> list:
        """Copies of the values of variables; of those of one task, all from between the same two writes."""
        variables = list(variables)
        tasks: OrderedDict[str, list] = OrderedDict()
        for v in variables:
            tasks.setdefault(self.task_of(v), []).append(v)
        calls = [self.cluster.peer(t).begin("values", [v.node.name for v in vs]) for t, vs in tasks.items()]
        found = {}
        for vs, (there, tensors) in zip(tasks.values(), gather(calls), strict=True):
            values = iter(tensors)
            for v, is_there in zip(vs, there, strict=True):
                if not is_there:
                    raise ValueRangeError("value_of", f"variable {v.name!r} has no value on {self.task_of(v)}")
                found[v] = next(values)
        return [found[v] for v in variables]

    def load_all(self, values: dict):
        for variable in values:
            if not is_variable(variable):
                raise DTypeError("load", f"{variable!r} is no variable")
        tasks: dict[str, list] = {}
        with outside_graphs():
            for v, x in values.items():
                tasks.setdefault(self.task_of(v), []).append((v.node.name, self._feed(v, x)))
        gather([
            self.cluster.peer(t).begin("load", [n for n, _ in pairs], False, tensors=[x for _, x in pairs])
            for t, pairs in tasks.items()
        ])  # fmt: skip
