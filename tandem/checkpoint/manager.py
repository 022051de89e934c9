"""Everything a training run consists of, saved and restored by one call."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import warnings

from tandem import _runtime
from tandem.autograd.modes import no_grad
from tandem.checkpoint import shards
from tandem.checkpoint.background import PendingSave, snapshot
from tandem.checkpoint.reader import load
from tandem.checkpoint.structure import Encoder
from tandem.checkpoint.writer import parse_size, write
from tandem.errors import CheckpointError, DTypeError, ValueRangeError

_OWN = "checkpoint"  # the key for step, random state and what else is ours


def random_state() -> dict:
    """The state of all random generators: Tandem's, Python's, and NumPy's if it is loaded."""
    version, words, gauss = random.getstate()
    state = {"tandem": list(_runtime.default_generator().get_state()), "python": [version, list(words), gauss]}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [kind, keys.tolist(), int(position), int(has_gauss), float(cached)]
    return state


def set_random_state(state: dict):
    """Puts all generators where they were when random_state() was called."""
    numpy_set = None
    if "numpy" in state:
        import numpy

        numpy_set = numpy.random.set_state
    _set_random_state(state, _runtime.default_generator().set_state, random.setstate, numpy_set)


def _set_random_state(state: dict, tandem_set, python_set, numpy_set):
    tandem_set(tuple(state["tandem"]))
    version, words, gauss = state["python"]
    python_set((version, tuple(words), gauss))
    if "numpy" in state:
        import numpy

        kind, keys, position, has_gauss, cached = state["numpy"]
        numpy_set((kind, numpy.array(keys, numpy.uint32), position, has_gauss, cached))


def _check_run(state):
    """Whether loaded state is that of a run, with random state that generators take; tried on generators that nobody uses."""
    own = state.get(_OWN) if isinstance(state, dict) else None
    if own is None:
        return  # load_state() says what is missing
    try:
        step, found = own["step"], own["random"]
        if "numpy" in found:
            import numpy

            spare = numpy.random.RandomState(0).set_state
        else:
            spare = None
        _set_random_state(found, _runtime.Generator().set_state, random.Random(0).setstate, spare)
        if not (step is None or isinstance(step, float) or hasattr(step, "__index__")) or "extra" not in own:
            raise TypeError(f"step {step!r}")
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        what = str(error) or type(error).__name__
        raise CheckpointError("restore", f"the file does not hold the state of a run ({what})") from None


class Checkpoint:
    """A set of objects that are saved and restored together, with all random state and a step.

    objects: by name, what has state_dict() and load_state_dict() (modules, optimisers, schedules, loaders), tensors, generators

    >>> import tempfile, os
    >>> model = td.nn.Linear(2, 1)
    >>> checkpoint = td.checkpoint.Checkpoint(model=model, optimizer=td.optim.SGD(model.parameters(), lr=0.1))
    >>> name = os.path.join(tempfile.mkdtemp(), "run.safetensors")
    >>> checkpoint.save(name, step=10)
    >>> checkpoint.restore(name)
    10
    """

    def __init__(self, **objects):
        for name, thing in objects.items():
            if name == _OWN:
                raise ValueRangeError("Checkpoint", f"the name {_OWN!r} is taken", fix="choose another one")
            if not isinstance(thing, (_runtime.Tensor, _runtime.Generator)) and not (
                hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")
            ):
                raise DTypeError(
                    "Checkpoint",
                    f"{name} is a {type(thing).__name__}, which has no state_dict and load_state_dict",
                    fix="pass plain values to save(extra={...})",
                )
        self.objects = objects
        self.extra = None  # what was given to save(extra=), after restore

    def state(self, step: int | None = None, extra=None) -> dict:
        """All of it as nested state, on the objects' own memory."""
        state = {}
        for name, thing in self.objects.items():
            state[name] = thing if isinstance(thing, (_runtime.Tensor, _runtime.Generator)) else thing.state_dict()
        state[_OWN] = {"step": step, "random": random_state(), "extra": extra}
        return state

    def load_state(self, state: dict):
        """Gives every object its part of the state; nothing is touched unless all parts are there. Returns the step."""
        missing = sorted(set(self.objects) - set(state)) if isinstance(state, dict) else []
        if not isinstance(state, dict) or _OWN not in state or missing:
            has = ", ".join(map(repr, state)) if isinstance(state, dict) else type(state).__name__
            lacks = ", ".join(missing) or "step and random state"
            raise CheckpointError(
                "restore", f"the file lacks {lacks}; it has {has}", fix="was it written by Checkpoint.save?"
            )
        _check_run(state)
        unknown = sorted(set(state) - set(self.objects) - {_OWN})
        if unknown:
            warnings.warn(f"the checkpoint also has {', '.join(unknown)}, which nobody here restores", stacklevel=3)
        for name, thing in self.objects.items():
            if isinstance(thing, _runtime.Tensor):
                with no_grad():
                    thing.copy_(state[name])
            elif isinstance(thing, _runtime.Generator):
                thing.set_state(state[name].get_state())
            else:
                thing.load_state_dict(state[name])
        set_random_state(state[_OWN]["random"])
        self.extra = state[_OWN]["extra"]
        return state[_OWN]["step"]

    def save(self, path, step: int | None = None, *, extra=None, max_shard_size=None, durable: bool = True):
        """Writes everything to a file. extra: nested plain values and tensors of your own, found in `.extra` after restore."""
        encoder = Encoder()
        structure = encoder.encode(self.state(step, extra))
        write(encoder.tensors, structure, path, parse_size(max_shard_size), durable)

    def restore(self, path):
        """Reads a file into the objects, sets all random state, and returns the step."""
        return self.load_state(load(path))


