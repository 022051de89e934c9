"""GPT-mini as a pipeline of two stages, two processes of one thread each, with torch.distributed.pipelining beside.

    python benchmarks/pipeline.py [--rounds 2] [--micro 8] [--batch 16] [--no-torch] [--torch-python PATH]

`alone` is the same step without a pipeline, micro-batch by micro-batch, on both processes at the same time. Efficiency is
alone / (2 x step) over the ideal m / (m + p - 1). Rounds of both libraries take turns; times are the best of all rounds.
The stages are cut where the work is equal; torch's after 3 or 4 layers, whichever is quicker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY, RANKS = 6, 384, 6, 256, 5000, 2


def blocks(nn, F):
    """The parts of the model; one text for both libraries."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(b, t, WIDTH))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Part(nn.Module):
        """Layers from first to last; the first part has the embeddings, the last one the head."""

        def __init__(self, first: int, last: int):
            super().__init__()
            self.begins, self.ends = first == 0, last == LAYERS
            if self.begins:
                self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(first, last)])
            if self.ends:
                self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, x):
            if self.begins:
                x = self.tokens(x) + self.positions.weight
            x = self.blocks(x)
            return self.head(self.norm(x)) if self.ends else x

    return Part


def count_of(seconds_of_one: float, seconds: float) -> int:
    return max(3, min(200, int(seconds / seconds_of_one)))


def steps(step, dist, seconds: float) -> float:
    """The least time of a step: as many on all ranks."""
    step()
    began = time.perf_counter()
    step()
    count = dist_count(dist, count_of(time.perf_counter() - began, seconds))
    times = []
    for _ in range(count):
        dist.barrier()
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return min(times)


def dist_count(dist, count: int) -> int:
    found = [count if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, 0)
    return found[0]


def ours(micro: int, batch: int, seconds: float, schedules: list[str]) -> dict:
    import tandem as td

    dist, F = td.distributed, td.nn.functional
    dist.init_process_group()
    td.manual_seed(0)
    model = blocks(td.nn, F)(0, LAYERS)
    x, y = td.randint(0, VOCABULARY, (batch, LENGTH)), td.randint(0, VOCABULARY, (batch, LENGTH))
    loss_of = lambda x, y: F.cross_entropy(model(x).reshape(-1, VOCABULARY), y.reshape(-1))
    found = {}

    optimizer = td.optim.AdamW(model.parameters(), lr=3e-4)
    rows = batch // micro

    def accumulate(x, y):
        loss_of(x, y).backward()

    accumulate = td.compile(accumulate)
    update = td.compile(optimizer.step)

    def alone():
        for m in range(micro):
            accumulate(x[m * rows : (m + 1) * rows], y[m * rows : (m + 1) * rows])
        update()
        optimizer.zero_grad()

    found["alone"] = steps(alone, dist, seconds)
    for schedule in schedules:
        pipe = dist.Pipeline(loss_of, (x, y), micro_batches=micro, stages=RANKS, schedule=schedule)
        own = td.optim.AdamW(pipe.parameters(), lr=3e-4)
        own_update = td.compile(own.step)

        def step(pipe=pipe, own=own, own_update=own_update):
            loss = pipe.step(x, y)
            own_update()
            own.zero_grad()
            return loss.item()

        found[schedule] = steps(step, dist, seconds)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def theirs(micro: int, batch: int, seconds: float, schedules: list[str]) -> dict:
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Part = blocks(torch.nn, torch.nn.functional)
    rank, rows, device = dist.get_rank(), batch // micro, torch.device("cpu")
    x, y = torch.randint(0, VOCABULARY, (batch, LENGTH)), torch.randint(0, VOCABULARY, (batch, LENGTH))
    cross_entropy = lambda out, y: torch.nn.functional.cross_entropy(out.reshape(-1, VOCABULARY), y.reshape(-1))
    found = {}

    model = Part(0, LAYERS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def alone():
        for m in range(micro):
            part = slice(m * rows, (m + 1) * rows)
            cross_entropy(model(x[part]), y[part]).backward()
        optimizer.step()
        optimizer.zero_grad()

    found["alone"] = steps(alone, dist, seconds)
    makers = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
    for schedule in (s for s in schedules if s in makers):
        made = {}
        for cut in (3, 4):
            part = Part(0, cut) if rank == 0 else Part(cut, LAYERS)
            stage = PipelineStage(part, rank, RANKS, device)
            runs = makers[schedule](stage, n_microbatches=micro, loss_fn=cross_entropy)
            own = torch.optim.AdamW(part.parameters(), lr=3e-4, fused=True)

            def step(runs=runs, own=own):
                runs.step(x) if rank == 0 else runs.step(target=y, losses=[])
                own.step()
                own.zero_grad()

            made[cut] = step
            found[f"{schedule} after {cut}"] = steps(step, dist, 0.0)
        quicker = min(made, key=lambda cut: found[f"{schedule} after {cut}"])
        quicker = dist_count(dist, quicker)
        found[schedule] = min(found[f"{schedule} after {quicker}"], steps(made[quicker], dist, seconds))
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def run(side: str, options) -> dict:
    launcher = {
        "ours": [sys.executable, "-m", "tandem", "run", "-n", "2"],
        "theirs": [options.torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    }[side]
    more = ["--worker", side, "--micro", str(options.micro), "--batch", str(options.batch)]
    more += ["--seconds", str(options.seconds), "--schedules", options.schedules]
    threads = {"OMP_NUM_THREADS": "1", "TANDEM_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, __file__, *more], capture_output=True, text=True, timeout=900, env={**os.environ, **threads}
    )
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--schedules", default="1f1b,gpipe,zero_bubble")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--torch-python", default=sys.executable, help="a Python with torch")
    parser.add_argument("--worker", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    schedules = options.schedules.split(",")
    if options.worker:
        {"ours": ours, "theirs": theirs}[options.worker](options.micro, options.batch, options.seconds, schedules)
        return
    rounds: dict[str, list[dict]] = {"ours": [], "theirs": []}
    for _ in range(options.rounds):
        rounds["ours"].append(run("ours", options))
        if not options.no_torch:
            rounds["theirs"].append(run("theirs", options))
    best = {side: {k: min(r[k] for r in found) for k in found[0]} for side, found in rounds.items() if found}
    ideal = options.micro / (options.micro + RANKS - 1)
    print(f"GPT-mini, batch {options.batch}, {options.micro} micro-batches, {RANKS} processes of one thread")
    for side, found in best.items():
        for name, seconds in found.items():
            share = found["alone"] / RANKS / seconds / ideal
            text = "" if name == "alone" else f"  efficiency {share:.3f} of the ideal {ideal:.3f}"
            beside = best.get("theirs", {}).get(name)
            if side == "ours" and beside:
                text += f"  torch / ours {beside / seconds:.2f}"
            print(f"{side:>7} {name:>14}: {seconds * 1e3:8.1f} ms{text}")


if __name__ == "__main__":
    main()
