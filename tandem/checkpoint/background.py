"""Saving while the program goes on: a copy of the tensors is taken at once, a thread writes it."""

from __future__ import annotations

import threading
import warnings

from tandem.autograd.modes import no_grad
from tandem.checkpoint.structure import Encoder
from tandem.checkpoint.writer import parse_size, write


class PendingSave:
    """A save in progress. wait() blocks until it is done and raises what went wrong; an error nobody asked for is a warning."""

    def __init__(self, work, what: str):
        self._errors: list[BaseException] = []
        self._asked = False
        self._what = what
        # Not a daemon: a program that ends normally waits for its last save.
        self._thread = threading.Thread(target=_run, args=(work, self._errors), name="tandem-save")
        self._thread.start()

    def done(self) -> bool:
        """Whether it has finished, well or not."""
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None):
        """Waits for the end; raises the error of the save, or TimeoutError."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._what} is still being saved after {timeout} s")
        self._asked = True
        if self._errors:
            raise self._errors[0]

    def __del__(self):
        if not self._asked and self._errors:
            warnings.warn(f"saving {self._what} failed: {self._errors[0]}", ResourceWarning, stacklevel=2)


def _run(work, errors: list):
    try:
        work()
    except BaseException as error:
        errors.append(error)


def snapshot(obj) -> tuple[dict, object]:
    """(tensors by name, structure) of state as it is now, in memory of their own."""
    encoder = Encoder()
    structure = encoder.encode(obj)
    with no_grad():
        return {name: t.clone() for name, t in encoder.tensors.items()}, structure


def save_async(obj, path, *, max_shard_size: int | str | None = None, durable: bool = True) -> PendingSave:
    """Like td.save, but returns as soon as the tensors are copied; changes made after that are not in the file.

    >>> import tempfile, os
    >>> name, w = os.path.join(tempfile.mkdtemp(), "state.safetensors"), td.zeros(2)
    >>> pending = td.checkpoint.save_async({"w": w}, name)
    >>> w += 1
    >>> pending.wait()
    >>> td.load(name)
    {'w': tensor([0., 0.])}
    """
    limit = parse_size(max_shard_size)
    tensors, structure = snapshot(obj)
    return PendingSave(lambda: write(tensors, structure, path, limit, durable), str(path))
