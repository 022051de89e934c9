"""Forks while other threads trace, compile, import or wait: the child works, whatever they were at."""

import gc
import os
import threading
import time

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem import forks
from tandem.ops.define import op
from tests.processes import in_child, run_script


def test_a_fork_waits_for_a_thread_that_traces_and_the_child_collects_garbage():
    inside, forked = threading.Event(), threading.Event()

    def slow(x):
        inside.set()
        forked.wait(0.3)  # the fork is asked for now, and has to wait until this is over
        return F.exp(x) * 3

    slow.__annotations__ = {"x": "Tensor"}
    function = op(slow, hidden=True)
    thread = threading.Thread(target=lambda: function(td.ones(3)))
    thread.start()
    assert inside.wait(300)

    def work():
        assert gc.isenabled()
        assert not forks._inside
        assert np.allclose((td.ones(5).double() + 2).numpy(), 3)
        assert np.allclose(td.compile(lambda x: td.exp(x) + 4)(td.zeros(2)).numpy(), 5)

    assert in_child(work) == 0
    forked.set()
    thread.join(300)
    assert gc.isenabled()


def test_a_fork_inside_of_a_trace_does_not_wait_for_itself():
    statuses = []

    def forking(x):
        statuses.append(in_child(lambda: None))
        return F.exp(x)

    forking.__annotations__ = {"x": "Tensor"}
    op(forking, hidden=True)(td.ones(2))
    assert statuses == [0]
    assert gc.isenabled()


def test_collections_stay_off_for_who_switched_them_off():
    gc.disable()
    try:
        assert (td.arange(3) * 7).tolist() == [0, 7, 14]
        assert not gc.isenabled()
    finally:
        gc.enable()


def _new_operator():
    def unknown(x):
        return F.exp(x) + 3

    unknown.__annotations__ = {"x": "Tensor"}
    return op(unknown, hidden=True)


@pytest.mark.parametrize("end", ["returns", "fails", "drops"])
def test_what_operators_of_a_compiled_call_leave_is_collected_once_it_ends(end):
    unknown_yet, collects = _new_operator(), []

    @td.compile
    def call(x):
        y = unknown_yet(x)
        collects.append(gc.isenabled())
        if end == "fails":
            raise ValueError("no")
        return y if end == "returns" else None

    assert gc.isenabled()
    if end == "fails":
        with pytest.raises(ValueError, match="no"):
            call(td.ones(2))
    else:
        call(td.ones(2))
    assert collects == [False]
    assert gc.isenabled()


def test_garbage_is_collected_after_the_first_program_of_a_call():
    unknown_yet, collects = _new_operator(), []

    @td.compile
    def call(x):
        y = unknown_yet(x)
        collects.append(gc.isenabled())
        y.sum().item()
        collects.append(gc.isenabled())
        return y

    call(td.ones(2))
    assert collects == [False, True]


def test_locks_are_free_in_a_child():
    lock = forks.lock()
    with lock:
        assert in_child(lambda: lock.acquire(timeout=0) or os._exit(3)) == 0


def test_queues_and_sessions_work_in_a_child_whose_parent_waits_at_them():
    queue = td.FIFOQueue(4, [td.float32], shapes=[()])
    waiting = threading.Thread(target=lambda: queue.dequeue(), daemon=True)
    waiting.start()
    time.sleep(0.1)

    def work():
        queue.enqueue(td.tensor(3.0))  # nobody takes it: the thread that waits is the parent's
        assert queue.size() == 1
        assert float(queue.dequeue()) == 3

    assert in_child(work) == 0
    queue.enqueue(td.tensor(1.0))
    waiting.join(300)


STORM = """
import os, sys, threading, time
import tandem as td

rounds = int(sys.argv[1])
stop = threading.Event()

def compile_all():
    k = 0
    while not stop.is_set():
        k += 1
        td.compile(lambda x: td.exp(x * k) + td.sin(x))(td.ones(3 + k % 5))
        td.nn.functional.dropout(td.ones(4), 1 / (k + 1))

threads = [threading.Thread(target=compile_all, daemon=True) for _ in range(3)]
for t in threads:
    t.start()
for k in range(rounds):
    child = os.fork()
    if child == 0:
        import gc
        good = gc.isenabled()
        f = td.compile(lambda x: td.cos(x) * (k + 1))
        good = good and abs(float(f(td.zeros(()))) - (k + 1)) < 1e-6
        x = td.randn(300, 300)
        good = good and (x @ x).shape == (300, 300)
        import tandem.distributions
        os._exit(0 if good else 1)
    end = time.monotonic() + 300
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, 9)
            sys.exit("a child hangs")
        time.sleep(0.002)
stop.set()
for t in threads:
    t.join()
"""


@pytest.mark.parametrize("rounds", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_children_of_a_process_whose_threads_compile(rounds, tmp_path):
    done = run_script(STORM, tmp_path, str(rounds), timeout=580, TANDEM_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr


IMPORTS = """
import os, sys, threading, time
sys.setswitchinterval(1e-6)
import tandem as td

modules = ["tandem.distributions", "tandem.session.session", "tandem.optim", "tandem.transforms", "tandem.checkpoint"]
thread = threading.Thread(target=lambda: [__import__(m) for m in modules])
thread.start()
time.sleep(float(sys.argv[1]))
child = os.fork()
if child == 0:
    for m in modules:
        __import__(m)
    os._exit(0)
end = time.monotonic() + 300
while (found := os.waitpid(child, os.WNOHANG)) == (0, 0):
    if time.monotonic() > end:
        os.kill(child, 9)
        sys.exit("the child hangs")
    time.sleep(0.002)
thread.join()
sys.exit(found[1])
"""


@pytest.mark.parametrize("delay", [0, 0.003, 0.02])
def test_a_fork_waits_for_imports(delay, tmp_path):
    done = run_script(IMPORTS, tmp_path, str(delay))
    assert done.returncode == 0, done.stderr


BEGUN = """
import os, sys, threading, time
import tandem
from tandem import forks
forks._is_importing = lambda me: False  # as if it had begun after the last look

folder = sys.argv[1]
tandem.__path__.append(folder)
with open(folder + "/begun.py", "w") as file:
    file.write("import time; began = True; time.sleep(0.5); done = True")
thread = threading.Thread(target=lambda: __import__("tandem.begun"))
thread.start()
while not hasattr(sys.modules.get("tandem.begun"), "began"):
    time.sleep(0.001)
child = os.fork()
if child == 0:
    from tandem.begun import done
    os._exit(0)
end = time.monotonic() + 300
while (found := os.waitpid(child, os.WNOHANG)) == (0, 0):
    if time.monotonic() > end:
        os.kill(child, 9)
        sys.exit("the child hangs")
    time.sleep(0.002)
thread.join()
sys.exit(found[1])
"""


def test_an_import_that_begins_while_a_process_forks(tmp_path):
    done = run_script(BEGUN, tmp_path, str(tmp_path))
    assert done.returncode == 0, done.stderr


SECOND = """
import tandem as td
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
second = interpreters.create()
interpreters.run_string(second, '''
try:
    import tandem
    text = "imported"
except ImportError as error:
    text = str(error)
open("said.txt", "w").write(text)
''')
assert (td.ones(3) * 2).tolist() == [2, 2, 2]
assert td.compile(lambda x: x * 5)(td.ones(2)).tolist() == [5, 5]
"""


def test_a_second_interpreter_is_refused_and_the_first_goes_on(tmp_path):
    done = run_script(SECOND, tmp_path)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said.txt").read_text()
    assert "cannot be imported in a second one" in said or "does not support loading in subinterpreters" in said
