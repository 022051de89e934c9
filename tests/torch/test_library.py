"""torch.library: operators of a program."""

import pytest

import tandem as td
import tandem.torch as torch


def test_custom_operators_have_gradients_of_their_own():
    @torch.library.custom_op("tests::cube", mutates_args=())
    def cube(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return td.tensor(x.numpy() ** 3 * scale)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x * ctx.scale, None

    @cube.register_fake
    def _(x, scale=1.0):
        return torch.empty_like(x)

    x = td.tensor([2.0], requires_grad=True)
    with pytest.raises(td.UnsupportedError, match="no gradient"):
        cube(x, 1.0).sum().backward()
    cube.register_autograd(backward, setup_context=setup_context)
    torch.ops.tests.cube(x, scale=2.0).sum().backward()
    assert x.grad.item() == 24.0
    with pytest.raises(AttributeError, match="custom_op defines"):
        _ = torch.ops.tests.nothing


def test_libraries_of_pytorch_are_refused_by_oserror():
    with pytest.raises(OSError, match="compiled for PyTorch"):
        torch.ops.load_library("vision.so")


def test_fake_implementations_are_taken_before_the_operator_is():
    @torch.library.register_fake("tests::not_yet")
    def fake(x):
        return x

    assert fake(1) == 1
