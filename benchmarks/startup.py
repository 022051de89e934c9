"""How long the first compiled training steps take: with an empty cache, in a second process, and with a new batch size.

startup.py [--case mlp|gpt_mini|resnet50]

Prints seconds beyond what the step itself takes once everything is there: the first two steps (the second one finds the
optimiser's state and is a program of its own), and the first step with another batch size.
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


def worker(case: str):
    step, batch, (size, other) = build(case)

    def timed(data) -> float:
        started = time.perf_counter()
        step(*data).item()
        return time.perf_counter() - started

    first, second = batch(size), batch(other)
    start = [timed(first), timed(first)]
    steady = min(timed(first) for _ in range(3))
    new = timed(second)
    steady_other = min(timed(second) for _ in range(3))
    print(json.dumps({
        "first": start[0] - steady, "second": start[1] - steady, "new batch": new - steady_other, "step": steady,
        "programs": step._programs.num_programs,
    }))  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", action="append")
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    print(
        f"{'':10} {'':15} {'first s':>8} {'second s':>9} {'new batch s':>12} {'step s':>8}   bars: first, second process, new batch"
    )
    for case in options.case or CASES:
        with tempfile.TemporaryDirectory() as cache:
            for name in ("empty cache", "second process"):
                environment = {**os.environ, "TANDEM_CACHE_DIR": cache, "TANDEM_NUM_THREADS": "2"}
                done = subprocess.run(
                    [sys.executable, __file__, "--worker", case], capture_output=True, text=True, env=environment
                )
                if done.returncode:
                    print(case, done.stderr.strip().splitlines()[-1])
                    break
                r = json.loads(done.stdout.splitlines()[-1])
                bar = CASES[case] if name == "empty cache" else 0.5
                print(
                    f"{case:10} {name:15} {r['first']:8.2f} {r['second']:9.2f} {r['new batch']:12.3f} {r['step']:8.3f}"
                    f"   {bar} / 0.1, {r['programs']} programs", flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
