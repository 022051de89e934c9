"""Parameters on a device whose servers compute on the host: copies there and back, while the device computes.

Note [Staging]
Backward makes gradients in some order, and servers get them when it has ended. So each gradient's copy to pinned host memory
is queued where it is made, on a stream of its own that follows the one that computes: it overlaps with the kernels of the rest of
backward, and push() waits for a copy only when its turn to be sent has come. Where a step has several backward passes, the copy is
queued in the last one, as the step before had them. A gradient that was changed since (clipped, say), which its version tells, or
that was made where nothing can be queued (in a compiled function), is copied when it is pushed: then all such copies are queued
before the first one is waited for.
Values that were pulled are put into pinned memory and queued on another stream, so that the next ones are put there meanwhile. The
stream that computes waits for them on the device; the host goes on.
"""

from __future__ import annotations

import weakref

from tandem import _runtime, cuda


class Staging:
    """Gradients to the host, values to the device. overlap: False waits for each copy, one after the other.

    counts: copies and bytes in each direction; "early": gradients that left before backward ended; "again": those of them that were
    changed afterwards.
    """

    def __init__(self, parameters: list, overlap: bool = True):
        self.overlap = overlap
        self.counts = {"to_host": 0, "bytes_to_host": 0, "to_device": 0, "bytes_to_device": 0, "early": 0, "again": 0}
        self._staged = {id(p): p for p in parameters if p.is_cuda}
        self._begun: dict[int, tuple] = {}  # parameter -> (gradient, its version, copy, event)
        self._passes: dict[int, int] = {}  # how many gradients this step has made so far
        self._expected: dict[int, int] = {}  # and how many the one before had
        self._streams: dict[tuple, cuda.Stream] = {}
        if overlap:
            owner = weakref.ref(self)
            self._handles = [p.register_post_accumulate_grad_hook(_hook(owner)) for p in self._staged.values()]

    def close(self):
        for handle in getattr(self, "_handles", ()):
            handle.remove()

    # -- gradients

    def after_gradient(self, p):
        """Backward has made a gradient."""
        if _runtime.capturing():
            return
        key = id(p)
        seen = self._passes[key] = self._passes.get(key, 0) + 1
        if seen >= self._expected.get(key, 1):
            g = p.grad
            if g is not None and not g._in_parts and g.is_cuda:
                self.counts["early"] += 1
                self._begin(key, g)

    def _begin(self, key: int, g):
        g = g.detach()
        side, here = self._stream(g.device, "host"), cuda.current_stream(g.device)
        side.wait_stream(here)
        with cuda.stream(side):
            copy = g.cpu(non_blocking=True)
        g.record_stream(side)
        self._begun[key] = g, g._version, copy, side.record_event()
        self._count("host", g)

    def begin_rest(self):
        """Queues the copies of gradients that are not on their way."""
        for key, p in self._staged.items():
            g = p.grad
            if g is None or g._in_parts or not g.is_cuda or not self.overlap:
                self._begun.pop(key, None)
                continue
            found = self._begun.get(key)
            if found is not None and (found[0].data_ptr() != g.data_ptr() or found[1] != g._version):
                self.counts["again"] += 1
                found = None
            if found is None:
                self._begin(key, g)

    def on_host(self, p, part):
        """Part of a parameter's gradient on the host, once it is there. part: a function of the gradient."""
        found = self._begun.get(id(p))
        if found is None:
            return self.copied(part(p.grad).detach())
        found[3].synchronize()
        return part(found[2])

    def copied(self, t):
        """A tensor on the host, now."""
        if not t.is_cuda:
            return t
        self._count("host", t)
        return t.cpu()

    def end_step(self):
        """Gradients have been sent."""
        self._begun.clear()
        self._expected, self._passes = self._passes, {}

    # -- values

    def put(self, target, value):
        """Writes a value that is on the host into a parameter, or a part of one."""
        self._count("device", value)
        if not self.overlap:
            target.copy_(value.to(target.device))
            return
        side, here = self._stream(target.device, "device"), cuda.current_stream(target.device)
        with cuda.stream(side):
            sent = value.pin_memory().to(target.device, non_blocking=True)
        here.wait_event(side.record_event())
        sent.record_stream(here)
        target.copy_(sent)

    def _count(self, where: str, t):
        self.counts[f"to_{where}"] += 1
        self.counts[f"bytes_to_{where}"] += t.numel() * t.dtype.itemsize

    def _stream(self, device, direction: str) -> cuda.Stream:
        found = self._streams.get((device, direction))
        if found is None:
            found = self._streams[device, direction] = cuda.Stream(device)
        return found


def _hook(owner):
    def after_gradient(p):
        staging = owner()
        if staging is not None:
            staging.after_gradient(p)

    return after_gradient


class Staged:
    """Tensors of a message, each made when it is its turn to be sent: as often as the message is."""

    def __init__(self, makers: list):
        self.makers = makers

    def __iter__(self):
        for make in self.makers:
            yield make()
