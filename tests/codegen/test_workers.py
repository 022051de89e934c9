"""Kernels compiled in processes beside: the same results whatever happens to the processes."""

import subprocess
import sys
import time

import numpy as np
import pytest

import tandem as td
from tandem.codegen import workers
from tandem.llvm import assemble
from tandem.program.request import Size

FUNCTIONS = [td.tanh, td.exp2, td.log1p, td.sin, td.cos, td.atan, td.sigmoid, td.expm1, td.cosh]


def chains(count: int, kind: int):
    """A function that becomes `count` different kernels, which no other kind has."""
    first, second = FUNCTIONS[kind], FUNCTIONS[kind + 1]

    def run(x):
        made = []
        for i in range(count):
            y = x[i:]  # of a size of its own, so that they stay apart
            for j in range(i + 2):
                y = second(y) * 0.5 if j % 2 else first(y)
            made.append(y)
        return made

    return run


@pytest.fixture
def large(monkeypatch, tmp_path):
    monkeypatch.setattr(Size, "is_large", True)
    monkeypatch.setattr(workers, "_worth_beginning", lambda: 10**6)  # leaves all of it to the workers
    with td.switches(CACHE_DIR=str(tmp_path), COMPILE_WORKERS=1):
        yield


def processors(monkeypatch, count: int):
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda pid: set(range(count)))


def check(run, x):
    f = td.compile(run)
    made = f(x)
    for a, b in zip(made, run(x), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
    assert f._programs.num_programs == 1
    return f


def spy(monkeypatch, name: str) -> list:
    calls, real = [], getattr(workers, name)

    def called(*args):
        result = real(*args)
        calls.append(result)
        return result

    monkeypatch.setattr(workers, name, called)
    return calls


def test_workers_compile_the_kernels_of_a_program(large, monkeypatch):
    processors(monkeypatch, 2)
    started, answers = spy(monkeypatch, "_start"), spy(monkeypatch, "_ask")
    check(chains(4, 0), td.linspace(0.1, 1.0, 30))
    assert len(started) == 1 and started[0].poll() is not None  # one process, which is gone
    assert len(answers) >= 4 and all(a.startswith(b"\x7fELF") for a in answers)
    assert not workers.ready


def test_a_worker_that_dies_leaves_its_kernels_to_us(large, monkeypatch):
    processors(monkeypatch, 2)
    answers = spy(monkeypatch, "_ask")

    def start():
        return subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.buffer.read(100); sys.exit(3)"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    monkeypatch.setattr(workers, "_start", start)
    began = time.monotonic()
    check(chains(4, 2), td.linspace(0.1, 1.0, 30))
    assert None in answers and time.monotonic() - began < 50


def test_a_worker_that_fails_leaves_its_kernels_to_us(large, monkeypatch):
    processors(monkeypatch, 2)
    monkeypatch.setattr(workers, "_ask", lambda process, text: b"")
    check(chains(3, 4), td.linspace(0.1, 1.0, 30))


def test_no_worker_can_be_started(large, monkeypatch):
    processors(monkeypatch, 2)
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: (_ for _ in ()).throw(OSError("no more processes")))
    check(chains(3, 6), td.linspace(0.1, 1.0, 30))


@pytest.mark.parametrize("count, allowed", [(1, 1), (2, 0)])
def test_no_worker_without_a_second_processor_or_leave(large, monkeypatch, count, allowed):
    processors(monkeypatch, count)
    started = spy(monkeypatch, "_start")
    with td.switches(COMPILE_WORKERS=allowed):
        check(chains(2, count), td.linspace(0.1, 1.0, 30))
    assert started == []


def test_the_worker_imports_nothing_heavy():
    code = f"""
import runpy, sys
runpy.run_path({assemble.__file__!r})
print([m for m in ('numpy', 'tandem', 'llvmlite') if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
