"""Compiled functions in several threads."""

import sys
import threading

import pytest

import tandem as td
from tests.processes import run_script


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_threads(work, count: int):
    errors = []

    def guarded(k):
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,), daemon=True) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_a_thread_that_meets_what_another_one_has_captured_waits_for_it():
    """One thread is inside of a compiled function, which has given a parameter a gradient that has no value so far."""
    p = td.ones(3, requires_grad=True)
    captured, found = threading.Event(), []

    def step(x):
        (p * x).sum().backward()
        captured.set()
        finish.wait(300)
        return p.grad

    finish = threading.Event()
    thread = threading.Thread(target=td.compile(step), args=(td.full((3,), 2.0),))
    thread.start()
    assert captured.wait(300)
    timer = threading.Timer(0.2, finish.set)
    timer.start()
    found.append(p.grad.tolist())
    thread.join(300)
    assert found == [[2, 2, 2]]


def test_two_threads_that_have_captured_do_not_wait_for_each_other():
    """Each has given a parameter a gradient that has no value so far, and then uses the other's."""
    parameters = [td.ones(3, requires_grad=True) for _ in range(2)]
    meeting = threading.Barrier(2, timeout=300)

    def step(mine, other, x):
        (mine * x).sum().backward()
        meeting.wait()
        return (other.grad * 2).sum()

    compiled, found = [td.compile(step), td.compile(step)], {}

    def work(k):
        found[k] = float(compiled[k](parameters[k], parameters[1 - k], td.full((3,), k + 1.0)))

    run_threads(work, 2)
    assert found == {0: 12.0, 1: 6.0}


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("calls", [12, pytest.param(400, marks=pytest.mark.slow)])
def test_eight_threads_with_one_optimiser(calls):
    model = td.nn.Sequential(td.nn.Linear(8, 16), td.nn.ReLU(), td.nn.Linear(16, 4))
    optimizer = td.optim.Adam(model.parameters(), lr=1e-3)

    @td.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = td.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def work(k):
        for _ in range(calls):
            try:
                assert float(step(td.randn(5, 8), td.randn(5, 4))) >= 0
            except (
                td.AutogradError
            ) as error:  # another thread's step came between forward and backward, as it may eagerly
                if "changed in place after it was saved" not in str(error):
                    raise

    run_threads(work, 8)
    assert all(td.isfinite(p).all() for p in model.parameters())


def test_a_tensor_that_a_loop_only_describes_is_refused_in_every_thread():
    kept = []
    body = lambda c, x: (c, kept.append(c + x) or c)
    td.compile(lambda xs: td.scan(body, td.zeros(()), xs))(td.ones(3))
    for run in (lambda work: work(), lambda work: run_threads(lambda _: work(), 1)):
        with pytest.raises(td.ValueRangeError, match="a tensor without a value is used"):
            run(lambda: kept[0].tolist())


STORM = """
import random, sys, threading
import tandem as td

sys.setswitchinterval(1e-5)
F = td.nn.functional
calls = int(sys.argv[1])
shared = td.compile(lambda x: F.softmax(td.tanh(x) @ x.mT, -1).sum())
model = td.nn.Linear(6, 6)
queue = td.FIFOQueue(8, [td.float32], shapes=[()])
errors = []

def work(k):
    r = random.Random(k)
    try:
        for i in range(calls):
            x = td.randn(r.randrange(1, 5), 6, requires_grad=r.random() < 0.5)
            way = r.randrange(7)
            if way == 0:
                float(shared(x))
            elif way == 1:
                model(x).sum().backward()
            elif way == 2:
                td.compile(lambda t: t * r.random() + 1)(x)
            elif way == 3:
                F.dropout(x, r.random())
            elif way == 4:
                with td.autocast("cpu", dtype=td.bfloat16):
                    assert (x @ x.mT).dtype is td.bfloat16
            elif way == 5:
                queue.enqueue(td.tensor(1.0))
                queue.dequeue()
            else:
                assert (x @ x.mT).dtype is td.float32
                with td.no_grad():
                    assert not (x * 2).requires_grad
    except BaseException as error:
        errors.append(repr(error))

threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
for t in threads:
    t.start()
for t in threads:
    t.join()
sys.exit("; ".join(errors) or None)
"""


@pytest.mark.parametrize("calls", [25, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_storm_of_threads(calls, tmp_path):
    done = run_script(STORM, tmp_path, str(calls), timeout=580)
    assert done.returncode == 0, done.stderr
