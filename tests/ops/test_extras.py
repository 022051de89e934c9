"""out=, inplace= and keywords that every operator takes; in-place forms; other axes in place."""

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close

F = td.nn.functional


def test_out_takes_the_result():
    x, y = td.tensor([1.0, 2.0]), td.tensor([10.0, 20.0])
    out = td.zeros(2)
    assert td.add(x, y, out=out) is out and out.tolist() == [11.0, 22.0]
    assert x.mul(y, out=out) is out and out.tolist() == [10.0, 40.0]
    assert td.matmul(td.ones(2, 3), td.ones(3, 2), out=td.empty(2, 2)).tolist() == [[3.0, 3.0]] * 2
    into = td.zeros(4)
    td.exp(x, out=into[::2])
    np.testing.assert_allclose(into.numpy(), [np.e, 0, np.e**2, 0], rtol=1e-6)
    assert td.sum(td.ones(2, 3), 0, out=td.empty(3)).tolist() == [2.0] * 3
    assert td.add(x, y, out=None).tolist() == [11.0, 22.0]


def test_out_may_be_an_operand():
    x = td.arange(6.0).reshape(2, 3)
    expected = x.numpy() @ x.numpy().T
    square = td.zeros(2, 2)
    assert_close(td.matmul(x, x.T, out=square), expected)
    y = td.arange(4.0).reshape(2, 2)
    expected = y.numpy().T + 1
    assert_close(td.add(y.T, 1, out=y), expected)


def test_out_is_converted_and_checked():
    out = td.zeros(2, dtype=td.float64)
    assert td.add(td.tensor([1, 2]), 1, out=out) is out and out.tolist() == [2.0, 3.0]
    with pytest.raises(td.errors.DTypeError, match="float32 and does not go into out, which is int64"):
        td.exp(td.ones(2), out=td.zeros(2, dtype=td.int64))
    with pytest.raises(td.errors.ShapeError, match=r"shape \(3,\), but out has \(2,\)"):
        td.exp(td.ones(3), out=td.zeros(2))
    with pytest.raises(td.errors.DTypeError, match="2 results"):
        td.var_mean(td.ones(3), out=td.zeros(()))


def test_out_of_several_results():
    values, indices = td.empty(2), td.empty(2, dtype=td.int64)
    result = td.topk(td.tensor([1.0, 5.0, 3.0]), 2, out=(values, indices))
    assert result.values is values and values.tolist() == [5.0, 3.0] and indices.tolist() == [1, 2]
    with pytest.raises(td.errors.DTypeError, match="out must be a tuple of 2"):
        td.topk(td.tensor([1.0, 5.0, 3.0]), 2, out=values)
    assert td.rand(3, out=td.empty(3)).shape == (3,)


def test_out_is_part_of_the_gradient_and_of_compiled_functions():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    out = td.zeros(2)
    td.mul(x, x, out=out)
    out.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]

    @td.compile
    def step(a, out):
        td.add(a, 1, out=out)
        return out * 2

    out = td.zeros(2)
    assert step(td.ones(2), out).tolist() == [4.0, 4.0] and out.tolist() == [2.0, 2.0]


def test_inplace_keyword():
    x = td.tensor([-1.0, 2.0])
    assert F.relu(x, inplace=True) is x and x.tolist() == [0.0, 2.0]
    assert F.relu(td.tensor([-1.0]), inplace=False).tolist() == [0.0]
    x = td.tensor([-1.0, 2.0])
    assert F.leaky_relu(x, 0.5, inplace=True) is x and x.tolist() == [-0.5, 2.0]
    with td.Graph() as graph:
        p = td.placeholder(td.float32, (2,))
        y = F.relu(p, inplace=True)
    assert td.Session(graph).run(y, {p: td.tensor([-1.0, 3.0])}).tolist() == [0.0, 3.0]


def test_keywords_of_pytorch():
    x = td.arange(6.0).reshape(2, 3)
    assert td.roll(x, shifts=1, dims=0).tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]
    assert td.transpose(input=x, dim0=0, dim1=1).shape == (3, 2)
    assert td.flatten(x, start_dim=0, end_dim=1).shape == (6,)
    assert x.scatter(dim=0, index=td.tensor([[0, 0, 0]]), src=td.ones(1, 3))[0].tolist() == [1.0] * 3
    assert td.zeros(2).copy_(td.ones(2), non_blocking=True).tolist() == [1.0, 1.0]
    assert td.pow(td.tensor([2.0]), exponent=3).tolist() == [8.0]
    assert td.gather(x, 1, td.tensor([[0], [1]]), sparse_grad=False).tolist() == [[0.0], [4.0]]


IN_PLACE = [
    ("sinc_", ()), ("i0_", ()), ("eq_", (1.0,)), ("ne_", (1.0,)), ("lt_", (1.0,)), ("le_", (1.0,)),
    ("gt_", (1.0,)), ("ge_", (1.0,)),
    ("greater_", (1.0,)), ("less_equal_", (1.0,)), ("igamma_", (2.0,)), ("igammac_", (2.0,)), ("mvlgamma_", (1,)),
    ("polygamma_", (1,)),
    ("heaviside_", (0.5,)), ("ldexp_", (2,)), ("float_power_", (2.0,)), ("absolute_", ()), ("arctan_", ()), ("sgn_", ()),
    ("nextafter_", (5.0,)), ("celu_", ()), ("elu_", ()), ("selu_", ()), ("threshold_", (1.0, 7.0)), ("hardtanh_", ()),
    ("leaky_relu_", ()), ("divide_", (2.0,)), ("arctan2_", (2.0,)), ("fix_", ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), IN_PLACE, ids=[name for name, _ in IN_PLACE])
