"""Two ranks on this host, one thread each: collectives and data parallel steps, with PyTorch's gloo beside.

    python benchmarks/distributed.py [--quick] [--no-torch]

Rounds of both libraries take turns; times are the best of all rounds. `limit` is one pass over memory that both ranks share:
what no all-reduce can be much quicker than.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

SIZES = (4 << 10, 1 << 20, 16 << 20, 64 << 20)
ALL_REDUCE = """
import json, sys, time
{setup}
best = {{}}
for size in {sizes}:
    x = {make}
    times = []
    for _ in range(5 if size > 1 << 24 else 20 if size > 1 << 20 else 200):
        {barrier}
        began = time.perf_counter()
        {reduce}
        times.append(time.perf_counter() - began)
    best[size] = min(times)
if {rank} == 0:
    print(json.dumps(best), flush=True)
{end}
"""
OURS = {
    "setup": "import tandem as td\ndist = td.distributed\ndist.init_process_group()",
    "make": "td.ones(size // 4)", "barrier": "dist.barrier()", "reduce": "dist.all_reduce(x)", "rank": "dist.get_rank()",
    "end": "dist.destroy_process_group()",
}  # fmt: skip
THEIRS = {
    "setup": "import torch, torch.distributed as dist\ntorch.set_num_threads(1)\ndist.init_process_group('gloo')",
    "make": "torch.ones(size // 4)", "barrier": "dist.barrier()", "reduce": "dist.all_reduce(x)", "rank": "dist.get_rank()",
    "end": "dist.destroy_process_group()",
}  # fmt: skip

LIMIT = """
import json, mmap, os, sys, time
import numpy as np
rank, path = int(os.environ["RANK"]), os.environ["LIMIT_FILE"]
most = max({sizes})
with open(path, "r+b") as f:
    shared = [np.frombuffer(mmap.mmap(f.fileno(), 2 * most + 8192), np.float32, most // 4, r * most) for r in range(2)]
    flags = np.frombuffer(mmap.mmap(f.fileno(), 2 * most + 8192), np.int64, 1024, 2 * most)
shared[rank][:] = 0
def meet(n):
    flags[rank * 64] = n
    while flags[(1 - rank) * 64] < n:
        pass
best, n = {{}}, 0
for size in {sizes}:
    half = size // 8
    part = slice(rank * half, (rank + 1) * half)
    times = []
    for _ in range(5 if size > 1 << 24 else 20 if size > 1 << 20 else 200):
        n += 1; meet(n)
        began = time.perf_counter()
        a, b = shared[0][part], shared[1][part]
        for at in range(0, half, 1 << 14):
            x, y = a[at : at + (1 << 14)], b[at : at + (1 << 14)]
            np.add(x, y, out=x)
            y[:] = x
        n += 1; meet(n)
        times.append(time.perf_counter() - began)
    best[size] = min(times)
if rank == 0:
    print(json.dumps(best), flush=True)
"""

STEP = """
import json, sys, time
{imports}
def model_of(kind):
    if kind == "mlp":
        return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return resnet()
best = {{}}
for kind, shape in (("mlp", (64, 784)), ("resnet", (8, 3, 32, 32)))[:{kinds}]:
    for parallel in (False, True, False, True):
        model = model_of(kind)
        model = wrap(model) if parallel else model
        optimizer = optim.SGD(model.parameters(), lr=0.01)
        x, y = lib.randn(*shape), lib.zeros(shape[0], dtype=lib.int64)
        def step(x, y):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss
        step = compiled(step)
        for _ in range(3):
            step(x, y)
        times, busy = [], []
        for _ in range({steps}):
            dist.barrier()
            began, worked = time.perf_counter(), time.process_time()
            step(x, y).item()
            times.append(time.perf_counter() - began)
            busy.append(time.process_time() - worked)
        key = kind + (" parallel" if parallel else " alone")
        best[key] = min(best.get(key, 1e9), min(times))
        best[key + " cpu"] = min(best.get(key + " cpu", 1e9), min(busy))
if dist.get_rank() == 0:
    print(json.dumps(best), flush=True)
dist.destroy_process_group()
"""
OUR_STEP = """
import tandem as td, tandem as lib
from tandem import nn, optim
dist = td.distributed
dist.init_process_group()
wrap, compiled = dist.data_parallel, td.compile
def resnet():
    return td.models.resnet18(num_classes=10)
"""
THEIR_STEP = """
import torch, torch as lib, torch.distributed as dist
from torch import nn, optim
torch.set_num_threads(1)
dist.init_process_group("gloo")
wrap, compiled = nn.parallel.DistributedDataParallel, lambda f: f
def resnet():
    class Block(nn.Module):
        def __init__(self, a, b, s):
            super().__init__()
            self.main = nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                                      nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b))
            self.short = nn.Sequential(nn.Conv2d(a, b, 1, s, bias=False), nn.BatchNorm2d(b)) if a != b else nn.Identity()
        def forward(self, x):
            return (self.main(x) + self.short(x)).relu()
    blocks = [Block(a, b, s) for a, b, s in ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2),
                                             (256, 256, 1), (256, 512, 2), (512, 512, 1))]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
