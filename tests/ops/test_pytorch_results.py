"""Results that programs written for PyTorch rely on, where it is easy to give others without an error."""

import math

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import nn


@pytest.mark.parametrize("extra", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_conv_transpose_with_output_padding_beyond_the_stride_has_gradients(extra, padding):
    x = td.randn(2, 3, 5, dtype=td.float64, requires_grad=True)
    w = td.randn(3, 2, 3, dtype=td.float64, requires_grad=True)

    def f(x, w):
        return F.conv_transpose1d(x, w, stride=1, padding=padding, output_padding=extra, dilation=3)

    y = f(x, w)
    assert y.shape == (2, 2, 5 - 1 - 2 * padding + 3 * 2 + extra + 1)
    y.square().sum().backward()
    assert x.grad.shape == x.shape and w.grad.shape == w.shape
    assert td.autograd.gradcheck(f, (x, w))


def test_conv_transpose_output_padding_keeps_what_reaches_beyond_the_padding():
    x, w = td.ones(1, 1, 2), td.ones(1, 1, 3)
    full = F.conv_transpose1d(x, w, dilation=2)
    wider = F.conv_transpose1d(x, w, dilation=2, padding=1, output_padding=1)
    assert wider.tolist() == full[:, :, 1:].tolist()


@pytest.mark.parametrize("name", ["var", "std"])
def test_a_bool_after_x_says_whether_variances_are_unbiased(name):
    x = td.tensor([[1.0, 2.0], [4.0, 8.0]])
    function = getattr(td, name)
    assert function(x, False).tolist() == pytest.approx(getattr(np, name)(x.numpy()))
    assert function(x, True).tolist() == pytest.approx(getattr(np, name)(x.numpy(), ddof=1))
    both = getattr(td, name + "_mean")(x, False)
    assert both[0].tolist() == pytest.approx(getattr(np, name)(x.numpy())) and both[1].shape == ()


def test_bools_are_no_axes():
    with pytest.raises(td.DTypeError, match="axis is True; it must be an integer"):
        td.sum(td.ones(2, 2), True)


def test_a_complex_value_does_not_lose_its_imaginary_part():
    x, mask = td.zeros(2), td.tensor([True, False])
    for call in (
        lambda: x.masked_fill(mask, 1j),
        lambda: x.masked_fill_(mask, 1j),
        lambda: x.masked_fill(mask, td.tensor(1j)),
        lambda: x.index_fill(0, td.tensor([0]), 1j),
        lambda: x.__setitem__(0, 1j),
        lambda: x.__setitem__(mask, 1j),
        lambda: x.fill_(1j),
        lambda: td.full_like(x, 1j),
        lambda: x.new_full((2,), 1j),
    ):
        with pytest.raises(RuntimeError, match="complex"):
            call()


def test_the_variance_of_one_variable_has_no_axes():
    x = td.tensor([[1.0, 2.0, 4.0]])
    assert td.cov(x).shape == () and float(td.cov(x)) == pytest.approx(np.var([1, 2, 4], ddof=1))
    assert td.corrcoef(x).shape == () and float(td.corrcoef(x)) == 1.0
    assert td.cov(td.tensor([[1.0, 2.0], [0.0, 1.0]])).shape == (2, 2)


def test_index_reduce_of_no_axes():
    x = td.tensor(3.0)
    assert x.index_reduce(0, td.tensor([0]), td.tensor(2.0), "prod").tolist() == 6.0
    assert x.index_reduce(0, td.tensor(0), td.tensor(2.0), "amin").shape == ()


def test_no_differences_are_the_tensor_itself():
    x = td.tensor([1, 2, 4])
    assert td.diff(x, n=0, prepend=td.tensor([0]), append=td.tensor([9])).tolist() == [1, 2, 4]


def test_degrees_of_polynomials_are_cut_off():
    x = td.tensor([0.5, 0.3, 0.2])
    assert td.special.chebyshev_polynomial_t(x, td.tensor([-0.5, 0.9, 1.7])).tolist() == pytest.approx([1.0, 1.0, 0.2])
    assert td.special.hermite_polynomial_h(x, -0.5).tolist() == [1.0, 1.0, 1.0]
    assert td.special.hermite_polynomial_h(x, td.tensor(-1.0)).tolist() == [0.0, 0.0, 0.0]


# -- x.data


def test_writes_through_data_are_not_watched():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    version = x._version
    x.data.add_(1)
    x.data[0] = 5.0
    assert x._version == version and x.tolist() == [5.0, 3.0]
    y.backward()
    assert x.grad.tolist() == [10.0, 6.0]  # of what is there now, as PyTorch has it


def test_writes_to_the_tensor_and_to_saved_data_are_watched():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    with td.no_grad():
        x.add_(1)
    with pytest.raises(td.AutogradError, match="changed in place"):
        y.backward()
    w = td.ones(2, requires_grad=True)
    apart = x.data
    z = (w * apart).sum()
    apart.add_(1)
    assert apart._version >= 1
    with pytest.raises(td.AutogradError, match="changed in place"):
        z.backward()


def test_compiled_functions_see_writes_through_data():
    @td.compile
    def step(x):
        before = x * 1
        x.data.mul_(2)
        return before, x * 1

    x = td.tensor([1.0, 2.0])
    for _ in range(2):
        x.copy_(td.tensor([1.0, 2.0]))
        before, after = step(x)
        assert before.tolist() == [1.0, 2.0] and after.tolist() == [2.0, 4.0]


# -- division of integers by zero


DIVISIONS = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": lambda x, y: td.fmod(x, y),
    "trunc": lambda x, y: td.div(x, y, rounding_mode="trunc"),
    "floor": lambda x, y: td.div(x, y, rounding_mode="floor"),
    "remainder": lambda x, y: x.remainder(y),
    "//=": lambda x, y: x.floor_divide_(y),
}


