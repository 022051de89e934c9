"""Sparse tensors: conversions, products, sums, and what is refused."""

import copy
import pickle

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


def test_parts_of_coordinates():
    x = sparse()
    assert (x.shape, x.dtype, x.layout, x.is_sparse, x.is_sparse_csr) == (
        (4, 3),
        td.float32,
        td.sparse_coo,
        True,
        False,
    )
    assert (x.sparse_dim(), x.dense_dim(), x._nnz(), x.is_coalesced()) == (2, 0, 5, True)
    assert x.indices().tolist() == [[0, 1, 1, 3, 3], [1, 0, 2, 0, 1]]
    assert x.values().tolist() == [2, 3, -1, 4, 5]
    assert td.zeros(2).layout is td.strided and not td.zeros(2).is_sparse


def test_parts_of_compressed_rows():
    x = td.sparse_csr_tensor([0, 1, 3, 3, 5], [1, 0, 2, 0, 1], [2.0, 3, -1, 4, 5], (4, 3))
    assert x.is_sparse_csr and not x.is_sparse and x.layout is td.sparse_csr
    assert x.crow_indices().tolist() == [0, 1, 3, 3, 5] and x.col_indices().tolist() == [1, 0, 2, 0, 1]
    same(x, DENSE)
    same(x.to_sparse_coo(), DENSE)
    same(sparse().to_sparse_csr(), DENSE)


def test_values_of_one_place_add_up():
    x = td.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2.0, 5.0], (2, 3))
    assert not x.is_coalesced()
    with pytest.raises(td.ValueRangeError, match=r"fix: x.coalesce\(\).values\(\)"):
        x.values()
    y = x.coalesce()
    assert y.indices().tolist() == [[0, 1], [0, 2]] and y.values().tolist() == [2, 6]
    same(x, y.to_dense().numpy())


def test_dense_axes_follow_sparse_ones():
    x = td.sparse_coo_tensor([[2, 0, 2]], td.arange(6).reshape(3, 2), (4, 2))
    assert (x.sparse_dim(), x.dense_dim()) == (1, 1)
    assert x.to_dense().tolist() == [[2, 3], [0, 0], [4, 6], [0, 0]]
    assert td.tensor([[0, 0], [0, 7]]).to_sparse(1).values().tolist() == [[0, 7]]


def test_a_size_may_be_left_out_and_entries_too():
    assert td.sparse_coo_tensor([[0, 4]], [1.0, 2.0]).shape == (5,)
    assert td.sparse_coo_tensor((2, 3)).to_dense().tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arithmetic(layout):
    x, other = sparse(layout), DENSE.T.copy().reshape(4, 3)
    y = td.tensor(other).to_sparse(layout=layout)
    full = td.tensor(other + 1)
    same(x + y, DENSE + other)
    same(x - y, DENSE - other)
    same(x * y, DENSE * other)
    same(x * 2, DENSE * 2)
    same(2 * x / 4, DENSE / 2)
    same(-x, -DENSE)
    same(x * full, DENSE * (other + 1))
    same(full + x, other + 1 + DENSE)
    same(full - x, other + 1 - DENSE)
    same(x.abs().sqrt(), np.sqrt(abs(DENSE)))
    same(x**2, DENSE**2)
    same(x.sum(), DENSE.sum())
    same(x.t(), DENSE.T)
    same(x.to(td.float64), DENSE)
    assert (x + y).layout is layout and (x * 2).layout is layout


def test_gradients_reach_what_a_sparse_tensor_was_made_of():
    dense, values = td.tensor(DENSE, requires_grad=True), td.ones(2, requires_grad=True)
    (dense.to_sparse() * 3).sum().backward()
    same(dense.grad, 3.0 * (DENSE != 0))
    (td.sparse_coo_tensor([[0, 0], [1, 1]], values, (2, 2)).coalesce().to_dense() * 5).sum().backward()
    same(values.grad, [5, 5])


