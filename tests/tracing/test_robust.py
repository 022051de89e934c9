"""Exceptions in the middle of a compiled function, recursion, threads: nothing is left broken, nothing is stale."""

import threading

import numpy as np
import pytest

import tandem as td
from tandem import nn

# -- exceptions in the middle


def test_an_exception_in_the_middle_of_backward():
    """A hook that fails while gradients are captured: later calls are as if nothing had been."""
    w = td.ones(3, requires_grad=True)
    fail = [True]

    def hook(g):
        if fail[0]:
            raise RuntimeError("hook")
        return g

    @td.compile
    def step(x):
        y = x * w
        y.register_hook(hook)
        (y * y).sum().backward()
        return y.detach() * 1

    x = td.tensor([1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="hook"):
        step(x)
    fail[0] = False
    w.grad = None
    step(x)
    assert [2.0, 8.0, 18.0] == w.grad.tolist()


def test_an_error_of_the_program_itself_is_raised_once_and_caught_inside():
    """A bad index is found when a segment runs; the function catches it and goes on with what came before the index."""
    seen = []

    @td.compile
    def look_up(x, i):
        y = x * 2
        try:
            value = y[i + 0].sum().item()
        except IndexError as error:
            seen.append(str(error))
            value = -1.0
        return y * 0 + 1 if value < 0 else x + value

    x = td.ones(4)
    assert [1.0] * 4 == look_up(x, td.tensor([0, 9])).tolist()
    assert len(seen) == 1 and "index 9 is out of range" in seen[0]
    assert [5.0] * 4 == look_up(x, td.tensor([0, 1])).tolist()


def test_a_segment_that_fails_does_not_run_again_when_the_function_ends():
    count = td.zeros(1)

    @td.compile
    def f(x, i):
        count.add_(1)
        x[i + 0].sum().item()

    with pytest.raises(IndexError):
        f(td.ones(3), td.tensor([7]))
    assert count.item() == 1
    f(td.ones(3), td.tensor([1]))
    assert count.item() == 2


def test_what_an_exception_carries_out_has_values():
    class Stop(Exception):
        pass

    @td.compile
    def f(x):
        y = x + 1
        raise Stop(y)

    with pytest.raises(Stop) as caught:
        f(td.ones(2))
    assert [2.0, 2.0] == caught.value.args[0].tolist()


def test_an_exception_while_a_body_is_taken_down():
    def bad(c, v):
        raise KeyError("inside")

    @td.compile
    def f(x, body):
        return td.scan(body, x[0] * 0, x)[0]

    x = td.ones(4, 2)
    for _ in range(2):
        with pytest.raises(KeyError, match="inside"):
            f(x, bad)
        assert [4.0, 4.0] == f(x, lambda c, v: (c + v, v)).tolist()
    assert not td._runtime.capturing()


def test_a_shape_error_in_the_middle_keeps_what_came_before():
    w = td.zeros(3)

    @td.compile
    def f(x):
        w.add_(1)
        return (w * 2) @ x

    with pytest.raises(td.ShapeError):
        f(td.ones(5))
    assert [1.0] * 3 == w.tolist()
    assert 12.0 == f(td.ones(3)).item()


# -- recursion


def test_recursion_of_a_compiled_function():
    @td.compile
    def power(x, n):
        return td.ones_like(x) if n == 0 else x * power(x, n - 1)

    x = td.tensor([2.0, 3.0])
    for n in (0, 1, 5):
        np.testing.assert_allclose(power(x, n).numpy(), x.numpy() ** n)
    assert power._programs.num_traces == 3  # one for each depth, whole


def test_recursion_that_branches_on_values():
    @td.compile
    def halve(x):
        return x if x.max().item() < 1 else halve(x / 2)

    assert [0.75, 0.5] == halve(td.tensor([6.0, 4.0])).tolist()
    assert [0.5, 0.25] == halve(td.tensor([0.5, 0.25])).tolist()


def test_mutual_recursion():
    even = td.compile(lambda x, n: x * 1 if n == 0 else odd(x + 1, n - 1))
    odd = td.compile(lambda x, n: x * -1 if n == 0 else even(x * 2, n - 1))
    assert 6.0 == even(td.tensor(2.0), 2).item() and -3.0 == even(td.tensor(2.0), 1).item()


def test_recursion_without_end_leaves_nothing_broken():
    f = td.compile(lambda x: f(x + 1))
    with pytest.raises(RecursionError):
        f(td.ones(2))
    assert not td._runtime.capturing()
    g = td.compile(lambda x: x + 1)
    assert [2.0, 2.0] == g(td.ones(2)).tolist()


# -- threads


def in_threads(count: int, work):
    errors = []
    barrier = threading.Barrier(count)

    def run(k):
        try:
            barrier.wait()
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_threads_meet_a_new_function_at_the_same_moment():
    for round in range(3):
        f = td.compile(lambda x, k=round: ((x + k).tanh() * (x - k)).sum(1))

        def work(n, f=f, round=round):
            x = td.arange(4.0 * (n + 2)).reshape(n + 2, 4) * 0.1
            expected = f._fn(x).numpy()
            for _ in range(5):
                np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-5)

        in_threads(4, work)


def test_threads_train_models_of_their_own_with_one_function():
    @td.compile
    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    def train(seed: int, run):
        model = nn.Linear(4, 2)
        with td.no_grad():
            for i, p in enumerate(model.parameters()):
                p.copy_((td.arange(float(p.numel())).reshape(p.shape) + seed + i) * 0.1)
        optimizer = td.optim.Adam(model.parameters(), lr=0.01)
        x = td.arange(12.0).reshape(3, 4) * 0.1
        for _ in range(8):
            run(model, optimizer, x)
        return [p.detach().numpy().copy() for p in model.parameters()]

    expected = [train(k, step._fn) for k in range(4)]
    made = {}
    in_threads(4, lambda k: made.__setitem__(k, train(k, step)))
    for k in range(4):
        for a, b in zip(made[k], expected[k], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_an_exception_in_one_thread_is_no_business_of_the_others():
    f = td.compile(lambda x, i: x[i].sum() * 2)

    def work(k):
        for _ in range(10):
            if k % 2:
                with pytest.raises(IndexError):
                    f(td.ones(3), td.tensor([5 + k])).item()
            else:
                assert 4.0 == f(td.ones(3), td.tensor([0, 1])).item()

    in_threads(4, work)


def test_many_sequences_in_threads_do_not_pull_programs_away():
    """A function that makes more sequences than are kept starts over, also while another thread runs one of them."""
    f = td.compile(lambda x, n: sum((x * i for i in range(n)), x))

    def work(k):
        for n in range(k, 40, 2):
            assert 1.0 + n * (n - 1) / 2 == f(td.ones(1), n).item()
            if n % 10 == k:
                f._programs.clear()

    in_threads(2, work)
