"""What a replayed call leaves: results, writes, gradients, random numbers."""

from collections import namedtuple

import numpy as np

import tandem as td
from tandem import nn
from tests.replay.replays import Counted, refused, warmed

SCALE = 2.0


def batches(count, size=5):
    g = td.Generator(3)
    return [(td.randn(size, 4, generator=g), td.randint(0, 3, (size,), generator=g)) for _ in range(count)]


def test_batch_norm_writes_its_statistics():
    def train(compiles):
        td.manual_seed(0)
        norm = nn.BatchNorm1d(4)
        step = td.compile(lambda x: norm(x).detach(), replay=True) if compiles else lambda x: norm(x).detach()
        for x, _ in batches(6):
            step(x)
        return norm.running_mean.tolist(), norm.running_var.tolist(), int(norm.num_batches_tracked)

    eager, replayed = train(False), train(True)
    np.testing.assert_allclose(eager[0], replayed[0], rtol=1e-6)
    np.testing.assert_allclose(eager[1], replayed[1], rtol=1e-6)
    assert eager[2] == replayed[2] == 6


def test_random_numbers_advance_as_eagerly():
    td.manual_seed(1)
    eager = [(td.rand(2) * 2).tolist() for _ in range(5)] + [td.rand(2).tolist()]
    td.manual_seed(1)
    f = Counted(lambda: td.rand(2) * 2)
    assert eager == [f().tolist() for _ in range(5)] + [td.rand(2).tolist()]
    assert f.runs == 2
    td.manual_seed(1)
    assert eager[0] == f().tolist()
    assert f.runs == 2


def test_a_generator_of_its_own_advances():
    g = td.Generator(7)
    f = Counted(lambda: td.rand(2, generator=g))
    found = [f().tolist() for _ in range(5)]
    h = td.Generator(7)
    assert [td.rand(2, generator=h).tolist() for _ in range(5)] == found


def test_results_are_new_tensors_in_the_same_containers():
    Pair = namedtuple("Pair", "a b")
    f = warmed(lambda x: {"pair": Pair(x + 1, [x * 2, 3]), "none": None}, td.ones(2))
    one, two = f(td.ones(2)), f(td.zeros(2))
    assert one["pair"].a.tolist() == [2, 2] and two["pair"].a.tolist() == [1, 1]
    assert type(one["pair"]) is Pair and one["pair"].b[1] == 3 and one["none"] is None and f.runs == 2


def test_gradients_accumulate():
    w = td.ones(3, requires_grad=True)

    def step(x):
        (w * x).sum().backward()

    f = Counted(step)
    for _ in range(6):
        f(td.ones(3))
    assert w.grad.tolist() == [6, 6, 6]
    w.grad = None
    f(td.ones(3))
    f(td.ones(3))
    assert w.grad.tolist() == [2, 2, 2]


def test_a_buffer_that_is_rebound():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", td.zeros(2))

        def forward(self, x):
            self.mean = 0.5 * self.mean + x
            return self.mean * 1

    def means(compiles):
        m = Mean()
        f = td.compile(lambda x: m(x), replay=True) if compiles else m
        return [f(td.ones(2) * i).tolist() for i in range(6)] + [m.mean.tolist()]

    assert means(False) == means(True)


def test_tensors_of_python_values_are_constants():
    f = warmed(lambda x: x + td.tensor([1.0, SCALE]), td.zeros(2))
    assert f(td.ones(2)).tolist() == [2, 3] and f.runs == 2


def test_a_result_that_wants_gradients():
    w = td.ones(2, requires_grad=True)
    refused(lambda x: (x * w).sum(), td.ones(2), match="gradients may still flow back")
    refused(lambda x: x * 2, td.ones(2, requires_grad=True) * 2, match="was computed by recorded operators")
