"""What one server has: pieces of parameters, their optimiser, and gradients that have come.

Note [Steps of servers]
The version of a server is the number of updates that it has made. Gradients carry (worker, step, version that they were computed
with), and count once: what a worker has pushed for a step, or a later one, is not taken again.

    sync      gradients for step k wait until all workers have pushed theirs. Their mean, summed in the order of workers whoever
              was first, is applied, and the version becomes k + 1. A pull for step k waits for version k.
    backup    the same with the first `needed` workers. What comes for a step that is over is dropped, never applied; its worker
              goes on with the present step.
    async     every push is applied when it comes. Its staleness is the number of updates since the pull that it belongs to.
    bounded   the same, but a push that is staler than `staleness` is refused: its worker pulls and recomputes.

A generation is the life of a server between restores. What belongs to an earlier one is dropped, so that after a restore all
workers go back to the version that was restored. Parts of one server are restored one after the other: who knows a later generation
than a part, from another part, waits until this one is restored, too.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.checkpoint.background import save_async
from tandem.checkpoint.reader import load
from tandem.distributed.cluster.errors import described, restored
from tandem.distributed.cluster.wire import Published
from tandem.distributed.servers.recipe import restore
from tandem.errors import DeadlineError, ShapeError, ValueRangeError
from tandem.nn.parameter import Parameter
from tandem.sparse.tensor import sparse_coo_tensor

DENSE, ROWS, NONE = "dense", "rows", "none"
_KEPT = 3  # snapshots


class Shard:
    """spec: JSON; see client.py."""

    def __init__(self, spec: dict, tensors: list):
        self.spec = spec
        self.parameters = [Parameter(t.clone()) for t in tensors]
        by_group: list[list] = [[] for _ in spec["optimizer"]["groups"]]
        for p, group in zip(self.parameters, spec["groups"], strict=True):
            by_group[group].append(p)
        self.optimizer = restore(spec["optimizer"], by_group) if self.parameters else None
        self.by_group = by_group
        self.used = [g for g, params in enumerate(by_group) if params]
        self.version = 0
        self.generation = 0
        self.last: dict[str, int] = {}  # worker -> the last step that it pushed
        self.pending: dict[int, dict[str, list]] = {}  # step -> worker -> gradients
        self.counts = {"applied": 0, "dropped": 0, "refused": 0, "repeated": 0, "staleness": 0, "stalest": 0}
        self.changed = threading.Condition(threading.RLock())  # guards all of it
        self.closed = False
        self.failure: BaseException | None = None  # of the update that makes the next version
        self.saving = None
        self.published: tuple[int, int, list] | None = None
        if spec.get("snapshots"):
            os.makedirs(spec["snapshots"], exist_ok=True)

    @property
    def waits(self) -> bool:
        return self.spec["mode"] in ("sync", "backup")

    def check(self, name: str, spec: dict, tensors: list):
        """Whether another worker means the same: it came later, and asks for a server of this name."""
        self._check_values(name, tensors)
        mine, theirs = _meant(self.spec), _meant(spec)
        different = [k for k in mine if mine[k] != theirs[k]]
        if different:
            k = different[0]
            raise ValueRangeError(
                "ParameterServer", f"the servers {name!r} were made with {k}={mine[k]!r}, and this worker has {theirs[k]!r}",
                fix="all workers make the same ParameterServer; another one has a name= of its own, or comes after close()",
            )  # fmt: skip

    def _check_values(self, name: str, tensors: list):
        check_same("ParameterServer", f"the servers {name!r}", self.parameters, tensors)

    # -- pulls

    def pull(self, step: int, generation: int, timeout: float) -> tuple[dict, list]:
        """Parameters, once the version is `step`, or at once if the generation is a later one than the caller knows of. None for
        the state if the server ends."""
        end = time.monotonic() + timeout
        with self.changed:
            while self.waits and (self.generation, self.version) < (generation, step):
                if self.closed:
                    return None, []
                if self.failure is not None:
                    raise restored(described(self.failure))
                left = end - time.monotonic()
                if left <= 0:
                    raise self._late(step, timeout)
                self.changed.wait(min(left, 1.0))
            return {"version": self.version, "generation": self.generation}, self._values()

    def _values(self) -> list:
        """Copies of the parameters, one set a version."""
        if self.published is None or self.published[:2] != (self.generation, self.version):
            self.published = (self.generation, self.version, [Published(p.detach()) for p in self.parameters])
        return self.published[2]

    def _late(self, step: int, timeout: float) -> DeadlineError:
        there = self.pending.get(self.version, {})
        missing = [str(w) for w in range(self.spec["workers"]) if str(w) not in there]
        return DeadlineError(
            "pull", f"step {step - 1} is not over after {timeout:g} s: no gradients of worker {', '.join(missing)}",
            fix="start those workers again, or take mode='backup'",
        )  # fmt: skip

    # -- pushes

    def push(
        self, workers: list, step: int, version: int, generation: int, kinds: list, tensors: list, settings=None
    ) -> dict:
        """Gradients of a worker, or of several whose gradients are stacked. Gives what became of them, and the version."""
        every = self._separate(len(workers), kinds, tensors)
        with self.changed:
            while self.waits and self.generation < generation and not self.closed:
                self.changed.wait(1.0)
            if self.closed:
                return None
            stale = self.version - version
            for worker, gradients in zip(workers, every, strict=True):
                what = self._reason_against(worker, step, version, generation)
                if what is None:
                    self._set(settings)  # of a push that counts: one that comes late brings those of the past
                    what = self._take(worker, step, version, gradients)
                if what in self.counts:
                    self.counts[what] += 1
            return {"what": what, "version": self.version, "generation": self.generation, "stale": stale}

    def _separate(self, count: int, kinds: list, tensors: list) -> list[list]:
        if count == 1:
            return [self._gradients(kinds, tensors)]
        return [self._gradients(kinds, [t[k] for t in tensors]) for k in range(count)]

    def _set(self, settings):
        """Learning rates and the like, as the worker has them."""
        if settings is not None and self.optimizer is not None:
            for position, group in zip(self.used, self.optimizer.param_groups, strict=True):
                group.update(settings[position])

    def _reason_against(self, worker: str, step: int, version: int, generation: int) -> str | None:
        """Why a push does not count, if it does not."""
        if generation != self.generation:
            return "dropped"
        if step <= self.last.get(worker, -1) or worker in self.pending.get(step, ()):
            return "repeated"
        if not self.waits:
            bounded = self.spec["mode"] == "bounded"
            return "refused" if bounded and self.version - version > self.spec["staleness"] else None
        if step < self.version:
            self.last[worker] = step
            return "dropped"
        return None

    def _take(self, worker: str, step: int, version: int, gradients: list) -> str:
        if not self.waits:
            stale = self.version - version
            self.last[worker] = step
            self._apply([gradients])
            self.counts["staleness"] += stale
            self.counts["stalest"] = max(self.counts["stalest"], stale)
            return "applied"
        self.pending.setdefault(step, {})[worker] = gradients
        if step == self.version and len(self.pending[step]) >= self.spec["needed"]:
            chosen = self.pending.pop(step)
            for w in chosen:
                self.last[w] = max(step, self.last.get(w, -1))
            self._apply([chosen[w] for w in sorted(chosen, key=int)])
            self.counts["applied"] += len(chosen)
            return "taken"
        return "waiting"

    def _gradients(self, kinds: list, tensors: list) -> list:
        """What came, as (kind, tensor...) for each piece."""
        left, found = iter(tensors), []
        for kind, p in zip(kinds, self.parameters, strict=True):
            if kind == NONE:
                found.append(None)
            elif kind == DENSE:
                g = next(left)
                if tuple(g.shape) != tuple(p.shape):
                    raise ShapeError("push", f"a gradient is {tuple(g.shape)} for a parameter of {tuple(p.shape)}")
                found.append((g,))
            else:
                found.append((next(left), next(left)))
        return found

    def _apply(self, every: list[list]):
        """One update by the mean, or the sum, of some workers' gradients."""
        count = len(every) if self.spec["average"] else 1
        try:
            with no_grad():
                for i, p in enumerate(self.parameters):
                    p.grad = _mean([g[i] for g in every if g[i] is not None], count, p)
                if self.optimizer is not None:
                    self.optimizer.step()
        except BaseException as error:
            self.failure = error  # for all who wait for this update
            self.changed.notify_all()
            raise
        finally:
            for p in self.parameters:
                p.grad = None
        self.failure = None
        self.version += 1
        self.pending = {k: v for k, v in self.pending.items() if k >= self.version}
        self.changed.notify_all()
        every_n = self.spec.get("every")
        if every_n and self.version % every_n == 0:
            self.snapshot()

    # -- snapshots

    def _path(self, version: int) -> str:
        return os.path.join(self.spec["snapshots"], f"{version:012d}.safetensors")

    def state(self) -> dict:
        return {
            "version": self.version, "last": dict(self.last), "parameters": [p.detach() for p in self.parameters],
            "optimizer": self.optimizer.state_dict() if self.optimizer is not None else {},
        }  # fmt: skip

    def snapshot(self):
        """Begins to write what there is, between two steps. Copies are made now; the file is written while work goes on."""
        if self.saving is not None:
            self.saving.wait()
        path = self._path(self.version)
        self.saving = save_async(self.state(), path, durable=False)
        for old in self.snapshots()[:-_KEPT]:
            with contextlib.suppress(OSError):
                os.unlink(self._path(old))

    def begin_snapshots(self, resume: bool):
        """Writes the first one, so that there is always something to go back to. Those of an earlier program go, or stay."""
        if resume and self.snapshots():
            return
        for old in self.snapshots():
            os.unlink(self._path(old))
        self.snapshot()
        self.flush()

    def flush(self):
        with self.changed:
            if self.saving is not None:
                self.saving.wait()
                self.saving = None

    def snapshots(self) -> list[int]:
        """Versions that are on disk, whole."""
        folder = self.spec.get("snapshots")
        names = os.listdir(folder) if folder and os.path.isdir(folder) else []
        return sorted(
            int(n.removesuffix(".safetensors")) for n in names if n[0].isdigit() and n.endswith(".safetensors")
        )

    def restore(self, version: int, generation: int):
        """Goes back to a snapshot. Who waits is woken, and sees the older version."""
        with self.changed:
            if self.saving is not None:
                with contextlib.suppress(Exception):
                    self.saving.wait()
                self.saving = None
            if generation <= self.generation and self.version == version:
                return
            found = self._read(version)
            check_same("restore", self._path(version), self.parameters, found["parameters"])
            with no_grad():
                for p, t in zip(self.parameters, found["parameters"], strict=True):
                    p.copy_(t)
            if self.optimizer is not None:
                self.optimizer.load_state_dict(found["optimizer"])
            self.version, self.generation = found["version"], generation
            self.last = {str(k): v for k, v in found["last"].items()}
            self.pending.clear()
            self.failure = None
            self.changed.notify_all()

    def _read(self, version: int) -> dict:
        return load(self._path(version))

    def describe(self) -> dict:
        with self.changed:
            size = sum(p.numel() * p.dtype.itemsize for p in self.parameters)
            pushed = max(1, self.counts["applied"])
            return {
                "version": self.version, "generation": self.generation, "bytes": size, "counts": dict(self.counts),
                "staleness": self.counts["staleness"] / pushed, "snapshots": self.snapshots(), "last": dict(self.last),
            }  # fmt: skip

    def close(self):
        with self.changed:
            self.closed = True
            self.changed.notify_all()