class CheckpointManager:
    """Checkpoints of a run in a folder: the newest `keep` of them, each complete or not there at all.

    keep: how many stay; None keeps all
    keep_every: steps that are multiples of this stay for good
    asynchronous: save() returns once the tensors are copied, and a thread writes; an error is raised by the next save() or wait()
    objects: as for Checkpoint

    >>> import tempfile
    >>> model = td.nn.Linear(2, 1)
    >>> manager = td.checkpoint.CheckpointManager(tempfile.mkdtemp(), keep=2, model=model)
    >>> for step in (1, 2, 3):
    ...     manager.save(step)
    >>> manager.steps(), manager.restore()
    ([2, 3], 3)
    """

    def __init__(
        self,
        directory,
        keep: int | None = 3,
        *,
        keep_every: int | None = None,
        asynchronous: bool = False,
        max_shard_size: int | str | None = None,
        durable: bool = True,
        **objects,
    ):
        if keep is not None and keep < 1:
            raise ValueRangeError("CheckpointManager", f"keep={keep} must be at least 1, or None for all")
        self.directory = os.path.realpath(os.fspath(directory))
        os.makedirs(self.directory, exist_ok=True)
        self.keep, self.keep_every, self.asynchronous, self.durable = keep, keep_every, asynchronous, durable
        self._limit = parse_size(max_shard_size)
        self.checkpoint = Checkpoint(**objects)
        self._pending: PendingSave | None = None

    # -- what is there

    def steps(self) -> list[int]:
        """The steps of all checkpoints, oldest first."""
        found = set()
        with os.scandir(self.directory) as entries:
            for entry in entries:
                match = re.fullmatch(r"step-(\d{8,})\.safetensors(\.index\.json)?", entry.name)
                if match and entry.is_file():
                    found.add(int(match[1]))
        return sorted(found)

    def latest(self) -> int | None:
        """The newest step, or None."""
        return max(self.steps(), default=None)

    def path(self, step: int) -> str:
        """The file of a step."""
        return os.path.join(self.directory, f"step-{step:08d}.safetensors")

    @property
    def extra(self):
        """What was given to save(extra=), after restore."""
        return self.checkpoint.extra

    # -- saving

    def save(self, step: int, extra=None):
        """Saves everything as it is now, then removes what is too old."""
        self.wait()
        state = self.checkpoint.state(step, extra)
        path = self.path(step)
        if self.asynchronous:
            tensors, structure = snapshot(state)

            def work():
                write(tensors, structure, path, self._limit, self.durable)
                self._remove_old(step)

            self._pending = PendingSave(work, path)
            return
        encoder = Encoder()
        structure = encoder.encode(state)
        write(encoder.tensors, structure, path, self._limit, self.durable)
        self._remove_old(step)

    def wait(self):
        """Waits for a save in the background; raises its error."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.wait()

    def _remove_old(self, newest: int):
        if self.keep is None:
            return
        steps = [s for s in self.steps() if s <= newest]  # what is newer belongs to a run that was gone back from
        for step in steps[: -self.keep]:
            if not (self.keep_every and step % self.keep_every == 0):
                self.delete(step)

    def delete(self, step: int):
        """Removes the checkpoint of a step."""
        shards.delete(self.path(step))

    # -- restoring

    def restore(self, step: int | None = None) -> int | None:
        """Restores everything from a step, or from the newest checkpoint that is whole. Returns the step; None if there is none.

        A damaged checkpoint is passed over with a warning, unless its step was asked for.
        """
        self.wait()
        if step is not None:
            if step not in self.steps():
                raise CheckpointError(
                    "restore", f"{self.directory} has no step {step}; it has {self.steps() or 'none'}"
                )
            return self.checkpoint.restore(self.path(step))
        damaged = []
        for candidate in reversed(self.steps()):
            try:
                state = load(self.path(candidate))
                _check_run(state)
            except (CheckpointError, OSError) as error:
                warnings.warn(f"step {candidate} is passed over: {error}", stacklevel=2)
                damaged.append(candidate)
                continue
            return self.checkpoint.load_state(state)
        if damaged:
            raise CheckpointError("restore", f"none of the checkpoints in {self.directory} is whole: {damaged}")
        return None

    def close(self):
        """Waits for a save in the background."""
        self.wait()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def clear(self):
        """Removes the folder with all checkpoints."""
        self.wait()
        shutil.rmtree(self.directory)
