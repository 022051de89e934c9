import numpy as np

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
        one = F.Expand((5,))(F.Reshape((1,))(F.Constant(1.0, td.float32)()))
        scale = F.Mul()(one, s)
        return CONV(x, F.Mul()(w, F.Expand(w.shape)(F.Reshape((5, 1, 1, 1))(scale))), t)

    check_pass(fold_conv_affine, before, expected, TYPES)


def test_what_others_need_or_a_kernel_follows_stays():
    def shared(x, w, s, t):
        y = CONV(x, w)
        return F.Mul()(y, spread(s, y)), F.Copy()(y)

    def followed(x, w, s, t):
        y = CONV(x, w)
        return F.Relu()(F.Mul()(y, spread(s, y)))

    def own_square(x, w, s, t):
        y = CONV(x, w)
        return F.Mul()(y, y)

    for stays in (shared, followed, own_square):
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