_SHARED = ("mode", "workers", "needed", "staleness", "average", "width", "rows", "seed", "scale", "limit")


def _meant(spec: dict) -> dict:
    """What workers of the same servers agree on. Learning rates may differ: they go along with pushes."""
    return {k: spec.get(k) for k in _SHARED} | {"optimizer": spec["optimizer"].get("name")}


def check_same(op: str, where: str, parameters: list, tensors: list):
    """Refuses values that are of other parameters."""
    mine, theirs = ([(tuple(t.shape), t.dtype.name) for t in ts] for ts in (parameters, tensors))
    if mine != theirs:
        show = lambda ts: ", ".join(f"{shape} {dtype}" for shape, dtype in ts) or "none"
        raise ShapeError(
            op, f"{where} have other parameters than this module: {show(mine)}, and here {show(theirs)}",
            fix="give each module a name= and a folder of its own, or close() the ParameterServer that was before",
        )  # fmt: skip


def _mean(gradients: list[tuple], count: int, p):
    """None, a dense gradient, or a sparse one if all are."""
    if not gradients:
        return None
    scale = 1.0 / count
    if all(len(g) == 2 for g in gradients):
        gradients = [g for g in gradients if g[0].numel()]
        if not gradients:
            return None
        rows = F.concat([g[0] for g in gradients]) if len(gradients) > 1 else gradients[0][0]
        values = F.concat([g[1] for g in gradients]) if len(gradients) > 1 else gradients[0][1]
        values = values if count == 1 else values * scale
        return sparse_coo_tensor(F.reshape(rows, (1, -1)), values, tuple(p.shape)).coalesce()
    total = None
    for g in gradients:
        dense = g[0] if len(g) == 1 else sparse_coo_tensor(F.reshape(g[0], (1, -1)), g[1], tuple(p.shape)).to_dense()
        total = dense if total is None else total + dense
    return total if count == 1 else total * scale
