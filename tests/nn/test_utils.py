"""nn.utils: clipping, vectors of parameters, parametrizations."""

import copy
import pickle

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.nn.utils import parametrize


def with_gradients(*gradients):
    made = []
    for g in gradients:
        p = nn.Parameter(td.zeros(len(g)))
        p.grad = td.tensor(g)
        made.append(p)
    return made


def test_clip_grad_norm():
    ps = [*with_gradients([3.0, 0.0], [4.0]), nn.Parameter(td.zeros(1))]
    assert nn.utils.clip_grad_norm_(iter(ps), 1.0).item() == 5.0
    np.testing.assert_allclose(np.concatenate([p.grad.numpy() for p in ps[:2]]), [0.6, 0, 0.8], rtol=1e-5)
    assert nn.utils.clip_grad_norm_(ps[0], 10.0).item() == pytest.approx(0.6, rel=1e-5)
    assert ps[0].grad.tolist()[0] == pytest.approx(0.6, rel=1e-5)
    assert nn.utils.clip_grad_norm_([nn.Parameter(td.zeros(1))], 1.0).item() == 0.0
    assert nn.utils.get_total_norm([td.tensor([-3.0]), td.tensor([2.0])], float("inf")).item() == 3.0
    bad = with_gradients([float("nan")])
    with pytest.raises(RuntimeError, match="not finite"):
        nn.utils.clip_grad_norm_(bad, 1.0, error_if_nonfinite=True)


def test_clip_grad_value():
    (p,) = with_gradients([-3.0, 0.5, 7.0])
    nn.utils.clip_grad_value_([p], 1.0)
    assert p.grad.tolist() == [-1.0, 0.5, 1.0]


def test_vectors():
    m = nn.Linear(2, 3)
    v = nn.utils.parameters_to_vector(m.parameters())
    assert v.shape == (9,) and v.requires_grad
    nn.utils.vector_to_parameters(td.arange(9.0), m.parameters())
    assert m.weight.tolist() == [[0, 1], [2, 3], [4, 5]] and m.bias.tolist() == [6, 7, 8]
    with pytest.raises(ValueError, match=r"\(9,\)"):
        nn.utils.vector_to_parameters(td.ones(8), m.parameters())


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


def test_weight_norm():
    m = nn.Linear(2, 3)
    w = m.weight.detach().numpy().copy()
    nn.utils.parametrizations.weight_norm(m)
    np.testing.assert_allclose(m.weight.detach().numpy(), w, rtol=1e-6)
    with td.no_grad():
        m.parametrizations.weight.original0.fill_(2.0)
    np.testing.assert_allclose(np.linalg.norm(m.weight.detach().numpy(), axis=1), 2.0, rtol=1e-6)
    m.load_state_dict({"weight_g": td.ones(3, 1), "weight_v": td.tensor(w), "bias": td.zeros(3)})
    np.testing.assert_allclose(np.linalg.norm(m.weight.detach().numpy(), axis=1), 1.0, rtol=1e-6)


def test_spectral_norm():
    td.manual_seed(0)
    m = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6))
    x = td.ones(1, 4)
    for _ in range(20):
        m(x)
    assert np.linalg.svd(m.weight.detach().numpy())[1][0] == pytest.approx(1.0, rel=1e-3)
    u = m.parametrizations.weight[0]._u
    before = u.tolist()
    m.eval()(x)
    assert before == u.tolist()
    m.train()
    (m(x) + m(x)).sum().backward()
    assert m.parametrizations.weight.original.grad is not None


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
