"""Plans of captured calls, whose instructions are written down when they first run by themselves."""

import threading
import warnings

import numpy as np
import pytest

import tandem as td
from tandem.errors import CompileWarning
from tandem.program import driver
from tandem.tracing import operator_plan


@pytest.fixture
def finished(monkeypatch):
    """Names of the operators whose instructions were written down later than the rest of their plans."""
    names = []
    write = operator_plan.OperatorWriter._write_rest

    def noted(self, builder):
        names.append(self.name)
        write(self, builder)

    monkeypatch.setattr(operator_plan.OperatorWriter, "_write_rest", noted)
    return names


def forget(*functions):
    for function in functions:
        function.clear_cache()


def test_captured_calls_are_lowered_with_their_program_alone(finished):
    forget(td.exp, td.multiply, td.matmul)
    x = td.rand(3, 4)
    f = td.compile(lambda x: td.exp(x @ x.T) * 2.5)
    y = f(x)
    assert not finished
    assert np.allclose(y.numpy(), np.exp(x.numpy() @ x.numpy().T) * 2.5, rtol=1e-5)
    assert np.allclose((td.exp(x @ x.T) * 2.5).numpy(), y.numpy(), rtol=1e-6)
    assert {"exp", "matmul", "multiply"} <= set(finished)
    count = len(finished)
    f(x)
    assert len(finished) == count


def test_programs_are_found_again_after_their_operators_ran_alone(finished):
    forget(td.sin, td.add)
    x = td.rand(5)
    f = td.compile(lambda x: td.sin(x) + x)
    first = f(x)
    eager = td.sin(x) + x
    assert finished
    second = f(x)
    assert first.tolist() == second.tolist() and np.allclose(eager.numpy(), first.numpy())
    assert "1 programs" in f.explain()


def test_gradients_of_operators_that_were_captured_first(finished):
    forget(td.softmax)
    x = td.rand(3, 4, requires_grad=True)
    weights = td.rand(3, 4)

    def loss(x):
        return (td.softmax(x, -1) * weights).sum()

    td.compile(loss)(x).backward()
    captured, x.grad = x.grad, None
    loss(x).backward()
    assert "softmax" in finished
    assert np.allclose(captured.numpy(), x.grad.numpy(), atol=1e-6)


def test_in_place_operators_that_were_captured_first(finished):
    x, y = td.ones(4), td.ones(4)

    @td.compile
    def step(x, y):
        x.add_(y)
        return x * 1

    step(x, y)
    x.add_(y)
    assert x.tolist() == [3.0] * 4


def test_the_fallback_runs_plans_that_were_only_captured(monkeypatch, finished):
    """Where no program can be made, every call runs by the plan that it was captured with."""
    forget(td.cos, td.subtract)
    x = td.rand(6)

    def broken(*args, **kwargs):
        raise AssertionError("a mistake planted here")

    monkeypatch.setattr(driver, "_compile_whole", broken)
    f = td.compile(lambda x: td.cos(x) - x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        y = f(x)
    assert {"cos", "subtract"} <= set(finished)
    assert np.allclose(y.numpy(), np.cos(x.numpy()) - x.numpy(), atol=1e-6)


def test_threads_that_run_a_captured_plan_first_at_the_same_time(finished):
    x = td.rand(64)
    for name in ("exp", "tanh", "sqrt", "sigmoid"):
        function = getattr(td, name)
        forget(function)
        expected = td.compile(function)(x).tolist()
        results, start = [], threading.Barrier(4)

        def run(function=function, results=results, start=start):
            start.wait()
            results.append(function(x).tolist())

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(np.allclose(r, expected) for r in results) and len(results) == 4


def test_what_is_checked_at_once_is_written_at_once(finished):
    forget(td.take)
    table, bad = td.rand(4, 2), td.tensor([5])
    f = td.compile(lambda t, i: td.take(t, i, 0))
    with pytest.raises(IndexError):
        f(table, bad)
    assert "take" not in finished
