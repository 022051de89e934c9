"""The same optimisers in deferred graphs."""

import numpy as np
import pytest

import tandem as td
from tandem import nn, optim
from tests.optim.test_optimizer import ALL

START = np.array([[1.0, -2.0], [0.5, 3.0]], dtype=np.float32)
GOAL = np.array([[0.0, 1.0], [2.0, -1.0]], dtype=np.float32)


def eagerly(make, steps):
    w, b = nn.Parameter(td.tensor(START)), nn.Parameter(td.zeros(2))
    optimizer = make([w, b])
    for _ in range(steps):
        optimizer.minimize(((w + b - td.tensor(GOAL)) ** 2).sum())
    return w.detach().numpy(), b.detach().numpy()


def deferred(make, steps):
    with td.Graph() as graph:
        w, b = td.Variable(START), td.Variable(np.zeros(2, dtype=np.float32))
        unused = td.Variable(np.zeros(1, dtype=np.float32))
        goal = td.placeholder(td.float32, (2, 2))
        train = make([w, b, unused]).minimize(((w + b - goal) ** 2).sum())
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    for _ in range(steps):
        session.run(train, {goal: GOAL})
    return [v.numpy() for v in session.run([w, b])]


@pytest.mark.parametrize("name", ALL)
def test_deferred_steps_are_eager_steps(name):
    def make(ps):
        return getattr(optim, name)(ps, **ALL[name])

    for a, b in zip(eagerly(make, 5), deferred(make, 5), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def compiled(make, steps):
    w, b = nn.Parameter(td.tensor(START)), nn.Parameter(td.zeros(2))
    optimizer = make([w, b])
    step = td.compile(lambda: optimizer.minimize(((w + b - td.tensor(GOAL)) ** 2).sum()))
    for _ in range(steps):
        step()
    return w.detach().numpy(), b.detach().numpy()


def test_only_the_first_gradient_is_not_dampened():
    def make(ps):
        return optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.5)

    w, b, of_w, of_b = START.astype("d"), np.zeros(2), None, None
    for _ in range(20):
        g = 2 * (w + b - GOAL)
        of_w = g if of_w is None else 0.9 * of_w + 0.5 * g
        of_b = g.sum(0) if of_b is None else 0.9 * of_b + 0.5 * g.sum(0)
        w, b = w - 0.1 * of_w, b - 0.1 * of_b
    for run in (eagerly, compiled, deferred):
        for expected, value in zip((w, b), run(make, 20), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_may_be_fed():
    with td.Graph() as graph:
        w = td.Variable([1.0])
        lr = td.placeholder(td.float32, ())
        train = optim.SGD([w], lr=lr).minimize((w * w).sum())
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    session.run(train, {lr: 0.25})
    assert session.run(w).tolist() == [0.5]
    session.run(train, {lr: 0.0})
    assert session.run(w).tolist() == [0.5]


def test_steps_have_names_variables_and_a_count():
    with td.Graph() as graph:
        v, other = td.Variable([1.0], name="v"), td.Variable([1.0])
        count = td.Variable(0, trainable=False)
        optimizer = optim.SGD([v, other], lr=0.25)
        loss = (v * v + other * other).sum()
        assert optimizer.minimize(loss, name="both").name == "both"
        optimizer.minimize(loss, var_list=[v], global_step=count, name="counted")
        init = td.global_variables_initializer()
    session = td.Session(td.Graph.from_json(graph.to_json()))
    session.run(init.name)
    session.run("both")
    session.run("counted")
    assert [t.tolist() for t in session.run([v.name, other.name, count.name])] == [[0.25], [0.5], 1]
    with pytest.raises(td.UnsupportedError, match="are for a loss of a deferred graph"):
        optim.SGD([p := nn.Parameter(td.ones(1))], lr=0.1).minimize((p * p).sum(), name="step")


def test_lbfgs_says_that_it_needs_a_function():
    with td.Graph():
        v = td.Variable([1.0])
        with pytest.raises(td.UnsupportedError, match=r"several times in a step(.|\n)*step\(closure\)"):
            optim.LBFGS([v]).minimize((v * v).sum())
    p = nn.Parameter(td.ones(1))
    with pytest.raises(td.UnsupportedError, match="needs a function"):
        optim.LBFGS([p]).minimize((p * p).sum())
