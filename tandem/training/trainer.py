"""Trainer: the loop around a training step, for models that do not need one of their own.

    trainer = td.training.Trainer(model, optimizer, nn.CrossEntropyLoss(), folder="runs/digits", metrics={"accuracy": Accuracy()})
    trainer.fit(train_loader, epochs=10, validation=test_loader)

Everything that happens at a step is in `_step`, everything between steps in `fit`: copy them if your model needs something else.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time

from tandem import _runtime, files
from tandem.autograd.modes import no_grad
from tandem.checkpoint import CheckpointManager
from tandem.compiling.compiled import compile
from tandem.errors import DTypeError
from tandem.nn.utils import clip_grad_norm_
from tandem.optim.lr_scheduler import ReduceLROnPlateau
from tandem.training.history import History
from tandem.training.mesh import MeshCheckpoints, OnMesh, whole
from tandem.training.metrics import Mean
from tandem.training.page import GRAPH, graph_part
from tandem.training.progress import Progress


class Callback:
    """What is told of a run's events; every method may be left out."""

    def on_fit_start(self, trainer): ...
    def on_step_end(self, trainer, step: int, loss: float): ...
    def on_epoch_end(self, trainer, epoch: int, values: dict): ...
    def on_fit_end(self, trainer): ...


class EarlyStopping(Callback):
    """Ends a run when `monitor` has not become better by `least` for `patience` epochs."""

    def __init__(self, monitor: str = "validation_loss", patience: int = 3, least: float = 0.0, largest: bool = False):
        self.monitor, self.patience, self.least, self.largest = monitor, patience, least, largest
        self.best, self.since = -math.inf, 0

    def on_epoch_end(self, trainer, epoch, values):
        if self.monitor not in values:
            raise KeyError(f"EarlyStopping looks at {self.monitor!r}; an epoch has {', '.join(values)}")
        value = values[self.monitor] if self.largest else -values[self.monitor]
        if value > self.best + self.least:
            self.best, self.since = value, 0
        else:
            self.since += 1
            if self.since >= self.patience:
                trainer.stop(f"{self.monitor} has not become better for {self.patience} epochs")

    def state_dict(self):
        return {"best": self.best, "since": self.since}

    def load_state_dict(self, state):
        self.best, self.since = state["best"], state["since"]


def _first_tensor(batch):
    while not isinstance(batch, _runtime.Tensor):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return batch


