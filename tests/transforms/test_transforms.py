"""vmap, jvp, jacrev, jacfwd, hessian, checkpoint: alone, in each other, in td.compile, with modules. Operators: tests/check.py."""

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


# -- forward mode


def test_jvp_is_the_derivative_along_a_direction():
    v = td.ones_like(X)
    value, moved = td.jvp(lambda a, b: {"y": (a * b).sin()}, (X, X), (v, 2 * v))
    close(value["y"], np.sin(X.numpy() ** 2))
    close(moved["y"], np.cos(X.numpy() ** 2) * 3 * X.numpy())
    y, push = td.linearize(lambda a: a.exp(), X)
    close(push(v), y.numpy())
    value, moved, other = td.jvp(lambda a: (a * 2, "aux" and a + 1), (X,), (v,), has_aux=True)
    close(moved, np.full((4, 3), 2.0))
    close(other, X.numpy() + 1)
    with pytest.raises(td.ShapeError, match=r"tangent of shape \(3,\)"):
        td.jvp(td.sin, (X,), (td.ones(3),))


def test_jvp_of_loops_and_of_jvp():
    power = lambda a: td.scan(lambda c, _: (c * a, None), td.ones_like(a), length=3)[0]
    close(td.jvp(power, (X,), (td.ones_like(X),))[1], 3 * X.numpy() ** 2)
    close(td.jvp(lambda a: td.jvp(power, (a,), (td.ones_like(a),))[1], (X,), (td.ones_like(X),))[1], 6 * X.numpy())
    close(td.grad(lambda a: td.jvp(power, (a,), (td.ones_like(a),))[1].sum())(X), 6 * X.numpy())


# -- Jacobians


def test_jacobians_forward_and_backward_agree():
    f = lambda a, b: td.stack([a[0] * b[1], (a * a).sum(), b[0]])
    a, b = X[0], X[1]
    for transform in (td.jacrev, td.jacfwd):
        by_a, by_b = transform(f, (0, 1))(a, b)
        close(by_a, [[b[1].item(), 0, 0], (2 * a.numpy()).tolist(), [0, 0, 0]])
        close(by_b, [[0, a[0].item(), 0], [0, 0, 0], [1, 0, 0]])
    nested = td.jacrev(lambda x: {"s": x.sum(), "x": x * 2})(a)
    assert nested["s"].shape == (3,) and nested["x"].shape == (3, 3)


def test_hessians():
    f = lambda a: (a**3).sum() * a[0]
    at = td.tensor([1.0, 2.0])
    for second in (td.hessian(f), td.jacrev(td.jacrev(f)), td.jacfwd(td.jacfwd(f)), td.jacrev(td.jacfwd(f))):
        close(second(at), [[12, 12], [12, 12]])
    batch = td.vmap(td.hessian(f))(td.stack([at, at * 2]))
    close(batch[0], [[12, 12], [12, 12]])
    close(td.compile(td.hessian(f))(at), [[12, 12], [12, 12]])


# -- checkpoint


