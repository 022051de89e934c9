"""ParameterServer: what a worker uses to train a module whose parameters are on servers."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence

import tandem.ops as F
from tandem import dtypes
from tandem.autograd.modes import no_grad
from tandem.distributed.cluster.cluster import Cluster
from tandem.distributed.cluster.errors import at_caller
from tandem.distributed.servers.embedding import ShardedEmbedding
from tandem.distributed.servers.pieces import Piece, divide
from tandem.distributed.servers.recipe import describe, is_elementwise, settings_of
from tandem.distributed.servers.recovery import Watch, has_snapshots, recover
from tandem.distributed.servers.shard import DENSE, NONE, ROWS
from tandem.distributed.servers.staging import Staged, Staging
from tandem.errors import DeadlineError, TaskError, UnsupportedError, ValueRangeError
from tandem.nn.module import Module
from tandem.optim.optimizer import Optimizer

MODES = ("sync", "backup", "async", "bounded")


@dataclasses.dataclass(frozen=True)
class StepReport:
    """What became of a push.

    applied: whether all servers took it, or wait for other workers'; dropped: too late; refused: too stale
    repeated: had come before
    staleness: updates between its pull and its push, the most of all servers
    """

    applied: bool
    dropped: bool
    refused: bool
    repeated: bool
    staleness: int
    version: int


class ParameterServer:
    """Parameters of a module on servers, which many workers train.

    model: parameters that require gradients are kept by the servers; ShardedEmbedding modules in it, too
    optimizer: any of td.optim, made with the module's parameters. Its updates run on the servers. None for a module of tables alone
    mode: "sync" (all workers of a step), "backup" (the first `needed` of them; late gradients are dropped), "async", or "bounded"
    (asynchronous; gradients older than `staleness` updates are refused)
    cluster: a td.distributed.Cluster; servers: its tasks that hold parameters, job "ps" unless given
    worker, workers: the number of this worker, or those of several that this program computes for (`collect`), and how many there
    are. All make the same ParameterServer; the first one's values count
    snapshots: a folder that servers write to every `every` updates, each file from between two updates; needed for `watch`
    resume: whether to go on from the snapshots of an earlier program, if there are any
    average: whether gradients of several workers are averaged, or summed
    overlap: of parameters on a device, whether copies of gradients and values run while it computes (Note [Staging] in staging.py)
    timeout: seconds that a worker waits for the others, or for a server to come back

    >>> model = td.nn.Linear(2, 1)
    >>> cluster = td.distributed.Cluster({"ps": 2}, engine="threads")
    >>> server = td.distributed.ParameterServer(model, td.optim.SGD(model.parameters(), lr=0.1), mode="async", cluster=cluster)
    >>> model(td.ones(4, 2)).sum().backward()
    >>> server.step().version
    1
    >>> cluster.close()
    """

    def __init__(
        self, model: Module, optimizer: Optimizer | None = None, mode: str = "sync", *, cluster: Cluster,
        servers: list[str] | None = None, worker: int | Sequence[int] = 0, workers: int = 1, needed: int | None = None,
        staleness: int | None = None, average: bool = True, snapshots: str | None = None, every: int = 100,
        resume: bool = False, overlap: bool = True, name: str = "parameters", timeout: float = 300.0,
    ):  # fmt: skip
        self.model, self.optimizer, self.mode, self.cluster, self.name = model, optimizer, mode, cluster, name
        self.own = [worker] if isinstance(worker, int) else list(worker)
        _check(mode, self.own, workers, needed, staleness)
        self.worker, self.workers, self.timeout, self.snapshots = self.own[0], workers, timeout, snapshots
        self._collected: dict[int, list] = {}
        jobs = cluster.spec.jobs
        self.servers = list(servers or [t for t in cluster.tasks if t.startswith("/job:ps/") or "ps" not in jobs])
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.tables = [m for m in model.modules() if isinstance(m, ShardedEmbedding)]
        self.staging = Staging(self.parameters, overlap)
        self.version = self.generation = 0
        self.pushed = 0  # steps of this worker
        self.bytes = {"pulled": 0, "pushed": 0}
        self.reports = {"applied": 0, "dropped": 0, "refused": 0, "repeated": 0}
        self._versions = [0] * len(self.servers)
        self._generations = [0] * len(self.servers)
        self._group_of = self._groups()
        self._pieces = self._divided()
        self._sent_settings = None
        joins = any(value is not None for value, _ in self._ask("ps.describe"))  # others have begun
        common = {
            "mode": mode, "workers": workers, "needed": needed if mode == "backup" else workers, "staleness": staleness,
            "average": average, "every": every if snapshots else 0, "first": True, "resume": resume or joins,
        }  # fmt: skip
        self._specs = self._make_specs(common, snapshots)
        for k, table in enumerate(self.tables):
            table.bind(self, f"{name}/table {k}", common, snapshots)
        resumes = resume and has_snapshots(snapshots)
        self.make()
        if resumes:
            self._resume()
        if not self._waits:  # steps are counted by the worker: one that died may have had its number
            self.pushed = 1 + max(self._last_steps(), default=-1)
        self.pull()

    # -- how parameters are divided

    def _groups(self) -> list[int]:
        groups = self.optimizer.param_groups if self.optimizer is not None else ()
        found = {id(p): i for i, g in enumerate(groups) for p in g["params"]}
        missing = [i for i, p in enumerate(self.parameters) if id(p) not in found]
        if missing:
            shape = tuple(self.parameters[missing[0]].shape)
            raise ValueRangeError(
                "ParameterServer", f"the optimiser does not have all parameters of the module: one of shape {shape} is missing",
                fix="make it with model.parameters()",
            )  # fmt: skip
        return [found[id(p)] for p in self.parameters]

    def _divided(self) -> list[list[Piece]]:
        splits = {g: is_elementwise(self.optimizer, self.optimizer.param_groups[g]) for g in set(self._group_of)}
        sizes = [(p.shape[0] if p.ndim else 1, p.numel() * p.dtype.itemsize) for p in self.parameters]
        return divide(sizes, len(self.servers), lambda i: splits[self._group_of[i]])

    def _make_specs(self, common: dict, snapshots: str | None) -> list[dict]:
        recipe = describe(self.optimizer) if self.parameters else {"groups": []}
        return [
            {
                **common, "optimizer": recipe, "groups": [self._group_of[p.parameter] for p in pieces],
                "snapshots": f"{snapshots}/server-{s}" if snapshots else None,
            }
            for s, pieces in enumerate(self._pieces)
        ]  # fmt: skip

    def part(self, piece: Piece, t):
        return t if piece.whole else t[piece.begin : piece.end]

    # -- calls

    def make(self):
        """Has servers make what they do not have yet, from the values that are here."""
        for s, spec in enumerate(self._specs):
            self.call(s, "ps.make", self.name, spec, tensors=self.values(self.name, s))
        for table in self.tables:
            table.make()

    def specs(self) -> dict[str, list[dict]]:
        """What servers are made from, by name."""
        return {self.name: self._specs} | {t.name: t.specs for t in self.tables}

    def values(self, name: str, server: int) -> list:
        """What a server begins with."""
        if name != self.name:
            return []
        return [self.part(p, self.parameters[p.parameter]).detach() for p in self._pieces[server]]

    def call(self, server: int, name: str, *arguments, tensors=()):
        """An answer of a server, waiting for it to come back if it is gone."""
        return self.call_all(name, [(server, arguments, tensors)])[0]

    def _ask(self, name: str) -> list[tuple]:
        return self.call_all(name, [(s, (self.name,), ()) for s in range(len(self.servers))])

    def call_all(self, name: str, calls: list[tuple]) -> list[tuple]:
        """Answers of several servers at once; calls that failed are made again as long as the time lasts."""
        end, answers = time.monotonic() + self.timeout, {}
        pending = list(range(len(calls)))
        while pending:
            begun, failed = [], []
            for k in pending:
                server, arguments, tensors = calls[k]
                try:
                    begun.append((k, self.cluster.peer(self.servers[server]).begin(name, *arguments, tensors=tensors)))
                except TaskError as error:
                    failed.append((k, error))
            for position, (k, call) in enumerate(begun):
                try:
                    answers[k] = call.result()
                    if answers[k][0] is None and name in ("ps.pull", "ps.push", "ps.lookup"):
                        failed.append((k, None))  # it was started again, and has not been given its state yet
                except TaskError as error:
                    failed.append((k, error))
                except BaseException as error:
                    for _, other in begun[position + 1 :]:
                        other.forget()
                    at_caller(error)
                    raise
            pending = [k for k, _ in failed]
            if pending:
                if time.monotonic() > end:
                    task = self.servers[calls[pending[0]][0]]
                    raise DeadlineError(name, f"{task} has not come back within {self.timeout:g} s") from failed[0][1]
                time.sleep(0.02)
        return [answers[k] for k in range(len(calls))]

    # -- steps

    @property
    def _waits(self) -> bool:
        return self.mode in ("sync", "backup")

    def pull(self):
        """Brings the parameters of the servers here: in synchronous modes those of the step that is next."""
        if not self.parameters and not self._waits:  # tables have all there is
            return
        every, wanted, generation = range(len(self.servers)), self.version, self.generation
        while True:
            arguments = (self.name, wanted, generation, self.timeout)
            found = self.call_all("ps.pull", [(s, arguments, ()) for s in every])
            versions = [state["version"] for state, _ in found]
            generations = [state["generation"] for state, _ in found]
            if generations != self._generations:  # a server has the settings of its snapshot
                self._sent_settings = None
            self._generations = generations
            if not self._waits or len({*zip(versions, self._generations, strict=True)}) == 1:
                break
            if len(set(self._generations)) > 1:  # servers are on their way back to a snapshot
                time.sleep(0.005)
            generation = max(self._generations)
            wanted = max(
                v for v, g in zip(versions, self._generations, strict=True) if g == generation
            )  # others go back
        self._versions = versions
        self.version, self.generation = min(versions), max(self._generations)
        for table in self.tables:
            table.follow(self._generations)
        with no_grad():
            for pieces, (_, values) in zip(self._pieces, found, strict=True):
                for piece, value in zip(pieces, values, strict=True):
                    target = self.part(piece, self.parameters[piece.parameter].detach())
                    if target.is_cuda:
                        self.staging.put(target, value)
                    else:
                        target.copy_(value)
                    self.bytes["pulled"] += value.numel() * value.dtype.itemsize

    def push(self) -> StepReport:
        """Sends the gradients of the parameters, and of rows of tables, to the servers."""
        if len(self.own) > 1:
            self._need_all()
        step = self.version if self._waits else self.pushed
        settings = [settings_of(g) for g in self.optimizer.param_groups] if self.parameters else []
        changed = settings if settings != self._sent_settings else None
        calls = []
        self.staging.begin_rest()
        if self.parameters or self._waits:
            for s, pieces in enumerate(self._pieces):
                kinds, tensors, size = self._gradients(pieces) if len(self.own) == 1 else self._stacked(pieces)
                head = (self.name, [str(w) for w in self.own], step, self._versions[s], self._generations[s])
                calls.append((s, (*head, kinds, changed), tensors))
                self.bytes["pushed"] += size
        answers = [value for value, _ in self.call_all("ps.push", calls)]
        for table in self.tables:
            answers += table.push(step)
        self.staging.end_step()
        self._collected.clear()
        self.pushed += 1
        report = self._report(answers)
        self._sent_settings = settings if report.applied else None
        return report

    def collect(self, worker: int):
        """Takes the gradients that are there for those of one of this program's workers, if it computes for several."""
        if worker not in self.own:
            raise ValueRangeError("collect", f"worker {worker} is none of {self.own}")
        self._collected[worker] = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None

    def _need_all(self):
        missing = [w for w in self.own if w not in self._collected]
        if missing:
            raise ValueRangeError(
                "push", f"no gradients of worker {', '.join(map(str, missing))}", fix="server.collect(worker)"
            )
        if self.tables or any(g is None or g._in_parts for gs in self._collected.values() for g in gs):
            raise UnsupportedError(
                "push", "several workers of one program push dense gradients of all parameters alone"
            )

    def _stacked(self, pieces: list[Piece]) -> tuple[list[str], Staged, int]:
        """Gradients of all workers of this program."""
        made = [F.stack([self.part(p, self._collected[w][p.parameter]) for w in self.own]) for p in pieces]
        copies = Staged([functools.partial(self.staging.copied, t) for t in made])
        return [DENSE] * len(pieces), copies, sum(map(_bytes, made))

    def step(self) -> StepReport:
        """Pushes gradients, forgets them, and pulls: one step of this worker."""
        report = self.push()
        for p in self.parameters:
            p.grad = None
        if self._waits:
            self.version = max(self.version + (not report.dropped), report.version if self.mode == "backup" else 0)
        elif not self.parameters:  # tables alone: nothing is pulled
            self.version = max(self.version, report.version)
        self.pull()
        return dataclasses.replace(report, version=self.version)

    def _gradients(self, pieces: list[Piece]) -> tuple[list[str], Staged, int]:
        """What each piece has, the tensors, which are on the host when they are asked for, and their bytes."""
        kinds, makers, size = [], [], 0
        for piece in pieces:
            p = self.parameters[piece.parameter]
            g = p.grad
            if g is None:
                kinds.append(NONE)
            elif g._in_parts and g.is_sparse:
                g = g.coalesce()
                rows, values = F.reshape(g.indices(), (-1,)), g.values()
                if not piece.whole:
                    mine = _positions(rows, piece)
                    rows, values = rows[mine] - piece.begin, values[mine]
                kinds.append(ROWS)
                made = [F.astype(rows, dtypes.int64, copy=False), values]
                makers += [functools.partial(self.staging.copied, t) for t in made]
                size += sum(map(_bytes, made))
            else:
                kinds.append(DENSE)
                makers.append(functools.partial(self.staging.on_host, p, functools.partial(self.part, piece)))
                size += _bytes(self.part(piece, g))
        return kinds, Staged(makers), size

    def _report(self, answers: list[dict]) -> StepReport:
        what = [a["what"] for a in answers]
        applied = all(w in ("applied", "waiting", "taken") for w in what)
        found = {k: k in what for k in ("dropped", "refused", "repeated")}
        self.reports["applied"] += applied
        for k, v in found.items():
            self.reports[k] += v
        stale = max((a["stale"] for a in answers), default=0)
        return StepReport(applied, **found, staleness=stale, version=max((a["version"] for a in answers), default=0))

    def _resume(self):
        """Goes on from what servers wrote before, if they have just been made."""
        end = time.monotonic() + self.timeout
        while True:
            found = [value for value, _ in self._ask("ps.describe")]
            if any(d is None or d["version"] or d["generation"] for d in found):  # somebody brings them back already
                return None
            try:
                return recover(self, list(self.servers))
            except TaskError:  # one dies as they begin
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def watch(self, interval: float = 0.1) -> Watch:
        """Has servers started again that die, from their snapshots (Note [Going back together] in recovery.py)."""
        return Watch(self, interval)

    # -- what servers tell

    def _last_steps(self) -> list[int]:
        """The last step that each server has of this program's workers."""
        every = [(s, (name,), ()) for name in self.names() for s in range(len(self.servers))]
        found = [value["last"] for value, _ in self.call_all("ps.describe", every) if value is not None]
        return [int(last[str(w)]) for last in found for w in self.own if str(w) in last]

    def describe(self) -> dict[str, dict]:
        """For each server: version, bytes, staleness, what became of pushes."""
        found = self._ask("ps.describe")
        return {task: value for task, (value, _) in zip(self.servers, found, strict=True)}

    def snapshot(self):
        """Has all servers write what they have now."""
        for s in range(len(self.servers)):
            self.call(s, "ps.snapshot", self.name)
            for table in self.tables:
                self.call(s, "ps.snapshot", table.name)

    def names(self) -> list[str]:
        return [self.name, *(t.name for t in self.tables)]

    def close(self):
        """Has servers forget the parameters."""
        for name in self.names():
            self.call_all("ps.drop", [(s, (name,), ()) for s in range(len(self.servers))])

    def __repr__(self):
        size = sum(p.numel() * p.dtype.itemsize for p in self.parameters)
        return f"<ParameterServer: {size:,} B on {len(self.servers)} servers, {self.mode}, worker {self.worker} of {self.workers}>"


def _bytes(t) -> int:
    return t.numel() * t.dtype.itemsize


def _positions(rows, piece: Piece):
    """Where rows of a piece stand in a list of rows."""
    return F.nonzero(F.logical_and(rows >= piece.begin, rows < piece.end))[0]


def _check(mode, own, workers, needed, staleness):
    if mode not in MODES:
        raise ValueRangeError("ParameterServer", f"mode={mode!r} must be one of {', '.join(map(repr, MODES))}")
    wrong = next((w for w in own if not 0 <= w < workers), None)
    if wrong is not None or not own:
        raise ValueRangeError("ParameterServer", f"worker={wrong} of {workers} workers")
    if (mode == "backup") != (needed is not None):
        raise ValueRangeError(
            "ParameterServer", f"needed={needed} with mode={mode!r}: it belongs to mode='backup', which needs it"
        )
    if needed is not None and not 1 <= needed <= workers:
        raise ValueRangeError("ParameterServer", f"needed={needed} must lie between 1 and {workers} workers")
    if (mode == "bounded") != (staleness is not None):
        raise ValueRangeError(
            "ParameterServer", f"staleness={staleness} with mode={mode!r}: it belongs to mode='bounded', which needs it"
        )
