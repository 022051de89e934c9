import numpy as np

import tandem as td
import tandem.ops as F
from tandem import nn
from tandem.passes.relu_masks import relu_masks
from tests.passes.check import check_pass

TYPES = ["f32[64,8]", "f32[8,8]", "f32[8]", "f32[64,8]"]


def spread(v, like):
    return F.Expand(like.shape)(F.Reshape((1, v.shape[0]))(v))


def zero():
    return F.Constant(0.0, td.float32)()


def masked(sign, g):
    return F.Where()(sign, g, zero())


def test_the_sign_comes_from_what_backward_reads_anyway():
    def before(x, w, s, g):
        y = F.Matmul()(x, w)
        r = F.Relu()(F.Mul()(y, spread(s, y)))
        kept = F.Matmul()(r, w)
        return kept, F.Mul()(masked(F.Less()(zero(), r), g), y)

    def expected(x, w, s, g):
        y = F.Matmul()(x, w)
        z = F.Mul()(y, spread(s, y))
        return F.Matmul()(F.Relu()(z), w), F.Mul()(masked(F.Less()(zero(), z), g), y)

    check_pass(relu_masks, before, expected, TYPES)


def test_nothing_is_kept_for_the_sign_alone():
    def own_result(x, w, s, g):  # backward does not read y
        y = F.Matmul()(x, w)
        r = F.Relu()(F.Add()(y, spread(s, y)))
        return F.Matmul()(r, w), masked(F.Less()(zero(), r), g)

    def two_tensors(x, w, s, g):  # as behind a residual: another tensor to read in place of r
        y = F.Matmul()(x, w)
        r = F.Relu()(F.Add()(y, x))
        return F.Matmul()(r, w), F.Mul()(masked(F.Less()(zero(), r), g), y)

    def costly(x, w, s, g):
        y = F.Matmul()(x, w)
        r = F.Relu()(F.Exp()(y))
        return F.Matmul()(r, w), F.Mul()(masked(F.Less()(zero(), r), g), y)

    for stays in (own_result, two_tensors, costly):
        check_pass(relu_masks, stays, stays, TYPES)


def test_a_normalised_network_trains_alike_in_less_memory():
    def train(skip):
        td.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 4)
        )
        optimizer = td.optim.SGD(model.parameters(), lr=0.1)

        @td.compile
        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        with td.switches(SKIP=skip):
            losses = [step(td.randn(4, 3, 16, 16)).item() for _ in range(3)]
        return losses, step.memory()["peak"]

    plain, passed = train("relu_masks"), train("")
    np.testing.assert_allclose(passed[0], plain[0], rtol=1e-4)
    assert passed[1] < plain[1]
