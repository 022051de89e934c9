"""Workers of a parameter server, and the same training in one process."""

import threading

import numpy as np

import tandem as td


def network(seed=0):
    td.manual_seed(seed)
    return td.nn.Sequential(td.nn.Linear(6, 32), td.nn.ReLU(), td.nn.Linear(32, 3))


def batch(step, worker, rows=8):
    rng = np.random.default_rng(1000 + 17 * step + worker)
    return td.tensor(rng.standard_normal((rows, 6), dtype=np.float32)), td.tensor(rng.integers(0, 3, rows))


def loss_of(model, data):
    x, y = data
    return td.nn.functional.cross_entropy(model(x), y)


def in_threads(count, work, seconds=60):
    errors = []

    def run(k):
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(seconds)
    assert not any(t.is_alive() for t in threads), "a worker hangs"
    if errors:
        raise errors[0]


def alone(optimizer, workers, steps, chosen=None):
    """What one process computes with the mean of the workers' gradients."""
    model = network()
    opt = optimizer(model.parameters())
    for step in range(steps):
        total = None
        for w in chosen(step) if chosen else range(workers):
            model.zero_grad()
            loss_of(model, batch(step, w)).backward()
            grads = [p.grad for p in model.parameters()]
            total = grads if total is None else [a + b for a, b in zip(total, grads, strict=True)]
        count = len(list(chosen(step))) if chosen else workers
        for p, g in zip(model.parameters(), total, strict=True):
            p.grad = g if count == 1 else g * (1.0 / count)
        opt.step()
    return [p.detach() for p in model.parameters()]


def same(model, expected):
    return all(bool((p.detach() == e).all()) for p, e in zip(model.parameters(), expected, strict=True))
