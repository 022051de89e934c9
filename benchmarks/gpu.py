"""Tandem and PyTorch on one CUDA device, each in its own process; prints one short table with ratios to the bars.

    python benchmarks/gpu.py [--cases resnet50,gpt2] [--modes eager,compiled] [--torch-modes eager,reduce-overhead] [--seconds 3]

Times are medians of steps measured with a synchronisation every few steps; memory is the allocator's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def worker(library: str, case: str, mode: str, seconds: float) -> dict:
    if library == "torch":
        import torch as lib
        from torch import nn, optim
        from torch.nn import functional

        autocast = lambda: lib.autocast("cuda", lib.bfloat16)
        sync, peak = lib.cuda.synchronize, lib.cuda.max_memory_allocated
        if mode == "eager":
            compiled = lambda f: f
        else:
            compiled = lambda f: lib.compile(f, mode=None if mode == "default" else mode)
    else:
        import tandem as lib
        from tandem import nn, optim
        from tandem.nn import functional

        autocast = lambda: lib.autocast("cuda", lib.bfloat16)
        sync, peak = lib.cuda.synchronize, lib.cuda.max_memory_allocated
        compiled = (lambda f: f) if mode == "eager" else lib.compile
    if case == "micro":
        return micro(lib, sync)
    from gpu_models import GpuModels

    models = GpuModels(lib, nn, functional, optim, library == "torch", autocast, lib.channels_last)
    step = compiled(getattr(models, case)())
    sync()
    start = time.perf_counter()
    first = float(step())
    sync()
    cold = time.perf_counter() - start
    for _ in range(5):
        loss = step()
    sync()
    times, begun = [], time.perf_counter()
    while time.perf_counter() - begun < seconds or len(times) < 3:
        start = time.perf_counter()
        for _ in range(5):
            loss = step()
        sync()
        times.append((time.perf_counter() - start) / 5)
    return {"ms": statistics.median(times) * 1e3, "cold": cold, "peak": peak(), "first": first, "last": float(loss)}


def micro(lib, sync) -> dict:
    x, y = lib.randn(8, 8, device="cuda"), lib.randn(8, 8, device="cuda")
    w = lib.randn(8, 8, device="cuda", requires_grad=True)

    def both():
        w.grad = None
        (x @ w).relu().sum().backward()

    result = {}
    for name, f in (("add", lambda: x + y), ("matmul", lambda: x @ y), ("both", both)):
        for _ in range(100):
            f()
        sync()
        best = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(500):
                f()
            sync()
            best.append((time.perf_counter() - start) / 500 * 1e6)
        result[name] = min(best)
    return result


def ask(library: str, case: str, mode: str, seconds: float, timeout: float) -> dict:
    command = [sys.executable, __file__, "--worker", library, case, mode, str(seconds)]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {**os.environ, "PYTHONPATH": root}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": "timeout"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200], "log": done.stderr[-3000:]}


def main():
    from gpu_models import BARS, EAGER_BAR

    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", default="micro," + ",".join(BARS))
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--torch-modes", default="eager,reduce-overhead")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--timeout", type=float, default=150)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    results: dict = {}
    for case in args.cases.split(","):
        ours = ["eager"] if case == "micro" else args.modes.split(",")
        theirs = ["eager"] if case == "micro" else [m for m in args.torch_modes.split(",") if m]
        for library, modes in (("tandem", ours), ("torch", theirs)):
            for mode in modes:
                found = results[case, library, mode] = ask(library, case, mode, args.seconds, args.timeout)
                if "error" in found:
                    print(f"{case} {library} {mode}: {found['error']}\n{found.get('log', '')}", flush=True)
    print(f"{'case':18}{'mode':10}{'tandem':>10}{'torch':>26}{'ratio':>8}{'bar':>6}{'cold s':>14}{'peak GiB':>14}")
    for case in args.cases.split(","):
        get = lambda library, mode, key, case=case: results.get((case, library, mode), {}).get(key)
        if case == "micro":
            for key in ("add", "matmul", "both"):
                a, b = get("tandem", "eager", key), get("torch", "eager", key)
                if a and b:
                    print(f"{key:18}{'eager':10}{a:>8.2f}us{b:>24.2f}us{a / b:>8.2f}{0.5:>6}")
            continue
        peers = {m: get("torch", m, "ms") for m in args.torch_modes.split(",") if get("torch", m, "ms")}
        for mode in args.modes.split(","):
            a = get("tandem", mode, "ms")
            if a is None:
                continue
            best = peers.get("eager") if mode == "eager" else min(peers.values(), default=None)
            shown = " ".join(f"{m[:6]} {v:.2f}" for m, v in peers.items())
            ratio = f"{a / best:.2f}" if best else "-"
            bar = EAGER_BAR if mode == "eager" else BARS[case]
            torch_mode = "eager" if mode == "eager" else next((m for m in peers if m != "eager"), "eager")
            cold = f"{get('tandem', mode, 'cold'):.1f}/{get('torch', torch_mode, 'cold') or 0:.1f}"
            peaks = [get("torch", m, "peak") for m in peers]
            peak = f"{get('tandem', mode, 'peak') / 2**30:.2f}/{min(peaks, default=0) / 2**30:.2f}"
            print(f"{case:18}{mode:10}{a:>8.2f}ms{shown:>26}{ratio:>8}{bar:>6}{cold:>14}{peak:>14}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump([{"case": c, "library": l, "mode": m, **r} for (c, l, m), r in results.items()], file, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(worker(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]))))
    else:
        main()
