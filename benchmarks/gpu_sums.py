"""Sums on one CUDA device: how far they are from float64, and what the care for that costs. Also what guarded writes cost.

    python benchmarks/gpu_sums.py [--small]

Every line is measured in two processes, with and without the feature, which take turns; times are the least of all, in
microseconds, by events around many calls in a row. An error is relative to the sum of absolute values.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

CASES = {
    "sum of all": ("sum", (10_000_000,), None),
    "columns (10^7, 10)": ("sum", (10_000_000, 10), 0),
    "columns (10^5, 1000)": ("sum", (100_000, 1000), 0),
    "rows (1000, 10^5)": ("sum", (1000, 100_000), 1),
    "rows (10, 10^7)": ("sum", (10, 10_000_000), 1),
    "rows (10^5, 768)": ("sum", (100_000, 768), 1),
    "mean of all": ("mean", (10_000_000,), None),
    "var of all": ("var", (10_000_000,), None),
    "var of columns": ("var", (1_000_000, 10), 0),
}
DTYPES = ("float32", "bfloat16", "float16")


def plain_sums():
    """Without Note [Sums on devices]."""
    from tandem.codegen.cuda.nests import CudaNest
    from tandem.codegen.nest import Nest

    CudaNest.accumulator = Nest.accumulator


def plain_writes():
    """Without Note [Guarded writes]: kernels write whatever was found before."""
    from tandem.codegen.cuda.target import CudaTarget

    CudaTarget.guard = lambda self, steps: None


def elapsed(td, fn, calls: int) -> float:
    fn()
    td.cuda.synchronize()
    begin, end = td.cuda.Event(enable_timing=True), td.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(5):
        begin.record()
        for _ in range(calls):
            fn()
        end.record()
        td.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / calls * 1e3)
    return best


def sums(small: bool) -> dict:
    import numpy as np

    import tandem as td

    made = {}
    for label, (name, shape, axis) in CASES.items():
        shape = tuple(n // 10 if small and n >= 100_000 else n for n in shape)
        for dtype in DTYPES:
            for values in ("0.1", "random"):
                x = (
                    np.full(shape, 0.1, np.float32)
                    if values == "0.1"
                    else np.random.default_rng(0).random(shape, np.float32)
                )
                there = td.tensor(x).to(getattr(td, dtype)).cuda()
                exact = there.cpu().to(td.float64).numpy()
                function = getattr(td, name)
                compiled = td.compile(lambda x, f=function, axis=axis: f(x) if axis is None else f(x, axis))
                found = compiled(there).cpu().to(td.float64).numpy()
                expected = {"sum": np.sum, "mean": np.mean, "var": lambda x, axis: np.var(x, axis, ddof=1)}[name](
                    exact, axis
                )
                scale = np.maximum(np.abs(expected), 1e-30)
                error = float(np.max(np.abs(found - expected) / scale))
                micros = elapsed(td, lambda: compiled(there), 20) if values == "random" else None  # noqa: B023
                made[f"{label} {dtype} {values}"] = [error, micros]
    return made


def writes(small: bool) -> dict:
    import tandem as td

    made = {}
    n = 1 << (20 if small else 26)
    x, y = td.ones(n, device="cuda"), td.ones(n, device="cuda")
    made["x.add_(y), eager, large"] = [None, elapsed(td, lambda: x.add_(y), 20)]
    a, b = td.ones(1024, device="cuda"), td.ones(1024, device="cuda")
    made["x.add_(y), eager, small"] = [None, elapsed(td, lambda: a.add_(b), 500)]
    model = td.nn.Sequential(*[td.nn.Linear(512, 512) for _ in range(16)]).cuda()
    optimizer = td.optim.Adam(model.parameters(), lr=1e-4)
    data = td.randn(64, 512, device="cuda")

    @td.compile
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for _ in range(6):
        step(data)
    made["training step of 16 layers with Adam, compiled"] = [None, elapsed(td, lambda: step(data), 50)]
    return made


PARTS = {"sums": (sums, plain_sums), "writes": (writes, plain_writes)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    if options.part:
        work, plain = PARTS[options.part]
        if options.plain:
            plain()
        print(json.dumps(work(options.small)))
        return
    for part in PARTS:
        found = {}
        for _ in range(2):
            for plain in (True, False):
                found.setdefault(plain, []).append(run(part, plain, options.small))
        print(f"{part}: error without -> with, microseconds without -> with")
        for label in found[True][0]:
            before, after = ([r[label] for r in found[plain]] for plain in (True, False))
            errors = "" if before[0][0] is None else f"{before[0][0]:9.1e} -> {after[0][0]:8.1e}"
            times = (
                "" if before[0][1] is None else f"{min(t for _, t in before):9.1f} -> {min(t for _, t in after):9.1f}"
            )
            print(f"  {label:50} {errors:24} {times}")


def run(part: str, plain: bool, small: bool) -> dict:
    command = [sys.executable, __file__, "--part", part, *["--plain"] * plain, *["--small"] * small]
    with tempfile.TemporaryDirectory() as cache:  # what was kept knows nothing of the difference
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TANDEM_CACHE_DIR": cache}, check=True
        )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
