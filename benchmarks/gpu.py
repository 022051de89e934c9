"""Tandem and PyTorch on one CUDA device, each in its own process; prints one short table with ratios to the bars.

    python benchmarks/gpu.py [--cases resnet50,gpt2] [--modes eager,compiled] [--torch-modes eager,reduce-overhead] [--seconds 3]

PyTorch's images lie channels-last, which is faster for it; its mode eager-nchw leaves them as they come.
Times are medians of steps measured with a synchronisation every few steps; memory is the allocator's peak. With --together all
processes compile at the same time, which is quicker but makes the first steps slower than they are alone.

    python benchmarks/gpu.py --first 3 [--cases lstm_lm,ncf] [--torch-modes reduce-overhead]

First compiled steps alone: every process by itself, ours and theirs by turns, this many times, with empty caches of all kinds
(ours, the driver's, Triton's, Inductor's) and with the bytecode that an installed package has; prints the least of each.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time


def library_of(library: str, mode: str) -> tuple:
    """(models, how a step is compiled, waiting for the device, peak memory) of tandem or torch."""
    from gpu_models import GpuModels

    if library == "torch":
        import torch as lib
        from torch import nn, optim
        from torch.nn import functional

        eager = mode in ("eager", "eager-nchw")
        compiled = lambda f: f if eager else lib.compile(f, mode=None if mode == "default" else mode)
    else:
        import tandem as lib
        from tandem import nn, optim
        from tandem.nn import functional

        compiled = lambda f: f if mode == "eager" else lib.compile(f)
    autocast = lambda: lib.autocast("cuda", lib.bfloat16)
    layout = lib.contiguous_format if mode == "eager-nchw" else lib.channels_last
    models = GpuModels(lib, nn, functional, optim, library == "torch", autocast, layout)
    return models, compiled, lib.cuda.synchronize, lib.cuda.max_memory_allocated


def worker(library: str, case: str, mode: str, seconds: float, waits: bool) -> dict:
    models, compiled, sync, peak = library_of(library, mode)
    if case == "micro":
        if waits:
            turn()
        return micro(models.lib, sync)
    step = compiled(getattr(models, case)())
    sync()
    start = time.perf_counter()
    first = float(step())
    sync()
    cold = time.perf_counter() - start
    for _ in range(5):
        loss = step()
    sync()
    if waits:
        turn()
        for _ in range(3):
            loss = step()
        sync()
    times, begun = [], time.perf_counter()
    while time.perf_counter() - begun < seconds or len(times) < 3:
        start = time.perf_counter()
        for _ in range(5):
            loss = step()
        sync()
        times.append((time.perf_counter() - start) / 5)
    result = {"ms": statistics.median(times) * 1e3, "cold": cold, "peak": peak(), "first": first, "last": float(loss)}
    folder = os.environ.get("GPU_KERNELS")  # where to leave a list of kernels
    if folder:
        from gpu_kernels import record, write

        write(record(step, sync), f"{library} {case} {mode}", os.path.join(folder, f"{library}-{case}-{mode}"))
    return result


def turn():
    """Says that all is compiled, and waits for the time to be measured alone."""
    print("ready", flush=True)
    sys.stdin.readline()


def micro(lib, sync) -> dict:
    x, y = lib.randn(8, 8, device="cuda"), lib.randn(8, 8, device="cuda")
    w = lib.randn(8, 8, device="cuda", requires_grad=True)

    def both():
        w.grad = None
        (x @ w).relu().sum().backward()

    result = {}
    for name, f in (("add", lambda: x + y), ("matmul", lambda: x @ y), ("both", both)):
        best, begun = [], time.perf_counter()
        while time.perf_counter() - begun < 0.5:  # a processor that was idle needs a while to run at its speed
            start = time.perf_counter()
            for _ in range(500):
                f()
            sync()
            best.append((time.perf_counter() - start) / 500 * 1e6)
        result[name] = min(best)
    return result


class Asked:
    """A process that compiles at once, while others do, and measures when it is its turn."""

    def __init__(self, library: str, case: str, mode: str, seconds: float, waits: bool, env: dict | None = None):
        command = [sys.executable, __file__, "--worker", library, case, mode, str(seconds), str(int(waits))]
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env={**os.environ, **(env or {}), "PYTHONPATH": path})  # fmt: skip

    def wait(self, deadline: float):
        """Until it is ready, or has failed; it is stopped at the deadline."""
        timer = threading.Timer(max(deadline - time.monotonic(), 0.1), self.process.kill)
        timer.start()
        for line in self.process.stdout:
            if line.startswith("ready"):
                break
        timer.cancel()

    def result(self, timeout: float) -> dict:
        try:
            out, _ = self.process.communicate("go\n", timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return {"error": "timeout"}
        for line in reversed(out.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        self.errors.seek(0)
        log = self.errors.read()
        return {"error": (log.strip().splitlines() or ["no output"])[-1][:200], "log": log[-3000:]}


FIRST_BAR = 0.15  # of PyTorch's first step
# Where each keeps what it compiled: ours, the driver's, and those of torch.compile.
CACHES = ("TANDEM_CACHE_DIR", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def first_steps(cases: list[str], torch_modes: list[str], times: int, timeout: float) -> None:
    compileall.compile_dir(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tandem"), quiet=1)
    print(f"{'first step of':18}{'tandem':>9}{'torch':>9}{'ratio':>8}{'bar':>6}   all of them")
    for case in cases:
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(times):
            for library, mode in (("tandem", "compiled"), *(("torch", m) for m in torch_modes if m != "eager")):
                with tempfile.TemporaryDirectory() as empty:
                    env = {name: os.path.join(empty, name) for name in CACHES}
                    result = Asked(library, case, mode, 0.1, False, env).result(timeout)
                if "error" in result:
                    print(f"{case} {library} {mode}: {result['error']}\n{result.get('log', '')}", flush=True)
                else:
                    found.setdefault((library, mode), []).append(result["cold"])
        a = min(found.get(("tandem", "compiled"), []), default=float("nan"))
        b = min((t for (library, _), all in found.items() if library == "torch" for t in all), default=float("nan"))
        shown = "; ".join(f"{l} {m} " + " ".join(f"{t:.2f}" for t in ts) for (l, m), ts in found.items())
        print(f"{case:18}{a:>8.2f}s{b:>8.2f}s{a / b:>8.3f}{FIRST_BAR:>6}   {shown}", flush=True)


def main():
    from gpu_models import BARS, EAGER_BAR

    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", default="micro," + ",".join(BARS))
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--torch-modes", default="eager,reduce-overhead")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--timeout", type=float, default=150)
    parser.add_argument("--json", default="")
    parser.add_argument("--together", action="store_true", help="compile all at once, then measure one by one")
    parser.add_argument(
        "--first", type=int, default=0, metavar="TIMES", help="first compiled steps alone, with empty caches"
    )
    args = parser.parse_args()
    if args.first:
        cases = [case for case in args.cases.split(",") if case != "micro"]
        first_steps(cases, args.torch_modes.split(","), args.first, args.timeout)
        return
    results: dict = {}
    wanted = []
    for case in args.cases.split(","):
        ours = ["eager"] if case == "micro" else args.modes.split(",")
        theirs = ["eager"] if case == "micro" else [m for m in args.torch_modes.split(",") if m]
        wanted += [(case, library, mode) for library, modes in (("tandem", ours), ("torch", theirs)) for mode in modes]
    ask = lambda case, library, mode: Asked(library, case, mode, args.seconds, args.together)
    started = {key: ask(*key) for key in wanted} if args.together else {}
    deadline = time.monotonic() + args.timeout
    for asked in started.values():
        asked.wait(deadline)
    for key in wanted:
        found = results[key] = (started.get(key) or ask(*key)).result(args.timeout)
        if "error" in found:
            print(f"{' '.join(key)}: {found['error']}\n{found.get('log', '')}", flush=True)
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
            peaks = [get("torch", m, "peak") for m in peers if m != "eager-nchw"]
            peak = f"{get('tandem', mode, 'peak') / 2**30:.2f}/{min(peaks, default=0) / 2**30:.2f}"
            print(f"{case:18}{mode:10}{a:>8.2f}ms{shown:>26}{ratio:>8}{bar:>6}{cold:>14}{peak:>14}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump([{"case": c, "library": l, "mode": m, **r} for (c, l, m), r in results.items()], file, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(worker(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]), sys.argv[6] == "1")))
    else:
        main()
