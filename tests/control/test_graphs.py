"""Control flow in deferred graphs: the same as eagerly, with gradients, partial runs and unknown sizes."""

import numpy as np
import pytest

import tandem as td

D = td.float64


def rand(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def gradients(total, ts):
    grads = td.autograd.grad(total, ts, create_graph=True, allow_unused=True)
    return [td.zeros_like(t) if g is None else g for g, t in zip(grads, ts, strict=True)]


def run(fn, *arrays, order=2, unknown=False):
    """fn in a graph: values, first and second derivatives; and the same eagerly."""
    graph = td.Graph()
    with graph:
        xs = [td.placeholder(D, tuple(None if unknown else n for n in a.shape)) for a in arrays]
        results = fn(*xs)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        total = sum(td.sin(r).sum() for r in results)
        fetched = results + [g for g in td.gradients(total, xs) if g is not None]
        if order > 1:
            again = sum((g * g).sum() for g in fetched[len(results) :])
            fetched += [g for g in td.gradients(again, xs) if g is not None]
    made = td.Session(graph).run(fetched, dict(zip(xs, arrays, strict=True)))

    ts = [td.tensor(a, requires_grad=True) for a in arrays]
    results = fn(*ts)
    expected = list(results) if isinstance(results, (tuple, list)) else [results]
    total = sum(td.sin(r).sum() for r in expected)
    first = gradients(total, ts)
    expected = [*expected, *first]
    if order > 1:
        expected += gradients(sum((g * g).sum() for g in first), ts)
    for a, b in zip(expected, made, strict=True):
        np.testing.assert_allclose(b.numpy(), a.detach().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("unknown", [False, True])
def test_scan(unknown):
    run(lambda h, xs, w: td.scan(lambda c, x: (td.tanh(c @ w + x), c * x), h, xs), rand(3, 4), rand(5, 3, 4), rand(4, 4),
        unknown=unknown)  # fmt: skip


def test_while_loop():
    run(lambda x, k: td.while_loop(lambda i, v: v.sum() < 50, lambda i, v: (i + 1, v * v * k + 1), (td.tensor(0), x))[1],
        np.array([1.0, 1.5]), np.array(1.2))  # fmt: skip


@pytest.mark.parametrize("x", [1.0, 3.0])
def test_the_classic_example(x):
    run(lambda x, y, z: td.cond(x < y, lambda: x + z, lambda: y * y) + x * z, np.array(x), np.array(2.0), np.array(5.0))


def test_fori_loop_map_and_switch():
    run(lambda x: td.fori_loop(1, 4, lambda i, v: td.sin(v) * i + x, x), rand(3))
    run(lambda xs, w: td.map(lambda x: x * w.sum(), xs), rand(4, 3), rand(3))
    run(lambda x: td.switch_case((x.sum() * 0).astype(td.int64) + 1, [lambda v: v, lambda v: v * v], x), rand(3))


def test_nested():
    def f(h, xs):
        def step(c, x):
            grown = td.while_loop(lambda v: (v * v).sum() < 4, lambda v: v * 1.5 + x, c, maximum=4)
            return td.cond(grown.sum() > 0, lambda: grown * 0.1 + x, lambda: x - h), (grown * h).sum()

        return td.scan(step, h, xs)

    run(f, rand(2), rand(3, 2))


def test_variables_train_through_a_loop():
    graph = td.Graph()
    with graph:
        x = td.placeholder(td.float32, (None, 4, 3))
        w = td.Variable(td.ones(3, 3) * 0.1)
        h, _ = td.scan(lambda h, row: (td.tanh(h @ w + row), None), td.zeros(4, 3), x)
        loss = (h * h).mean()
        step = td.optim.SGD([w], lr=0.5).minimize(loss)
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    rows = rand(6, 4, 3).astype(np.float32)
    losses = [float(session.run([loss, step], {x: rows})[0]) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert session.run(loss, {x: rows[:3]}).shape == ()


def test_only_what_is_fetched_runs():
    graph = td.Graph()
    with graph:
        x = td.placeholder(td.float32, ())
        missing = td.placeholder(td.float32, ())
        y = x * 2
        td.fori_loop(0, 3, lambda i, v: v + missing, x)
        ran = td.fori_loop(0, 3, lambda i, v: v + y, x)
    assert float(td.Session(graph).run(ran, {x: 1.0})) == 7


def test_random_numbers_follow_the_seed():
    f = lambda x: td.scan(lambda c, _: (c + td.rand(3), None), x, length=3)[0]
    td.manual_seed(4)
    expected = f(td.zeros(3))
    graph = td.Graph()
    with graph:
        y = f(td.zeros(3))
    td.manual_seed(4)
    np.testing.assert_allclose(td.Session(graph).run(y).numpy(), expected.numpy(), rtol=1e-6)


def test_errors_name_the_variable():
    graph = td.Graph()
    with graph:
        x = td.placeholder(td.float32, (2,))
        with pytest.raises(
            td.ShapeError, match=r"carry\['a'\] is float32 \(2,\) before an iteration and float32 \(4,\) after"
        ):
            td.scan(lambda c, _: ({"a": td.concat([c["a"], c["a"]])}, None), {"a": x}, length=2)
        with pytest.raises(td.DTypeError, match="all branches must give the same"):
            td.cond(x.sum() > 0, lambda: x, lambda: x > 0)
        v = td.Variable([1.0, 2.0])
        with pytest.raises(td.TandemError):
            td.fori_loop(0, 2, lambda i, c: c + v.assign_add(c), x)
