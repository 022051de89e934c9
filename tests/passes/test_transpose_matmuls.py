import numpy as np

import tandem as td
import tandem.ops as F
from tandem.passes.transpose_matmuls import transpose_matmuls
from tests.passes.check import check_pass

mm = lambda a, b: F.Matmul()(a, b)
swap = lambda x: F.Permute((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))(x)


def test_a_gradient_that_is_transposed_is_computed_so():
    check_pass(
        transpose_matmuls, lambda x, g: swap(mm(swap(x), g)), lambda x, g: mm(swap(g), x), ["f32[8,4]", "f32[8,5]"]
    )
    check_pass(
        transpose_matmuls,
        lambda x, g: swap(mm(swap(x), swap(g))),
        lambda x, g: mm(g, x),
        ["f32[2,8,4]", "f32[2,5,8]"],
    )


def test_products_that_others_read_or_whose_operands_lie_as_they_are_stay():
    def shared(x, g):
        product = mm(swap(x), g)
        return swap(product), product

    check_pass(transpose_matmuls, shared, shared, ["f32[8,4]", "f32[8,5]"])
    plain = lambda a, b: swap(mm(a, b))
    check_pass(transpose_matmuls, plain, plain, ["f32[4,8]", "f32[8,5]"])
    other = lambda x, g: F.Permute((1, 0, 2))(mm(swap(x), g))
    check_pass(transpose_matmuls, other, other, ["f32[2,8,4]", "f32[2,8,5]"])


def test_a_step_with_tied_weights_is_what_it_is_eagerly():
    x, w = td.randn(16, 8), td.randn(12, 8, requires_grad=True)

    def step():
        w.grad = None
        (x @ w.T).square().sum().backward()
        return (w - 0.1 * w.grad).detach()

    np.testing.assert_allclose(step().numpy(), td.compile(step)().numpy(), rtol=1e-5)
