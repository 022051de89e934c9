"""Two ranks on this host, one thread each: collectives, data parallel and fully sharded steps, with PyTorch's gloo beside, and
MPICH where it is installed; a busy third process; starts, and deaths.

    python benchmarks/distributed.py [--quick] [--no-torch] [--torch-python P] [--only collectives,steps,sharded,start,faults]

Rounds of both libraries take turns; times are the best of all rounds. `limit` is one pass over memory that both ranks share:
what no all-reduce can be much quicker than. Steps: an MLP; `resnet`, a ResNet-18 as for CIFAR, whose first layers see all of
32 x 32 pixels; `narrow`, one as for ImageNet, whose last layers see a single pixel, so that parameters are read and written
about as often as computed with. Progress goes to standard error, as a part may take minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from tandem.distributed import mpi

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

MPICH = """
import ctypes, json, os, time
import numpy as np
from tandem.distributed import mpi, pmi
from tandem.distributed.store import Store
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
library, provided = ctypes.CDLL(mpi.find_library()), ctypes.c_int()
class OneHost(pmi.Service):  # so that the library uses its own shared memory
    def _value(self, key):
        return f"(vector,(0,1,{{size}}))" if key == "PMI_process_mapping" else super()._value(key)
before = set(os.listdir("/dev/shm"))
with OneHost(Store(os.environ["TANDEM_STORE"]), rank, size) as service:
    assert library.MPI_Init_thread(None, None, 0, ctypes.byref(provided)) == 0
world, floats, total = (ctypes.c_void_p(v) for v in (0x101, 0x210, 0x21))
best = {{}}
for count in {sizes}:
    x, out = np.ones(count // 4, np.float32), np.empty(count // 4, np.float32)
    times = []
    for _ in range(5 if count > 1 << 24 else 20 if count > 1 << 20 else 200):
        library.MPI_Barrier(world)
        began = time.perf_counter()
        status = library.MPI_Allreduce(*(ctypes.c_void_p(a.ctypes.data) for a in (x, out)), count // 4, floats, total, world)
        times.append(time.perf_counter() - began)
    assert status == 0 and out[-1] == size
    best[count] = min(times)
if rank == 0:
    print(json.dumps(best), flush=True)
library.MPI_Barrier(world)
for name in set(os.listdir("/dev/shm")) - before:  # as the library is not finalised
    try:
        name.startswith("mpich_shm") and os.unlink("/dev/shm/" + name)
    except OSError:
        pass
os._exit(0)
"""

STEP = """
import json, sys, time
{imports}
def model_of(kind):
    if kind == "mlp":
        return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return resnet(cifar=kind == "resnet")
best = {{}}
images = (8, 3, 32, 32)
for kind, shape in (("mlp", (64, 784)), ("resnet", images), ("narrow", images))[:{kinds}]:
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
        for _ in range({steps} // (2 if kind == "resnet" else 1)):
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
def resnet(cifar):
    model = td.models.resnet18(num_classes=10)
    if cifar:
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model
"""
THEIR_STEP = """
import torch, torch as lib, torch.distributed as dist
from torch import nn, optim
torch.set_num_threads(1)
dist.init_process_group("gloo")
wrap, compiled = nn.parallel.DistributedDataParallel, lambda f: f
def resnet(cifar):
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
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False)] if cifar else [nn.Conv2d(3, 64, 7, 2, 3, bias=False)]
    stem += [nn.BatchNorm2d(64), nn.ReLU()] + ([] if cifar else [nn.MaxPool2d(3, 2, 1)])
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
"""


def run(program: str, launcher: list[str], environment: dict[str, str], fails: bool = False) -> tuple[dict, float]:
    """What rank 0 printed, and how long all took. fails: whether a rank is to fail."""
    print(".", end="", file=sys.stderr, flush=True)
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
    if done.returncode and not fails:
        raise SystemExit(f"{' '.join(launcher)} failed:\n{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}, time.perf_counter() - began


def best_of(rounds: list[dict]) -> dict:
    return {key: min(r[key] for r in rounds) for key in rounds[0]}


SHARDED = """
import json, resource, time
{imports}
sizes = [512] * 9
def model_of():
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers)
best = {{}}
for sharded in (False, True, False, True):
    model = model_of()
    if sharded:
        for layer in model:
            if isinstance(layer, nn.Linear):
                shard(layer)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    x = lib.randn(64, sizes[0])
    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    step = compiled(step)
    for _ in range(3):
        step(x)
    times = []
    for _ in range(15):
        dist.barrier()
        began = time.perf_counter()
        step(x).item()
        times.append(time.perf_counter() - began)
    key = "sharded" if sharded else "alone"
    best[key] = min(best.get(key, 1e9), min(times))
    held = sum(local(p).numel() for p in model.parameters())
    best[key + " parameters"] = held
    best[key + " state"] = held + sum(
        local(t).numel() for s in optimizer.state.values() for t in s.values() if lib.is_tensor(t) and t.numel() > 1
    )
    best[key + " peak"] = peak(lambda: step(x[:1]).item())