@pytest.mark.parametrize("divide", DIVISIONS.values(), ids=DIVISIONS)
@pytest.mark.parametrize("zero", [0, td.tensor([1, 0])], ids=["number", "tensor"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_integers_are_not_divided_by_zero(divide, zero, compiled):
    call = td.compile(divide) if compiled else divide
    x = td.tensor([7, 8])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        print(call(x, zero))
    with pytest.raises(ZeroDivisionError):
        print(call(x, zero))
    assert x.tolist() == [7, 8]
    assert call(td.tensor([7, 8]), 2).tolist() is not None


def test_a_number_is_not_divided_by_integers_that_are_zero():
    with pytest.raises(td.DivisionError):
        print(5 // td.tensor([1, 0]))
    with pytest.raises(td.DivisionError):
        print(td.tensor([1, 0], dtype=td.uint8) % td.tensor([0, 1], dtype=td.uint8))


def test_floats_are_divided_by_zero():
    assert (td.tensor([1, 2]) / 0).tolist() == [math.inf, math.inf]
    assert (td.tensor([1, 2]) // 0.0).tolist() == [math.inf, math.inf]
    assert td.div(td.tensor([1.0]), 0, rounding_mode="floor").tolist() == [math.inf]


def test_vmap_divides_integers():
    divide = td.vmap(lambda x, y: x // y)
    assert divide(td.tensor([4, 9]), td.tensor([2, 3])).tolist() == [2, 3]
    with pytest.raises(td.DivisionError):
        print(divide(td.tensor([4, 9]), td.tensor([2, 0])))


def test_sessions_refuse_division_by_zero():
    with td.Graph().as_default():
        x = td.placeholder(td.int64, (2,))
        y = td.floor_divide(x, x)
        with td.Session() as session, pytest.raises(td.DivisionError):
            session.run(y, {x: np.array([1, 0])})


# -- losses and layers


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, nn.MSELoss(), nn.L1Loss()])
def test_losses_warn_where_shapes_are_broadcast(loss):
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"input is \(3, 1\) and target is \(3,\)"):
            loss(td.zeros(3, 1), td.ones(3))


def test_binary_cross_entropy_does_not_broadcast():
    for loss in (F.binary_cross_entropy, F.binary_cross_entropy_with_logits):
        with pytest.raises(ValueError, match="same shape"):
            loss(td.full((3, 1), 0.5), td.ones(3))


LAYERS = {
    "Linear": (lambda: nn.Linear(3, 2), (2, 3)),
    "Conv1d": (lambda: nn.Conv1d(3, 2, 1), (2, 3, 4)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 2, 1), (2, 3, 4)),
    "LayerNorm": (lambda: nn.LayerNorm(3), (2, 3)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(3), (2, 3)),
    "GroupNorm": (lambda: nn.GroupNorm(1, 3), (2, 3)),
    "LSTM": (lambda: nn.LSTM(3, 2), (2, 3)),
    "GRUCell": (lambda: nn.GRUCell(3, 2), (2, 3)),
    "PReLU": (lambda: nn.PReLU(), (2, 3)),
    "MultiheadAttention": (lambda: _AttendsToItself(), (2, 3)),
}


class _AttendsToItself(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(3, 1)

    def forward(self, x):
        return self.attention(x, x, x)[0]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_refuse_inputs_of_other_dtypes(name):
    make, shape = LAYERS[name]
    layer = make()
    layer(td.ones(shape))
    with pytest.raises(RuntimeError, match=r"float64.*float32|float32.*float64"):
        layer(td.ones(shape, dtype=td.float64))
    layer.to(td.float64)(td.ones(shape, dtype=td.float64))


def test_autocast_converts_what_layers_would_refuse():
    layer = nn.Linear(3, 2)
    with td.autocast("cpu", dtype=td.bfloat16):
        assert layer(td.ones(2, 3, dtype=td.bfloat16)).dtype is td.bfloat16
        with pytest.raises(td.DTypeError):
            layer(td.ones(2, 3, dtype=td.float64))


def test_errors_are_pytorchs_too():
    for call in (
        lambda: td.ones(2) + td.ones(3),
        lambda: td.ones(2)[5],
        lambda: td.ones(2).sum(4),
        lambda: td.ones(2, 3) @ td.ones(2, 3),
        lambda: td.zeros(2).reshape(3),
        lambda: td.empty(2**60),
    ):
        with pytest.raises(RuntimeError):
            call()
