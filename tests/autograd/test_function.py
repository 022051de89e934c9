import pytest

import tandem as td
from tandem.autograd import Function


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor, y=None):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None, None


class SplitSign(Function):
    """Two outputs, one of them integers."""

    @staticmethod
    def forward(ctx, x):
        positive = x.clip(0.0)
        sign = td.sign(x)
        ctx.mark_non_differentiable(sign)
        ctx.save_for_backward(x)
        return positive, sign

    @staticmethod
    def backward(ctx, g, g_sign):
        assert not g_sign.any()
        (x,) = ctx.saved_tensors
        return g * (x > 0)


def test_first_derivative():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    Cube.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 12]


def test_second_derivative():
    x = td.tensor(2.0, requires_grad=True)
    (g,) = td.autograd.grad(Cube.apply(x), x, create_graph=True)
    (second,) = td.autograd.grad(g, x, create_graph=True)
    (third,) = td.autograd.grad(second, x)
    assert (float(g), float(second), float(third)) == (12, 12, 6)


def test_arguments_that_are_not_tensors():
    x = td.tensor(2.0, requires_grad=True)
    Scale.apply(x, 5.0, None).backward()
    assert float(x.grad) == 5


def test_none_for_an_input():
    class First(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g, None

    x, y = td.tensor(1.0, requires_grad=True), td.tensor(1.0, requires_grad=True)
    First.apply(x, y).backward()
    assert float(x.grad) == 1 and y.grad is None


def test_needs_input_grad():
    seen = []

    class Look(Function):
        @staticmethod
        def forward(ctx, x, y):
            seen.append(ctx.needs_input_grad)
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g, g

    Look.apply(td.ones(2, requires_grad=True), td.ones(2)).sum().backward()
    assert seen == [(True, False)]


def test_non_differentiable_outputs():
    x = td.tensor([-1.0, 2.0], requires_grad=True)
    positive, sign = SplitSign.apply(x)
    assert positive.requires_grad and not sign.requires_grad
    positive.sum().backward()
    assert x.grad.tolist() == [0, 1]


def test_outputs_partly_used():
    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return (0 if a is None else a * 2) + (0 if b is None else b * 3)

    x = td.tensor(1.0, requires_grad=True)
    Pair.apply(x)[1].backward()
    assert float(x.grad) == 3


def test_without_grad_nothing_is_recorded():
    assert not Cube.apply(td.tensor(2.0)).requires_grad
    with td.no_grad():
        assert not Cube.apply(td.tensor(2.0, requires_grad=True)).requires_grad


def test_input_returned_as_it_is():
    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return -g

    x = td.tensor([1.0], requires_grad=True)
    y = Identity.apply(x)
    assert y is not x and x.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [-1]


def test_wrong_number_of_gradients():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(td.AutogradError, match="Wrong: backward returned 1 gradients for 2 arguments"):
        Wrong.apply(td.tensor(1.0, requires_grad=True), td.tensor(2.0)).backward()


def test_wrong_shape():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.sum()

    with pytest.raises(td.AutogradError, match="gradient 0 is \\(\\) but argument 0 is \\(2,\\)"):
        Wrong.apply(td.ones(2, requires_grad=True)).sum().backward()


def test_wrong_type():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return 1.0

    with pytest.raises(td.AutogradError, match="float"):
        Wrong.apply(td.ones(2, requires_grad=True)).sum().backward()


def test_saved_tensors_changed_in_place():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    inner = x * 1
    y = Cube.apply(inner)
    inner += 1
    with pytest.raises(td.AutogradError, match="changed in place"):
        y.sum().backward()


def test_errors_in_backward_come_through():
    class Broken(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Broken.apply(td.ones((), requires_grad=True)).backward()


def test_second_backward_is_an_error():
    y = Cube.apply(td.tensor(2.0, requires_grad=True))
    y.backward()
    with pytest.raises(td.AutogradError, match="a second time"):
        y.backward()


def test_forward_and_backward_must_be_defined():
    class Nothing(Function):
        pass

    with pytest.raises(NotImplementedError, match="forward"):
        Nothing.apply(td.ones(2))


class DoubledInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2.0
        ctx.mark_dirty(x)
        return x.mul_(ctx.factor)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor


def test_an_argument_that_was_changed_in_place_is_the_result():
    x = td.ones(2, requires_grad=True)
    y = x * 3
    z = DoubledInPlace.apply(y)
    assert z is y and z.tolist() == [6.0, 6.0]
    (z * z).sum().backward()
    assert x.grad.tolist() == [72.0, 72.0]
    with pytest.raises(td.AutogradError, match="changed in place"):
        DoubledInPlace.apply(td.ones(2, requires_grad=True))


def test_the_record_has_what_forward_left_on_its_context():
    y = DoubledInPlace.apply(td.ones(2, requires_grad=True) * 1)
    assert y.grad_fn.factor == 2.0
    assert not hasattr(y.grad_fn, "other") and not hasattr((y * 2).grad_fn, "factor")


def test_records_are_equal_if_they_are_the_same():
    x = td.ones(2, requires_grad=True)
    y = x * x
    left, right = (node for node, _ in y.grad_fn.next_functions)
    assert left == right and len({left, right}) == 1 and left.variable is x
    assert y.grad_fn == y.grad_fn and y.grad_fn != left and y.grad_fn is not None and y.grad_fn != None  # noqa: E711
    assert not hasattr(y.grad_fn, "variable")


def test_arguments_and_results_that_are_none():
    class Loss(Function):
        @staticmethod
        def forward(ctx, x, weight):
            return x * 2, None

        @staticmethod
        def backward(ctx, g, none):
            return g * 2, None

    x = td.ones(2, requires_grad=True)
    y, nothing = Loss.apply(x, None)
    y.sum().backward()
    assert nothing is None and x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("dtype", [td.float64, td.bfloat16, td.int64, td.bool, td.complex64])
@pytest.mark.parametrize("batched", [False, True])
def test_gradients_of_other_dtypes_are_converted(dtype, batched):
    class Odd(td.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return td.ones_like(g).to(dtype)

    w = td.tensor([1.0, 2.0], requires_grad=True)
    with td.autobatch() if batched else td.enable_grad():
        loss = sum(Odd.apply(w * x).sum() for x in (td.ones(2), td.ones(2) * 2))
    loss.backward()
    assert w.grad.dtype is td.float32 and w.grad.tolist() == [3, 3]
