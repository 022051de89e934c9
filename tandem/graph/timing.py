"""How long named parts of compilation take: passes, and the steps of lowering."""

from __future__ import annotations

import threading

_local = threading.local()


def note_time(name: str, seconds: float):
    times = getattr(_local, "times", None)
    if times is not None:
        times[name] = times.get(name, 0.0) + seconds


class pass_times:
    """Collects how long passes and steps of this thread take: {name: seconds}."""

    def __enter__(self) -> dict[str, float]:
        self._before = getattr(_local, "times", None)
        _local.times = {}
        return _local.times

    def __exit__(self, *exc):
        _local.times = self._before
