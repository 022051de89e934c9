"""td.linalg and td.fft beside NumPy, SciPy and (if installed) PyTorch: best times, taken in turns in one process.

    python benchmarks/linalg_fft.py [--quick] [--case TEXT] [--threads N]

With --threads 1 nobody waits for a second core, which is the fair way on a machine that does other work too.
"""

import argparse
import os
import statistics
import time
from functools import partial

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="shorter measurements")
parser.add_argument("--case", default="", help="only cases whose name contains this")
parser.add_argument("--threads", type=int, help="for all libraries; as many as there are cores by default")
options = parser.parse_args()
if options.threads:  # read by OpenBLAS and OpenMP when they are loaded
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)

import numpy as np  # noqa: E402
import scipy.fft  # noqa: E402
import scipy.linalg  # noqa: E402

import tandem as td  # noqa: E402

if options.threads:
    td._runtime.set_num_threads(options.threads)
try:
    import torch
except ImportError:
    torch = None
else:
    torch.set_num_threads(td._runtime.num_threads())

rng = np.random.default_rng(0)


def linalg_cases():
    for dtype in ("float32", "float64"):
        for shape in ((4, 4), (1000, 4, 4), (32, 32), (64, 32, 32), (300, 300)):
            a = rng.normal(size=shape).astype(dtype)
            square = a + shape[-1] * np.eye(shape[-1], dtype=dtype)
            symmetric = a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1], dtype=dtype)
            right = square[..., :1].copy()
            for name, *arrays in (
                ("inv", square),
                ("det", square),
                ("solve", square, right),
                ("cholesky", symmetric),
                ("qr", a),
                ("eigh", symmetric),
                ("svdvals", a),
                ("pinv", a),
            ):
                yield f"{name} {dtype} {shape}", beside("linalg", name, arrays, numpy=np.linalg)
        yield (
            f"matrix_exp {dtype} {shape}",
            {
                "td": partial(td.linalg.matrix_exp, td.tensor(a)),
                "scipy": partial(scipy.linalg.expm, a),
            },
        )


def fft_cases():
    shapes = (
        (64,),
        (1000,),
        (1024,),
        (1009,),
        (65536,),
        (10**6,),
        (1000, 1000),
        (1000, 1000),
        (4096, 64),
        (100, 100, 100),
    )
    axes = (0, 0, 0, 0, 0, 0, 1, 0, 1, 1)
    for dtype in ("complex64", "complex128"):
        part = "float32" if dtype == "complex64" else "float64"
        for shape, axis in zip(shapes, axes, strict=True):
            x = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
            for name, array in (("fft", x), ("rfft", x.real.astype(part))):
                calls = beside("fft", name, [array], {"axis": axis}, numpy=np.fft, scipy=scipy.fft)
                yield f"{name} {dtype} {shape} axis {axis}", calls


def beside(space, name, arrays, kwargs=None, **others):
    """The same call for every library."""
    kwargs = kwargs or {}
    calls = {"td": partial(getattr(getattr(td, space), name), *map(td.tensor, arrays), **kwargs)}
    calls |= {other: partial(getattr(module, name), *arrays, **kwargs) for other, module in others.items()}
    if torch is not None:
        theirs = {"dim" if k == "axis" else k: v for k, v in kwargs.items()}
        calls["torch"] = partial(getattr(getattr(torch, space), name), *map(torch.tensor, arrays), **theirs)
    return calls


def measure(calls, seconds):
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main():
    ratios = {}
    for source in (linalg_cases, fft_cases):
        for name, calls in source():
            if options.case not in name:
                continue
            best = measure(calls, 0.05 if options.quick else 0.3)
            text = f"{name:36} {best['td'] * 1e6:10.1f} us"
            for other, seconds in best.items():
                if other != "td":
                    ratio = best["td"] / seconds
                    ratios.setdefault(other, []).append((ratio, name))
                    text += f"   {ratio:5.2f}x {other}"
            print(text, flush=True)
    for other, found in ratios.items():
        worst = max(found)
        print(
            f"ratio to {other}: median {statistics.median(r for r, _ in found):.2f}, worst {worst[0]:.2f} ({worst[1]})"
        )


if __name__ == "__main__":
    main()
