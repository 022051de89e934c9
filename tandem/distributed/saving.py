"""What a checkpoint needs besides tensors: files written in the background, and where a rank was.

Ranks that write in the background learn from the files themselves that all are done, as a collective would come between those of
the training that goes on: the first rank waits for the files of all, then replaces the index.
"""

from __future__ import annotations

import os
import threading
import time

from tandem import _runtime, files
from tandem.data.sampler import DistributedSampler
from tandem.distributed.group import current
from tandem.errors import CheckpointError

_LOOK = 0.005  # seconds between looks, at first; up to twenty times as many


class Save:
    """A checkpoint that is being written."""

    def __init__(self, write, made: list[str], rank: int, end, timeout: float):
        """write: writes this rank's file; made: the files of all ranks; end: what the first rank does when all are there."""
        self._made, self._rank, self._end, self._timeout = made, rank, end, timeout
        self._write = write
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="tandem checkpoint")  # the process ends when it is done
        self._thread.start()

    @property
    def _done(self) -> str:
        return os.path.join(os.path.dirname(self._made[0]), "done")

    def _run(self):
        try:
            try:
                self._write()
            except Exception as error:
                files.write(self._made[self._rank] + ".failed", f"{type(error).__name__}: {error}")
                raise
            if self._end is None:
                self._await(self._done)
                return
            for path in self._made:
                self._await(path)
            self._end()
            files.write(self._done, "")
        except Exception as error:
            self._error = error
        finally:
            self._write = None  # lets the copies go

    def _await(self, path: str):
        end, pause = time.monotonic() + self._timeout, _LOOK
        while not os.path.exists(path):
            for rank, other in enumerate(self._made):
                if os.path.exists(other + ".failed"):
                    with open(other + ".failed") as file:
                        raise CheckpointError("checkpoint.save", f"rank {rank} could not write: {file.read()}")
            if time.monotonic() > end:
                raise CheckpointError("checkpoint.save", f"{path} was not there after {self._timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.5, 20 * _LOOK)

    def done(self) -> bool:
        """Whether it has come to its end, well or not."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Until all ranks have written and the checkpoint is the one that is read; raises what failed. False if that takes longer
        than `timeout` seconds."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def result(self) -> None:
        self.wait()


def state_of_rank(loader) -> dict:
    """Where this rank is: its random numbers, and its loader."""
    state = {"random": list(_runtime.default_generator().get_state()), "loader": None, "used": 0}
    if loader is not None:
        state["loader"] = loader.state_dict()
        state["used"] = getattr(_sampler(loader), "used", 0)
    return state


def _sampler(loader) -> DistributedSampler | None:
    found = getattr(loader, "sampler", None)
    return found if isinstance(found, DistributedSampler) else None


def restore_rank(states: list[dict] | None, loader, random: bool):
    if (loader is None and not random) or not states:
        return
    here = current()
    rank, size = (0, 1) if here is None else (here.rank, here.size)
    own = states[rank] if size == len(states) else None
    if random:
        _runtime.default_generator().set_state(tuple((own or states[0])["random"]))
    if loader is None:
        return
    if any(s["loader"] is None for s in states):
        raise CheckpointError(
            "checkpoint.load", "no loader was saved", fix="give save the loader, too: save(..., loader=loader)"
        )
    sampler = _sampler(loader)
    if own is not None:
        loader.load_state_dict(own["loader"])
        if sampler is not None:
            _go_on(sampler, own["loader"]["epoch"], own["used"])
        return
    if sampler is None or sampler.pad:
        raise CheckpointError(
            "checkpoint.load",
            f"{len(states)} ranks saved their loaders and {size} read them; this one's sampler cannot divide the rest",
            fix="make the loader with sampler=td.data.DistributedSampler(dataset, pad=False)",
        )  # fmt: skip
    epochs = {s["loader"]["epoch"] for s in states}
    if len(epochs) > 1:
        raise CheckpointError("checkpoint.load", f"ranks were in epochs {sorted(epochs)} when they saved")
    used = states[0]["used"] + sum(s["loader"]["batches"] * s["loader"]["batch_size"] for s in states)
    loader.set_epoch(epochs.pop())
    _go_on(sampler, loader.epoch, min(used, len(sampler.dataset)))


def _go_on(sampler: DistributedSampler, epoch: int, used: int):
    sampler.epoch = epoch
    sampler.resume(used)
