"""Attention with masks, dropout, shared heads and score functions, forward and training, against PyTorch.

    python benchmarks/attention.py [--peer python-with-torch] [--cases alibi] [--rounds 3] [--seconds 0.2]

PyTorch takes part as scaled_dot_product_attention with the mask or bias as a matrix, as its formula in plain operators, and,
forward only, as compiled flex_attention (its CPU kernel has no backward); the best of them counts. Each library runs in a process
of its own and they take turns; a time is the best of all turns. OMP_NUM_THREADS: threads of both, 2 by default.
MB: what the process's peak grew by in a training step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time

B, H, T, D = 2, 8, 1024, 64
THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
CASES = (
    "padding",
    "dropout",
    "padding+dropout",
    "grouped",
    "learned bias",
    "causal",
    "window",
    "documents",
    "alibi",
    "softcap",
)


def prepare(torch, name: str) -> dict:
    """{way: function of q, k, v} of one library, and the operands."""
    heads = 2 if name == "grouped" else H
    q, k, v = (torch.randn(B, n, T, D, requires_grad=True) for n in (H, heads, heads))
    lengths = torch.arange(B) * (T // 4) + T // 2
    position = torch.arange(T)
    document = position // (T // 8)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    index = position[:, None] - position[None, :]
    seen = {
        "padding": (position < lengths[:, None])[:, None, None, :], "causal": index >= 0,
        "window": (index >= 0) & (index < 128), "documents": document[:, None] == document[None, :],
    }  # fmt: skip
    seen["padding+dropout"] = seen["padding"]
    slopes = 2.0 ** -(torch.arange(H) + 1.0)
    leaves, p = [q, k, v], 0.1 if "dropout" in name else 0.0
    mods = {
        "alibi": lambda s, b, h, i, j: s + (j - i) * slopes[h], "softcap": lambda s, b, h, i, j: 20 * torch.tanh(s / 20),
    }  # fmt: skip
    masks = {
        "causal": lambda b, h, i, j: i >= j, "window": lambda b, h, i, j: (i >= j) & (i - j < 128),
        "documents": lambda b, h, i, j: document[i] == document[j], "padding": lambda b, h, i, j: j < lengths[b],
    }  # fmt: skip
    ways = {}
    if name == "learned bias":
        bias = torch.randn(1, H, T, T, requires_grad=True)
        leaves.append(bias)
        ways["sdpa"] = lambda q, k, v, bias: sdpa(q, k, v, bias)
    elif name == "alibi":
        added = -index * slopes[:, None, None]
        ways["sdpa"] = lambda q, k, v: sdpa(q, k, v, added[None])
    elif name != "softcap":
        causal = {"is_causal": True} if name == "causal" else {"attn_mask": seen.get(name)}
        ways["sdpa"] = lambda q, k, v: sdpa(q, k, v, dropout_p=p, enable_gqa=heads != H, **causal)

    def formula(q, k, v, bias=None):
        if heads != H:
            k, v = (x.repeat_interleave(H // heads, 1) for x in (k, v))
        s = q @ k.transpose(-1, -2) / math.sqrt(D)
        if name == "softcap":
            s = 20 * torch.tanh(s / 20)
        elif name == "alibi":
            s = s + added[None]
        elif bias is not None:
            s = s + bias
        elif name in seen:
            s = s.masked_fill(~seen[name], -math.inf)
        return torch.nn.functional.dropout(torch.softmax(s, -1), p) @ v

    ways["formula"] = formula
    if name in mods or name in masks:
        from importlib import import_module

        flex = import_module(f"{torch.__name__}.nn.attention.flex_attention")
        block = None
        if name in masks:
            block = flex.create_block_mask(masks[name], B if name == "padding" else None, None, T, T, device="cpu")
        ways["flex"] = lambda q, k, v: flex.flex_attention(q, k, v, mods.get(name), block)
    return ways, leaves


def best(fn, seconds: float) -> float:
    fn(), fn()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(library: str, name: str, seconds: float) -> dict:
    if library == "tandem":
        import tandem as torch

        torch.set_num_threads(THREADS)
    else:
        import torch

        torch.set_num_threads(THREADS)
    ways, leaves = prepare(torch, name)
    result = {}
    for way, fn in ways.items():
        if library == "torch" and way == "flex":
            fn = torch.compile(fn)

        given = [x.detach() for x in leaves]

        def forward(fn=fn, given=given):
            with torch.no_grad():
                return fn(*given)

        def train(fn=fn):
            for x in leaves:
                x.grad = None
            fn(*leaves).sum().backward()

        if not (library == "torch" and way == "flex"):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            train()
            if not result:  # a peak only grows
                result[way, "MB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            result[way, "training"] = best(train, seconds)
        result[way, "forward"] = best(forward, seconds)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=sys.executable)
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--worker", nargs=2)
    options = parser.parse_args()
    if options.worker:
        found = measure(*options.worker, options.seconds)
        print(json.dumps([[*key, value] for key, value in found.items()]))
        return
    print(f"{'case':18}{'':10}{'tandem ms':>10}  way        {'torch ms':>10}  way        ratio")
    for name in options.cases:
        kept: dict = {}
        for _ in range(options.rounds):
            for library, python in (("tandem", sys.executable), ("torch", options.peer)):
                command = [python, __file__, "--worker", library, name, "--seconds", str(options.seconds)]
                text = subprocess.run(command, capture_output=True, text=True)
                if text.returncode:
                    print(text.stderr[-2000:])
                    continue
                for way, what, value in json.loads(text.stdout.splitlines()[-1]):
                    key = library, what, way
                    kept[key] = min(value, kept.get(key, math.inf))
        for what in ("forward", "training", "MB"):
            sides = {}
            for library in ("tandem", "torch"):
                ways = {w: v for (lib, kind, w), v in kept.items() if lib == library and kind == what}
                if library == "tandem":  # what a user of the function has, not the formula
                    ways = {w: v for w, v in ways.items() if w != "formula"}
                if ways:
                    sides[library] = min((v, w) for w, v in ways.items())
            if len(sides) == 2:
                (own, w), (other, x) = sides["tandem"], sides["torch"]
                factor = 1 if what == "MB" else 1e3
                print(
                    f"{name:18}{what:10}{own * factor:10.2f}  {w:10} {other * factor:10.2f}  {x:10} {own / max(other, 1e-9):.2f}"
                )


if __name__ == "__main__":
    main()
