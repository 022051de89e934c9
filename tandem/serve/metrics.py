"""Counters, gauges and histograms as Prometheus reads them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Values by name and labels. Any thread may write."""

    def __init__(self):
        self._lock = threading.Lock()
        self._counters: dict[str, dict[tuple, float]] = {}
        self._histograms: dict[str, tuple[tuple, dict[tuple, list]]] = {}
        self._gauges: dict[str, Callable[[], dict[tuple, float]]] = {}
        self._help: dict[str, str] = {}

    def count(self, name: str, help: str, by: float = 1, **labels):
        with self._lock:
            self._help.setdefault(name, help)
            values = self._counters.setdefault(name, {})
            key = tuple(sorted(labels.items()))
            values[key] = values.get(key, 0) + by

    def observe(self, name: str, help: str, value: float, bounds: tuple, **labels):
        with self._lock:
            self._help.setdefault(name, help)
            _, values = self._histograms.setdefault(name, (bounds, {}))
            found = values.setdefault(tuple(sorted(labels.items())), [0.0, *[0] * (len(bounds) + 1)])
            found[0] += value
            found[1 + bisect_left(bounds, value)] += 1

    def gauge(self, name: str, help: str, read: Callable[[], dict[tuple, float]]):
        """read() gives {((label, value), ...): number} when somebody asks."""
        self._help[name] = help
        self._gauges[name] = read

    def value(self, name: str, **labels) -> float:
        """What a counter has come to, over all that have these labels."""
        with self._lock:
            return sum(v for k, v in self._counters.get(name, {}).items() if set(labels.items()) <= set(k))

    def text(self) -> str:
        lines = []
        with self._lock:
            for name, values in self._counters.items():
                lines += self._head(name, "counter") + [f"{name}{_labels(k)} {v:g}" for k, v in values.items()]
            for name, (bounds, values) in self._histograms.items():
                lines += self._head(name, "histogram")
                for key, (total, *counts) in values.items():
                    so_far = 0
                    for bound, n in zip((*map(str, bounds), "+Inf"), counts, strict=True):
                        so_far += n
                        lines.append(f"{name}_bucket{_labels((*key, ('le', bound)))} {so_far}")
                    lines += [f"{name}_sum{_labels(key)} {total:g}", f"{name}_count{_labels(key)} {so_far}"]
        for name, read in self._gauges.items():
            lines += self._head(name, "gauge") + [f"{name}{_labels(k)} {v:g}" for k, v in read().items()]
        return "\n".join(lines) + "\n"

    def _head(self, name: str, kind: str) -> list[str]:
        return [f"# HELP {name} {self._help[name]}", f"# TYPE {name} {kind}"]


def _labels(pairs: tuple) -> str:
    if not pairs:
        return ""
    quoted = [f'{k}="{str(v).replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"' for k, v in pairs]
    return "{" + ",".join(quoted) + "}"
