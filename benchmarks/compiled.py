"""Whole training steps, compiled by us, against PyTorch with fused optimisers and, where asked for, the compilers of others.

compiled.py [--case NAME] [--torch-python PATH] [--torch-compile] [--jax-python PATH] [--tf-python PATH] [--eager] [--rounds N]

Each framework runs a case in a process of its own; rounds take turns; the least time counts. The last line of a case compares
with the best peer; the case "chain" with copies of its array instead, ours and theirs.
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


def step_of(framework: str, case: str):
    """The step to time, a function of no arguments, and what reads the loss from its result."""
    if framework == "jax":
        import functional_jax as peer
        from functional_models import Networks

        return peer.training_step(Networks(peer.Net()), case), float
    if framework.startswith("tf"):
        import functional_tensorflow as peer
        from functional_models import Networks

        peer.tf.config.threading.set_intra_op_parallelism_threads(2)
        return peer.training_step(Networks(peer.Net()), case, xla=framework.endswith("xla")), float
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
    return run, lambda loss: float(loss.detach().reshape(-1)[0])


def worker(framework: str, case: str, seconds: float):
    run, number = step_of(framework, case)
    start = time.perf_counter()
    loss = number(run())
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
    environment = {**os.environ, "TANDEM_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "TF_CPP_MIN_LOG_LEVEL": "3"}
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
    parser.add_argument("--jax-python", help="an interpreter with jax: its jit is a peer")
    parser.add_argument(
        "--tf-python", help="an interpreter with TensorFlow: tf.function, plain and with XLA, are peers"
    )
    parser.add_argument("--eager", action="store_true", help="our side eagerly too")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.case[0], options.seconds)
        return
    us = "tandem eager" if options.eager else "tandem"
    pythons = {us: sys.executable, "torch": options.torch_python}
    if options.torch_compile:
        pythons["torch.compile"] = options.torch_python
    if options.jax_python:
        pythons["jax"] = options.jax_python
    if options.tf_python:
        pythons |= {"tf": options.tf_python, "tf xla": options.tf_python}
    print(f"{'case':16} {'framework':14} {'step ms':>9} {'first s':>8} {'peak MB':>8} {'ours/it':>8}")
    for case in options.case or CASES:
        compare(case, us, pythons, options)


def compare(case: str, us: str, pythons: dict[str, str], options):
    best = measure(case, us, pythons, options)
    if case == "chain":
        copies = measure("copy", us, {n: p for n, p in pythons.items() if n in (us, "torch")}, options)
        rivals = {f"a copy by {n}": t for n, t in copies.items()}
    else:
        peers = {n: t for n, t in best.items() if n != us}
        rivals = {f"the best peer ({n})": peers[n] for n in sorted(peers, key=peers.get)[:1]}
    for rival, seconds in rivals.items():
        if us in best and case in BARS:
            ratio, bar = best[us] / seconds, BARS[case]
            print(f"{case:16} {ratio:.2f} of {rival}, bar {bar:.2f}: {'ok' if ratio <= bar else 'MISS'}", flush=True)


def measure(case: str, us: str, pythons: dict[str, str], options) -> dict[str, float]:
    """The least time of each framework that can do it; prints them."""
    results: dict[str, list[dict]] = {name: [] for name in pythons}
    for _ in range(options.rounds):
        for name, python in pythons.items():
            if not any("error" in r for r in results[name]):
                results[name].append(ask(python, name, case, options.seconds))
    best = {n: min(r["best"] for r in rs) for n, rs in results.items() if not any("error" in r for r in rs)}
    for name, runs in results.items():
        if name not in best:
            print(f"{case:16} {name:14} {runs[-1]['error']}", flush=True)
            continue
        ratio = f"{best[us] / best[name]:8.2f}" if us in best and name != us else ""
        print(
            f"{case:16} {name:14} {best[name] * 1e3:9.2f} {runs[0]['first']:8.2f} {max(r['peak'] for r in runs):8.0f} {ratio}",
            flush=True,
        )
    return best


if __name__ == "__main__":
    main()
