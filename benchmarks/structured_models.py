"""Models whose structure follows the data (benchmarks/structured), written for one example: training steps on batches of examples,
as they are, under td.autobatch, and with PyTorch where it can be imported.

    python benchmarks/structured_models.py [MODEL ...] [--examples 32] [--rounds 5]

Times are processor time of one thread, the least of interleaved rounds over the same batches.
"""

import argparse
import time

import numpy as np
from structured.models import MODELS, parameters_of

import tandem as td

try:
    import torch
except ImportError:
    torch = None

BATCHES = 6


def step_of(make, m):
    m.manual_seed(0)
    model = make(m)
    parameters = parameters_of(model)

    def step(batch, scope):
        for p in parameters:
            p.grad = None
        with scope():
            loss = sum(model.loss(example) for example in batch) / len(batch)
        loss.backward()
        return float(loss.detach())

    return model, step


def measure(name: str, examples: int, rounds: int) -> dict[str, float]:
    """Seconds for a batch, of each way to run it."""
    make = MODELS[name]
    model, step = step_of(make, td)
    rng = np.random.default_rng(0)
    batches = [model.examples(rng, examples) for _ in range(BATCHES)]
    ways = {"eager": (step, td.enable_grad), "autobatch": (step, td.autobatch)}
    if torch:
        ways["torch"] = (step_of(make, torch)[1], torch.enable_grad)
    best = {}
    for _ in range(rounds + 2):  # two to get warm
        for way, (run, scope) in ways.items():
            start = time.process_time()
            for batch in batches:
                run(batch, scope)
            best.setdefault(way, []).append(time.process_time() - start)
    return {way: min(times[2:]) / BATCHES for way, times in best.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--examples", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    td.set_num_threads(1)
    if torch:
        torch.set_num_threads(1)
    print(f"training steps on {given.examples} examples, ms; autobatch of eager, of torch")
    for name in given.models or MODELS:
        found = measure(name, given.examples, given.rounds)
        times = "  ".join(f"{way} {seconds * 1e3:7.2f}" for way, seconds in found.items())
        ratios = "  ".join(f"{found['autobatch'] / found[way]:.2f}" for way in ("eager", "torch") if way in found)
        print(f"  {name:20s} {times}   {ratios}")


if __name__ == "__main__":
    main()