def test_in_place_forms(name, args):
    x = td.tensor([0.4, 1.0, 2.5], dtype=td.float64)
    owner = td.Tensor if hasattr(td.Tensor, name[:-1]) else td
    expected = getattr(owner, name[:-1])(x, *args)
    form = getattr(td.Tensor, name, None) or getattr(td, name)
    assert form(x, *args) is x
    assert_close(x, expected.to(td.float64).numpy())


def test_other_axes_in_place():
    x = td.arange(6.0).reshape(1, 2, 3)
    assert x.squeeze_(0) is x and x.shape == (2, 3)
    assert x.unsqueeze_(1).shape == (2, 1, 3) and x.squeeze_().t_().tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert x.transpose_(0, 1).swapaxes_(0, 1).stride() == (1, 3)
    x += 1
    assert x.sum().item() == 21
    leaf = td.ones(2, 1, requires_grad=True)
    with pytest.raises(td.errors.AutogradError, match="cannot change its axes in place"):
        leaf.squeeze_()
    y = leaf * 2
    assert y.squeeze_().shape == (2,)
    (y * td.tensor([3.0, 5.0])).sum().backward()
    assert leaf.grad.tolist() == [[6.0], [10.0]]


def test_facts():
    x = td.zeros(2, 3)
    assert (x.dim(), x.nelement(), x.ndimension(), x.element_size(), x.stride(), x.stride(0)) == (2, 6, 2, 4, (3, 1), 3)
    assert td.is_tensor(x) and not td.is_tensor(3) and td.is_floating_point(x) and not x.is_complex() and x.is_signed()
    assert (
        td.numel(x) == 6 and x.is_same_size(td.ones(2, 3)) and not td.is_nonzero(td.zeros(1)) and not x.is_inference()
    )
    assert x.type(td.int32).dtype is td.int32 and x.type() == "torch.FloatTensor" and x.get_device() == -1
    assert x.equal(td.zeros(2, 3)) is True and x.dim_order() == (0, 1) and x.is_set_to(x) and not x.is_pinned()
    assert td.promote_types("int8", "float16") is td.float16 and td.get_default_dtype() is td.float32
    assert td.scalar_tensor(3).shape == () and td.range(0, 1, 0.5).tolist() == [0.0, 0.5, 1.0]
    assert td.frombuffer(b"\1\2", dtype=td.uint8).tolist() == [1, 2]
    assert td.empty_permuted((2, 3, 4), (0, 2, 1)).stride() == (12, 1, 3) and x.new_empty_strided((2,), (1,)).shape == (
        2,
    )
    assert (
        td.detach(x) is not None
        and td.fill(x, 2).sum().item() == 12
        and td.adjoint(x).shape == (3, 2)
        and td.t(x).shape == (3, 2)
    )
    assert td.get_num_threads() >= 1 and td.detach_(td.ones(1)).is_leaf
    assert td.empty_strided((2, 2), (1, 2)).shape == (2, 2)
    assert td.ones(3, 4).sum_to_size(1, 4).tolist() == [[3.0] * 4]


def test_methods_have_pytorchs_defaults():
    x = td.tensor([1.0, 2.0, 3.0, 4.0])
    assert round(x.var().item(), 4) == 1.6667 and round(x.var(False).item(), 4) == 1.25
    assert round(td.var(x).item(), 4) == 1.25 and round(x.std(0, correction=0).item(), 4) == 1.118
    assert td.ones(2, 3).sum(1, True).shape == (2, 1) and td.ones(2, 3).take(td.tensor([[5]])).shape == (1, 1)


def test_size_is_a_number_and_can_be_called():
    x = td.zeros(2, 3)
    assert x.size == 6 and isinstance(x.size, int) and x.size() == (2, 3) and x.size(0) == 2 and x.size(dim=-1) == 3
    assert td.zeros(x.size(1)).shape == (3,) and np.zeros(x.size).shape == (6,)


def test_settings_and_small_facts():
    td.set_printoptions(precision=2, threshold=5, edgeitems=1, sci_mode=False)
    assert repr(td.full((9,), 0.125)) == "tensor([0.12, ..., 0.12])"
    td.set_printoptions(profile="default")
    assert repr(td.tensor([0.125])) == "tensor([0.1250])"
    with pytest.raises(ValueError, match="profile"):
        td.set_printoptions(profile="none")
    for wrong in (
        {"precision": td.ones(2)},
        {"threshold": 2.5},
        {"edgeitems": -1},
        {"linewidth": "wide"},
        {"sci_mode": td.ones(2)},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            td.set_printoptions(profile="short", **wrong)
    assert repr(td.tensor([0.125])) == "tensor([0.1250])"  # nothing was set
    td.set_printoptions(threshold=float("inf"))
    td.set_printoptions(profile="default")
    assert not td.is_inference_mode_enabled()
    with td.inference_mode():
        assert td.is_inference_mode_enabled()
    assert (
        td.typename(td.zeros(1)) == "tandem.Tensor"
        and td.typename([]) == "builtins.list"
        and td.get_device(td.zeros(1)) == -1
    )
    assert td.from_dlpack(td.zeros(2)).shape == (2,) and "PyCapsule" in repr(type(td.to_dlpack(td.zeros(2))))
    x = td.ones(1)
    assert (
        x.is_cpu and not x.is_cuda and not x.is_sparse and not x.retains_grad and not x.is_pinned() and not x.is_neg()
    )
    if not td.cuda.is_available():
        with pytest.raises(td.DeviceError, match="CUDA is not available"):
            x.pin_memory()
