"""Embeddings with sparse=True: sparse gradients, and optimisers that change only the rows in them."""

import numpy as np
import pytest

import tandem as td

INDEX = [[1, 4, 1], [7, 7, 0]]


def table(sparse, rows=10, **settings):
    td.manual_seed(0)
    return td.nn.Embedding(rows, 3, sparse=sparse, **settings)


def loss_of(layer, index=INDEX):
    return (layer(td.tensor(index)) ** 2 * td.arange(1.0, 4.0)).sum()


@pytest.mark.parametrize("settings", [{}, {"padding_idx": 7}, {"scale_grad_by_freq": True}])
def test_the_sparse_gradient_is_the_dense_one(settings):
    dense, sparse = table(False, **settings), table(True, **settings)
    for layer in (dense, sparse):
        loss_of(layer).backward()
    g = sparse.weight.grad
    assert g.is_sparse and g.shape == (10, 3) and not dense.weight.grad.is_sparse
    assert 7 not in g._indices()[0].tolist() or "padding_idx" not in settings
    np.testing.assert_allclose(g.to_dense().numpy(), dense.weight.grad.numpy(), rtol=1e-6)


def test_gradients_accumulate_and_mix():
    layer = table(True)
    loss_of(layer).backward()
    once = layer.weight.grad.to_dense()
    loss_of(layer).backward()
    assert layer.weight.grad.is_sparse
    np.testing.assert_allclose(layer.weight.grad.to_dense().numpy(), 2 * once.numpy(), rtol=1e-6)
    (loss_of(layer) + layer.weight.sum()).backward()
    assert not layer.weight.grad.is_sparse
    np.testing.assert_allclose(layer.weight.grad.numpy(), 3 * once.numpy() + 1, rtol=1e-6)
    layer.weight.grad = td.ones(10, 3)
    loss_of(layer).backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), once.numpy() + 1, rtol=1e-6)


def test_a_table_that_was_computed_gets_a_dense_gradient():
    w = td.ones(5, 2, requires_grad=True)
    td.nn.functional.embedding(td.tensor([1, 1]), w * 2, sparse=True).sum().backward()
    assert w.grad.tolist() == [[0, 0], [4, 4], [0, 0], [0, 0], [0, 0]]


def test_second_derivatives():
    w = td.tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    (g,) = td.autograd.grad(
        (td.nn.functional.embedding(td.tensor([2, 2]), w, sparse=True) ** 3).sum(), w, create_graph=True
    )
    g.to_dense().sum().backward()
    np.testing.assert_allclose(w.grad.to_dense().numpy()[2], 2 * 6 * np.array([4.0, 5.0]))


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("offsets", [None, [0, 2]])
def test_bags(mode, offsets):
    grads = []
    for sparse in (False, True):
        td.manual_seed(0)
        bag = td.nn.EmbeddingBag(10, 3, mode=mode, sparse=sparse, padding_idx=4)
        index = td.tensor(INDEX if offsets is None else INDEX[0])
        (bag(index, None if offsets is None else td.tensor(offsets)) ** 2).sum().backward()
        assert bag.weight.grad.is_sparse == sparse
        grads.append(bag.weight.grad.to_dense().numpy())
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-6)


def test_a_bag_of_maxima_has_no_sparse_gradient():
    with pytest.raises(td.ValueRangeError, match="mode 'max' has no sparse gradient"):
        td.nn.EmbeddingBag(10, 3, mode="max", sparse=True)(td.tensor(INDEX))


def test_gather_with_a_sparse_gradient():
    grads = []
    for settings in ({}, {"sparse_grad": True}):
        x = td.arange(12.0).reshape(4, 3).requires_grad_()
        (td.gather(x, 1, td.tensor([[0, 0], [2, 1]]), **settings) ** 2).sum().backward()
        grads.append(x.grad)
    assert grads[1].is_sparse
    np.testing.assert_allclose(grads[1].to_dense().numpy(), grads[0].numpy())


def test_gradients_are_clipped_by_their_norm():
    dense, sparse = table(False), table(True)
    norms = []
    for layer in (dense, sparse):
        loss_of(layer).backward()
        norms.append(td.nn.utils.clip_grad_norm_(layer.parameters(), 0.5).item())
    np.testing.assert_allclose(norms[1], norms[0], rtol=1e-6)
    np.testing.assert_allclose(sparse.weight.grad.to_dense().numpy(), dense.weight.grad.numpy(), rtol=1e-5)


def test_hooks_see_sparse_gradients():
    layer, seen = table(True), []
    layer.weight.register_hook(lambda g: seen.append(g.is_sparse) or g * 2)
    loss_of(layer).backward()
    expected = table(True)
    loss_of(expected).backward()
    assert seen == [True]
    np.testing.assert_allclose(
        layer.weight.grad.to_dense().numpy(), 2 * expected.weight.grad.to_dense().numpy(), rtol=1e-6
    )
