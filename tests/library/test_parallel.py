"""The routines under threads, forks and lesser instruction sets."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tandem import _runtime
from tests.library.layouts import assert_near, random, run
from tests.processes import run_script


@pytest.mark.skipif(
    bool({"OMP_NUM_THREADS", "TANDEM_NUM_THREADS"} & set(os.environ)), reason="the number of threads is given"
)
def test_the_thread_pool_has_at_most_the_cpus_of_this_process():
    assert 1 <= _runtime.num_threads() <= len(os.sched_getaffinity(0))


def test_matmul_from_several_threads_at_once():
    rng = np.random.default_rng(0)
    a, b = random(rng, (300, 300), "float32"), random(rng, (300, 300), "float32")
    expected, results = a.astype("float64") @ b, [None] * 4

    def work(i):
        for _ in range(10):
            results[i] = run("matmul", [a, b], [((300, 300), "float32")])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for result in results:
        assert_near(expected, result, scale=40)


SIGNALS = """
import ctypes, signal, sys, threading
from tandem import _runtime
from tandem.machine.tune import KINDS

class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

def multiply(runs):
    for kind in range(1, len(KINDS)):
        _runtime.time_products(kind, runs)
    stack = Stack()
    assert ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack)) == 0
    used.append(stack.size)

used = []
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
multiply(10)
thread = threading.Thread(target=multiply, args=(1,))
thread.start()
thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
print(min(used) > 1 << 16)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the layout of a C struct")
@pytest.mark.skipif(_runtime.blas_backend() != "onednn", reason="about oneDNN's code")
def test_signals_leave_the_memory_of_matmuls_alone(tmp_path):
    done = run_script(SIGNALS, tmp_path)
    assert done.stdout.split() == ["True"], (done.returncode, done.stderr)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_use_the_routines():
    a = random(np.random.default_rng(0), (400, 400), "float32")
    expected = run("matmul", [a, a], [((400, 400), "float32")])  # so that the parent's pool exists
    child = os.fork()
    if child == 0:
        same = np.array_equal(run("matmul", [a, a], [((400, 400), "float32")]), expected)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


SCRIPT = """
import numpy as np
from tandem._runtime import library_call
rng = np.random.default_rng(0)
for dtype in ("float32", "float64", "int32", "float16"):
    a, b = (rng.standard_normal(s).astype("float32") * 9 for s in ((70, 90), (90, 80)))
    a, b, c = a.astype(dtype), b.astype(dtype), np.empty((70, 80), dtype)
    library_call("matmul", [a, b], [c])
    np.testing.assert_allclose(c.astype("float64"), a.astype("float64") @ b.astype("float64"), rtol=2e-2, atol=2)
"""


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_lesser_instruction_sets(isa):
    env = {**os.environ, "TANDEM_ISA": isa}
    subprocess.run([sys.executable, "-c", SCRIPT], env=env, check=True)
