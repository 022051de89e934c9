"""autograd.functional, Variable, Function's later forms, amp.custom_fwd, options of autograd.grad."""

import numpy as np
import pytest

import tandem as td
from tandem.autograd import functional
from tandem.autograd.function import once_differentiable


def test_products_with_derivatives():
    a, b = td.tensor([1.0, 2.0]), td.tensor([3.0, 4.0])
    value, (by_a, by_b) = functional.vjp(lambda x, y: x * y, (a, b), td.ones(2))
    assert (value.tolist(), by_a.tolist(), by_b.tolist()) == ([3, 8], [3, 4], [1, 2])
    value, pushed = functional.jvp(lambda x, y: (x * y, x.sum()), (a, b), (td.tensor([1.0, 0.0]), td.zeros(2)))
    assert [p.tolist() for p in pushed] == [[3, 0], 1]
    for product in (functional.hvp, functional.vhp):
        value, (first, second) = product(lambda x, y: (x * x * y).sum(), (a, b), (td.ones(2), td.zeros(2)))
        assert (value.item(), first.tolist(), second.tolist()) == (19, [6, 8], [2, 4])
    assert not value.requires_grad
    x = td.tensor([1.0, 2.0], requires_grad=True)
    _, g = functional.vjp(lambda t: t**3, x, td.ones(2), create_graph=True)
    (second,) = td.autograd.grad(g.sum(), x)
    assert second.tolist() == [6, 12]
    with pytest.raises(td.AutogradError, match="strict"):
        functional.vjp(lambda x, y: x.sum(), (a, b), strict=True)
    with pytest.raises(td.AutogradError, match="v may be left out"):
        functional.vjp(lambda x: x * 2, a)
    with pytest.raises(td.AutogradError, match="one number"):
        functional.hvp(lambda x: x * 2, a, a)


def test_options_of_grad():
    x, unused = td.ones(2, requires_grad=True), td.ones(3, requires_grad=True)
    g, zeros = td.autograd.grad((x**2).sum(), [x, unused], only_inputs=True, materialize_grads=True)
    assert (g.tolist(), zeros.tolist()) == ([2, 2], [0, 0, 0])
    (rows,) = td.autograd.grad(x**2, x, td.eye(2), is_grads_batched=True)
    assert rows.tolist() == [[2, 0], [0, 2]]
    with pytest.raises(td.AutogradError, match="was not used"):
        td.autograd.grad((x**2).sum(), unused)


def test_variables_are_tensors():
    from tandem.autograd import Variable

    x = Variable(td.ones(2), requires_grad=True)
    assert isinstance(x, td.Tensor) and isinstance(td.ones(1), Variable) and not isinstance(3, Variable)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]
    from tandem.autograd.grad_mode import no_grad

    assert no_grad is td.no_grad


def test_functions_whose_context_is_set_up_apart():
    class Square(td.autograd.Function):
        @staticmethod
        def forward(x, factor):
            return factor * x * x, x.sign()

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.factor = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g, of_sign):
            assert of_sign.shape == g.shape  # zeros, since nobody uses it
            return 2 * ctx.factor * ctx.saved_tensors[0] * g, None

    x = td.tensor([1.0, 3.0], requires_grad=True)
    Square.apply(x, 2.0)[0].sum().backward()
    assert x.grad.tolist() == [4, 12]


def test_once_differentiable():
    class Cube(td.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    x = td.tensor(2.0, requires_grad=True)
    (g,) = td.autograd.grad(Cube.apply(x) * x, x, create_graph=True)
    assert g.item() == 32
    with pytest.raises(td.AutogradError, match="once_differentiable"):
        g.backward()


def test_custom_forward_and_backward_share_autocast():
    from tandem.amp import custom_bwd, custom_fwd

    class Product(td.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append((g @ b.mT).dtype)
            return (g @ b.mT).float(), (a.mT @ g).float()

    class InFloat32(Product):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=td.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

    seen = []
    a = td.randn(2, 2, requires_grad=True)
    with td.autocast("cpu", td.bfloat16):
        y, z = Product.apply(a, a.detach()), InFloat32.apply(a, a.detach())
    assert (y.dtype, z.dtype) == (td.bfloat16, td.float32)
    y.sum().backward()
    z.sum().backward()
    assert seen == [td.bfloat16, td.float32]


def test_make_tensor():
    make = td.testing.make_tensor
    for dtype in (td.float32, td.bfloat16, td.complex64, td.int8, td.uint8, td.bool):
        x = make((3, 4), dtype=dtype)
        assert x.shape == (3, 4) and x.dtype is dtype
    x = make(50, 2, dtype=td.float64, low=1, high=2, requires_grad=True, noncontiguous=True)
    assert not x.is_contiguous() and x.requires_grad
    assert 1 <= x.min().item() and x.max().item() < 2
    assert (make(100, dtype=td.int64, low=0, high=2, exclude_zero=True) == 1).all()
    np.testing.assert_array_equal(make((), dtype=td.int32, low=3, high=4).numpy(), 3)


@pytest.mark.skipif(td.cuda.is_available(), reason="says what is missing without a device")
def test_without_a_device_it_is_said():
    for ask in (td.cuda.get_device_properties, td.cuda.get_rng_state, td.cuda.memory_summary, td.cuda.init):
        with pytest.raises(td.DeviceError, match="CUDA is not available"):
            ask()
    assert td.cuda.get_arch_list() == td.cuda.get_rng_state_all() == []
    with td.cuda.device_of(td.ones(1)):
        assert td.zeros(1).device == "cpu"
