"""Batches on their way to a device: copied on a stream of their own while earlier ones are being computed with.

Note [Prefetch]
A batch is pinned (its memory comes from a cache of pinned blocks), and its copy is queued on a side stream, followed by an event.
When the loop asks for it, the stream of the loop waits for that event, on the device, not on the host. The tensors belong to the
side stream; they are told that the loop's stream uses them, so that their memory comes back only when both are done.
"""

from __future__ import annotations

import collections

from tandem import _runtime, cuda
from tandem.devices import CPU, Device, as_device
from tandem.errors import ValueRangeError
from tandem.tree import flatten, unflatten


def prefetch(batches, device="cuda", ahead: int = 2) -> Prefetch:
    """The same batches, with their tensors on a device, where `ahead` of them are sent before they are asked for.

    batches: a DataLoader, or anything that gives batches: tensors, or containers of them; whatever else is in them stays as it is.
    With device="cpu" batches pass as they are. A DataLoader does this itself with DataLoader(..., device="cuda"), and then
    state_dict() counts what the loop got, not what was sent ahead.

    >>> for x in td.data.prefetch([td.ones(2), td.zeros(2)], "cpu"):
    ...     print(x)
    tensor([1., 1.])
    tensor([0., 0.])
    """
    if ahead < 1:
        raise ValueRangeError("prefetch", f"ahead={ahead} must be at least 1")
    return Prefetch(batches, as_device(device), ahead)


class Prefetch:
    """What prefetch gives: can be iterated over as often as the batches can."""

    def __init__(self, batches, device: Device, ahead: int):
        self.batches, self.device, self.ahead = batches, device, ahead

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return Sender(iter(self.batches), self.device, self.ahead)


class Sender:
    """Goes through batches and sends them. loader: whom to tell which batches were handed out."""

    def __init__(self, batches, device: Device, ahead: int, loader=None):
        self.batches, self.device, self.ahead, self.loader = batches, device, ahead, loader
        self.waiting: collections.deque = collections.deque()  # (batch, event, worker that made it)
        self.made_by: int | None = None  # which worker of a sharded stream made the batch that came last
        self.ended = False
        self.stream = cuda.Stream(device) if device.type == "cuda" else None

    def __iter__(self):
        return self

    def __next__(self):
        while not self.ended and len(self.waiting) <= (self.ahead if self.stream is not None else 0):
            try:
                batch = next(self.batches)
            except StopIteration:
                self.ended = True
                break
            self.waiting.append((*self._send(batch), self.made_by))
        if not self.waiting:
            if self.loader is not None:
                self.loader._finished(self)
            raise StopIteration
        batch, event, share = self.waiting.popleft()
        if event is not None:
            here = cuda.current_stream(self.device)
            here.wait_event(event)
            for leaf in flatten(batch)[0]:
                if isinstance(leaf, _runtime.Tensor):
                    leaf.record_stream(here)
        if self.loader is not None:
            self.loader._delivered(self, share)
        return batch

    def _send(self, batch):
        if self.stream is None:
            return batch, None
        leaves, structure = flatten(batch)
        with cuda.stream(self.stream):
            sent = [self._copy(leaf) if isinstance(leaf, _runtime.Tensor) else leaf for leaf in leaves]
        return unflatten(structure, sent), self.stream.record_event()

    def _copy(self, x):
        if x.device.type != "cpu":
            self.stream.wait_stream(cuda.default_stream(self.device))  # where it may still be computed
            return x.to(self.device)
        return (x if x.is_pinned() else x.pin_memory()).to(self.device, non_blocking=True)

    def close(self):
        """Ends the iteration and what works for it."""
        self.ended, self.waiting = True, collections.deque()
        if hasattr(self.batches, "close"):
            self.batches.close()


class Pinned(Sender):
    """Goes through batches and puts them into pinned memory."""

    def __init__(self, batches, loader):
        super().__init__(batches, CPU, 0, loader)

    def _send(self, batch):
        leaves, structure = flatten(batch)
        pinned = [x.pin_memory() if isinstance(x, _runtime.Tensor) and x.device.type == "cpu" else x for x in leaves]
        return unflatten(structure, pinned), None
