import copy
import pickle

import numpy as np
import pytest

import tandem as td


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16", "bfloat16"])
@pytest.mark.parametrize("make", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["deepcopy", "pickle"])
def test_values(make, dtype):
    x = td.tensor([[1, 0, 2], [3, 4, 0]]).to(getattr(td, dtype))
    y = make(x)
    assert y.dtype is x.dtype and y.tolist() == x.tolist() and y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("make", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["deepcopy", "pickle"])
def test_leaf(make):
    x = td.tensor([1.0, 2.0], requires_grad=True)
    y = make(x)
    assert y.requires_grad and y.is_leaf
    (y * 2).sum().backward()
    assert x.grad is None and y.grad.tolist() == [2, 2]


def test_deepcopy_of_a_gradient():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [3, 3] and y.grad.data_ptr() != x.grad.data_ptr()


def test_deepcopy_keeps_sharing():
    x = td.tensor([1.0])
    a, b = copy.deepcopy([x, x])
    assert a is b


def test_results_cannot_be_copied():
    y = td.tensor([1.0], requires_grad=True) * 2
    with pytest.raises(td.AutogradError, match="only leaves"):
        copy.deepcopy(y)
    with pytest.raises(td.AutogradError, match="only leaves"):
        pickle.dumps(y)
    assert copy.deepcopy(y.detach()).tolist() == [2]


def test_shallow_copy_shares():
    x = td.tensor([1.0, 2.0])
    y = copy.copy(x)
    y[0] = 5
    assert float(x[0]) == 5


def test_views():
    x = td.arange(12).reshape(3, 4).T[1:]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)).numpy(), x.numpy())


def test_subclass_and_attributes():
    class Tagged(td.Tensor):
        pass

    x = td.tensor([1.0])
    x.label = "kept"
    assert copy.deepcopy(x).label == "kept" and pickle.loads(pickle.dumps(x)).label == "kept"
