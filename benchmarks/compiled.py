"""Whole training steps, compiled by us, against PyTorch with fused optimisers, eager and (with --torch-compile) compiled.

compiled.py [--case NAME] [--torch-python PATH] [--torch-compile] [--eager] [--rounds N]

Each framework runs a case in a process of its own; rounds take turns; the least time counts.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

from models import BARS, CASES

HERE = pathlib.Path(__file__).parent


def worker(framework: str, case: str, seconds: float):
    if framework.startswith("tandem"):
        import tandem as lib
        from tandem import optim
        from tandem.nn import functional
    else:
        import torch as lib
        import torch.nn.functional as functional
        from torch import optim

        lib.set_num_threads(2)
    from models import Models

    step = getattr(Models(lib, lib.nn, functional, optim, fused=not framework.startswith("tandem")), case)()
    run = lib.compile(step) if framework in ("tandem", "torch.compile") else step
    start = time.perf_counter()
    loss = float(run().detach().reshape(-1)[0])
    first = time.perf_counter() - start
    best, end = float("inf"), time.perf_counter() + seconds
    count = 0
    while count < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        count += 1
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"first": first, "best": best, "loss": loss, "peak": peak}))


def ask(python: str, framework: str, case: str, seconds: float) -> dict:
    environment = {**os.environ, "TANDEM_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [python, str(HERE / "compiled.py"), "--worker", framework, "--case", case, "--seconds", str(seconds)],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr else f"status {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", action="append")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--eager", action="store_true", help="our side eagerly too")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.case[0], options.seconds)
        return
    peers = ["torch"] + (["torch.compile"] if options.torch_compile else [])
    print(
        f"{'case':10} {'ours ms':>9} {'peer ms':>9} {'ratio':>6} {'bar':>5}      first s (ours, peer)   peak MB (ours, peer)"
    )
    for case in options.case or CASES:
        us = "tandem eager" if options.eager else "tandem"
        results: dict[str, list[dict]] = {name: [] for name in (us, *peers)}
        for _ in range(options.rounds):
            for name in results:
                python = sys.executable if name == us else options.torch_python
                results[name].append(ask(python, name, case, options.seconds))
        ours = results[us]
        for peer in peers:
            failed = next((r["error"] for r in ours + results[peer] if "error" in r), None)
            if failed:
                print(f"{case:10} {peer}: {failed}")
                continue
            a, b = min(r["best"] for r in ours), min(r["best"] for r in results[peer])
            verdict = "ok" if a / b <= BARS[case] else "MISS"
            print(
                f"{case:10} {a * 1e3:9.2f} {b * 1e3:9.2f} {a / b:6.2f} {BARS[case]:5.2f} {verdict:4} "
                f"{ours[0]['first']:6.2f} {results[peer][0]['first']:6.2f}   "
                f"{ours[0]['peak']:7.0f} {results[peer][0]['peak']:7.0f}   {peer}, loss {ours[0]['loss']:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
