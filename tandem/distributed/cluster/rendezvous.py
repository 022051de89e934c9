"""Where tensors from other tasks wait for the step that takes them, and steps for tensors.

A message has a key: (step, edge, iteration), of which a step is a number that no other has, and `edge` counts what crosses
between the parts of a program. The sender's incarnation is looked at when a message comes: what a task sent before it was
started again is not taken.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from tandem.errors import CancelledError

if TYPE_CHECKING:
    from tandem import _runtime

_REMEMBERED = 4096  # steps that are over: what still comes for them is dropped
_LOOK = 0.05  # seconds after which one of those who wait looks whether the run has failed, as the executor does


class Messages:
    """What has come for one step, and who waits."""

    def __init__(self):
        self.there: dict[tuple, tuple] = {}
        self.changed = threading.Condition()  # guards all of it
        self.reason: BaseException | None = None
        self.is_over = False
        self.somebody_looks = False

    def put(self, key: tuple, tensors):
        with self.changed:
            self.there.setdefault(key, tensors)
            self.changed.notify_all()

    def take(self, key: tuple, cancellation: _runtime.Cancellation):
        """The tensors of a message once it has come; None if it is dead. The executor cancels when another node of its run fails:
        then the message may never come, as its sender may wait for that node. One of those who wait looks for that, and whoever
        leaves while nobody does wakes the next."""
        with self.changed:
            looks = False
            try:
                while key not in self.there:
                    if self.reason is not None:
                        raise self.reason
                    if self.is_over or cancellation.cancelled:
                        raise CancelledError("run", "the step is over")
                    if not self.somebody_looks:
                        self.somebody_looks = looks = True
                    self.changed.wait(_LOOK if looks else None)
                return self.there.pop(key)
            finally:
                if looks:
                    self.somebody_looks = False
                if not self.somebody_looks:
                    self.changed.notify_all() if cancellation.cancelled else self.changed.notify()

    def abort(self, reason: BaseException):
        with self.changed:
            if self.reason is None:
                self.reason = reason
            self.changed.notify_all()

    def end(self):
        with self.changed:
            self.is_over = True
            self.changed.notify_all()


class Rendezvous:
    """All steps of a task."""

    def __init__(self):
        self._steps: dict[str, Messages] = {}
        self._over: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()  # guards both

    def step(self, step: str) -> Messages | None:
        """The messages of a step; None once it is over."""
        with self._lock:
            if step in self._over:
                return None
            found = self._steps.get(step)
            if found is None:
                found = self._steps[step] = Messages()
            return found

    def put(self, step: str, key: tuple, tensors):
        messages = self.step(step)
        if messages is not None:
            messages.put(key, tensors)

    def end(self, step: str):
        with self._lock:
            messages = self._steps.pop(step, None)
            self._over[step] = None
            while len(self._over) > _REMEMBERED:
                self._over.popitem(last=False)
        if messages is not None:
            messages.end()

    def end_all(self, prefix: str):
        """Ends the steps of a controller that is gone."""
        with self._lock:
            found = [s for s in self._steps if s.startswith(prefix)]
        for step in found:
            self.end(step)

    @property
    def waiting(self) -> int:
        """How many steps have messages or wait for them."""
        return len(self._steps)
