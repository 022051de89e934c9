"""How long the first compiled training steps take: with an empty cache, in a second process, and with a new batch size.

startup.py [--case mlp|gpt_mini|resnet50] [--rounds 3] [--fresh-memory]

Prints seconds beyond what the step itself takes once everything is there: the first two steps (the second one finds the
optimiser's state and is a program of its own), and the first step with another batch size. Every round begins with an
empty cache. Of every time the least of all rounds counts, as a busy machine only adds to them; `first s` is followed by
the most that a round took.

A virtual machine may give memory that nobody uses back to its host, and getting it again can cost more than the whole
compilation (1 GiB: 0.1 s to clear where it is still there, up to 3 s where it is not). Every process therefore takes
memory and gives it back before its first step. `--fresh-memory` leaves that out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

CASES = {"mlp": 0.5, "gpt_mini": 2.0, "resnet50": 4.0}  # bars for a cold start


def build(case: str):
    import tandem as td
    from tandem import nn
    from tandem.nn import functional as F

    td.manual_seed(0)
    if case == "mlp":
        model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
        optimizer = td.optim.Adagrad(model.parameters(), lr=0.01)
        batch = lambda n: (td.randn(n, 784), td.arange(n) % 10)
        sizes = 128, 96
    elif case == "gpt_mini":
        model = td.models.GPT2(5000, 256, 6, 6, 384, dropout=0.0)
        optimizer = td.optim.AdamW(model.parameters(), lr=3e-4)
        batch = lambda n: (td.arange(n * 256).reshape(n, 256) % 5000, td.arange(n * 256) % 5000)
        sizes = 4, 3
    else:
        model = td.models.resnet50()
        optimizer = td.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        batch = lambda n: (td.randn(n, 3, 224, 224), td.arange(n) % 1000)
        sizes = 8, 6

    @td.compile
    def step(x, y):
        scores = model(x)
        loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, batch, sizes


def touch_memory(size: int = 3 << 29):
    """Makes the system hold `size` bytes that no process uses: takes and writes them, and gives them back."""
    import numpy as np

    np.empty(size, np.uint8).fill(1)


def worker(case: str, fresh_memory: bool):
    step, batch, (size, other) = build(case)

    def timed(data) -> float:
        started = time.perf_counter()
        step(*data).item()
        return time.perf_counter() - started

    first, second = batch(size), batch(other)
    if not fresh_memory:
        touch_memory()
    print(json.dumps({
        "first": timed(first),
        "second": timed(first),
        "step": min(timed(first) for _ in range(3)),
        "new batch": timed(second),
        "step of new batch": min(timed(second) for _ in range(3)),
        "programs": step._programs.num_programs,
    }))  # fmt: skip


def run_worker(case: str, cache: str, options) -> dict:
    command = [sys.executable, __file__, "--worker", case] + ["--fresh-memory"] * options.fresh_memory
    environment = {**os.environ, "TANDEM_CACHE_DIR": cache, "TANDEM_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{case}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fresh-memory", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.fresh_memory)
        return
    print(f"{'':10} {'':15} {'first s':>8} {'at most':>8} {'second s':>9} {'new batch s':>12} {'step s':>8}"
          "   bars: first, new batch")  # fmt: skip
    for case in options.case or CASES:
        runs = {"empty cache": [], "second process": []}
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as cache:
                for processes in runs.values():
                    processes.append(run_worker(case, cache, options))
        for name, processes in runs.items():
            least = {column: min(process[column] for process in processes) for column in processes[0]}
            most = max(process["first"] - process["step"] for process in processes)
            bar = CASES[case] if name == "empty cache" else 0.5
            print(
                f"{case:10} {name:15} {least['first'] - least['step']:8.2f} {most:8.2f}"
                f" {least['second'] - least['step']:9.2f} {least['new batch'] - least['step of new batch']:12.3f}"
                f" {least['step']:8.3f}   {bar} / 0.1, {least['programs']} programs", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
