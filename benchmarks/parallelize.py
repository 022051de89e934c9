"""Steps by `td.parallelize`, by plans that people write by hand, and by torch's DistributedDataParallel: processes of one thread.

    python benchmarks/parallelize.py [--models mlp,ncf,gpt_mini,resnet] [--ranks 2] [--rounds 2] [--torch-python PATH]
        [--no-torch]

All train on the same batch of the whole program, with the same optimiser. Rounds of all take turns; times are the best of all
rounds. For each plan the time that the cost model predicts is printed beside the measured one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time


def model_of(name: str, lib, nn, F):
    """(model, arguments, loss of the model's result and the last argument); one text for both libraries."""
    if name == "mlp":
        model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
        return model, (lib.randn(256, 784), lib.randint(0, 10, (256,))), F.cross_entropy
    if name == "ncf":
        return ncf(lib, nn, F)
    if name == "gpt_mini":
        return gpt(lib, nn, F)
    return resnet(lib, nn, F)


def ncf(lib, nn, F, batch=4096):
    class NCF(nn.Module):
        def __init__(self):
            super().__init__()
            self.user_mf, self.item_mf = nn.Embedding(20_000, 64), nn.Embedding(5_000, 64)
            self.user_mlp, self.item_mlp = nn.Embedding(20_000, 128), nn.Embedding(5_000, 128)
            self.mlp = nn.Sequential(
                nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()
            )
            self.head = nn.Linear(128, 1)

        def forward(self, user, item):
            deep = self.mlp(lib.cat([self.user_mlp(user), self.item_mlp(item)], -1))
            return self.head(lib.cat([self.user_mf(user) * self.item_mf(item), deep], -1)).squeeze(-1)

    args = lib.randint(0, 20_000, (batch,)), lib.randint(0, 5_000, (batch,)), lib.rand(batch)
    return NCF(), args, F.binary_cross_entropy_with_logits


def gpt(lib, nn, F, layers=6, width=384, heads=6, length=256, batch=4, vocabulary=5000):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(b, t, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, index):
            return self.head(self.norm(self.blocks(self.tokens(index) + self.positions.weight)))

    args = lib.randint(0, vocabulary, (batch, length)), lib.randint(0, vocabulary, (batch, length))
    return GPT(), args, lambda out, y: F.cross_entropy(out.reshape(-1, vocabulary), y.reshape(-1))


def resnet(lib, nn, F, batch=16):
    class Block(nn.Module):
        def __init__(self, a, b, s):
            super().__init__()
            self.main = nn.Sequential(
                nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b),
            )  # fmt: skip
            self.short = (
                nn.Sequential(nn.Conv2d(a, b, 1, s, bias=False), nn.BatchNorm2d(b)) if a != b else nn.Identity()
            )

        def forward(self, x):
            return F.relu(self.main(x) + self.short(x))

    sizes = (
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    )
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *[Block(*s) for s in sizes],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    return model, (lib.randn(batch, 3, 32, 32), lib.randint(0, 10, (batch,))), F.cross_entropy


def best_time(step, dist, seconds: float) -> float:
    """The least time of a step; as many steps on all ranks."""
    for _ in range(3):
        step()
    began = time.perf_counter()
    step()
    found = [max(3, min(100, int(seconds / (time.perf_counter() - began)))) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, 0)
    times = []
    for _ in range(found[0]):
        dist.barrier()
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return min(times)


