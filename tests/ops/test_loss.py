import numpy as np
import pytest
import scipy.special as ss

import tandem as td
from tests.check import assert_close, check_gradients, check_op

RNG = np.random.default_rng(3)


def cross_entropy(x, t, weight=None, ignore=-100, smoothing=0.0, reduction="mean"):
    axis = 0 if x.ndim == 1 else 1
    logp = np.moveaxis(ss.log_softmax(x.astype(np.float64), axis), axis, -1)
    c = logp.shape[-1]
    w = np.ones(c) if weight is None else weight
    kept = t != ignore
    safe = np.where(kept, t, 0)
    picked = np.take_along_axis(logp, safe[..., None], -1)[..., 0]
    loss = -(1 - smoothing) * picked * w[safe] - smoothing / c * (logp * w).sum(-1)
    loss = np.where(kept, loss, 0)
    if reduction == "mean":
        return loss.sum() / (w[safe] * kept).sum()
    return loss.sum() if reduction == "sum" else loss


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(shape, smoothing):
    x = RNG.normal(size=shape).astype(np.float32)
    t = RNG.integers(0, 5, shape[:1] + shape[2:] if len(shape) > 1 else ())
    check_op(
        td.cross_entropy,
        lambda x, t: cross_entropy(x, t, smoothing=smoothing),
        inputs=[(x, t)],
        kwargs={"label_smoothing": smoothing},
    )
    if len(shape) > 1:
        t = t.copy()
        t.flat[0] = 3
        w = RNG.uniform(0.5, 2, 5).astype(np.float32)
        for reduction in ("mean", "sum", "none"):
            expected = cross_entropy(x, t, w, 3, smoothing, reduction)
            options = {"ignore_index": 3, "label_smoothing": smoothing, "reduction": reduction}
            check_op(
                td.cross_entropy,
                lambda x, t, w, e=expected: e,
                inputs=[(x, t, w)],
                kwargs=options,
                second=reduction == "mean",
            )


def test_cross_entropy_of_probabilities():
    x, p = RNG.normal(size=(4, 5)).astype(np.float32), ss.softmax(RNG.normal(size=(4, 5)), -1).astype(np.float32)
    check_op(td.cross_entropy, lambda x, p: -(p * ss.log_softmax(x, 1)).sum(1).mean(), inputs=[(x, p)])


def test_cross_entropy_checks_its_target():
    x = td.zeros(2, 3)
    with pytest.raises(td.IndexRangeError, match="3"):
        td.cross_entropy(x, td.tensor([0, 3]))
    with pytest.raises(td.IndexRangeError):
        td.cross_entropy(x, td.tensor([0, -1]))
    with pytest.raises(td.ShapeError, match="class indices must be"):
        td.cross_entropy(x, td.tensor([0, 1, 2]))
    with pytest.raises(td.ValueRangeError, match="reduction"):
        td.cross_entropy(x, td.tensor([0, 1]), reduction="max")


def test_nll_loss():
    x, t = ss.log_softmax(RNG.normal(size=(4, 5)), 1).astype(np.float32), np.array([1, 0, 4, 2])
    check_op(td.nll_loss, lambda x, t: -x[np.arange(4), t].mean(), inputs=[(x, t)])


def test_elementwise_losses():
    x, t = RNG.normal(size=(3, 4)).astype(np.float32) * 2, RNG.normal(size=(3, 4)).astype(np.float32)
    d = x.astype(np.float64) - t
    check_op(td.mse_loss, lambda x, t: (d * d).mean(), inputs=[(x, t)])
    check_op(td.l1_loss, lambda x, t: np.abs(d).sum(), inputs=[(x, t)], kwargs={"reduction": "sum"})
    check_op(td.huber_loss, lambda x, t: ss.huber(0.7, d), inputs=[(x, t)], kwargs={"reduction": "none", "delta": 0.7})
    check_op(td.smooth_l1_loss, lambda x, t: ss.huber(0.7, d).mean() / 0.7, inputs=[(x, t)], kwargs={"beta": 0.7})


@pytest.mark.parametrize("compiled", [False, True])
def test_binary_cross_entropy_of_saturated_probabilities_has_gradients(compiled):
    def slope(p, t):
        loss = td.binary_cross_entropy(p, t, reduction="sum")
        return td.autograd.grad(loss, p, create_graph=True)[0]

    p, t = td.tensor([1.0, 0.0, 1.0, 0.0], requires_grad=True), td.tensor([1.0, 0.0, 0.0, 1.0])
    made = (td.compile(slope) if compiled else slope)(p, t)
    assert made.tolist() == pytest.approx([0.0, 0.0, 1e12, -1e12])  # as PyTorch's
    score = td.tensor([200.0, -200.0], requires_grad=True)
    td.binary_cross_entropy(td.sigmoid(score), td.tensor([1.0, 0.0])).backward()
    assert score.grad.tolist() == [0.0, 0.0]


def test_binary_cross_entropy():
    p, t = RNG.uniform(0.1, 0.9, (3, 4)).astype(np.float32), RNG.uniform(0, 1, (3, 4)).astype(np.float32)

    def reference(p, t, w=1.0):
        return -(w * (t * np.log(p) + (1 - t) * np.log1p(-p))).mean()

    check_op(td.binary_cross_entropy, reference, inputs=[(p, t), (p, t, t)])
    x = ss.logit(p)
    check_op(td.binary_cross_entropy_with_logits, lambda x, t: reference(p, t), inputs=[(x, t)], rtol=1e-4)
    weighted = td.binary_cross_entropy_with_logits(td.tensor(x), td.tensor(t), pos_weight=td.tensor(2.0))
    assert_close(weighted, -(2 * t * np.log(p) + (1 - t) * np.log1p(-p)).mean(), rtol=1e-4)
    assert td.binary_cross_entropy(td.tensor([0.0, 1.0]), td.tensor([1.0, 1.0])).item() == 50.0


def test_kl_div():
    x, p = (
        ss.log_softmax(RNG.normal(size=(3, 4)), 1).astype(np.float32),
        ss.softmax(RNG.normal(size=(3, 4)), 1).astype(np.float32),
    )
    check_op(
        td.kl_div, lambda x, p: (p * (np.log(p) - x)).sum() / 3, inputs=[(x, p)], kwargs={"reduction": "batchmean"}
    )
    check_op(td.kl_div, lambda x, lp: (p * (lp - x)).mean(), inputs=[(x, np.log(p))], kwargs={"log_target": True})
    assert td.kl_div(td.tensor([0.0]), td.tensor([0.0])).item() == 0.0


def test_ignored_rows_have_no_gradient():
    x = np.array([[1.0, np.inf], [0.5, 2.0]])
    t = td.tensor([-100, 1])
    tensor = td.tensor(x, requires_grad=True)
    td.cross_entropy(tensor, t, reduction="sum").backward()
    expected = ss.softmax(x[1]) - [0, 1]
    assert_close(tensor.grad[1], expected)
    check_gradients(lambda a: td.cross_entropy(a, t), (np.array([[1.0, 3.0], [0.5, 2.0]]),))
