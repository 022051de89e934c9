"""Products of float32 in the shapes of training steps: forward, gradients of inputs and of weights; ours against NumPy's.

products.py [--threads N] [--seconds S] [--warm] [--density D] [mlp] [lstm] [gpt] [other]

The two take turns in one process, each with operands that left the cache (unless --warm); the least time counts. One thread is
measured in processor time, several by the clock.
"""

import argparse
import os
import time

# rows, columns, inner size, and which operands are transposed
SHAPES = {
    "mlp": [
        (256, 2048, 784, "nt"),
        (256, 2048, 2048, "nt"),
        (256, 2048, 2048, "nn"),
        (2048, 2048, 256, "tn"),
        (2048, 784, 256, "tn"),
    ],
    "lstm": [
        (700, 1024, 256, "nt"),
        (20, 1024, 256, "nt"),
        (20, 256, 1024, "nn"),
        (700, 256, 1024, "nn"),
        (1024, 256, 700, "tn"),
        (700, 10000, 256, "nt"),
        (700, 256, 10000, "nn"),
        (10000, 256, 700, "tn"),
    ],
    "gpt": [
        (1024, 1152, 384, "nt"),
        (1024, 384, 384, "nt"),
        (1024, 1536, 384, "nt"),
        (1024, 384, 1536, "nt"),
        (1024, 5000, 384, "nt"),
        (1024, 384, 1152, "nn"),
        (1024, 384, 1536, "nn"),
        (1024, 1536, 384, "nn"),
        (1024, 384, 5000, "nn"),
        (1152, 384, 1024, "tn"),
        (384, 384, 1024, "tn"),
        (1536, 384, 1024, "tn"),
        (5000, 384, 1024, "tn"),
    ],
    "other": [
        (2048, 2048, 2048, "nn"),
        (6272, 64, 256, "nn"),
        (6272, 256, 64, "nn"),
        (512, 512, 512, "nn"),
        (127, 129, 131, "nt"),
    ],
}
CACHE = 48 << 20  # bytes of operands that are more than a cache holds


def gigaflops(m, n, k, order, args, clock):
    """Of NumPy and of Tandem, counting multiplications with zeros too."""
    import numpy as np

    import tandem as td

    rng = np.random.default_rng(0)
    sets = []
    for _ in range(max(1, min(8, CACHE // (4 * (m * k + k * n + m * n)))) if not args.warm else 1):
        a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
        a[rng.random(a.shape) >= args.density] = 0
        if order[0] == "t":
            a = np.ascontiguousarray(a.T).T
        if order[1] == "t":
            b = np.ascontiguousarray(b.T).T
        ours = [td.tensor(x.T).T if x.strides[0] == 4 else td.tensor(x) for x in (a, b)]
        sets.append((a, b, *ours))
    runs = [lambda a, b, x, y: np.matmul(a, b), lambda a, b, x, y: td.matmul(x, y)]
    best, count, end = [float("inf")] * 2, 0, time.perf_counter() + args.seconds
    while count < 3 or time.perf_counter() < end:
        for i, run in enumerate(runs):
            start = clock()
            run(*sets[count % len(sets)])
            best[i] = min(best[i], clock() - start)
        count += 1
    return [2e-9 * m * n * k / t for t in best]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=list(SHAPES), metavar="group", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for every shape")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--density", type=float, default=1.0, help="the part of the left matrix that is not 0")
    args = parser.parse_args()
    os.environ["TANDEM_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(args.threads)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    print("rows x columns x inner size       NumPy    ours  GFLOP/s")
    for group in args.groups:
        for m, n, k, order in SHAPES[group]:
            numpy, ours = gigaflops(m, n, k, order, args, clock)
            print(f"{group:6}{m:6} x {n:5} x {k:5} {order}   {numpy:7.1f} {ours:7.1f}", flush=True)


if __name__ == "__main__":
    main()
