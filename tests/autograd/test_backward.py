"""backward, grad, retain_graph, accumulation, leaves: what users of the tape rely on."""

import numpy as np
import pytest

import tandem as td


def leaf(*values):
    return td.tensor(list(values) if len(values) != 1 else values[0], requires_grad=True)


def test_gradient_argument():
    x = leaf(1.0, 2.0)
    (x * x).backward(td.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2, 40]


def test_gradient_argument_must_fit():
    x = leaf(1.0, 2.0)
    with pytest.raises(td.ShapeError, match="gradient is \\(3,\\) but the tensor is \\(2,\\)"):
        (x * x).backward(td.ones(3))


def test_backward_needs_one_element():
    with pytest.raises(td.AutogradError, match="without a gradient argument it must have one element"):
        (leaf(1.0, 2.0) * 2).backward()


def test_backward_of_a_constant():
    with pytest.raises(td.AutogradError, match="does not require grad"):
        td.ones(()).backward()


def test_gradients_accumulate():
    x = leaf(3.0)
    (x * x).backward()
    first = x.grad
    (x * x).backward()
    assert float(x.grad) == 12
    assert x.grad is first  # added in place, so that what holds it sees it
    x.grad = None
    (x * 2).backward()
    assert float(x.grad) == 2


def test_gradients_of_one_tensor_are_not_shared_between_leaves():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x + y).sum().backward()
    x.grad.zero_()
    assert y.grad.tolist() == [1, 1]


def test_used_twice():
    x = leaf(2.0)
    y = x * x
    (y * y + y).backward()
    assert float(x.grad) == 4 * 8 + 4


def test_second_backward_is_an_error():
    x = leaf(2.0)
    y = x * x
    y.backward()
    with pytest.raises(td.AutogradError) as caught:
        y.backward()
    text = str(caught.value)
    assert "a second time" in text and "retain_graph=True" in text and "test_backward.py" in text