def test_what_has_no_sparse_form_says_so():
    x = sparse()
    with pytest.raises(
        td.UnsupportedError, match=r"exp: x is a sparse COO tensor of shape \(4, 3\).*no exp(.|\n)*to_dense\(\)"
    ):
        td.exp(x)
    with pytest.raises(td.UnsupportedError, match="no add with these arguments"):
        x + 1
    with pytest.raises(td.UnsupportedError, match="has no memory of its own"):
        x.numpy()
    with pytest.raises(td.UnsupportedError, match="conv2d: "):
        td.nn.functional.conv2d(td.zeros(1, 1, 3, 3), x)
    with pytest.raises(td.ShapeError, match=r"the last axis of a \(3\) must equal the first of b \(4\)"):
        x @ td.ones(4, 1)


def test_places_are_checked():
    with pytest.raises(td.IndexRangeError, match="sparse_coo_tensor: index -1 is out of range for axis 1 with size 3"):
        td.sparse_coo_tensor([[0], [-1]], [1.0], (3, 3))
    with pytest.raises(td.IndexRangeError, match="sparse_csr_tensor: index -1 is out of range for axis 1 with size 3"):
        td.sparse_csr_tensor([0, 1], [-1], [1.0], (1, 3))
    with pytest.raises(td.IndexRangeError, match="index 4 is out of range for axis 0 with size 4"):
        td.sparse_coo_tensor([[4]], [1.0], (4,))
    with pytest.raises(td.ShapeError, match="they must be"):
        td.sparse_coo_tensor([[0, 1]], [1.0], (4,))
    with pytest.raises(td.ValueRangeError, match="must rise from 0"):
        td.sparse_csr_tensor([0, 2, 1], [0], [1.0], (2, 2))


def test_text_shows_the_parts():
    text = repr(td.sparse_coo_tensor([[0]], [1.5], (2,)))
    assert "indices=tensor([[0]])" in text and "values=tensor([1.5000])" in text and "size=(2,), nnz=1" in text


def test_copies_and_pickles_hold_the_parts():
    x = sparse(td.sparse_csr)
    for made in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert made.to_dense().tolist() == x.to_dense().tolist()


def test_nothing_reads_memory_that_is_not_there():
    x = sparse(td.sparse_csr)
    for read in (memoryview, np.asarray, td.nn.Parameter):
        with pytest.raises((TypeError, ValueError, BufferError, td.TandemError), match="memory"):
            read(x)


def test_sparse_tensors_are_saved_and_loaded(tmp_path):
    dense = td.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 1.0]])
    twice = td.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0, 3.0], (2, 3), requires_grad=True)
    td.save({"coo": dense.to_sparse(), "csr": dense.to_sparse_csr(), "twice": twice}, tmp_path / "file")
    made = td.load(tmp_path / "file")
    assert made["coo"].is_sparse and made["coo"].is_coalesced() and made["coo"].to_dense().tolist() == dense.tolist()
    assert made["csr"].is_sparse_csr and made["csr"].to_dense().tolist() == dense.tolist()
    assert not made["twice"].is_coalesced() and made["twice"].requires_grad
    assert made["twice"].to_dense().tolist() == twice.to_dense().tolist()


def test_the_sum_of_coalesced_tensors_is_coalesced():
    x = td.sparse_coo_tensor([[0, 2]], [1.0, 1.0], (3,)).coalesce()
    y = td.sparse_coo_tensor([[0, 1]], [1.0, 1.0], (3,)).coalesce()
    assert (x + y).is_coalesced() and (x + y)._values().tolist() == [2.0, 1.0, 1.0]
    x.add_(y)
    assert x.is_coalesced() and x._indices().tolist() == [[0, 1, 2]]


def test_new_of_a_sparse_tensor_is_sparse():
    x = td.sparse_coo_tensor([[0, 2]], [1.0, 1.0], (3,))
    made = x.new(x._indices(), x._values() * 2, x.size())
    assert made.is_sparse and made.to_dense().tolist() == [2.0, 0.0, 2.0]


def test_norm_and_zero():
    x = td.tensor([[0.0, 3.0], [4.0, 0.0]])
    for sparse in (x.to_sparse(), x.to_sparse_csr()):
        assert sparse.norm().item() == 5.0 and sparse.clone().zero_().to_dense().tolist() == [[0.0, 0.0], [0.0, 0.0]]
