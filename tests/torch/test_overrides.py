"""Classes with __torch_function__, and what packages ask of modules, records and shapes."""

import copy
import pickle
import subprocess
import sys

import pytest

import tandem as td
import tandem.torch as torch


class Doubled:
    """A number that is twice what it holds; operators see it as such."""

    def __init__(self, x):
        self.x = x

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert types == (cls,)
        if func is torch.sub:
            return NotImplemented
        plain = [2 * a.x if isinstance(a, cls) else a for a in args]
        if isinstance(plain[0], (list, tuple)):
            plain[0] = [2 * a.x if isinstance(a, cls) else a for a in plain[0]]
        return func(*plain, **(kwargs or {}))


def test_a_class_says_what_operators_do_with_it():
    d = Doubled(torch.ones(2))
    assert torch.add(d, 1.0).tolist() == [3.0, 3.0]
    assert torch.matmul(torch.ones(3, 2), d).tolist() == [4.0] * 3
    assert torch.cat([d, torch.ones(1)]).tolist() == [2.0, 2.0, 1.0]
    assert torch.ones(2).mul(d).tolist() == [2.0, 2.0]
    with pytest.raises(TypeError, match="no implementation found"):
        torch.sub(d, 1.0)


def test_objects_without_it_are_refused_as_ever():
    with pytest.raises(td.DTypeError, match="must be a tensor or a number"):
        torch.exp(object())


def test_functions_of_python_ask_after_install():
    program = """
import tandem.torch
tandem.torch.install()
import torch
from torch.overrides import has_torch_function, is_tensor_like
class D:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func is torch.sum or func is torch.linalg.eigh or func is torch.isclose
assert torch.sum(D()) is True and torch.linalg.eigh(D()) is True and torch.isclose(torch.ones(1), D()) is True
assert torch.is_tensor(D()) is False
assert has_torch_function((D(), 1)) and is_tensor_like(D()) and not is_tensor_like(1)
assert torch.sum(torch.ones(3)).item() == 3.0
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_children_are_asked_by_their_own_apply():
    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = torch.ones(1)

        def _apply(self, fn, recurse=True):
            super()._apply(fn, recurse)
            self.kept = fn(self.kept)
            return self

    model = torch.nn.Sequential(torch.nn.Linear(1, 1), Keeps()).double()
    assert model[1].kept.dtype is torch.float64 and model[0].weight.dtype is torch.float64


def test_moving_does_not_go_through_a_method_that_is_written_anew():
    class Own(torch.nn.Linear):
        def to(self, device):
            return self.cpu()

    assert Own(1, 1).to("cpu").weight.device.type == "cpu"
    wide = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(1, dtype=torch.complex64))]).double()
    assert wide[0].dtype is torch.complex64


def test_members_are_set_where_attributes_are_looked_up_elsewhere():
    class Around(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    assert Around(torch.nn.Linear(2, 3)).out_features == 3


def test_to_empty_and_type():
    layer = torch.nn.Linear(2, 3).to_empty(device="cpu")
    assert layer.weight.shape == (3, 2) and layer.weight.requires_grad
    assert torch.nn.BatchNorm1d(2).type(torch.float64).num_batches_tracked.dtype is torch.float64


def test_modules_with_older_hooks_can_be_pickled():
    layer = torch.nn.Linear(1, 1)
    layer._register_load_state_dict_pre_hook(_rename)
    again = pickle.loads(pickle.dumps(layer))
    again.load_state_dict({"w": torch.ones(1, 1), "bias": torch.zeros(1)})
    assert again.weight.item() == 1.0


def _rename(state_dict, prefix, *rest):
    state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")


def test_records_that_need_no_tensors_are_gone_through_again():
    x = torch.ones(2, requires_grad=True)
    y = (x + 1).reshape(2, 1)
    y.sum().backward()
    (y * 2).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    z = x * x
    z.sum().backward()
    with pytest.raises(td.AutogradError, match="a second time"):
        z.sum().backward()


def test_distributions_keep_shapes_under_private_names():
    class Grouped(torch.distributions.Normal):
        @property
        def event_shape(self):
            return self._event_shape + (7,)

    d = Grouped(torch.zeros(2), torch.ones(2))
    assert d._batch_shape == (2,) and d.event_shape == (7,) and isinstance(d._batch_shape, torch.Size)
    assert torch.broadcast_shapes((2, 1), (3,)).numel() == 6


def test_multivariate_normal_keeps_the_factor():
    factor = torch.tensor([[2.0, 0.0], [1.0, 1.0]])
    d = torch.distributions.MultivariateNormal(torch.zeros(2, 2), scale_tril=factor)
    assert d._unbroadcasted_scale_tril is factor and d.scale_tril.shape == (2, 2, 2)
    assert torch.allclose(d.covariance_matrix @ d.precision_matrix, torch.eye(2), atol=1e-6)
    wide = d.expand((3, 2))
    assert wide.scale_tril.shape == (3, 2, 2, 2) and wide.rsample().shape == (3, 2, 2)
    assert torch.equal(wide.log_prob(torch.ones(2))[0], d.log_prob(torch.ones(2)))


def test_hooks_around_the_state_of_an_optimiser():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("before"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    handle = optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append(state["more"]))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("after"))
    state = optimizer.state_dict()
    optimizer.load_state_dict(copy.deepcopy(state))
    assert seen == ["before", 1, "after"]
    handle.remove()
    optimizer.load_state_dict(state)
    assert seen == ["before", 1, "after", "after"]


def test_typed_sparse_constructors():
    made = torch.sparse.FloatTensor(torch.LongTensor([[0, 1], [1, 0]]), torch.FloatTensor([1, 2]), torch.Size([2, 2]))
    assert made.to_dense().tolist() == [[0.0, 1.0], [2.0, 0.0]]
    assert isinstance(made, torch.sparse.FloatTensor) and not isinstance(made, torch.sparse.DoubleTensor)
    assert torch.dsmm(made, torch.ones(2, 1)).tolist() == [[1.0], [2.0]]
    with pytest.raises(td.DTypeError, match="sparse_coo_tensor"):
        torch.sparse.FloatTensor()


def test_files_of_torchscript_say_what_to_use():
    with pytest.raises(td.UnsupportedError, match="export"):
        torch.jit.save(torch.nn.ReLU(), "m.pt")
    with pytest.raises(td.UnsupportedError, match="onnx"):
        torch.jit.load("m.pt")
    made = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert made.to_padded_tensor(0.0).shape == (2, 3)
