"""vmap, jvp, jacrev, jacfwd, hessian, checkpoint: alone, in each other, in td.compile, with modules. Operators: tests/check.py."""

import numpy as np
import pytest

import tandem as td

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
