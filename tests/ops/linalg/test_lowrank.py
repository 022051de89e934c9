"""A few of many singular and eigenvalues."""

import numpy as np

import tandem as td

rng = np.random.default_rng(0)


def normal(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


def test_a_few_of_many_values():
    for shape in ((2, 9, 6), (6, 9)):
        x = normal(*shape[:-1], 3) @ normal(*shape[:-2], 3, shape[-1])
        u, s, v = td.svd_lowrank(td.tensor(x), q=3)
        np.testing.assert_allclose((u * s.unsqueeze(-2) @ v.mT).numpy(), x, atol=1e-10)
        u, s, v = td.pca_lowrank(td.tensor(x), q=4)
        np.testing.assert_allclose((u * s.unsqueeze(-2) @ v.mT).numpy(), x - x.mean(-2, keepdims=True), atol=1e-10)
    a, b = normal(5, 5), normal(5, 5)
    a, b = a + a.T, b @ b.T + np.eye(5)
    import scipy.linalg

    w, v = td.lobpcg(td.tensor(a), k=2, B=td.tensor(b))
    np.testing.assert_allclose(w.numpy(), scipy.linalg.eigvalsh(a, b)[:-3:-1], atol=1e-10)
    np.testing.assert_allclose(a @ v.numpy(), b @ v.numpy() * w.numpy(), atol=1e-10)
    w, _ = td.lobpcg(td.tensor(a), largest=False)
    np.testing.assert_allclose(w.numpy(), np.linalg.eigvalsh(a)[:1], atol=1e-10)