"""


def run(program: str, launcher: list[str], environment: dict[str, str]) -> tuple[dict, float]:
    """What rank 0 printed, and how long all took."""
    import json

    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(program)
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [*launcher, file.name], capture_output=True, text=True, timeout=600,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TANDEM_NUM_THREADS": "1", **environment},
        )  # fmt: skip
    finally:
        os.unlink(file.name)
    if done.returncode:
        raise SystemExit(f"{' '.join(launcher)} failed:\n{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}, time.perf_counter() - began


def best_of(rounds: list[dict]) -> dict:
    return {key: min(r[key] for r in rounds) for key in rounds[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    options = parser.parse_args()
    ours = [sys.executable, "-m", "tandem", "run", "-n", "2"]
    theirs = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    runs = 1 if options.quick else 3
    beside = not options.no_torch

    collected: dict[str, list] = {"ours": [], "theirs": [], "limit": []}
    for _ in range(runs):
        collected["ours"].append(run(ALL_REDUCE.format(sizes=SIZES, **OURS), ours, {})[0])
        if beside:
            collected["theirs"].append(run(ALL_REDUCE.format(sizes=SIZES, **THEIRS), theirs, {})[0])
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
            file.truncate(2 * max(SIZES) + 8192)
            collected["limit"].append(run(LIMIT.format(sizes=SIZES), ours, {"LIMIT_FILE": file.name})[0])
    best = {name: best_of(rounds) for name, rounds in collected.items() if rounds}
    print("all-reduce, float32            ours       gloo      ratio      limit  over limit")
    for size in SIZES:
        k = str(size)
        a, limit = best["ours"][k] * 1e3, best["limit"][k] * 1e3
        b = best["theirs"][k] * 1e3 if beside else float("nan")
        print(f"{size >> 10:>8} KB            {a:9.3f} ms {b:7.3f} ms {a / b:8.2f}  {limit:8.3f} ms {a / limit:8.2f}")

    kinds, steps = (1, 10) if options.quick else (2, 15)
    sides = [("ours", OUR_STEP, ours)] + ([("gloo", THEIR_STEP, theirs)] if beside else [])
    print("\nstep, data parallel over alone")
    for name, imports, launcher in sides:
        found = best_of(
            [run(STEP.format(imports=imports, kinds=kinds, steps=steps), launcher, {})[0] for _ in range(runs)]
        )
        for kind in ("mlp", "resnet")[:kinds]:
            alone, parallel = found[f"{kind} alone"], found[f"{kind} parallel"]
            busy = found[f"{kind} parallel cpu"] / found[f"{kind} alone cpu"]
            times = f"{parallel * 1e3:8.2f} ms over {alone * 1e3:8.2f} ms = {parallel / alone:.2f}"
            print(f"{name:>6} {kind:>8}: {times}; processor time {busy:.2f}")

    print("\nstart to the end of a first collective, two ranks")
    first = "{setup}\nx = {make}\ndist.all_reduce(x)\n{end}\n"
    for name, names, launcher in [("ours", OURS, ours)] + ([("gloo", THEIRS, theirs)] if beside else []):
        program = "size = 64\n" + first.format(**names)
        print(f"{name:>6}: {min(run(program, launcher, {})[1] for _ in range(runs)):.2f} s")


if __name__ == "__main__":
    main()
