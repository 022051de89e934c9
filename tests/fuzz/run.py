"""Random programs, calls and states without end: `make fuzz`, or python -m tests.fuzz.run KIND --count N --seed S --jobs J

Kinds: programs (four_ways.py), machines (machines.py), repeats (repeats.py), cells (cells.py), calls (harness.py), transforms
(transformed.py), exports (exported.py). Each job is a process of its own, which may crash or hang without taking the others
along. Seeds that failed are printed, with the command that runs each again, and added to --failed; those that found a mistake
belong into tests/fuzz/seeds.txt, which the tests run.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

PIECE = {
    "programs": 200,
    "machines": 20,
    "repeats": 20,
    "cells": 20,
    "calls": 500,
    "transforms": 20,
    "exports": 50,
}  # of work for a process
PATIENCE = 1800.0  # seconds for a piece of work, on a busy machine


def run_piece(kind: str, first: int, count: int) -> list[str]:
    """What failed: a line for each seed."""
    command = [sys.executable, "-m", "tests.fuzz.run", kind, "--here", str(first), str(count)]
    environment = {**os.environ, "TANDEM_CACHE": "0"}  # nothing comes a second time
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    except subprocess.TimeoutExpired as error:
        lines = (error.stdout or b"").decode(errors="replace").splitlines()
        return [f"{kind} {_last_seed(lines, first)}: no end within {PATIENCE:.0f} s"]
    lines = done.stdout.splitlines()
    failed = [line.removeprefix("failed ") for line in lines if line.startswith("failed ")]
    if done.returncode not in (0, 1) or "done" not in lines:
        failed.append(f"{kind} {_last_seed(lines, first)}: ended with code {done.returncode}: {done.stderr[-300:]!r}")
    return failed


def _last_seed(lines: list[str], first: int) -> int:
    return next((int(line.split()[1]) for line in reversed(lines) if line.startswith("seed ")), first)


def run_here(kind: str, first: int, count: int) -> bool:
    """In a process of its own. A line before each seed tells which one it was that ended the process."""
    work = _work(kind)
    good = True
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        try:
            work(seed)
        except BaseException as error:
            good = False
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"failed {kind} {seed}: {text[:600]}", flush=True)
            traceback.print_exc()
    print("done", flush=True)
    return good


def _work(kind: str):
    if kind == "programs":
        from tests.fuzz.four_ways import compare
    elif kind == "machines":
        from tests.fuzz.machines import compare
    elif kind == "repeats":
        from tests.fuzz.repeats import compare
    elif kind == "cells":
        from tests.fuzz.cells import check as compare
    elif kind == "transforms":
        from tests.fuzz.transformed import compare
    elif kind == "exports":
        from tests.fuzz.exported import compare
    else:
        from tests.fuzz.harness import run_call as compare
    return compare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*PIECE, "all"])
    parser.add_argument("--count", type=int, default=1000, help="seeds of each kind")
    parser.add_argument("--seed", type=int, default=None, help="the first one; by default another one every day")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--failed", default="build/fuzz/failed.txt", help="where seeds that failed are added")
    parser.add_argument("--here", nargs=2, type=int, metavar=("FIRST", "COUNT"), help="in this process")
    options = parser.parse_args()
    if options.here:
        return 0 if run_here(options.kind, *options.here) else 1
    first = int(time.time() // 86400) * 1_000_000 if options.seed is None else options.seed
    kinds = list(PIECE) if options.kind == "all" else [options.kind]
    pieces = [
        (kind, at, min(PIECE[kind], first + options.count - at))
        for kind in kinds
        for at in range(first, first + options.count, PIECE[kind])
    ]
    print(f"{options.count} {', '.join(kinds)} from seed {first} on, {options.jobs} at once", flush=True)
    failed: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, found in zip(itertools.count(1), pool.map(lambda p: run_piece(*p), pieces), strict=False):
            for line in found:
                kind, seed = line.split(":")[0].split()
                print(f"{line}\n  again: python -m tests.fuzz.run {kind} --here {seed} 1", flush=True)
            failed += found
            if number % 20 == 0:
                print(f"{number} of {len(pieces)} pieces of work, {len(failed)} failed", flush=True)
    if failed:
        os.makedirs(os.path.dirname(options.failed) or ".", exist_ok=True)
        with open(options.failed, "a") as file:
            file.writelines(line + "\n" for line in failed)
    print(f"done: {len(failed)} failed" + (f", kept in {options.failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