if dist.get_rank() == 0:
    print(json.dumps(best), flush=True)
dist.destroy_process_group()
"""
OUR_SHARDED = (
    OUR_STEP
    + """
shard, local = dist.fully_shard, lambda p: p
def peak(call):
    call()
    td.memory.reset_peak()
    before = td.memory.stats()['live_bytes']
    call()  # one row, so that parameters, moments and gradients are what takes memory
    return td.memory.stats()['peak_bytes'] - before
"""
)
THEIR_SHARDED = (
    THEIR_STEP
    + """
from torch.distributed.fsdp import fully_shard as shard
local = lambda p: getattr(p, '_local_tensor', p)
peak = lambda call: 0
"""
)

COLUMN_ROW = """
import json, tandem as td
dist = td.distributed
dist.init_process_group()
mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("model",))
model = td.nn.Sequential(td.nn.Linear(64, 256), td.nn.ReLU(), td.nn.Linear(256, 64))
dist.parallelize_module(model, mesh, {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()})
def calls():
    return [r["call"].split(" ")[0] for r in dist.flight_record(mesh.get_group()) if r["rank"] == dist.get_rank()]
x = td.randn(8, 64, requires_grad=True)
before = len(calls())
y = model(x)
forward = calls()[before:]
(y if not hasattr(y, "full_tensor") else y).sum().backward()
backward = calls()[before + len(forward):]
if dist.get_rank() == 0:
    print(json.dumps({"forward": forward, "backward": backward}), flush=True)