def test_retain_graph():
    x = leaf(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert float(x.grad) == 8


def test_several_roots():
    x = leaf(2.0)
    td.autograd.backward([x * 3, x * x], [td.tensor(1.0), td.tensor(10.0)])
    assert float(x.grad) == 43


def test_inputs_limits_where_gradients_go():
    x, y = leaf(2.0), leaf(3.0)
    (x * y).backward(inputs=[x])
    assert float(x.grad) == 3 and y.grad is None


def test_grad():
    x, y = leaf(2.0), leaf(3.0)
    gx, gy = td.autograd.grad(x * y, [x, y])
    assert (float(gx), float(gy)) == (3, 2)
    assert x.grad is None and y.grad is None
    assert isinstance(td.autograd.grad(x * y, x), tuple)


def test_grad_of_an_inner_result():
    x = leaf(2.0)
    y = x * 3
    (g,) = td.autograd.grad(y * y, y)
    assert float(g) == 12


def test_unused_input():
    x, y = leaf(2.0), leaf(3.0)
    with pytest.raises(td.AutogradError, match="input 1 was not used"):
        td.autograd.grad(x * x, [x, y])
    assert td.autograd.grad(x * x, [x, y], allow_unused=True)[1] is None
    with pytest.raises(td.AutogradError, match="does not require grad"):
        td.autograd.grad(x * x, td.ones(()))


def test_third_order():
    x = leaf(2.0)
    y = x**4 + td.exp(x)
    (first,) = td.autograd.grad(y, x, create_graph=True)
    (second,) = td.autograd.grad(first, x, create_graph=True)
    (third,) = td.autograd.grad(second, x)
    np.testing.assert_allclose(
        [float(first), float(second), float(third)], [32 + np.e**2, 48 + np.e**2, 48 + np.e**2], rtol=1e-6
    )


def test_gradient_penalty_trains():
    """A gradient inside the loss, with backward() through it into .grad."""
    w = leaf(0.5, -1.0)
    x = leaf(1.0, 2.0)
    out = (w * x * x).sum()
    (g,) = td.autograd.grad(out, x, create_graph=True)  # 2 w x
    (g * g).sum().backward()  # 4 w^2 x^2
    np.testing.assert_allclose(w.grad.numpy(), 8 * np.array([0.5, -1.0]) * np.array([1.0, 4.0]))


def test_create_graph_with_backward():
    x = leaf(3.0)
    (x**3).backward(create_graph=True)
    assert x.grad.requires_grad
    (g,) = td.autograd.grad(x.grad, x)
    assert float(g) == 18


def test_broadcasting():
    x, y = td.ones((3, 1), requires_grad=True), td.ones((4,), requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.tolist() == [[4]] * 3 and y.grad.tolist() == [3] * 4


def test_scalars_and_empty_tensors():
    x = td.zeros((0, 3), requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.shape == (0, 3)
    s = leaf(2.0)
    (s * td.ones((2, 2))).sum().backward()
    assert float(s.grad) == 4
    e = td.zeros((0,), requires_grad=True)
    e.mean().backward() if False else (e.sum() + s).backward()
    assert e.grad.shape == (0,) and float(s.grad) == 5


def test_several_outputs_partly_used():
    x = leaf(1.0, 5.0, 3.0, 4.0)
    values, _ = td.topk(x, 2)
    first, second = x.split(2)
    (values[0] * 10 + second.sum()).backward()
    assert x.grad.tolist() == [0, 10, 1, 1]
    assert first.requires_grad


def test_integers_cannot_require_grad():
    with pytest.raises(td.TandemError, match="float"):
        td.tensor([1, 2], requires_grad=True)
    x = td.tensor([1, 2])
    with pytest.raises(td.TandemError, match="float"):
        x.requires_grad = True
    assert not (x * 2).requires_grad


def test_results_of_integers_do_not_require_grad():
    x = leaf(1.0, 3.0)
    assert not td.argmax(x).requires_grad
    assert not (x > 2).requires_grad
    assert not x.to(td.int64).requires_grad


def test_leaves():
    x = leaf(1.0)
    y = x * 2
    assert x.is_leaf and not y.is_leaf and x.grad_fn is None
    assert y.grad_fn.name() == "multiply"
    assert td.ones(2).is_leaf
    with pytest.raises(td.AutogradError):
        y.requires_grad = False
    assert y.detach().is_leaf and not y.detach().requires_grad


def test_detach_shares_memory():
    x = leaf(1.0, 2.0)
    y = (x * 2).detach()
    assert not y.requires_grad
    z = x * 1
    z.detach()[0] = 7
    assert float(z[0]) == 7
    d = x * 3
    d.detach_()
    assert d.is_leaf and not d.requires_grad


def test_grad_setter_checks():
    x = leaf(1.0, 2.0)
    x.grad = td.ones(2)
    assert x.grad.tolist() == [1, 1]
    with pytest.raises((td.TandemError, TypeError)):
        x.grad = td.ones(3)
    with pytest.raises((td.TandemError, TypeError)):
        x.grad = 5


def test_mixed_dtypes():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    y = td.tensor([3.0, 4.0], dtype=td.float64, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.dtype is td.float32 and y.grad.dtype is td.float64


def test_gradient_of_a_view_chain():
    x = td.tensor(np.arange(24.0).reshape(2, 3, 4), requires_grad=True)
    (x.permute(2, 0, 1)[1:3].reshape(4, 3)[::2] * 2).sum().backward()
    expected = np.zeros((2, 3, 4))
    for i in (1, 2):
        expected[0, :, i] = 2
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_next_functions():
    x = leaf(2.0)
    y = (x * 3).exp()
    (inner, _), *_ = y.grad_fn.next_functions
    assert inner.name() == "multiply"
    assert "test_backward.py" in y.grad_fn.source


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh", "hardshrink", "softshrink", "leaky_relu"])
def test_gradients_that_are_constant_piece_by_piece_have_zeros_for_derivatives(name, compiled):
    function = getattr(td.nn.functional, name)

    def second(x):
        (first,) = td.autograd.grad(function(x).sum(), x, create_graph=True)
        assert first.requires_grad
        return td.autograd.grad((first * first).sum(), x)[0]

    second = td.compile(second) if compiled else second
    assert second(td.tensor([2.0, -3.0, 0.2], requires_grad=True)).tolist() == [0.0, 0.0, 0.0]
