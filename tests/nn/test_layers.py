"""Layers without PyTorch at hand: shapes, options, modes, gradients of any order, errors. tests/oracle compares their values."""

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import nn
from tests.check import check_gradients, check_op

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_dropout_acts_while_training_only():
    td.manual_seed(0)
    x = td.ones(4, 6, 5, 5)
    for layer in (nn.Dropout(0.4), nn.Dropout2d(0.4), nn.AlphaDropout(0.4), nn.FeatureAlphaDropout(0.4)):
        assert layer(x).tolist() != x.tolist() and layer.eval()(x) is x
    channels = nn.Dropout2d(0.5)(x).numpy()
    assert (channels == channels[:, :, :1, :1]).all() and set(np.unique(channels)) == {0.0, 2.0}
    assert nn.Dropout1d()(x[0]).shape == (6, 5, 5) and nn.Dropout3d()(td.ones(2, 2, 2, 2, 2)).shape == (2, 2, 2, 2, 2)
    with pytest.raises(ValueError, match="probability"):
        nn.Dropout(1.5)


def test_rrelu_draws_slopes_while_training():
    td.manual_seed(0)
    layer = nn.RReLU(0.2, 0.4)
    out = layer(td.full((1000,), -1.0)).numpy()
    assert -0.4 <= out.min() < -0.39 and -0.21 < out.max() <= -0.2
    assert layer.eval()(td.tensor([-1.0, 1.0])).tolist() == pytest.approx([-0.3, 1.0])