"""

KILLED = """
import json, os, signal, time, tandem as td
dist = td.distributed
dist.init_process_group()
x = td.ones(1000)
dist.barrier()
path = os.environ["KILL_FILE"]
if dist.get_rank() == 1:
    time.sleep(0.3)
    with open(path, "w") as file:
        file.write(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        dist.all_reduce(x)
except td.DistributedError as error:
    print(json.dumps({"known": time.monotonic() - float(open(path).read())}), flush=True)
"""


ELASTIC = """
import json, os, signal, time, tandem as td
from tandem.distributed import elastic
dist = td.distributed
dist.init_process_group(elastic=True)
model = dist.data_parallel(td.nn.Sequential(td.nn.Linear(784, 1024), td.nn.ReLU(), td.nn.Linear(1024, 10)))
optimizer = td.optim.SGD(model.parameters(), lr=0.01)
state = elastic.State(model=model, optimizer=optimizer, step=0)
x, path = td.randn(64, 784), os.environ["KILL_FILE"]
def learn(state):
    begun = dist.get_world_size()
    while state.step < 40:
        loss = (state.model(x) ** 2).mean()
        loss.backward()
        if state.step == 20 and dist.get_rank() == 1:
            with open(path, "w") as file:
                file.write(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        state.optimizer.step()
        state.optimizer.zero_grad()
        loss.item()
        state.step += 1
        if begun == 1:
            return time.monotonic() - float(open(path).read())
        state.commit()
print(json.dumps({"again": elastic.run(learn, state)}), flush=True)
"""


def collectives(ours, theirs, runs: int, beside: bool):
    programs = {"ours": (ALL_REDUCE.format(sizes=SIZES, **OURS), ours)}
    if beside:
        programs["gloo"] = ALL_REDUCE.format(sizes=SIZES, **THEIRS), theirs
    if mpi.find_library() is not None:
        programs["mpich"] = MPICH.format(sizes=SIZES), ours
    collected: dict[str, list] = {name: [] for name in (*programs, "limit", "busy")}
    for _ in range(runs):
        for name, (program, launcher) in programs.items():
            collected[name].append(run(program, launcher, {})[0])
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
            file.truncate(2 * max(SIZES) + 8192)
            collected["limit"].append(run(LIMIT.format(sizes=SIZES), ours, {"LIMIT_FILE": file.name})[0])
        spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            collected["busy"].append(run(*programs["ours"], {})[0])
        finally:
            spinner.kill()
            spinner.wait()
    best = {name: best_of(rounds) for name, rounds in collected.items()}
    print("all-reduce, float32: ms, and our time over that of others; busy: with a third process that spins")
    print(f"{'':>9}{'ours':>9}" + "".join(f"{name:>10}  ratio" for name in best if name != "ours"))
    for size in SIZES:
        k, a = str(size), best["ours"][str(size)]
        cells = [
            f"{best[n][k] * 1e3:10.3f} {(best[n][k] / a if n == 'busy' else a / best[n][k]):6.2f}"
            for n in best
            if n != "ours"
        ]
        print(f"{size >> 10:>6} KB{a * 1e3:9.3f}" + "".join(cells))


def steps(ours, theirs, runs: int, beside: bool, quick: bool):
    kinds, count = (1, 10) if quick else (3, 15)
    sides = [("ours", OUR_STEP, ours)] + ([("gloo", THEIR_STEP, theirs)] if beside else [])
    print("\nstep, data parallel over alone")
    for name, imports, launcher in sides:
        found = best_of(
            [run(STEP.format(imports=imports, kinds=kinds, steps=count), launcher, {})[0] for _ in range(runs)]
        )
        for kind in ("mlp", "resnet", "narrow")[:kinds]:
            alone, parallel = found[f"{kind} alone"], found[f"{kind} parallel"]
            busy = found[f"{kind} parallel cpu"] / found[f"{kind} alone cpu"]
            times = f"{parallel * 1e3:8.2f} ms over {alone * 1e3:8.2f} ms = {parallel / alone:.2f}"
            print(f"{name:>6} {kind:>8}: {times}; processor time {busy:.2f}")


def sharded(ours, theirs, runs: int, beside: bool):
    print("\nstep of eight layers of 512 with Adam, fully sharded over alone; parameters and moments that a rank holds")
    sides = [("ours", OUR_SHARDED, ours)] + ([("gloo", THEIR_SHARDED, theirs)] if beside else [])
    for name, imports, launcher in sides:
        found = best_of([run(SHARDED.format(imports=imports), launcher, {})[0] for _ in range(runs)])
        over = found["sharded"] - found["alone"]
        share = found["sharded state"] / found["alone state"]
        times = f"{found['sharded'] * 1e3:.2f} ms over {found['alone'] * 1e3:.2f} ms"
        peaks = [
            (found[key + " peak"] / 4 + found[key + " state"]) / found["alone parameters"]
            for key in ("sharded", "alone")
        ]
        memory = (
            f"; at most {peaks[0]:.2f} times the parameters' bytes (alone {peaks[1]:.2f})" if name == "ours" else ""
        )
        print(f"{name:>6}: {times}: {over * 1e3:.2f} ms more; {share:.2f} held{memory}", flush=True)
    counted = run(COLUMN_ROW, ours, {})[0]
    print(f"column-row MLP: forward {counted['forward']}, backward {counted['backward']}")


def start(ours, theirs, runs: int, beside: bool):
    print("\nstart to the end of a first collective, two ranks")
    first = "{setup}\nx = {make}\ndist.all_reduce(x)\n{end}\n"
    for name, names, launcher in [("ours", OURS, ours)] + ([("gloo", THEIRS, theirs)] if beside else []):
        program = "size = 64\n" + first.format(**names)
        print(f"{name:>6}: {min(run(program, launcher, {})[1] for _ in range(runs)):.2f} s")


def faults(ours, runs: int):
    with tempfile.TemporaryDirectory() as folder:
        times = [
            run(KILLED, ours, {"KILL_FILE": os.path.join(folder, str(i))}, fails=True)[0]["known"] for i in range(runs)
        ]
    print(f"\na rank is killed: the other knows after {min(times) * 1e3:.1f} ms, at most {max(times) * 1e3:.1f} ms")
    with tempfile.TemporaryDirectory() as folder:
        files = [{"KILL_FILE": os.path.join(folder, str(i))} for i in range(runs)]
        times = [run(ELASTIC, [*ours, "--elastic"], file, fails=True)[0]["again"] for file in files]
    print(f"elastic: it trains again, alone, after {min(times) * 1e3:.0f} ms, at most {max(times) * 1e3:.0f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--only", default="collectives,steps,sharded,start,faults")
    parser.add_argument("--torch-python", default=sys.executable, help="the Python that has PyTorch")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    ours = [sys.executable, "-m", "tandem", "run", "-n", "2"]
    theirs = [options.torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    runs = 1 if options.quick else 3
    beside, only = not options.no_torch, options.only.split(",")
    if "collectives" in only:
        collectives(ours, theirs, runs, beside)
    if "steps" in only:
        steps(ours, theirs, runs, beside, options.quick)
    if "sharded" in only:
        sharded(ours, theirs, runs, beside)
    if "start" in only:
        start(ours, theirs, runs, beside)
    if "faults" in only:
        faults(ours, runs)


if __name__ == "__main__":
    main()
