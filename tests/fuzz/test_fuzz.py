"""Odd arguments never crash, hang or surprise: calls by chance in a process of their own (tests/fuzz/harness.py)."""

import itertools
import subprocess
import sys

import pytest


def run(seed: int, calls: int, name: str | None = None):
    command = [sys.executable, "-m", "tests.fuzz.harness", str(seed), str(calls), *([name] if name else [])]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    lines = result.stdout.splitlines()
    again = " ".join(command[1:])
    if result.returncode or not lines or not lines[-1].startswith("done"):
        last = next((line for line in reversed(lines) if line[:1].isdigit()), "")
        pytest.fail(
            f"the process ended with code {result.returncode} in call {last}\nrun again: python "
            f"{again}\n{result.stderr[-3000:]}"
        )
    bad = [f"{line}\n{after}" for line, after in itertools.pairwise(lines) if line.startswith("bad")]
    assert not bad, f"{len(bad)} bad calls; run again: python {again}\n" + "\n".join(bad[:10])


@pytest.mark.parametrize("seed", [1, 2])
def test_calls_by_chance(seed):
    run(seed, 1500)


def test_keys_by_chance():
    run(3, 500, "getitem")
    run(4, 500, "setitem")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_more_calls_by_chance(seed):
    run(seed, 8000)
