"""vmap: one example becomes many."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.nn import functional as F
from tandem.ops.lstm_sequence import lstm_sequence


def close(a, b, **tolerance):
    np.testing.assert_allclose(a.detach().numpy(), np.asarray(b), **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


X = td.tensor(np.random.default_rng(0).normal(size=(4, 3)))


# -- vmap


def test_axes_in_and_out():
    f = lambda a, b: a * 2 + b
    close(td.vmap(f, in_axes=(1, None))(X, td.ones(4, dtype=td.float64)), X.numpy().T * 2 + 1)
    close(td.vmap(f, in_axes=(0, 0), out_axes=1)(X, X), X.numpy().T * 3)
    close(td.vmap(f, in_dims=(0, None), out_dims=-1)(X, 1.0), (X.numpy() * 2 + 1).T)
    made = td.vmap(lambda d, k: {"s": d["x"].sum() * k, "all": [d["x"], d["y"]]}, in_axes=({"x": 0, "y": None}, None))(
        {"x": X, "y": X[0]}, 3
    )
    close(made["s"], X.numpy().sum(1) * 3)
    close(made["all"][1], np.broadcast_to(X.numpy()[0], (4, 3)))
    close(td.vmap(lambda a, scale=None: a * scale)(X, scale=X), X.numpy() ** 2)


def test_nested_and_differentiated():
    outer = td.vmap(td.vmap(lambda a, b: (a * b).sum(), in_axes=(None, 0)), in_axes=(0, None))
    close(outer(X, X), X.numpy() @ X.numpy().T)
    w = td.tensor(np.random.default_rng(1).normal(size=(3, 2)), requires_grad=True)
    f = lambda a: td.tanh(a @ w).sum()
    td.vmap(f)(X).sum().backward()
    got = w.grad
    w.grad = None
    sum(f(row) for row in X).backward()
    close(got, w.grad.numpy())
    each = td.vmap(td.grad(lambda a: (a.sin() ** 2).sum()))(X)
    close(each, np.sin(2 * X.numpy()))
    close(td.grad(lambda x: td.vmap(lambda a: (a**3).sum())(x).sum())(X), 3 * X.numpy() ** 2)
    close(td.compile(lambda x: td.vmap(td.grad(lambda a: (a**3).sum()))(x))(X), 3 * X.numpy() ** 2)


def test_chunks_are_the_whole():
    f = lambda a: td.softmax(a, -1)
    close(td.vmap(f, chunk_size=3)(X), td.vmap(f)(X).numpy())


def test_random_numbers_must_be_asked_for():
    ones = td.ones(50, 8)
    with pytest.raises(td.UnsupportedError, match="randomness"):
        td.vmap(lambda a: F.dropout(a, 0.5))(ones)
    td.manual_seed(0)
    same = td.vmap(lambda a: F.dropout(a, 0.5), randomness="same")(ones)
    assert (same == same[0]).all()
    own = td.vmap(lambda a: F.dropout(a, 0.5) + 10 * F.dropout(a, 0.5), randomness="different")(ones)
    rows = {tuple(r) for r in own.tolist()}
    assert len(rows) > 40
    first, second = own.numpy() % 10, own.numpy() // 10
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.2  # the two draws are different numbers


def test_lookups_with_indices_per_example():
    index = td.tensor([2, 0, 1, 2])
    close(td.vmap(lambda a, i: a[i])(X, index), X.numpy()[np.arange(4), index.numpy()])
    close(td.vmap(lambda i: X[:, 1][i])(index), X.numpy()[index.numpy(), 1])
    put = td.vmap(lambda a, i: a.index_add(0, i.reshape(1), td.ones(1, dtype=td.float64)))(X, index)
    expected = X.numpy().copy()
    expected[np.arange(4), index.numpy()] += 1
    close(put, expected)


def test_control_flow_inside():
    close(td.vmap(lambda a: td.cond(a[0] > 0, lambda v: v * 2, lambda v: v - 1, a))(X),
          np.where(X.numpy()[:, :1] > 0, X.numpy() * 2, X.numpy() - 1))  # fmt: skip
    doubled = td.vmap(lambda a: td.while_loop(lambda v: v < 10, lambda v: v * 2, a))(td.tensor([1.0, 3.0, 20.0]))
    assert doubled.tolist() == [16, 12, 20]
    total = lambda a: td.scan(lambda c, x: (c + x, c * x), td.zeros((), dtype=td.float64), a)[1]
    close(td.vmap(total)(X), np.stack([total(row).numpy() for row in X]))
    close(
        td.vmap(td.grad(lambda a: total(a).sum()))(X),
        np.stack([td.grad(lambda a: total(a).sum())(r).numpy() for r in X]),
    )


def test_gradients_per_example_of_a_module():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    params = {k: v.detach() for k, v in model.named_parameters()}
    x, y = td.tensor(np.random.default_rng(2).normal(size=(5, 1, 4, 4)).astype(np.float32)), td.tensor([0, 1, 2, 0, 1])

    def loss(p, a, b):
        return F.cross_entropy(td.func.functional_call(model, p, (a[None],)), b[None])

    each = td.vmap(td.grad(loss), in_axes=(None, 0, 0))(params, x, y)
    for name, g in each.items():
        expected = np.stack([td.grad(loss)(params, x[i], y[i])[name].numpy() for i in range(5)])
        close(g, expected, rtol=1e-4, atol=1e-5)


def test_an_ensemble():
    models = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = td.func.stack_module_state(models)
    x = X.to(td.float32)
    made = td.vmap(lambda p: td.func.functional_call(models[0], p, (x,)))(params)
    close(made, np.stack([m(x).detach().numpy() for m in models]))
    assert buffers == {}
    with pytest.raises(KeyError, match="no parameter or buffer 'w'"):
        td.func.functional_call(models[0], {"w": x}, (x,))


def test_misuse_of_vmap_is_told():
    with pytest.raises(td.ShapeError, match="different sizes"):
        td.vmap(lambda a, b: a + b)(X, X[:2])
    with pytest.raises(td.ShapeError, match="axis 5"):
        td.vmap(lambda a: a, in_axes=5)(X)
    with pytest.raises(td.ValueRangeError, match="no argument"):
        td.vmap(lambda a: a, in_axes=None)(X)
    with pytest.raises(td.ValueRangeError, match="in_axes has 2"):
        td.vmap(lambda a: a, in_axes=(0, 0))(X)
    with pytest.raises(td.ValueRangeError, match="reads the value"):
        td.vmap(lambda a: a if a.sum() > 0 else -a)(X)
    with pytest.raises(td.ValueRangeError, match="randomness"):
        td.vmap(lambda a: a, randomness="maybe")


@pytest.mark.parametrize("run", [lambda f: f, td.compile], ids=["eager", "compiled"])
def test_gradients_of_while_loops_are_batched(run):
    """Examples that take different numbers of iterations, none among them; first and second derivative."""

    def power(a, w):  # doubles until it is large: a * w**k, k by value
        return td.while_loop(lambda v: v < 10, lambda v: v * w, a)

    xs, w = td.tensor([1.0, 3.0, 20.0, 0.2]), td.tensor(2.0)
    for f in (td.grad(power, argnums=1), td.grad(td.grad(power, argnums=1), argnums=1), td.grad(power, argnums=0)):
        expected = [f(x, w).item() for x in xs]
        found = run(lambda xs, w, f=f: td.vmap(f, in_axes=(0, None))(xs, w))(xs, w)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    total = run(lambda xs, w: td.grad(lambda w: td.vmap(lambda x: power(x, w))(xs).sum())(w))(xs, w)
    np.testing.assert_allclose(total.item(), sum(td.grad(power, argnums=1)(x, w).item() for x in xs), rtol=1e-5)


def test_vmap_of_operators_on_stretches_and_sequences():
    x, lengths = td.randn(3, 6, 2), td.tensor([[2, 3, 1], [1, 1, 1], [0, 6, 0]])
    gates, h, c, w = td.randn(3, 4, 2, 20), td.randn(3, 2, 5), td.randn(3, 2, 5), td.randn(20, 5)
    cases = [
        (lambda d, n: td.segment_reduce(d, "max", lengths=n, unsafe=True, initial=-9.0), (x, lengths)),
        (lambda d: td.isin(d, td.arange(9) * 3), (td.arange(12).reshape(3, 4),)),
        (lambda g, h, c: lstm_sequence(g, h, c, w, False)[0], (gates, h, c)),
        (lambda g, h, c: lstm_sequence(g, h, c, w, True)[1], (gates, h, c)),
    ]
    for fn, given in cases:
        expected = td.stack([fn(*(t[i] for t in given)) for i in range(3)])
        np.testing.assert_allclose(td.vmap(fn)(*given).numpy(), expected.numpy(), rtol=1e-6, atol=1e-6)
    gradient = td.func.grad(lambda g: (td.vmap(cases[2][0])(g, h, c) ** 2).sum())(gates)
    single = td.stack(
        [td.func.grad(lambda g, i=i: (cases[2][0](g, h[i], c[i]) ** 2).sum())(gates[i]) for i in range(3)]
    )
    np.testing.assert_allclose(gradient.numpy(), single.numpy(), rtol=1e-4, atol=1e-6)
