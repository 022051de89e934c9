import numpy as np

import tandem as td
import tandem.ops as F
from tandem.passes.sum_matmuls import sum_matmuls
from tests.passes.check import check_pass

mm = lambda a, b: F.Matmul()(a, b)
add = lambda a, b: F.Add()(a, b)
turned = F.Permute((1, 0))
SMALL = ["f32[64,4]", "f32[4,96]", "f32[64,8]", "f32[8,96]"]


def test_products_that_are_added_become_one():
    apart = lambda a, b, c, d: add(mm(a, b), mm(c, d))
    joined = lambda a, b, c, d: mm(F.Concat(1)(a, c), F.Concat(0)(b, d))
    check_pass(sum_matmuls, apart, joined, SMALL)


def test_a_longer_sum_has_other_terms_and_transposes():
    def apart(a, b, c, d, e):
        return add(add(add(mm(turned(a), b), e), mm(turned(c), d)), mm(turned(b), b))

    def joined(a, b, c, d, e):
        product = mm(turned(F.Concat(0)(a, c, b)), F.Concat(0)(b, d, b))
        return add(e, product)

    check_pass(sum_matmuls, apart, joined, ["f32[4,96]", "f32[4,96]", "f32[8,96]", "f32[8,96]", "f32[96,96]"])


def test_slices_of_one_tensor_are_not_copied():
    rows = lambda x, start: F.Slice((start, 0), (1, 1), (4, 96))(x)
    apart = lambda x, y: add(mm(turned(rows(x, 0)), rows(y, 0)), mm(turned(rows(x, 4)), rows(y, 4)))
    whole = lambda x: F.Slice((0, 0), (1, 1), (8, 96))(x)
    check_pass(sum_matmuls, apart, lambda x, y: mm(turned(whole(x)), whole(y)), ["f32[12,96]", "f32[12,96]"])


def test_products_that_are_small_broadcast_or_read_by_others_stay_apart():
    def shared(a, b, c, d):
        product = mm(a, b)
        return add(product, mm(c, d)), product

    check_pass(sum_matmuls, shared, shared, SMALL)
    apart = lambda a, b, c, d: add(mm(a, b), mm(c, d))
    check_pass(sum_matmuls, apart, apart, ["f32[8,64]", "f32[64,8]", "f32[8,64]", "f32[64,8]"])
    batched = lambda a, b, c, d: add(mm(a, b), mm(c, d))
    check_pass(sum_matmuls, batched, batched, ["f32[2,64,4]", "f32[2,4,96]", "f32[2,64,4]", "f32[2,4,96]"])


def test_two_sums_that_share_a_term_stay_right():
    def both(a, b, c, d):
        first = add(mm(a, b), mm(c, d))
        return first, add(first, mm(a, F.Mul()(b, b)))

    def joined(a, b, c, d):
        first = mm(F.Concat(1)(a, c), F.Concat(0)(b, d))
        return first, add(first, mm(a, F.Mul()(b, b)))

    check_pass(sum_matmuls, both, joined, SMALL)


def test_weights_of_an_unrolled_cell():
    cell = td.nn.GRUCell(48, 64)
    xs, state = td.randn(5, 3, 48), td.zeros(3, 64)

    def step(xs, state):
        cell.zero_grad()
        for x in xs:
            state = cell(x, state)
        (state * state).sum().backward()
        return [p.grad.clone() for p in cell.parameters()]

    expected = [g.numpy() for g in step(xs, state)]
    compiled = td.compile(step)
    for a, b in zip(compiled(xs, state), expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=2e-4, atol=1e-5)
    products = [n for n in compiled.graph().nodes if n.op.name == "matmul" and n.outputs[0].shape == (192, 64)]
    assert len(products) == 1
