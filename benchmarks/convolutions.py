"""Convolutions, forward and training, against PyTorch; of channels-first and channels-last the better layout of each counts.

    python benchmarks/convolutions.py [--peer python-with-torch] [--cases depthwise] [--dtype float32] [--rounds 3] [--seconds 0.05]

Each library runs in a process of its own and they take turns; a time is the best of all turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time

# name: (batch, in channels, out channels, size of the image, kernel, stride, groups[, dilation]); a size or kernel may be a tuple
CASES = {
    "depthwise 3x3": (8, 96, 96, 56, 3, 1, 96),
    "depthwise 3x3 stride 2": (8, 144, 144, 56, 3, 2, 144),
    "depthwise 5x5": (8, 120, 120, 28, 5, 1, 120),
    "depthwise 7x7": (8, 96, 96, 28, 7, 1, 96),
    "depthwise 3x3 small": (8, 384, 384, 14, 3, 1, 384),
    "depthwise 1-D 15": (8, 128, 128, (256,), 15, 1, 128),
    "3x3 of 16": (8, 16, 16, 64, 3, 1, 1),
    "3x3 of 32": (8, 32, 32, 56, 3, 1, 1),
    "3x3 of 64": (4, 64, 64, 56, 3, 1, 1),
    "3x3 of 128": (4, 128, 128, 28, 3, 1, 1),
    "3x3 of 256": (4, 256, 256, 14, 3, 1, 1),
    "3x3 of 512": (4, 512, 512, 7, 3, 1, 1),
    "3x3 64 to 3": (4, 64, 3, 64, 3, 1, 1),
    "3x3 3 to 64": (4, 3, 64, 64, 3, 1, 1),
    "3x3 stride 2": (8, 64, 128, 56, 3, 2, 1),
    "3x3 dilated": (4, 64, 64, 28, 3, 1, 1, 2),
    "3x3 groups of 16": (4, 128, 128, 28, 3, 1, 8),
    "1x1": (8, 64, 256, 28, 1, 1, 1),
    "1x1 small": (8, 256, 64, 14, 1, 1, 1),
    "5x5": (8, 32, 64, 28, 5, 1, 1),
    "7x7 stride 2": (4, 3, 64, 112, 7, 2, 1),
    "4x4 stride 4": (4, 3, 48, 96, 4, 4, 1),
    "1x7": (4, 96, 96, 17, (1, 7), 1, 1),
    "1-D 3 dilated": (8, 64, 64, (512,), 3, 1, 1, 4),
}


def prepare(torch, case: tuple, layout: str, dtype: str):
    """(forward, training step) of a case."""
    batch, channels, out, size, kernel, stride, groups, *rest = case
    dilation = rest[0] if rest else 1
    nd = len(size) if isinstance(size, tuple) else 2
    kernels = kernel if isinstance(kernel, tuple) else (kernel,) * nd
    sizes = size if isinstance(size, tuple) else (size,) * nd
    padding = tuple((k - 1) * dilation // 2 for k in kernels)
    make = (torch.nn.Conv1d, torch.nn.Conv2d)[nd - 1]
    conv = make(channels, out, kernels, stride, padding, dilation, groups, bias=False)
    x = torch.randn(batch, channels, *sizes)
    if dtype != "float32":
        conv, x = conv.to(getattr(torch, dtype)), x.to(getattr(torch, dtype))
    if layout == "last":
        if nd != 2:
            return None
        conv, x = conv.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    with torch.no_grad():
        g = torch.randn_like(conv(x))  # lies as the result does

    def forward():
        with torch.no_grad():
            return conv(x)

    def train():
        x.grad = conv.weight.grad = None
        conv(x).backward(g)

    return forward, train


def serve(library: str):
    if library == "tandem":
        import tandem.torch

        tandem.torch.install()
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    made = {}
    for text in sys.stdin:
        name, layout, dtype, seconds = json.loads(text)
        key = name, layout
        if key not in made:
            made[key] = prepare(torch, CASES[name], layout, dtype)
            for step in made[key] or ():
                step(), step()
        answer = [best(step, seconds) for step in made[key]] if made[key] else None
        print(json.dumps(answer), flush=True)


def best(step, seconds: float) -> float:
    least, begun = math.inf, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        step()
        least = min(least, time.perf_counter() - start)
    return least


class Process:
    def __init__(self, library: str, python: str):
        threads = {f"{prefix}_NUM_THREADS": "2" for prefix in ("OMP", "TANDEM")}
        command = [python, __file__, "--serve", library]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, env=os.environ | threads, **pipes)

    def ask(self, *request):
        """Whoever is not asked stands still: threads that wait for work would take the other's processors for a while."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.process.send_signal(signal.SIGSTOP)
        return answer


def main():
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="")
    parser.add_argument("--peer", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.05)
    options = parser.parse_args()
    processes = {"tandem": Process("tandem", sys.executable), "torch": Process("torch", options.peer)}
    chosen = [name for name in CASES if any(part in name for part in options.cases.split(","))]
    print(
        f"{options.dtype:24} {'forward':>8} {'training':>9}   microseconds, forward and training, channels first | last"
    )
    for name in chosen:
        times = {}
        for _ in range(options.rounds):
            for library, process in processes.items():
                for layout in ("first", "last"):
                    found = process.ask(name, layout, options.dtype, options.seconds)
                    if found:
                        before = times.get((library, layout), [math.inf] * 2)
                        times[library, layout] = [min(pair) for pair in zip(before, found)]
        least = {
            library: [min(t) for t in zip(*(v for (who, _), v in times.items() if who == library))]
            for library in processes
        }
        ratios = [ours / theirs for ours, theirs in zip(least["tandem"], least["torch"])]
        detail = "   ".join(
            f"{library} "
            + " | ".join(
                " ".join(f"{t * 1e6:.0f}" for t in times[library, layout])
                for layout in ("first", "last")
                if (library, layout) in times
            )
            for library in processes
        )
        print(f"{name:24} {ratios[0]:8.2f} {ratios[1]:9.2f}   {detail}", flush=True)
    for process in processes.values():
        process.process.kill()


if __name__ == "__main__":
    main()
