"""Functions of the module of sparse tensors."""

import numpy as np
import pytest

import tandem as td

DENSE = np.array([[0.0, 2.0, 0.0], [3.0, 0.0, -1.0], [0.0, 0.0, 0.0], [4.0, 5.0, 0.0]], np.float32)


LAYOUTS = [td.sparse_coo, td.sparse_csr]


def sparse(layout=td.sparse_coo, dense=DENSE):
    return td.tensor(dense).to_sparse(layout=layout)


def same(actual, expected, **kwargs):
    actual = actual.to_dense() if actual._in_parts else actual
    np.testing.assert_allclose(actual.detach().numpy(), expected, **({"rtol": 1e-5, "atol": 1e-6} | kwargs))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_and_their_gradients(layout):
    x, b = (
        sparse(layout).requires_grad_(),
        td.tensor(np.arange(6.0, dtype=np.float32).reshape(3, 2), requires_grad=True),
    )
    g = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    y = x @ b
    same(y, DENSE @ b.detach().numpy())
    y.backward(td.tensor(g))
    same(b.grad, DENSE.T @ g)
    same(x.grad, (g @ b.detach().numpy().T) * (DENSE != 0))
    same(td.mv(x, b[:, 0]), DENSE @ b.detach().numpy()[:, 0])
    same(td.ones(2, 4) @ x, np.ones((2, 4)) @ DENSE)
    same(td.addmm(td.ones(4, 2), x, b), 1 + DENSE @ b.detach().numpy())
    same(x @ sparse(layout, DENSE.T.copy()), DENSE @ DENSE.T)


def test_products_are_compiled_once_for_all_structures():
    @td.compile
    def product(values, b, x):
        return x.with_values(values) @ b

    rng = np.random.default_rng(0)
    for n in (5, 7, 9):
        dense = (rng.random((n, 4)) < 0.5) * rng.standard_normal((n, 4)).astype(np.float32)
        x = td.tensor(dense).to_sparse_csr()
        same(product(x.values(), td.ones(4, 3), x), dense @ np.ones((4, 3)))
    assert len(product.explain().splitlines()) < 40


def test_functions_of_the_module():
    x, a, b = sparse(td.sparse_csr), td.ones(4, 2), td.tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    product = a.numpy() @ b.numpy()
    same(td.sparse.sampled_addmm(x, a, b, beta=2.0), (2 * DENSE + product) * (DENSE != 0))
    same(td.sparse.sum(x.to_sparse_coo(), 0), DENSE.sum(0))
    same(td.sparse.sum(x.to_sparse_coo(), 1), DENSE.sum(1))
    with np.errstate(invalid="ignore"):
        raised = np.where(DENSE != 0, np.exp(DENSE), 0)
        expected = np.nan_to_num(raised / raised.sum(1, keepdims=True))
    same(td.sparse.softmax(sparse(), 1), expected)
    values = td.sparse.log_softmax(sparse(), 1).values()
    np.testing.assert_allclose(values.numpy(), np.log(expected[DENSE != 0]), rtol=1e-5, atol=1e-6)
    same(td.sparse.mm(x, td.ones(3, 2), "mean")[1], [1, 1])
    same(td.tensor(DENSE + 1).sparse_mask(sparse()), (DENSE + 1) * (DENSE != 0))
    same(td.sparse.spdiags(td.tensor([[1.0, 2, 3]]), td.tensor([-1]), (3, 3)), np.diag([1.0, 2], -1))
    same(td.cat([sparse(), sparse()], 1), np.concatenate([DENSE, DENSE], 1))