class Trainer:
    """Trains a model.

    loss: loss(outputs, targets) for batches (inputs, targets); or, for any other batch, loss(model, batch) with whole_batch=True
    metrics: {name: Metric} for evaluation      scheduler: stepped after each epoch, or after each step with schedule="step"
    compile: whether steps run as compiled programs      accumulate: batches whose gradients are added up for one step
    clip_norm: largest norm of the gradients      folder: checkpoints, logs and the page of the run go there, and it can be resumed
    forward_scope: a function that gives a context for forward passes, such as lambda: td.autocast("cpu", td.bfloat16)
    mesh: a td.distributed.Mesh. Parameters that are not sharded yet are replicated on it; along its axis "data" each rank's loader
        gives a part of the batch. The result is that of one process with the whole batch
    """

    def __init__(self, model, optimizer, loss, *, metrics: dict | None = None, scheduler=None, schedule: str = "epoch",
                 compile: bool = True, accumulate: int = 1, clip_norm: float | None = None, folder=None, keep: int = 3, logs=(),
                 callbacks=(), progress: bool = True, whole_batch: bool = False, forward_scope=None, mesh=None):  # fmt: skip
        if schedule not in ("epoch", "step"):
            raise ValueError(f"schedule is {schedule!r}; it must be 'epoch' or 'step'")
        if accumulate < 1:
            raise ValueError(f"accumulate is {accumulate}; it must be at least 1")
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.metrics, self.scheduler, self.schedule = dict(metrics or {}), scheduler, schedule
        self.accumulate, self.clip_norm, self.whole_batch = accumulate, clip_norm, whole_batch
        self.forward_scope = forward_scope
        self.folder = None if folder is None else os.fspath(folder)
        self.keep, self.logs, self.callbacks = keep, list(logs), list(callbacks)
        self.progress = progress
        self.mesh = None if mesh is None else OnMesh(mesh, model)
        self.history = History()
        self.step = self.epoch = 0
        self._why_stop: str | None = None
        self._within_epoch = self._graph_written = False
        self._run_step = _compile(self._step) if compile else self._step
        self._run_forward = _compile(self._forward) if compile else self._forward

    def __repr__(self):
        where = f", folder={self.folder!r}" if self.folder else ""
        names = ", ".join(type(part).__name__ for part in (self.model, self.optimizer))
        return f"<Trainer of {names}: epoch {self.epoch}, step {self.step}{where}>"

    # -- one step

    def _forward(self, batch):
        if self.forward_scope is None:
            return self._outputs_and_loss(batch)
        with self.forward_scope():
            return self._outputs_and_loss(batch)

    def _outputs_and_loss(self, batch):
        if self.whole_batch:
            return None, self.loss(self.model, batch)
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            shown = (
                f"{type(batch).__name__} of {len(batch)}"
                if isinstance(batch, (tuple, list, dict))
                else type(batch).__name__
            )
            raise DTypeError(
                "Trainer", f"the loader gives a {shown}; a batch must be a pair (inputs, targets)",
                fix="have the dataset give pairs, or take batches as they are: Trainer(..., loss=lambda model, batch: ..., "
                "whole_batch=True)",
            )  # fmt: skip
        inputs, targets = batch
        outputs = self.model(inputs)
        return outputs, self.loss(outputs, targets)

    def _step(self, batch, update: bool):
        _, loss = self._forward(batch)
        (loss / self.accumulate if self.accumulate > 1 else loss).backward()
        if update:
            if self.clip_norm is not None:
                clip_grad_norm_(self.model.parameters(), self.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()

    # -- the loop

    def fit(self, loader, epochs: int, validation=None, resume: bool = True) -> History:
        """Trains until `epochs` are done in all; goes on from the folder's last checkpoint, if there is one and resume is true."""
        manager = self._manager(loader)
        if manager is not None and resume and manager.latest() is not None:
            manager.restore()
            self.epoch, self.step = manager.extra["epoch"], manager.extra["step"]
        self._why_stop = None
        self.history.stopped, self.history.failed, self.history.ended = None, False, False
        for callback in self.callbacks:
            callback.on_fit_start(self)
        with _Interrupt(self) as interrupt, Progress(self.progress) as progress:
            while self.epoch < epochs and self._why_stop is None:
                done = self._train_epoch(loader, epochs, progress)
                if not done:
                    break
                values = {"train_loss": done.compute(), "lr": self.optimizer.param_groups[0]["lr"]}
                if validation is not None:
                    values |= {f"validation_{k}": v for k, v in self.evaluate(validation).items()}
                self.epoch += 1
                if self.scheduler is not None and self.schedule == "epoch":
                    self._schedule(values)
                self.history.epochs.append({"epoch": self.epoch, **values})
                progress.epoch(self.epoch, epochs, values)
                for log in self.logs:
                    log.write(self.step, values)
                for callback in self.callbacks:
                    callback.on_epoch_end(self, self.epoch, values)
                self._save(manager)
            if interrupt.happened:
                self._save(manager)
        self._tell_stop(epochs)
        self.history.stopped, self.history.ended = self._why_stop, True
        if manager is not None:
            manager.wait()
            self._save_history()
        for callback in self.callbacks:
            callback.on_fit_end(self)
        return self.history

    def _tell_stop(self, epochs: int):
        if self._why_stop is None:
            return
        where = f" in epoch {self.epoch + 1}" if self._within_epoch else f", epoch {self.epoch} of {epochs}"
        hint = (
            f"; run the same again to go on from {self.folder}"
            if self._why_stop == _INTERRUPTED and self.folder
            else ""
        )
        fix = f"\n  fix: {_NOT_FINITE}" if self.history.failed else ""
        print(f"stopped after step {self.step}{where}: {self._why_stop}{hint}{fix}", file=sys.stderr, flush=True)

    def _train_epoch(self, loader, epochs: int, progress) -> Mean | None:
        self.model.train()
        self._within_epoch = True
        mean, waiting = Mean(), time.perf_counter()
        count = len(loader) if hasattr(loader, "__len__") else None
        progress.start(f"epoch {self.epoch + 1}/{epochs}", count)
        for i, batch in enumerate(loader):
            batch = self._placed(batch)
            started = time.perf_counter()
            self.history.spend("waiting for data", started - waiting)
            update = (i + 1) % self.accumulate == 0 or i + 1 == count
            loss = self._run_step(batch, update).item()
            self.step += update
            first = self.step <= 2
            waiting = time.perf_counter()
            self.history.spend("first steps, with compiling" if first else "training steps", waiting - started)
            size = _first_tensor(batch).shape[0]
            mean.update(loss, size)
            self.history.steps.append(
                {
                    "step": self.step,
                    "loss": loss,
                    "lr": self.optimizer.param_groups[0]["lr"],
                    "seconds": waiting - started,
                }
            )
            if not math.isfinite(loss):
                self.history.failed = True
                self.stop(f"the loss is {loss}")
            if self.folder is not None:
                self.history.save_sometimes(os.path.join(self.folder, History.name))
            if self.scheduler is not None and self.schedule == "step" and update:
                self._schedule({"train_loss": loss})
            progress.advance(loss, size)
            for callback in self.callbacks:
                callback.on_step_end(self, self.step, loss)
            if self._why_stop is not None:
                return None
        if not mean.count:
            raise ValueError("the loader gave no batches")
        self._within_epoch = False
        return mean

    def _schedule(self, values: dict):
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(values.get("validation_loss", values["train_loss"]))
        else:
            self.scheduler.step()

    def stop(self, why: str):
        """Ends fit() after the step that runs now."""
        self._why_stop = why

    # -- besides training

    @no_grad()
    def evaluate(self, loader) -> dict:
        """The loss and all metrics over a loader's batches."""
        started = time.perf_counter()
        was_training = self.model.training
        self.model.eval()
        mean = Mean()
        for metric in self.metrics.values():
            metric.reset()
        for batch in loader:
            batch = self._placed(batch)
            outputs, loss = self._run_forward(batch)
            mean.update(loss.item(), _first_tensor(batch).shape[0])
            for metric in self.metrics.values():
                metric.update(whole(outputs), whole(batch[1]))
        self.model.train(was_training)
        self.history.spend("evaluation", time.perf_counter() - started)
        return {"loss": mean.compute(), **{name: metric.compute() for name, metric in self.metrics.items()}}

    @no_grad()
    def predict(self, loader) -> list:
        """The model's outputs for each batch: inputs, or (inputs, ...) of which the first is used."""
        self.model.eval()
        inputs = (self._placed(batch[0] if isinstance(batch, (tuple, list)) else batch) for batch in loader)
        return [whole(self.model(x)) for x in inputs]

    def _placed(self, batch):
        return batch if self.mesh is None else self.mesh.batch(batch)

    # -- saving

    def _manager(self, loader):
        if self.folder is None:
            return None
        os.makedirs(self.folder, exist_ok=True)
        parts = {"model": self.model, "optimizer": self.optimizer, "history": self.history}
        if self.scheduler is not None:
            parts["scheduler"] = self.scheduler
        if hasattr(loader, "state_dict"):
            parts["loader"] = loader
        for i, callback in enumerate(self.callbacks):
            if hasattr(callback, "state_dict"):
                parts[f"callback{i}"] = callback
        if self.mesh is not None:
            own = {name: part for name, part in parts.items() if name not in ("model", "optimizer", "history")}
            return MeshCheckpoints(os.path.join(self.folder, "checkpoints"), self.model, self.optimizer, own)
        return CheckpointManager(os.path.join(self.folder, "checkpoints"), keep=self.keep, **parts)

    def _save(self, manager):
        if manager is not None:
            started = time.perf_counter()
            manager.save(self.step, extra={"epoch": self.epoch, "step": self.step})
            self._save_history()
            self.history.spend("saving", time.perf_counter() - started)

    def _save_history(self):
        """What `tandem view` shows: numbers, and once there is a program its graph."""
        self.history.save(os.path.join(self.folder, History.name))
        path = os.path.join(self.folder, GRAPH)
        report = getattr(self._run_step, "_report", None)
        if report and not self._graph_written:
            files.write(path, graph_part(self._run_step), durable=False)
            self._graph_written = True


_INTERRUPTED = "interrupted"
_NOT_FINITE = (
    "a smaller learning rate, clip_norm=1.0, or inputs that are scaled; `with td.autograd.detect_anomaly():` around fit() names "
    "the operator that gave NaN first"
)
_compile = compile


class _Interrupt:
    """Ctrl-C finishes the step and saves; a second one is what it always was."""

    def __init__(self, trainer: Trainer):
        self.trainer, self.happened, self.before = trainer, False, None

    def __enter__(self):
        try:
            self.before = signal.signal(signal.SIGINT, self._note)
        except ValueError:  # not in the main thread
            self.before = None
        return self

    def _note(self, number, frame):
        if self.happened:
            raise KeyboardInterrupt
        self.happened = True
        self.trainer.stop(_INTERRUPTED)

    def __exit__(self, *exc):
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