@pytest.mark.parametrize("compiled", [False, True])
def test_checkpoint_gives_the_same_gradients(compiled):
    td.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5)) for _ in range(3)]
    x = td.tensor(np.random.default_rng(3).normal(size=(16, 8)).astype(np.float32))

    def run(again: bool):
        def step():
            y = x
            for layer in layers:
                y = td.checkpoint(layer, y) if again else layer(y)
            y.square().sum().backward()
            return y

        td.manual_seed(1)
        y = (td.compile(step) if compiled else step)()
        grads = [p.grad.numpy().copy() for layer in layers for p in layer.parameters()]
        for layer in layers:
            layer.zero_grad()
        return y.detach().numpy(), grads

    (y, grads), (again, same) = run(False), run(True)
    np.testing.assert_allclose(again, y, rtol=1e-5)
    for a, b in zip(same, grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_checkpoint_takes_less_memory_in_a_program():
    x = td.tensor(np.random.default_rng(3).normal(size=(256, 64)).astype(np.float32))
    weights = [td.eye(64, requires_grad=True) for _ in range(8)]

    def block(y, ws):
        for w in ws:
            y = (y @ w).tanh()
        return y

    def peak(again: bool) -> int:
        @td.compile
        def step():
            y = x
            for i in range(0, 8, 4):
                y = td.checkpoint(block, y, weights[i : i + 4]) if again else block(y, weights[i : i + 4])
            return td.autograd.grad(y.sum(), weights)

        step()
        return step.memory()["peak"]

    assert peak(True) < 0.9 * peak(False)


def test_checkpoint_to_second_order():
    x = td.tensor([0.5, 1.5], requires_grad=True)
    (g,) = td.autograd.grad(td.checkpoint(lambda a: a.sin().exp(), x).sum(), [x], create_graph=True)
    (h,) = td.autograd.grad(g.sum(), [x])
    v = x.detach().numpy()
    close(h, np.exp(np.sin(v)) * (np.cos(v) ** 2 - np.sin(v)))


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
        np.testing.assert_allclose(td.vmap(fn)(*given).numpy(), expected.numpy(), rtol=1e-6)
    gradient = td.func.grad(lambda g: (td.vmap(cases[2][0])(g, h, c) ** 2).sum())(gates)
    single = td.stack(
        [td.func.grad(lambda g, i=i: (cases[2][0](g, h[i], c[i]) ** 2).sum())(gates[i]) for i in range(3)]
    )
    np.testing.assert_allclose(gradient.numpy(), single.numpy(), rtol=1e-4, atol=1e-6)


# -- gradients of what gradient functions give


def _net(x, a, b):
    return td.tanh(x @ a) @ b


_OF_X = {
    "grad": lambda x, a, b: td.grad(lambda x: _net(x, a, b).sum())(x[0]),
    "grad of an argument": lambda x, a, b: td.grad(lambda x, a, b: _net(x, a, b).sum())(x[0], a, b),
    "value": lambda x, a, b: td.value_and_grad(lambda x: _net(x, a, b).sum())(x)[0],
    "vjp": lambda x, a, b: td.vjp(lambda x: _net(x, a, b), x)[1](td.ones(3, 2))[0],
    "jacrev": lambda x, a, b: td.jacrev(_net)(x, a, b),
    "vmap(grad)": lambda x, a, b: td.vmap(td.grad(lambda x, a, b: _net(x, a, b).sum()), in_dims=(0, None, None))(
        x, a, b
    ),
    "vmap(jacrev)": lambda x, a, b: td.vmap(td.jacrev(lambda x: _net(x, a, b)))(x),
}


@pytest.mark.parametrize("name", _OF_X)
@pytest.mark.parametrize("wrap", [lambda f: f, td.compile], ids=["eager", "compiled"])
def test_parameters_that_the_function_reads_get_gradients(name, wrap):
    rng = np.random.default_rng(0)
    x, *weights = [rng.standard_normal(s) for s in ((3, 4), (4, 5), (5, 2))]
    direction = [rng.standard_normal(w.shape) for w in weights]
    made = _OF_X[name]

    def loss(*weights):
        return (made(td.tensor(x), *weights) ** 2).sum()

    leaves = [td.tensor(w, requires_grad=True) for w in weights]
    wrap(loss)(*leaves).backward()
    along = sum(float((leaf.grad * td.tensor(d)).sum()) for leaf, d in zip(leaves, direction, strict=True))
    step = 1e-6
    ahead, behind = (
        float(loss(*[td.tensor(w + sign * step * d) for w, d in zip(weights, direction, strict=True)]))
        for sign in (1, -1)
    )
    assert along == pytest.approx((ahead - behind) / (2 * step), rel=1e-5)
    with td.no_grad():
        assert not made(td.tensor(x), *leaves).requires_grad


def test_gradients_of_plain_tensors_are_not_recorded():
    a = td.ones(4)
    value, g = td.value_and_grad(lambda x: (x * a).sum())(td.ones(4))
    assert not value.requires_grad and not g.requires_grad
