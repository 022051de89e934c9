"""The device "meta": tensors with a shape and a dtype and no memory."""

import copy
import pickle
import warnings

import pytest

import tandem as td
from tandem import nn


def meta(*shape, **kwargs):
    return td.empty(*shape, device="meta", **kwargs)


MAKERS = {
    "empty": lambda: td.empty(2, 3),
    "zeros": lambda: td.zeros(2, 3),
    "ones": lambda: td.ones(2, 3, dtype=td.int8),
    "full": lambda: td.full((2,), 1.5),
    "tensor": lambda: td.tensor([1, 2]),
    "arange": lambda: td.arange(5),
    "arange of floats": lambda: td.arange(0.0, 1.0, 0.25),
    "linspace": lambda: td.linspace(0, 1, 3),
    "eye": lambda: td.eye(2, 3),
    "rand": lambda: td.rand(2, 3),
    "randn": lambda: td.randn(2),
    "randint": lambda: td.randint(5, (2,)),
    "normal": lambda: td.normal(0.0, 1.0, (2,)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_made_in_its_scope_has_no_memory(name):
    expected = MAKERS[name]()
    with td.device("meta"):
        made = MAKERS[name]()
    assert made.is_meta and str(made.device) == "meta"
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    assert not MAKERS[name]().is_meta


def test_other_devices_in_its_scope():
    with td.device("meta"):
        with td.device("cpu"):
            assert not td.zeros(1).is_meta
        assert td.zeros(1).is_meta
        assert not td.zeros(1, device="cpu").is_meta
        assert td.get_default_device() == "meta"
    assert td.get_default_device() == "cpu"


def test_no_memory_is_asked_for():
    x = td.randn(10**6, 10**6, device="meta")
    assert (x @ x.T).sum(1).shape == (10**6,)
    assert td.zeros(10**9, 10**3, device="meta").nbytes == 4 * 10**12


X = td.randn(4, 6)
OPERATORS = {
    "matmul": lambda x: x @ x.T,
    "sum": lambda x: x.sum(1, keepdim=True),
    "comparison": lambda x: x > 0,
    "softmax": lambda x: td.softmax(x, -1),
    "number": lambda x: 2.5 * x - 1,
    "integers": lambda x: x.argmax(1) + 1,
    "index": lambda x: x[1:, None, [0, 2]],
    "last": lambda x: x[-1],
    "cat": lambda x: td.cat([x, x], 1),
    "split": lambda x: x.split(4, 1)[1],
    "view": lambda x: x.view(-1, 3).T,
    "where": lambda x: td.where(x > 0, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "half": lambda x: x.half(),
    "complex": lambda x: td.fft.fft(x),
    "sort": lambda x: x.sort(1)[1],
    "dropout": lambda x: nn.functional.dropout(x, 0.5, True),
    "layer_norm": lambda x: nn.functional.layer_norm(x, (6,)),
    "like": lambda x: td.rand_like(x, dtype=td.float64),
    "new": lambda x: x.new_zeros(3, 2),
    "einsum": lambda x: td.einsum("ij,kj->ik", x, x),
    "rows": lambda x: list(x)[2],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_give_shapes_and_dtypes(name):
    expected, made = OPERATORS[name](X), OPERATORS[name](X.to("meta"))
    assert made.is_meta
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)


def test_mistakes_are_those_of_other_devices():
    with pytest.raises(td.ShapeError, match="matmul: x is"):
        meta(2, 3) @ meta(2, 3)
    with pytest.raises(td.DeviceError, match="on meta, and another of shape"):
        meta(2) + td.ones(2)
    assert (meta(2) + td.tensor(1.0)).is_meta  # a single element goes along


def test_there_is_nothing_to_read():
    for read in (lambda x: x.item(), lambda x: x.tolist(), lambda x: x.cpu(), lambda x: x.to("cpu"), bool, float):
        with pytest.raises(NotImplementedError, match="meta tensor of shape"):
            read(meta(1))
    with pytest.raises(TypeError):
        meta(2).numpy()
    with pytest.raises(RuntimeError, match="to_empty"):
        meta(2).data = td.ones(2)
    with pytest.raises(NotImplementedError, match="no elements"):
        td.ones(2).copy_(meta(2))
    with pytest.raises(NotImplementedError, match="how many elements a mask takes"):
        meta(2)[meta(2) > 0]


def test_writes_change_nothing():
    x = meta(2, 3)
    x[0] = 1
    x += 1
    assert x.normal_() is x and x.copy_(td.ones(2, 3)) is x and x.shape == (2, 3)


def test_text_copies_and_pickles():
    x = meta(2, dtype=td.float16, requires_grad=True)
    assert repr(x) == "tensor(..., device='meta', size=(2,), dtype=float16, requires_grad=True)"
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.is_meta and made.requires_grad and made.shape == (2,)
    assert x.stride() == (1,) and meta(2, 3).stride() == (3, 1) and meta(2, 3).is_contiguous()


def test_gradients_are_asked_for_and_not_had():
    y = (meta(2, requires_grad=True) * 2).sum()
    assert y.requires_grad and not y.is_leaf
    with td.no_grad():
        assert not (meta(2, requires_grad=True) * 2).requires_grad
    assert not y.detach().requires_grad
    with pytest.raises(NotImplementedError, match="no elements"):
        y.backward()


# -- modules


def network():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10))


def test_modules_are_built_without_memory():
    with td.device("meta"):
        model = network()
    assert all(p.is_meta and isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())
    assert list(model.state_dict()) == list(network().state_dict())
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in network().parameters())
    assert model(meta(5, 3, 4, 4)).shape == (5, 10)
    assert nn.Linear(2, 3, device="meta").weight.is_meta
    assert repr(model[4].bias) == "Parameter containing:\ntensor(..., device='meta', size=(10,), requires_grad=True)"


def test_recurrent_layers():
    with td.device("meta"):
        for layer in (nn.LSTM(4, 8, 2), nn.GRU(4, 8, bidirectional=True), nn.RNN(4, 8)):
            assert layer(td.empty(5, 2, 4))[0].shape == (5, 2, 8 * layer.num_directions)


def test_modules_get_memory_and_their_state():
    source = network()
    with td.device("meta"):
        model = network()
    model.load_state_dict(source.state_dict(), assign=True)
    x = td.randn(2, 3, 4, 4)
    assert td.allclose(model.eval()(x), source.eval()(x))
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())

    with td.device("meta"):
        model = network()
    assert model.to_empty(device="cpu") is model
    model.load_state_dict(source.state_dict())
    assert td.allclose(model.eval()(x), source(x))


def test_copying_to_a_module_without_memory_is_told():
    layer = nn.Linear(2, 2, device="meta")
    with pytest.warns(UserWarning, match="pass assign=True"):
        layer.load_state_dict(nn.Linear(2, 2).state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.load_state_dict(nn.Linear(2, 2).state_dict(), assign=True)


def test_modules_leave_memory():
    layer = nn.Linear(2, 3)
    layer.bias.requires_grad = False
    assert layer.to("meta") is layer
    assert layer.weight.is_meta and layer.weight.requires_grad and not layer.bias.requires_grad
    with pytest.raises(NotImplementedError, match="to_empty"):
        layer.to("cpu")


def test_an_ensemble_is_called_through_a_module_without_memory():
    members = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = td.func.stack_module_state(members)
    base = copy.deepcopy(members[0]).to("meta")
    x = td.randn(5, 3)
    made = td.vmap(lambda p, b: td.func.functional_call(base, (p, b), (x,)))(params, buffers)
    assert td.allclose(made, td.stack([m(x) for m in members]), atol=1e-6)
