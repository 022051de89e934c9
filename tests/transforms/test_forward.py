"""Forward mode: derivatives along directions."""

import numpy as np
import pytest

import tandem as td


def close(a, b, **tolerance):
    np.testing.assert_allclose(a.detach().numpy(), np.asarray(b), **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


X = td.tensor(np.random.default_rng(0).normal(size=(4, 3)))


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
