import re

import numpy as np

import tandem as td
import tandem.ops as F
from tandem import nn
from tandem.passes.sink_reshapes import sink_reshapes
from tests.passes.check import check_pass

TYPES = ["f32[6,8]", "f32[6,8]", "f32[8,8]", "f32[2,3,8]"]


def shown(v):
    return F.Reshape((2, 3, 8))(v)


def rows(v):
    return F.Reshape((6, 8))(v)


def two():
    return F.Constant(2.0, td.float32)()


def test_work_between_products_has_their_shape():
    def before(a, b, w, r):
        x = shown(F.Matmul()(a, w))
        return F.Matmul()(rows(F.Mul()(F.Tanh()(F.Mul()(x, two())), shown(b))), w)

    def expected(a, b, w, r):
        x = F.Matmul()(a, w)
        return F.Matmul()(F.Mul()(F.Tanh()(F.Mul()(x, two())), b), w)

    check_pass(sink_reshapes, before, expected, TYPES)


def test_what_others_see_in_the_other_shape_is_shown_so():
    def before(a, b, w, r):
        x = F.Tanh()(shown(F.Matmul()(a, w)))
        return F.Matmul()(rows(x), w), F.Add()(x, r)

    def expected(a, b, w, r):
        x = F.Tanh()(F.Matmul()(a, w))
        return F.Matmul()(x, w), F.Add()(shown(x), r)

    check_pass(sink_reshapes, before, expected, TYPES)


def test_what_has_operands_of_its_own_stays():
    def residual(a, b, w, r):  # r has the other shape
        return F.Matmul()(rows(F.Add()(shown(F.Matmul()(a, w)), r)), w)

    def elsewhere(a, b, w, r):  # read in a third shape
        return F.Reshape((4, 12))(F.Tanh()(shown(F.Matmul()(a, w))))

    for fn in (residual, elsewhere):
        check_pass(sink_reshapes, fn, fn, TYPES)


def test_sums_over_rows_share_the_kernel_of_a_gradient():
    td.manual_seed(0)
    up, down = nn.Linear(16, 32), nn.Linear(32, 16)
    x = td.randn(4, 8, 16)

    def step(x):
        loss = (down(nn.functional.gelu(up(x))) ** 2).sum()
        loss.backward()
        grads = [p.grad for p in (up.weight, up.bias, down.weight, down.bias)]
        up.zero_grad(), down.zero_grad()
        return [loss.detach(), *grads]

    compiled = td.compile(step)
    for have, wanted in zip(compiled(x), step(x), strict=True):
        np.testing.assert_allclose(have.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    with td.switches(skip="sink_reshapes"):
        other = td.compile(step)
        other(x)
    assert steps(compiled) < steps(other)


def steps(compiled) -> int:
    return int(re.search(r"-> (\d+) steps", str(compiled.explain())).group(1))
