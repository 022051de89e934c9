"""Attention on one CUDA device: right against float32, then its time next to PyTorch's kernels, one table.

    python benchmarks/gpu_attention.py [--tune] [--parts check,time,torch]

Each part runs in its own process under a time limit, so that a kernel that never ends does not take the rest along. Times are
those of events around many calls in a row, in microseconds; rates count the products of forward (and 2.5 times as many
backward), half of them where attention is causal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

SHAPES = [(8, 12, 1024, 64), (4, 16, 2048, 128), (2, 16, 4096, 64)]
CHECKED = [  # b, h, t, s, d, causal, mask
    (1, 1, 64, 64, 64, False, None), (1, 1, 64, 128, 64, False, None), (1, 2, 128, 128, 64, True, None),
    (2, 3, 300, 300, 64, True, None), (2, 3, 200, 333, 64, False, None), (1, 2, 300, 300, 128, True, None),
    (1, 2, 130, 700, 128, False, None), (1, 2, 257, 257, 48, True, None), (1, 1, 100, 100, 96, True, None),
    (1, 2, 150, 190, 64, False, "bool"), (1, 2, 150, 190, 64, False, "float32"), (1, 2, 150, 190, 128, False, "bfloat16"),
    (1, 2, 400, 100, 64, True, None), (1, 2, 100, 400, 64, True, None), (2, 12, 1024, 1024, 64, True, None),
]  # fmt: skip
MODES = ["fwd", "fwd causal", "fwd+bwd", "fwd+bwd causal"]


def operations(shape, mode: str) -> float:
    b, h, t, d = shape
    return 4 * b * h * t * t * d * (3.5 if "bwd" in mode else 1) * (0.5 if "causal" in mode else 1)


def check() -> dict:
    import tandem as td

    td.manual_seed(1)
    failed = 0
    for dtype in (td.bfloat16, td.float16):
        for b, h, t, s, d, causal, masked in CHECKED:
            q, k, v, g = (td.randn(b, h, n, d, device="cuda").to(dtype) for n in (t, s, s, t))
            mask = td.randn(t, s, device="cuda") if masked else None
            if masked == "bool":
                mask = mask > -0.5
            elif masked:
                mask = mask.to(getattr(td, masked))

            def all_of(*operands, mask=mask, causal=causal, g=g):
                x = [y.detach().requires_grad_() for y in operands]
                out = td.scaled_dot_product_attention(*x, mask, is_causal=causal)
                return [out.detach(), *td.autograd.grad(out, x, g.to(out.dtype))]

            names = ("out", "dq", "dk", "dv")
            have = all_of(q, k, v)
            again = all_of(q, k, v)
            float_mask = mask if mask is None or mask.dtype == td.bool else mask.float()
            wanted = all_of(q.float(), k.float(), v.float(), mask=float_mask)
            row, bad = [], False
            for name, x, y, z in zip(names, have, again, wanted):
                error = float(((x.float() - z) ** 2).sum() / (z**2).sum()) ** 0.5
                same = bool((x == y).all())
                limit = 2e-2 if dtype == td.bfloat16 else 3e-3
                bad |= not error < limit or not same
                row.append(f"{name} {error:.1e}{'' if same else ' CHANGES'}")
            failed += bad
            print(
                f"{'BAD ' if bad else 'ok  '} {dtype} {(b, h, t, s, d)} causal={causal} mask={masked}: {', '.join(row)}",
                flush=True,
            )
            if bad and (b, h) == (1, 1):
                show_blocks(have, wanted)
    print(f"{failed} of {2 * len(CHECKED)} wrong")
    return {"failed": failed}


def show_blocks(have, wanted) -> None:
    """Where errors lie: one figure per 8 x 8 elements, of the first head."""
    import numpy as np

    for name, x, z in zip(("out", "dq"), have, wanted):
        error = np.abs(x.float().cpu().numpy()[0, 0] - z.cpu().numpy()[0, 0])
        rows, columns = error.shape[0] // 8 * 8, error.shape[1] // 8 * 8
        blocks = error[:rows, :columns].reshape(rows // 8, 8, columns // 8, 8).max((1, 3))
        print(name, "\n" + "\n".join(" ".join(f"{e:8.1e}" for e in line) for line in blocks[:16]), flush=True)


def timed(lib, call, count: int = 20) -> float:
    for _ in range(3):
        call()
    best = float("inf")
    for _ in range(3):
        start, end = lib.cuda.Event(enable_timing=True), lib.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / count)
    return best * 1e3


def cases(lib, attend, grad):
    for shape in SHAPES:
        q, k, v, g = (lib.randn(*shape, device="cuda").to(lib.bfloat16) for _ in range(4))
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        for mode in MODES:
            causal = "causal" in mode
            if "bwd" in mode:
                yield shape, mode, lambda x=leaves, g=g, causal=causal: grad(attend(*x, is_causal=causal), x, g)
            else:
                yield shape, mode, lambda x=(q, k, v), causal=causal: attend(*x, is_causal=causal)


def time_tandem() -> dict:
    import tandem as td

    results = {}
    for shape, mode, call in cases(td, td.scaled_dot_product_attention, td.autograd.grad):
        results[f"{shape} {mode}"] = timed(td, call)
    with td.cuda.profile() as p:
        for shape, mode, call in cases(td, td.scaled_dot_product_attention, td.autograd.grad):
            if mode == "fwd+bwd causal" and shape == SHAPES[0]:
                for _ in range(10):
                    call()
    print(p)
    return results


def time_torch() -> dict:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    results = {}
    backends = {
        "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }  # fmt: skip
    for name, backend in backends.items():
        for shape, mode, call in cases(torch, torch.nn.functional.scaled_dot_product_attention, torch.autograd.grad):
            try:
                with sdpa_kernel(backend):
                    results[f"{shape} {mode} {name}"] = timed(torch, call)
            except RuntimeError as error:
                print(name, shape, mode, str(error)[:100])
                break
    return results


# What a block may be made of: groups of warps, blocks on a multiprocessor, places in the ring, whether scores are a tile ahead.
TUNED = {
    ("forward", 64): [(2, 2, 4), (2, 1, 5, 1), (3, 1, 5, 1), (1, 2, 5, 1), (1, 4, 4), (3, 1, 4), (4, 1, 4)],
    ("forward", 128): [(2, 1, 4), (2, 1, 5, 1), (3, 1, 4), (1, 1, 5, 1)],
    ("queries", 64): [(2, 1, 4), (2, 1, 5, 1), (2, 1, 4, 1), (1, 2, 5, 1), (3, 1, 4), (1, 2, 4)],
    ("keys", 64): [(2, 1, 4), (2, 1, 5, 1), (2, 1, 4, 1), (1, 2, 5, 1), (1, 2, 4)],
    ("queries", 128): [(2, 1, 4), (2, 1, 4, 1), (1, 1, 4)],
    ("keys", 128): [(2, 1, 4), (1, 1, 4)],
}


def tune() -> dict:
    """Each choice by itself, on causal attention of the first two shapes. The scale differs a little from call to call of the
    compiler, so that kernels are made anew."""
    import math

    import tandem as td
    from tandem.codegen.cuda.attention import GROUPS

    scale = 0.125
    for (kind, size), choices in TUNED.items():
        shape = next(s for s in SHAPES if s[3] == size)
        leaves = [td.randn(*shape, device="cuda").to(td.bfloat16).requires_grad_() for _ in range(3)]
        g = td.randn(*shape, device="cuda").to(td.bfloat16)
        usual_results = None
        for choice in choices:
            GROUPS[kind, size], usual = choice, GROUPS[kind, size]
            scale = math.nextafter(scale, 1) + 1e-6
            try:
                call = lambda x=leaves, scale=scale: td.scaled_dot_product_attention(*x, is_causal=True, scale=scale)
                out = call()
                results = [out.detach(), *td.autograd.grad(out, leaves, g)]
                usual_results = usual_results or results
                pairs = zip(results, usual_results)
                error = max(float((a - b).float().norm() / b.float().norm()) for a, b in pairs)
                with td.cuda.profile() as p:
                    for _ in range(10):
                        td.autograd.grad(call(), leaves, g)
                label = {"forward": "attention in", "queries": "attention_backward_q", "keys": "attention_backward_kv"}[
                    kind
                ]
                lines = [line for line in str(p).splitlines() if label in line]
                print(f"{kind} {size} {choice}: {' | '.join(lines)}, differs by {error:.1e}", flush=True)
            except Exception as error:
                print(f"{kind} {size} {choice}: {str(error)[:150]!r}", flush=True)
            GROUPS[kind, size] = usual
    return {}


PARTS = {"check": check, "time": time_tandem, "torch": time_torch, "tune": tune}


def _text(output: bytes | str | None) -> str:
    return output.decode() if isinstance(output, bytes) else output or ""


def part(name: str, seconds: int, env=None) -> dict | None:
    command = [sys.executable, os.path.abspath(__file__), "--part", name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env={**os.environ, **(env or {})}
        )
    except subprocess.TimeoutExpired as error:
        print(f"{name}: not done after {seconds} s\n{_text(error.stdout)[-3000:]}\n{_text(error.stderr)[-2000:]}")
        return None
    *text, last = done.stdout.splitlines() or [""]
    print("\n".join(text))
    if done.returncode:
        print(last, done.stderr[-2000:])
        return None
    return json.loads(last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part")
    parser.add_argument("--parts", default="check,time,torch")
    parser.add_argument("--tune", action="store_true")
    args = parser.parse_args()
    if args.part:
        result = PARTS[args.part]()
        print(json.dumps(result))
        return
    parts = args.parts.split(",")
    if "check" in parts:
        if (part("check", 150) or {"failed": 1})["failed"]:
            print("waiting for every copy:")
            part("check", 150, {"TANDEM_WGMMA": "2"})
    ours = part("time", 100) if "time" in parts else None
    if "old" in parts:
        print("the kernels for earlier devices:")
        earlier = part("time", 100, {"TANDEM_WGMMA": "0"}) or {}
    else:
        earlier = {}
    theirs = (part("torch", 100) if "torch" in parts else None) or {}
    for key, us in (ours or {}).items():
        shape, mode = key[: key.index(")") + 1], key[key.index(")") + 2 :]
        rate = operations(eval(shape), mode) / us / 1e6
        others = {"earlier": earlier.get(key)} | {b: theirs.get(f"{key} {b}") for b in ("flash", "cudnn", "efficient")}
        print(
            f"{key:38} {us:8.0f} us {rate:5.0f} TFLOP/s  " + "  ".join(f"{b} {x:.0f}" for b, x in others.items() if x)
        )
    if args.tune:
        part("tune", 200)


if __name__ == "__main__":
    main()