def test_gumbel_softmax():
    td.manual_seed(0)
    logits = td.tensor(np.tile(np.log([0.1, 0.2, 0.7]), (4000, 1)), requires_grad=True)
    hard = F.gumbel_softmax(logits, hard=True)
    np.testing.assert_allclose(hard.mean(0).detach().numpy(), [0.1, 0.2, 0.7], atol=0.03)
    assert set(np.unique(hard.detach().numpy())) == {0.0, 1.0}
    (hard * td.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert np.abs(logits.grad.numpy()).sum() > 0
    np.testing.assert_allclose(F.gumbel_softmax(logits, tau=0.5).sum(-1).detach().numpy(), 1.0, rtol=1e-5)


def test_batch_norm_follows_the_data():
    layer = nn.BatchNorm1d(2, momentum=None)
    data = [normal(8, 2).astype(np.float32) for _ in range(3)]
    for x in data:
        layer(td.tensor(x))
    assert layer.num_batches_tracked.item() == 3
    np.testing.assert_allclose(layer.running_mean.numpy(), np.mean([x.mean(0) for x in data], 0), rtol=1e-4, atol=1e-6)
    layer.eval()(td.tensor(data[0]))
    assert layer.num_batches_tracked.item() == 3
    layer.reset_running_stats()
    assert layer.running_var.tolist() == [1.0, 1.0] and layer.num_batches_tracked.item() == 0
    with pytest.raises(ValueError, match="2 or 3 axes"):
        layer(td.ones(2))


@pytest.mark.parametrize(("make", "text"), [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "groups"),
    (lambda: nn.Conv2d(3, 4, 3, padding="some"), "'same'"),
    (lambda: nn.Conv2d(3, 4, 3, padding="same", stride=2), "stride 1"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="odd"), "padding_mode"),
    (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "one or 2"),
    (lambda: nn.ConvTranspose1d(1, 1, 2, padding_mode="reflect"), "zeros"),
    (lambda: nn.ConvTranspose1d(1, 1, 2, stride=2)(td.ones(1, 1, 3), output_size=(9,)), "can be 6 to 7"),
    (lambda: nn.GroupNorm(2, 3), "groups"),
    (lambda: nn.Embedding(3, 2, padding_idx=5), "outside"),
    (lambda: nn.Embedding(3, 2, _weight=td.ones(2, 2)), "must be"),
    (lambda: nn.MultiheadAttention(5, 2), "heads"),
    (lambda: nn.LSTM(2, 2, dropout=2), "probability"),
    (lambda: nn.RNN(2, 2, nonlinearity="sin"), "nonlinearity"),
    (lambda: nn.LSTM(2, 3)(td.ones(4, 1, 5)), r"\(L, N, I\)"),
    (lambda: nn.GRU(2, 3)(td.ones(4, 1, 2), td.ones(1, 2, 3)), "initial state"),
    (lambda: nn.TransformerEncoderLayer(4, 2, activation="sin"), "activation"),
    (lambda: nn.Hardtanh(1.0, 0.0), "smaller"),
    (lambda: nn.ZeroPad2d((1, 2)), "one number or 4"),
    (lambda: nn.Upsample()(td.ones(1, 1, 2)), "either size or scale_factor"),
    (lambda: F.interpolate(td.ones(1, 1, 2), 3, mode="bilinear"), "4 axes"),
    (lambda: F.interpolate(td.ones(1, 1, 2), 3, mode="cubic"), "mode"),
    (lambda: F.pixel_shuffle(td.ones(1, 3, 2, 2), 2), "divide"),
    (lambda: F.embedding_bag(td.tensor([1, 2]), td.ones(3, 2)), "offsets"),
    (lambda: F.embedding_bag(td.tensor([[1, 2]]), td.ones(3, 2), mode="min"), "mode"),
    (lambda: F.unfold(td.ones(1, 1, 2, 2), 3), "does not fit"),
    (lambda: F.fold(td.ones(1, 4, 3), (3, 3), 2), "must be"),
])  # fmt: skip
def test_mistakes_are_explained(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_pretrained_embeddings():
    table = td.tensor(normal(4, 2))
    layer = nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad and layer(td.tensor([1])).tolist() == [table[1].tolist()]
    assert nn.EmbeddingBag.from_pretrained(table, freeze=False, mode="sum").weight.requires_grad
    assert nn.Embedding(4, 2, padding_idx=-1).weight[3].tolist() == [0.0, 0.0]


def test_factory_arguments():
    for layer in (
        nn.Linear(2, 3, dtype=td.float64, device="cpu"),
        nn.Conv2d(1, 1, 1, dtype=td.float64),
        nn.LSTM(2, 3, dtype=td.float64),
        nn.BatchNorm2d(2, dtype=td.float64),
        nn.MultiheadAttention(4, 2, dtype=td.float64),
        nn.Transformer(4, 2, 1, 1, 8, dtype=td.float64),
    ):
        assert all(p.dtype is td.float64 for p in layer.parameters())
    with pytest.raises(td.DeviceError):
        nn.Linear(2, 3, device="moon")


def test_new_sizes_need_no_new_plans():
    """Layers over sizes that change from call to call: plans are made for kinds of shapes, not for shapes."""
    layer = nn.LSTM(3, 4)
    from tandem.nn.steps import lstm_step

    layer(td.ones(2, 2, 3))
    before = lstm_step.num_plans
    for length, batch in ((3, 5), (7, 4), (2, 9)):
        layer(td.ones(length, batch, 3))
    assert lstm_step.num_plans == before


# -- gradients of any order of what is defined here


@pytest.mark.parametrize("fn", [
    lambda x: F.interpolate(x, 7, mode="linear"),
    lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest"),
    lambda x: F.lp_pool1d(td.abs(x) + 0.5, 3.0, 2),
    lambda x: F.local_response_norm(x, 3, alpha=0.5),
])  # fmt: skip
def test_gradients_over_sequences(fn):
    check_gradients(fn, [normal(1, 4, 5)])


@pytest.mark.parametrize("fn", [
    lambda x: F.interpolate(x, (5, 3), mode="bicubic", align_corners=True),
    lambda x: F.unfold(x, 2, padding=1, stride=2),
    lambda x: F.fold(F.unfold(x, 2), (3, 4), 2) * x,
    lambda x: F.pixel_unshuffle(F.pixel_shuffle(x * x, 2), 2),
    lambda x: F.channel_shuffle(x * x, 2),
])  # fmt: skip
def test_gradients_over_images(fn):
    check_gradients(fn, [normal(1, 4, 3, 4)])


def test_gradients_of_recurrent_layers():
    for name in ("RNN", "LSTM", "GRU"):
        layer = getattr(nn, name)(2, 3, bidirectional=True).double()
        check_gradients(lambda x, layer=layer: layer(x)[0], [normal(3, 2, 2)])


def test_gradients_of_attention():
    layer = nn.MultiheadAttention(4, 2).double()
    for need in (True, False):
        check_gradients(lambda x, need=need: layer(x, x, x, need_weights=need)[0], [normal(3, 1, 4)])


def test_losses_against_numpy():
    sign = np.array([1.0, -1.0, 1.0])
    check_op(
        F.soft_margin_loss,
        lambda x, y: np.log1p(np.exp(-y * x)).mean(),
        inputs=[(normal(3), sign)],
        test_layouts=False,
        second=False,
    )
    check_op(F.hinge_embedding_loss, lambda x, y: np.where(y == 1, x, np.maximum(0, 1 - x)).mean(), inputs=[(normal(3), sign)],
             test_layouts=False, grad=False)  # fmt: skip
    check_gradients(lambda x, y: F.cosine_embedding_loss(x, y, td.tensor([1, -1])), [normal(2, 3), normal(2, 3)])
    check_gradients(lambda x, y: F.gaussian_nll_loss(x, y, td.exp(x)), [normal(2, 3), normal(2, 3)])
    check_gradients(lambda x, y: F.triplet_margin_loss(x, y, x * y, margin=5.0), [normal(2, 3), normal(2, 3)])
    check_gradients(lambda x: F.ctc_loss(F.log_softmax(x, -1), td.tensor([[1, 2]]), [3], [2]), [normal(3, 1, 3)])


def test_losses_take_pytorchs_first_arguments():
    x, y = td.tensor([1.0, 2.0]), td.tensor([0.0, 0.0])
    assert nn.MSELoss(False)(x, y).item() == 5.0 and nn.MSELoss(reduce=False)(x, y).tolist() == [1.0, 4.0]
    assert nn.MSELoss(True)(x, y).item() == 2.5
    with pytest.raises(td.ValueRangeError, match="reduction"):
        nn.MSELoss(reduction="none of them")(x, y)


def test_ctc_lengths_as_numbers():
    x = F.log_softmax(td.tensor(normal(4, 2, 3)), -1)
    a = F.ctc_loss(x, td.tensor([[1, 2], [2, 0]]), td.tensor([4, 3]), td.tensor([2, 1]))
    assert a.item() == F.ctc_loss(x, td.tensor([1, 2, 2]), (4, 3), (2, 1)).item()
    one = F.ctc_loss(x[:, 0], td.tensor([1, 2]), [4], [2], reduction="none")
    assert one.shape == () or one.shape == (1,)


def test_adaptive_softmax_is_a_distribution():
    layer = td.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[4, 10], div_value=2.0)
    x = td.randn(5, 8)
    probabilities = layer.log_prob(x)
    np.testing.assert_allclose(td.exp(probabilities).sum(1).detach().numpy(), 1, rtol=1e-5)
    target = td.tensor([0, 3, 5, 11, 19])
    output, loss = layer(x, target)
    np.testing.assert_allclose(
        output.detach().numpy(), probabilities.detach().numpy()[np.arange(5), target.numpy()], rtol=1e-5
    )
    loss.backward()
    assert layer.head.weight.grad is not None and layer.predict(x).shape == (5,)
    assert layer(x[0], target[0]).output.shape == ()
    with pytest.raises(ValueError, match="cutoffs"):
        td.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[10, 4])


def test_fractional_pool_layers():
    pooled, index = td.nn.FractionalMaxPool2d(2, output_size=(3, 4), return_indices=True)(td.randn(2, 3, 9, 9))
    assert pooled.shape == index.shape == (2, 3, 3, 4)
    assert td.nn.FractionalMaxPool3d(2, output_ratio=0.5)(td.randn(1, 6, 6, 6)).shape == (1, 3, 3, 3)
