"""Module: members by assignment, walking the tree, modes, conversion, copies, text, errors."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tests.nn.cases import Block, Model


def test_assignment_registers_members():
    b = Block()
    assert ["scale", "linear.weight", "linear.bias"] == [n for n, _ in b.named_parameters()]
    assert ["count", "scratch"] == [n for n, _ in b.named_buffers()]
    assert ["", "linear"] == [n for n, _ in b.named_modules()]
    assert b.note == "plain" and "scale" in dir(b)


def test_names_move_between_kinds():
    b = Block()
    b.scale = nn.Linear(1, 1)
    assert "scale" in b._modules and "scale" not in b._parameters
    b.note = nn.Parameter(td.ones(1))
    assert "note" in b._parameters and "note" not in b.__dict__
    b.note = None
    assert b.note is None and "note" in b._parameters
    b.count = td.ones(3)
    assert b.count.shape == (3,) and "count" in b._buffers
    del b.count
    assert not hasattr(b, "count")
    b.extra = nn.Buffer(td.ones(1), persistent=False)
    assert "extra" in b._buffers and "extra" not in b.state_dict()


@pytest.mark.parametrize(("act", "error", "text"), [
    (lambda b: setattr(b, "scale", td.ones(4)), TypeError, "as parameter 'scale'"),
    (lambda b: setattr(b, "linear", 3), TypeError, "as child module 'linear'"),
    (lambda b: setattr(b, "count", "text"), TypeError, "as buffer 'count'"),
    (lambda b: b.register_parameter("a.b", None), KeyError, "dot"),
    (lambda b: b.register_buffer("", None), KeyError, "empty"),
    (lambda b: b.register_buffer("scale", td.ones(1)), KeyError, "already has"),
    (lambda b: b.register_parameter("w", td.ones(1)), TypeError, "wrap it in nn.Parameter"),
    (lambda b: b.add_module("m", 3), TypeError, "Module or None"),
    (lambda b: b.nothing, AttributeError, "'Block' object has no attribute 'nothing'"),
    (lambda b: b.get_submodule("linear.deep"), AttributeError, "linear has no child module 'deep'"),
    (lambda b: b.get_parameter("linear.w"), AttributeError, "linear has no parameter 'w'"),
    (lambda b: b.train("yes"), ValueError, "True or False"),
    (lambda b: b.to(td.int32), TypeError, "floating types only"),
    (lambda b: nn.Module(3), TypeError, "does not take"),
    (lambda b: nn.Module()(1), NotImplementedError, "no forward"),
    (lambda b: nn.Parameter([1.0]), TypeError, "made from a tensor"),
])  # fmt: skip
def test_mistakes_are_explained(act, error, text):
    with pytest.raises(error, match=text):
        act(Block())


def test_members_need_init_first():
    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"super\(\)\.__init__"):
        Early()


def test_paths_find_members():
    m = Model()
    assert m.get_submodule("layers.1.linear") is m.layers[1].linear and m.get_submodule("") is m
    assert m.get_parameter("layers.0.scale") is m.layers[0].scale
    assert m.get_buffer("layers.0.count") is m.layers[0].count
    m.set_submodule("layers.0.linear", nn.Identity())
    assert isinstance(m.layers[0].linear, nn.Identity)


def test_shared_members_count_once():
    m = Model()
    m.tied = m.out
    m.layers[1].scale = m.layers[0].scale
    names = [n for n, _ in m.named_parameters()]
    assert "tied.weight" not in names and "layers.1.scale" not in names
    assert "layers.1.scale" in [n for n, _ in m.named_parameters(remove_duplicate=False)]
    assert {"tied.weight", "out.weight"} <= set(m.state_dict())
    copied = copy.deepcopy(m)
    assert copied.tied is copied.out and copied.layers[0].scale is copied.layers[1].scale


def test_modes_reach_all_modules():
    m = Model().eval()
    assert not any(x.training for x in m.modules())
    m.train()
    assert all(x.training for x in m.modules())
    m.requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())
    seen = []
    m.apply(lambda x: seen.append(type(x).__name__))
    assert seen == ["Linear", "Block", "Linear", "Block", "ModuleList", "Linear", "Model"]


@pytest.mark.parametrize(("convert", "dtype"), [
    (lambda m: m.double(), td.float64), (lambda m: m.half(), td.float16), (lambda m: m.bfloat16(), td.bfloat16),
    (lambda m: m.to(td.float64), td.float64), (lambda m: m.to("cpu", dtype=td.float64), td.float64),
    (lambda m: m.to(td.ones(1, dtype=td.float64)), td.float64), (lambda m: m.double().float(), td.float32),
])  # fmt: skip
def test_conversion_keeps_parameters_the_same_objects(convert, dtype):
    b = Block()
    b.register_buffer("whole", td.arange(3))
    b(td.ones(1, 4)).sum().backward()
    before = list(b.parameters())
    values = b.scale.detach().numpy().astype(np.float64)
    assert convert(b) is b
    assert all(
        p is q and p.dtype is dtype and p.grad.dtype is dtype for p, q in zip(before, b.parameters(), strict=True)
    )
    assert b.count.dtype is dtype and b.whole.dtype is td.int64
    np.testing.assert_array_equal(values, b.scale.detach().double().numpy())
    assert all(isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad for p in b.parameters())
    out = b(td.ones(1, 4, dtype=dtype))
    assert out.dtype is dtype
    b.zero_grad()
    out.sum().backward()
    assert b.scale.grad.dtype is dtype


def test_an_unknown_device_is_an_error():
    with pytest.raises(td.DeviceError):
        Block().to("nowhere")


def test_zero_grad():
    b = Block()
    b(td.ones(1, 4)).sum().backward()
    b.zero_grad(set_to_none=False)
    assert not b.scale.grad.any()
    b.zero_grad()
    assert b.scale.grad is None


def test_copies_and_pickles_are_independent():
    m = Model()
    x = td.ones(2, 4)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert m(x).tolist() == other(x).tolist()
        with td.no_grad():
            other.out.weight.fill_(0.0)
        assert m.out.weight.any()
        assert repr(other) == repr(m) and isinstance(other.out.weight, nn.Parameter)
    p = pickle.loads(pickle.dumps(m.out.weight))
    assert isinstance(p, nn.Parameter) and p.requires_grad and p.tolist() == m.out.weight.tolist()
    layer = nn.TransformerEncoderLayer(4, 2, 8)  # holds an operator as an attribute
    assert pickle.loads(pickle.dumps(layer)).activation is layer.activation


def test_modules_are_freed_without_the_collector():
    gc.disable()
    try:
        m = Model()
        m(td.ones(1, 4)).sum().backward()
        gone = weakref.ref(m), weakref.ref(m.layers[0].linear.weight)
        del m
        assert [r() for r in gone] == [None, None]
    finally:
        gc.enable()


def test_repr_is_a_tree():
    assert repr(Model()) == (
        "Model(\n"
        "  (layers): ModuleList(\n"
        "    (0-1): 2 x Block(\n"
        "      (linear): Linear(in_features=4, out_features=4, bias=True)\n"
        "    )\n"
        "  )\n"
        "  (out): Linear(in_features=4, out_features=2, bias=True)\n"
        ")"
    )
    assert repr(nn.Identity()) == "Identity()"


@pytest.mark.parametrize("run", [lambda f: f, td.compile], ids=["eager", "compiled"])
def test_errors_name_the_module(run):
    m = Model()
    m.layers[1].linear = nn.Linear(5, 4)
    with pytest.raises(td.ShapeError) as info:
        run(lambda x: m(x))(td.ones(3, 4))
    first, second, *_ = str(info.value).splitlines()
    assert first.startswith("Model.layers.1.linear: linear: x is (3, 4)")
    assert second == "  in Linear(in_features=5, out_features=4, bias=True)"
    assert info.value.module == "Model.layers.1.linear" and not hasattr(info.value, "__notes__")
    again = pickle.loads(pickle.dumps(info.value))
    assert str(again) == str(info.value) and again.module == info.value.module
    with pytest.raises(td.ShapeError) as info:
        run(nn.Linear(5, 4))(td.ones(3, 4))
    first, second, *_ = str(info.value).splitlines()
    assert first.startswith("linear: x is") and second == "  in Linear(in_features=5, out_features=4, bias=True)"

    class Raises(nn.Module):
        def forward(self, x):
            return {}["missing"]

    with pytest.raises(KeyError) as info:
        nn.Sequential(nn.Identity(), Raises())(1)
    assert info.value.__notes__ == ["  in Sequential.1: Raises()"]


def test_a_module_that_calls_itself_is_named_once():
    class Tree(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf = nn.Linear(2, 2)

        def forward(self, depth):
            return self.leaf(td.ones(1, 3)) if depth == 0 else self(depth - 1)

    with pytest.raises(td.ShapeError) as info:
        Tree()(3)
    assert info.value.module == "Tree.leaf"
    assert info.value.layer == "Linear(in_features=2, out_features=2, bias=True)"
