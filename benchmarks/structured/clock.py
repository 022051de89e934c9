"""Times of steps that take turns: processor time of one thread on the host, on a CUDA device the time until it is done."""

from __future__ import annotations

import time

import tandem as td

try:
    import torch
except ImportError:
    torch = None


class Clock:
    """device: "cpu" or "cuda"."""

    def __init__(self, device: str):
        self.device = device

    def now(self) -> float:
        if self.device == "cpu":
            return time.process_time()
        td.cuda.synchronize()
        if torch:
            torch.cuda.synchronize()
        return time.perf_counter()

    def least(self, steps: dict, repeats: int = 7, warm: int = 2) -> dict[str, float]:
        """Seconds of each step: the least of runs that take turns. On a device the first step's time is printed as well."""
        for name, step in steps.items():
            begun = self.now()
            step()
            if self.device != "cpu":
                print(f"  {name:34s} first step {self.now() - begun:6.2f} s", flush=True)
            for _ in range(warm - 1):
                step()
        best = dict.fromkeys(steps, float("inf"))
        for _ in range(repeats):
            for name, step in steps.items():
                begun = self.now()
                step()
                best[name] = min(best[name], self.now() - begun)
        return best
