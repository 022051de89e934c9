"""Parameters that are functions of others."""

import copy
import pickle
import threading

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return td.triu(x) + td.triu(x, 1).T

    def right_inverse(self, a):
        return td.triu(a)


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x / 2


def test_a_parameter_becomes_a_function_of_another():
    m = nn.Linear(3, 3)
    parametrize.register_parametrization(m, "weight", Symmetric())
    assert parametrize.is_parametrized(m, "weight") and not parametrize.is_parametrized(m, "bias")
    assert m.weight.tolist() == m.weight.T.tolist() and "weight" not in m._parameters
    assert ["bias", "parametrizations.weight.original"] == [n for n, _ in m.named_parameters()]
    m(td.ones(1, 3)).sum().backward()
    original = m.parametrizations.weight.original
    assert original.grad is not None and not td.tril(original.grad, -1).any()
    assert type(m).__name__ == "ParametrizedLinear" and isinstance(m, nn.Linear)
    target = td.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    m.weight = target
    assert m.weight.tolist() == target.tolist()
    with parametrize.cached():
        assert m.weight is m.weight
    assert m.weight is not m.weight


def test_parametrizations_add_up_and_go_away():
    m = nn.Linear(2, 2)
    before = td.triu(m.weight).detach() + td.triu(m.weight, 1).T.detach()
    parametrize.register_parametrization(m, "weight", Symmetric())
    parametrize.register_parametrization(m, "weight", Doubled())
    np.testing.assert_allclose(m.weight.detach().numpy(), before.numpy(), rtol=1e-6)
    with td.no_grad():
        m.parametrizations.weight.original.fill_(1.0)
    assert m.weight.tolist() == [[2, 2], [2, 2]]
    parametrize.remove_parametrizations(m, "weight")
    assert type(m) is nn.Linear and isinstance(m.weight, nn.Parameter) and m.weight.tolist() == [[2, 2], [2, 2]]
    parametrize.register_parametrization(m, "weight", Doubled())
    parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)
    assert m.weight.tolist() == [[1, 1], [1, 1]]


def test_parametrized_modules_copy_and_pickle():
    m = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    x = td.ones(1, 2)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert other(x).tolist() == m(x).tolist()
        with td.no_grad():
            other.parametrizations.weight.original0.fill_(0.0)
        assert m.weight.any() and not other.weight.any()


def test_mistakes():
    m = nn.Linear(2, 3)
    with pytest.raises(ValueError, match="no parameter or buffer"):
        parametrize.register_parametrization(m, "other", Doubled())
    with pytest.raises(ValueError, match="not parametrized"):
        parametrize.remove_parametrizations(m, "weight")

    class Shape(nn.Module):
        def forward(self, x):
            return x.sum()

    with pytest.raises(ValueError, match="unsafe"):
        parametrize.register_parametrization(m, "weight", Shape())
    assert type(m) is nn.Linear and "weight" in m._parameters
    nn.utils.parametrizations.weight_norm(m)
    with pytest.raises(ValueError, match="2 tensors"):
        parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)
    parametrize.register_parametrization(m, "bias", Shape(), unsafe=True)
    with pytest.raises(RuntimeError, match="right_inverse"):
        m.bias = td.ones(3)


def test_what_a_thread_keeps_is_its_own():
    """Two threads are inside at once, and the first one leaves first: nothing is kept afterwards."""
    m = nn.Linear(2, 2)
    parametrize.register_parametrization(m, "weight", Doubled())
    scopes = [parametrize.cached() for _ in range(2)]
    entered, left = threading.Event(), threading.Event()

    def other():
        with scopes[1]:
            entered.set()
            assert left.wait(300)

    thread = threading.Thread(target=other)
    with scopes[0]:
        thread.start()
        assert entered.wait(300)
        kept = m.weight
        assert kept is m.weight
    left.set()
    thread.join(300)
    with td.no_grad():
        m.parametrizations.weight.original.fill_(1.0)
    assert m.weight.tolist() == [[2, 2], [2, 2]]
    assert m.weight is not m.weight
