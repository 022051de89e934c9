"""Compiled functions whose calls are counted, and those that are refused."""

import pytest

import tandem as td
from tandem import nn, optim
from tandem.errors import UnsupportedError


class Counted:
    """A compiled function, and how often its Python code ran, which the code itself cannot count."""

    def __init__(self, fn, **options):
        self.compiled = td.compile(fn, replay=True, **options)

    def __call__(self, *args, **kwargs):
        return self.compiled(*args, **kwargs)

    @property
    def runs(self):
        return self.compiled._count


def warmed(fn, *args, **kwargs):
    f = Counted(fn)
    for _ in range(3):
        f(*args, **kwargs)
    assert f.runs == 2, f.compiled.explain()
    return f


def model_and_step(optimizer=lambda p: optim.SGD(p, lr=0.1, momentum=0.9), dropout=0.0):
    td.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))
    opt = optimizer(model.parameters())

    def step(x, y):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    return model, opt, step


def few(count: int, runs: int) -> bool:
    """Whether the Python code ran as often as it must: once more where Tandem's own code did something for the first time, which
    depends on what the process has done before."""
    return runs <= count <= runs + 2


# -- what a replay would lose


def refused(fn, *args, match):
    f = td.compile(fn, replay=True)
    with pytest.raises(UnsupportedError, match=match) as caught:
        for _ in range(3):
            f(*args)
    return str(caught.value)
