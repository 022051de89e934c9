"""Deep graphs, memory, threads."""

import gc
import threading

import numpy as np

import tandem as td


def chain(x, length):
    for _ in range(length):
        x = x + 1
    return x


def test_long_chain_backward():
    x = td.tensor(1.0, requires_grad=True)
    chain(x, 100_000).backward()
    assert float(x.grad) == 1


def test_long_chain_is_freed_without_backward():
    x = td.tensor(1.0, requires_grad=True)
    y = chain(x, 100_000)
    del y
    assert x.grad is None


def test_long_chain_of_python_functions():
    class Step(td.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1

        @staticmethod
        def backward(ctx, g):
            return g

    x = td.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(5_000):
        y = Step.apply(y)
    y.backward()
    assert float(x.grad) == 1


def test_long_chain_of_in_place_writes():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    for _ in range(2_000):
        y += x
    y.sum().backward()
    assert x.grad.tolist() == [2001, 2001]


def live():
    gc.collect()
    return td.memory.stats()["live_bytes"]


def test_memory_returns_after_backward():
    x = td.ones((1000, 100), requires_grad=True)
    start = live()
    y = x
    for _ in range(20):
        y = td.exp(y * 0.1)  # each step saves
    assert live() - start >= 20 * 400_000
    loss = y.sum()
    loss.backward()
    del y
    assert live() - start <= 3 * 400_000  # the gradient, and what is in a few handles


def test_memory_is_freed_as_backward_goes():
    x = td.ones((1000, 100), requires_grad=True)
    y = x
    for _ in range(20):
        y = td.exp(y * 0.1)
    loss = y.sum()
    del y
    before = live()
    td.memory.reset_peak()
    loss.backward()
    # Gradients take the place of what is freed: at no time do all saved values and many gradients live together.
    assert td.memory.stats()["peak_bytes"] - before <= 4 * 400_000


def test_a_result_without_backward_frees_its_graph():
    x = td.ones((1000, 100), requires_grad=True)
    start = live()
    for _ in range(5):
        y = (td.exp(x) * x).sum()
    del y
    assert live() - start < 400_000


def test_no_reference_cycles():
    """Memory goes when the last name goes, without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        x = td.ones((1000, 100), requires_grad=True)
        start = td.memory.stats()["live_bytes"]
        for _ in range(10):
            y = x * 2
            y[0] = 1.0
            view = y[1:]
            view += x[1:]
            (y * view.sum()).sum().backward()
            x.grad = None
        del y, view
        assert td.memory.stats()["live_bytes"] - start < 400_000
    finally:
        gc.enable()


def test_threads():
    errors = []

    def work(seed):
        try:
            rng = np.random.default_rng(seed)
            for _ in range(20):
                a = rng.normal(size=(5, 6))
                x = td.tensor(a, requires_grad=True)
                loss = (td.exp(x) * x).sum()
                loss.backward()
                np.testing.assert_allclose(x.grad.numpy(), np.exp(a) * (1 + a), rtol=1e-10)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]


def test_threads_share_a_leaf():
    w = td.tensor([2.0, 3.0], requires_grad=True)
    grads = []

    def work(i):
        grads.append(td.autograd.grad((w * w * i).sum(), w)[0].tolist())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(grads) == [[4.0 * i, 6.0 * i] for i in range(1, 5)]


def test_backward_inside_backward():
    """A hook that runs a backward of its own."""
    w = td.tensor(2.0, requires_grad=True)
    x = td.tensor(3.0, requires_grad=True)
    y = x * 2

    @td.enable_grad()
    def inner(g):
        (w * w).backward()

    y.register_hook(inner)
    y.backward()
    assert float(w.grad) == 4 and float(x.grad) == 2


def test_very_wide():
    x = td.tensor(1.0, dtype=td.float64, requires_grad=True)
    parts = [x * i for i in range(1000)]
    td.stack(parts).sum().backward()
    assert float(x.grad) == sum(range(1000))
