"""td.benchmark: how long a call takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tandem import _runtime, cuda
from tandem.devices import CPU, as_device
from tandem.errors import UnsupportedError
from tandem.profiler import shown_time


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one call takes, in seconds."""

    times: tuple[float, ...]  # of the rounds, each the mean of its calls
    calls: int  # in a round

    @property
    def min(self) -> float:
        return min(self.times)

    @property
    def median(self) -> float:
        ordered, n = sorted(self.times), len(self.times)
        return (ordered[n // 2] + ordered[(n - 1) // 2]) / 2

    @property
    def mean(self) -> float:
        return sum(self.times) / len(self.times)

    @property
    def max(self) -> float:
        return max(self.times)

    def __str__(self):
        low, middle, high = (shown_time(t * 1e9) for t in (self.min, self.median, self.max))
        return f"{middle} (median of {len(self.times)} rounds of {self.calls} calls; {low} to {high})"


def benchmark(fn, *args, device=None, rounds: int = 7, seconds: float = 0.5, warmup: int = 3, **kwargs) -> Timing:
    """How long fn(*args, **kwargs) takes: after `warmup` calls, `rounds` rounds of as many calls as fit into `seconds` in all.

    device: where the work runs; where the tensors among the arguments are, unless given. On CUDA devices a round is timed between
    two events on the current stream, so it is the device's time, unless the host takes longer to queue the calls.

    >>> td.benchmark(td.exp, td.ones(1000)).median < 1
    True
    """
    if rounds < 1 or warmup < 0:
        raise UnsupportedError("benchmark", f"rounds={rounds} and warmup={warmup}; there must be at least one round")
    place = as_device(device) if device is not None else _device_of([*args, *kwargs.values()])
    run = _rounds_on_device if place.type == "cuda" else _rounds_here
    for _ in range(warmup):
        fn(*args, **kwargs)
    once = run(fn, args, kwargs, 1, 1, place)[0]
    calls = max(1, int(seconds / rounds / max(once, 1e-7)))
    return Timing(tuple(run(fn, args, kwargs, calls, rounds, place)), calls)


def _device_of(values):
    for value in values:
        if isinstance(value, _runtime.Tensor) and value.device.type != "cpu":
            return value.device
        if isinstance(value, (list, tuple)) and value:
            found = _device_of(value)
            if found is not CPU:
                return found
    return CPU


def _rounds_here(fn, args, kwargs, calls: int, rounds: int, place) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            fn(*args, **kwargs)
        times.append((time.perf_counter() - start) / calls)
    return times


def _rounds_on_device(fn, args, kwargs, calls: int, rounds: int, place) -> list[float]:
    times = []
    for _ in range(rounds):
        start, end = (cuda.Event(enable_timing=True, device=place) for _ in range(2))
        cuda.synchronize(place)
        start.record(cuda.current_stream(place))
        for _ in range(calls):
            fn(*args, **kwargs)
        end.record(cuda.current_stream(place))
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000 / calls)
    return times
