import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem import nn
from tandem.passes.fold_conv_affine import fold_conv_affine
from tests.passes.check import check_pass

CONV = F.ConvForward((1, 1), (0, 0), (0, 0), (1, 1), 1)
TYPES = ["f32[4,3,8,8]", "f32[5,3,3,3]", "f32[5]", "f32[5]"]


def spread(v, like):
    return F.Expand(like.shape)(F.Reshape((1, v.shape[0], 1, 1))(v))


def test_scale_and_shift_go_into_weights_and_bias():
    def before(x, w, s, t):
        y = CONV(x, w)
        return F.Add()(F.Mul()(y, spread(s, y)), spread(t, y))

    def expected(x, w, s, t):
        return CONV(x, F.Mul()(w, F.Expand(w.shape)(F.Reshape((5, 1, 1, 1))(s))), t)

    check_pass(fold_conv_affine, before, expected, TYPES)


def test_what_others_need_or_a_kernel_follows_stays():
    def shared(x, w, s, t):
        y = CONV(x, w)
        return F.Mul()(y, spread(s, y)), F.Copy()(y)

    def followed(x, w, s, t):
        y = CONV(x, w)
        return F.Relu()(F.Mul()(y, spread(s, y)))

    def quotient(x, w, s, t):
        y = CONV(x, w)
        return F.Div()(y, spread(s, y))

    def own_square(x, w, s, t):
        y = CONV(x, w)
        return F.Mul()(y, y)

    for stays in (shared, followed, quotient, own_square):
        check_pass(fold_conv_affine, stays, stays, TYPES)


def test_a_model_in_evaluation_mode_gives_the_same_numbers():
    td.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4), nn.ReLU()
    )
    with td.no_grad():
        for _ in range(3):
            model(td.randn(4, 3, 9, 9) * 2 + 1)
        model.eval()
        run = td.compile(lambda x: model(x))
        x = td.randn(2, 3, 9, 9)
        np.testing.assert_allclose(run(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)
    convolutions = [n for n in run.graph().nodes if n.op.name == "conv_forward"]
    assert [len(n.inputs) for n in convolutions] == [3, 3]
    assert convolutions[1].inputs[0] is convolutions[0].outputs[0]  # the first normalisation is gone


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1), (1, 1, 1, 1), (40, 1, 1), (1, 40, 1, 1)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_one_number_for_all_channels(shape, with_bias):
    conv2d = nn.functional.conv2d
    td.manual_seed(0)
    x, w, p = td.randn(2, 3, 8, 8), td.randn(40, 3, 3, 3), td.randn(shape)
    bias = (td.randn(40),) if with_bias else ()
    for f in (
        lambda x, w, p, *b: conv2d(x, w, *b) * p,
        lambda x, w, p, *b: conv2d(x, w, *b) + p,
        lambda x, w, p, *b: conv2d(x, w, *b) - p,
        lambda x, w, p, *b: p - conv2d(x, w, *b),
        lambda x, w, p, *b: (p - conv2d(x, w, *b) * p) * 2 + p,
    ):
        np.testing.assert_allclose(td.compile(f)(x, w, p, *bias), f(x, w, p, *bias), rtol=1e-4, atol=1e-4)


def test_a_division_by_zero_gives_infinities():
    conv2d = nn.functional.conv2d
    divided = lambda x, w, p: conv2d(x, w) / p.reshape(4, 1, 1)
    args = td.randn(2, 3, 8, 8), td.randn(4, 3, 3, 3), td.tensor([0.0, -0.0, 1.0, 2.0])
    np.testing.assert_allclose(td.compile(divided)(*args), divided(*args), rtol=1e-5)
