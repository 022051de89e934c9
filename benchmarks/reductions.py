"""Reductions along every axis, in every layout and type, against a copy of the same tensor: bytes that the reduction reads in a
second, divided by bytes that the copy reads and writes in a second.

    python benchmarks/reductions.py [--sizes 16,20,23,26] [--dtypes float32,bfloat16] [--operators sum,amax,var] [--bar 0.8]

Sizes are powers of two. What lies below the bar is listed at the end.
"""

from __future__ import annotations

import argparse
import math
import time

import tandem as td


def best(seconds: float, step, *operands) -> float:
    step(*operands)
    least, begun = math.inf, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        step(*operands)
        least = min(least, time.perf_counter() - start)
    return least


def views(count: int):
    """{name: (shape, order of the axes in memory, axes to reduce)} of about so many elements."""
    side = 1 << (count.bit_length() // 2)
    channels = 64 if count >= 1 << 20 else 16
    images = max(1, count // (channels * 32 * 32) // 4) if count >= 1 << 18 else 2
    pixels = max(4, math.isqrt(count // (channels * images)))
    plain, last = (0, 1, 2, 3), (0, 2, 3, 1)
    image = (images, channels, pixels, pixels)
    return {
        "all": ((side, count // side), (0, 1), None),
        "rows": ((side, count // side), (0, 1), 1),
        "columns": ((side, count // side), (0, 1), 0),
        "short rows": ((count // 16, 16), (0, 1), 1),
        "few columns": ((count // 16, 16), (0, 1), 0),
        "long rows": ((16, count // 16), (0, 1), 1),
        "many columns": ((16, count // 16), (0, 1), 0),
        "middle": ((16, 64, count // 1024), (0, 1, 2), 1),
        "rows of a transposed": ((side, count // side), (1, 0), 1),
        "channels of NCHW": (image, plain, 1),
        "positions of NCHW": (image, plain, (2, 3)),
        "all but channels of NCHW": (image, plain, (0, 2, 3)),
        "channels of NHWC": (image, last, 1),
        "positions of NHWC": (image, last, (2, 3)),
        "all but channels of NHWC": (image, last, (0, 2, 3)),
    }


def make(shape, order, dtype):
    x = td.randn(*(shape[a] for a in order))
    x = (x * 100).to(dtype) if "int" in str(dtype) else x.to(dtype)
    return x.permute(*(order.index(a) for a in range(len(order))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="16,20,23,26")
    parser.add_argument("--dtypes", default="float32,float64,bfloat16,float16,int32,int64")
    parser.add_argument("--operators", default="sum,amax,var")
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--bar", type=float, default=0.8)
    options = parser.parse_args()
    low, sizes, dtypes = [], [int(s) for s in options.sizes.split(",")], options.dtypes.split(",")
    print(f"{'':36}" + "".join(f"{d:>10}" for d in dtypes))
    for power in sizes:
        for name, (shape, order, axes) in views(1 << power).items():
            rows = {operator: [] for operator in options.operators.split(",")}
            for dtype in dtypes:
                x = make(shape, order, getattr(td, dtype))
                copied = best(options.seconds, td.clone, x)
                for operator, row in rows.items():
                    if operator == "var" and "int" in dtype:
                        row.append(math.nan)
                        continue
                    reduce = getattr(td, operator)
                    taken = best(options.seconds, reduce, x, *(() if axes is None else (axes,)))
                    row.append(copied / (2 * taken))
                    if row[-1] < options.bar:
                        low.append((row[-1], f"2^{power} {name} {operator} {dtype}", taken, copied))
            for operator, row in rows.items():
                numbers = "".join(f"{v:10.2f}" if v == v else f"{'-':>10}" for v in row)
                print(f"2^{power} {name:25} {operator:6}{numbers}", flush=True)
    print(f"below {options.bar}: {len(low)}")
    for ratio, what, taken, copied in sorted(low):
        print(f"  {ratio:5.2f} {what:50} {taken * 1e6:9.1f} us, copy {copied * 1e6:9.1f} us")


if __name__ == "__main__":
    main()
