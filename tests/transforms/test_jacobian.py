"""Jacobians and Hessians."""

import numpy as np

import tandem as td


def close(a, b, **tolerance):
    np.testing.assert_allclose(a.detach().numpy(), np.asarray(b), **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


X = td.tensor(np.random.default_rng(0).normal(size=(4, 3)))


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
