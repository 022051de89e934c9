"""Linear layers with fewer bits beside float32, all ours: times and ratios. A time is the best of many, in turns.

python benchmarks/quantized.py                  products of 512 rows, one row, and what rounding costs in accuracy
"""

from __future__ import annotations

import argparse
import time

import tandem as td

BARS = {"bfloat16": 1.8, "int8 dynamic": 3.0, "int8 fixed": 3.0}


def layers(k: int, n: int, calibration) -> dict:
    td.manual_seed(0)
    layer = td.nn.Linear(k, n).eval()
    model = td.nn.Sequential(layer)
    return {
        "float32": (td.export.freeze(layer, calibration), calibration.dtype),
        "bfloat16": (
            td.export.freeze(td.nn.Linear(k, n).to(td.bfloat16).eval(), calibration.to(td.bfloat16)),
            td.bfloat16,
        ),
        "int8 weights": (td.compile(td.quantize(model, 8)), td.float32),
        "int8 dynamic": (td.compile(td.quantize(model, 8, activations="dynamic")), td.float32),
        "int8 fixed": (td.compile(td.quantize(model, 8, activations=[calibration])), td.float32),
        "int4 weights": (td.compile(td.quantize(model, 4, 32)), td.float32),
        "int4 dynamic": (td.compile(td.quantize(model, 4, 32, activations="dynamic")), td.float32),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    for rows, k, n in ((512, 1024, 1024), (512, 768, 3072), (1, 768, 3072), (1, 4096, 4096)):
        x = td.randn(rows, k)
        made = layers(k, n, x)
        inputs = {name: x.to(dtype) for name, (_, dtype) in made.items()}
        best = dict.fromkeys(made, float("inf"))
        with td.no_grad():
            exact = made["float32"][0](x)
            errors = {}
            for name, (fn, _) in made.items():
                found = fn(inputs[name]).to(td.float32)
                errors[name] = float((found - exact).square().mean().sqrt() / exact.square().mean().sqrt())
            for _ in range(options.rounds):
                for name, (fn, _) in made.items():
                    started = time.perf_counter()
                    fn(inputs[name])
                    best[name] = min(best[name], time.perf_counter() - started)
        print(f"{rows} x {k} @ {k} x {n}")
        for name, seconds in best.items():
            ratio = best["float32"] / seconds
            missed = "  missed" if rows > 1 and ratio < BARS.get(name, 0) else ""
            error = "" if name == "bfloat16" else f"  error {errors[name]:.2%}"  # of other weights
            print(
                f"  {name:13} {seconds * 1e3:8.3f} ms  {2e-9 * rows * k * n / seconds:7.0f} Gop/s  {ratio:5.2f}x{error}{missed}"
            )


if __name__ == "__main__":
    main()