def ours(name: str, seconds: float) -> dict:
    import tandem as td

    dist, F = td.distributed, td.nn.functional
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    found: dict[str, list] = {}

    def made():
        td.manual_seed(0)
        return model_of(name, td, td.nn, F)

    def by_plan(**options):
        model, args, criterion = made()
        loss = lambda *b: criterion(model(*b[:-1]), b[-1])
        plan = td.parallelize(loss, args, topology, **options).apply(model)
        optimizer = td.optim.Adam(plan.parameters() or [td.zeros(1, requires_grad=True)], lr=1e-3)
        update = td.compile(optimizer.step)

        def step():
            result = plan.step(*args)
            update()
            optimizer.zero_grad()
            return result.item()

        return step, plan

    def by_hand(wrap):
        model, args, criterion = made()
        rows = args[0].shape[0] // size
        mine = [a[rank * rows : (rank + 1) * rows] for a in args]
        model = wrap(model)
        optimizer = td.optim.Adam(model.parameters(), lr=1e-3)

        @td.compile
        def step(*b):
            result = criterion(model(*b[:-1]), b[-1])
            result.backward()
            optimizer.step()
            optimizer.zero_grad()
            return result

        return lambda: step(*mine).item()

    def by_pipeline():
        model, args, criterion = made()
        loss = lambda *b: criterion(model(*b[:-1]), b[-1])
        count = min(args[0].shape[0], 2 * size)
        pipe = dist.Pipeline(loss, args, micro_batches=count, stages=size)
        own = pipe.parameters() or [td.zeros(1, requires_grad=True)]  # a stage may have none
        optimizer = td.optim.Adam(own, lr=1e-3)
        update = td.compile(optimizer.step)

        def step():
            result = pipe.step(*args)
            update()
            optimizer.zero_grad()
            return result.item()

        return step

    topology = dist.measured()
    began = time.perf_counter()
    step, plan = by_plan()
    found["search"] = time.perf_counter() - began
    found["plan"] = best_time(step, dist, seconds)
    found["predicted plan"] = plan.seconds
    found["stages"] = len(plan.stages)
    found["data parallel"] = best_time(by_hand(dist.data_parallel), dist, seconds)
    if (
        name != "resnet"
    ):  # fully_shard takes no batch norm that trains, and its statistics are not those of micro-batches
        found["fully sharded"] = best_time(by_hand(dist.fully_shard), dist, seconds)
        found["pipeline"] = best_time(by_pipeline(), dist, seconds)
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def theirs(name: str, seconds: float) -> dict:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank, size = dist.get_rank(), dist.get_world_size()
    model, args, criterion = model_of(name, torch, torch.nn, torch.nn.functional)
    rows = args[0].shape[0] // size
    mine = [a[rank * rows : (rank + 1) * rows] for a in args]
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step():
        result = criterion(model(*mine[:-1]), mine[-1])
        result.backward()
        optimizer.step()
        optimizer.zero_grad()
        return result.item()

    found = best_time(step, dist, seconds)
    if rank == 0:
        print(json.dumps({"DDP": found}), flush=True)
    dist.destroy_process_group()


def run(side: str, name: str, ranks: int, seconds: float, python: str = sys.executable) -> dict:
    launcher = {
        "ours": [sys.executable, "-m", "tandem", "run", "-n", str(ranks)],
        "theirs": [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)],
    }[side]
    threads = {"OMP_NUM_THREADS": "1", "TANDEM_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, __file__, "--worker", side, "--models", name, "--seconds", str(seconds)],
        capture_output=True, text=True, timeout=900, env={**os.environ, **threads},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,ncf,gpt_mini,resnet")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--torch-python", default=sys.executable, help="a Python with torch")
    parser.add_argument("--worker", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        {"ours": ours, "theirs": theirs}[options.worker](options.models, options.seconds)
        return
    for name in options.models.split(","):
        rounds = []
        for _ in range(options.rounds):
            found = run("ours", name, options.ranks, options.seconds)
            if not options.no_torch:
                found |= run("theirs", name, options.ranks, options.seconds, options.torch_python)
            rounds.append(found)
        best = {k: min(r[k] for r in rounds) for k in rounds[0]}
        ms = lambda k, best=best: f"{k} {best[k] * 1e3:.1f} ms"
        hand = min((k for k in ("data parallel", "fully sharded", "pipeline") if k in best), key=best.get)
        others = ", ".join(ms(k) for k in ("data parallel", "fully sharded", "pipeline", "DDP") if k in best)
        print(f"{name} on {options.ranks}: {ms('plan')} (predicted {best['predicted plan'] * 1e3:.1f}, {best['stages']} stages, "
              f"found in {rounds[0]['search']:.1f} s, {rounds[-1]['search']:.1f} s again); {others}")  # fmt: skip
        ratio = f"    plan / {hand}: {best['plan'] / best[hand]:.3f}"
        print(ratio + (f", DDP / plan: {best['DDP'] / best['plan']:.2f}" if "DDP" in best else ""), flush=True)


if __name__ == "__main__":
    main()
