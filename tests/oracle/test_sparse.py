"""Sparse gradients and sparse tensors against PyTorch's."""

import numpy as np
import pytest

import tandem as td

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

BATCHES = ([1, 1, 4, 9], [4, 2, 2, 2], [1, 3, 5, 7])
OPTIMIZERS = {
    "sgd": lambda lib, p: lib.optim.SGD(p, lr=0.1),
    "momentum": lambda lib, p: lib.optim.SGD(p, lr=0.1, momentum=0.9),
    "adagrad": lambda lib, p: lib.optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1),
    "sparse_adam": lambda lib, p: lib.optim.SparseAdam(p, lr=0.1, betas=(0.8, 0.9)),
}


def trained(lib, make, start):
    layer = lib.nn.Embedding(10, 3, sparse=True, _weight=lib.tensor(start))
    optimizer = make(lib, list(layer.parameters()))
    for index in BATCHES:
        optimizer.zero_grad()
        ((layer(lib.tensor(index)) ** 2) * lib.arange(1.0, 4.0)).sum().backward()
        optimizer.step()
    return layer.weight.detach().numpy()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_with_sparse_gradients(name):
    start = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    expected = trained(torch, OPTIMIZERS[name], start.copy())
    np.testing.assert_allclose(trained(td, OPTIMIZERS[name], start.copy()), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("settings", [{}, {"padding_idx": 4}])
def test_sparse_gradients_of_bags(mode, settings):
    start = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
    grads = []
    for lib in (torch, td):
        bag = lib.nn.EmbeddingBag(10, 3, mode=mode, sparse=True, _weight=lib.tensor(start), **settings)
        (bag(lib.tensor([1, 4, 1, 2]), lib.tensor([0, 3])) ** 2).sum().backward()
        assert bag.weight.grad.is_sparse
        grads.append(bag.weight.grad.to_dense().numpy())
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-5, atol=1e-6)


def test_entries_of_a_sparse_gradient():
    entries = []
    for lib in (torch, td):
        layer = lib.nn.Embedding(10, 2, padding_idx=3, sparse=True, _weight=lib.ones(10, 2))
        layer(lib.tensor([[5, 3], [5, 0]])).sum().backward()
        g = layer.weight.grad
        entries.append(
            (g._indices().tolist(), g._values().tolist(), g.coalesce().indices().tolist(), g.sparse_dim(), g._nnz())
        )
    assert entries[1] == entries[0]


DENSE = np.array([[0.0, 2.0, 0.0], [3.0, 0.0, -1.0], [0.0, 0.0, 0.0]], np.float32)
FUNCTIONS = {
    "sum over an axis": lambda lib, x: lib.sparse.sum(x, 0),
    "sum": lambda lib, x: lib.sparse.sum(x),
    "softmax": lambda lib, x: lib.sparse.softmax(x, 1),
    "log_softmax": lambda lib, x: lib.sparse.log_softmax(x, 1),
    "mm": lambda lib, x: lib.sparse.mm(x, lib.ones(3, 2)),
    "square": lambda lib, x: x * x,
    "sum of two": lambda lib, x: x + x.t(),
    "scaled": lambda lib, x: x * 3 / 2,
    "product": lambda lib, x: x @ x,
    "sqrt": lambda lib, x: x.abs().sqrt(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_sparse_tensors(name):
    made = []
    for lib in (torch, td):
        result = FUNCTIONS[name](lib, lib.tensor(DENSE).to_sparse())
        made.append((result.to_dense() if result.is_sparse else result).numpy())
    np.testing.assert_allclose(made[1], made[0], rtol=1e-5, atol=1e-6)


def test_sampled_products():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal((4, 3)).astype(np.float32)
    made = [
        lib.sparse.sampled_addmm(lib.tensor(DENSE).to_sparse_csr(), lib.tensor(a), lib.tensor(b), beta=0.5, alpha=2.0)
        for lib in (torch, td)
    ]
    np.testing.assert_allclose(made[1].values().numpy(), made[0].values().numpy(), rtol=1e-5)
    assert made[1].crow_indices().tolist() == made[0].crow_indices().tolist()
