"""Layers against PyTorch's: the same weights by name, the same outputs, the same gradients."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tandem as td
from tests.oracle.compare import to_torch

pytestmark = pytest.mark.oracle
RNG = np.random.default_rng(31)


def normal(*shape):
    return RNG.normal(size=shape)


def load(ours, theirs):
    """Both in float64 with one set of weights; also checks that names and shapes are the same."""
    theirs = theirs.double()
    ours = ours.double()
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    return ours, theirs


def flat(x):
    if x is None:
        return []
    if isinstance(x, (tuple, list)):
        return [t for i in x for t in flat(i)]
    return [x]


def same(ours, theirs, *arrays, call=None, rtol=1e-7, atol=1e-9):
    """Outputs, and gradients of a random combination of them by inputs and parameters, agree; twice, for layers with a state."""
    call = call or (lambda module, convert, *x: module(*x))
    for _ in range(2):
        floating = [a.dtype.kind == "f" for a in arrays]
        a = [td.tensor(x, requires_grad=f) for x, f in zip(arrays, floating, strict=True)]
        b = [to_torch(x, f) for x, f in zip(arrays, floating, strict=True)]
        got, expected = flat(call(ours, td.tensor, *a)), flat(call(theirs, torch.tensor, *b))
        assert len(got) == len(expected)
        total_got = total_expected = 0.0
        for g, e in zip(got, expected, strict=True):
            assert tuple(g.shape) == tuple(e.shape)
            np.testing.assert_allclose(g.detach().numpy(), e.detach().numpy(), rtol=rtol, atol=atol)
            if e.requires_grad:
                weights = RNG.normal(size=tuple(e.shape))
                total_got = total_got + (g * td.tensor(weights)).sum()
                total_expected = total_expected + (e * torch.tensor(weights)).sum()
        if isinstance(total_expected, float):
            return
        ours.zero_grad()
        theirs.zero_grad()
        total_got.backward()
        total_expected.backward()
        for x, y in zip(a, b, strict=True):
            if y.requires_grad and y.grad is not None:
                np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=rtol, atol=atol)
        for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            if q.grad is not None:
                np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=rtol, atol=atol, err_msg=name)
        for (name, p), (_, q) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
            np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=rtol, atol=atol, err_msg=name)


def check(name, args, kwargs, *arrays, train=True, **options):
    ours, theirs = load(getattr(td.nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs))
    same(ours.train(train), theirs.train(train), *arrays, **options)


LAYERS = [
    ("Identity", (3, 4), {}, (2, 3)),
    ("Linear", (3, 4), {}, (2, 5, 3)),
    ("Linear", (3, 4), {"bias": False}, (3,)),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, (2, 4, 9)),
    ("Conv2d", (3, 4, 3), {"padding": 1, "bias": False}, (2, 3, 5, 6)),
    ("Conv2d", (2, 4, (3, 2)), {"padding": "same", "dilation": (2, 1)}, (1, 2, 6, 6)),
    ("Conv2d", (2, 4, 3), {"padding": 1, "padding_mode": "reflect"}, (1, 2, 5, 5)),
    ("Conv2d", (2, 4, 3), {"padding": "same", "padding_mode": "circular"}, (1, 2, 5, 5)),
    ("Conv3d", (2, 3, 2), {"stride": (1, 2, 1)}, (1, 2, 3, 5, 4)),
    ("ConvTranspose1d", (2, 3, 4), {"stride": 2, "padding": 1}, (2, 2, 5)),
    ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "output_padding": 1, "groups": 2}, (1, 4, 3, 4)),
    ("ConvTranspose3d", (1, 2, 2), {"stride": 2}, (1, 1, 2, 2, 3)),
    ("BatchNorm1d", (3,), {}, (4, 3)),
    ("BatchNorm1d", (3,), {"momentum": None}, (4, 3, 2)),
    ("BatchNorm2d", (3,), {"affine": False}, (2, 3, 4, 4)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, (2, 3, 4, 4)),
    ("BatchNorm3d", (2,), {}, (2, 2, 3, 2, 2)),
    ("InstanceNorm1d", (3,), {"affine": True}, (2, 3, 5)),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, (2, 3, 4, 4)),
    ("InstanceNorm2d", (3,), {}, (3, 4, 4)),
    ("LayerNorm", (4,), {}, (2, 3, 4)),
    ("LayerNorm", ((3, 4),), {"bias": False}, (2, 3, 4)),
    ("RMSNorm", (4,), {"eps": 1e-6}, (2, 3, 4)),
    ("GroupNorm", (2, 4), {}, (2, 4, 3, 3)),
    ("LocalResponseNorm", (3,), {"alpha": 0.1, "k": 2.0}, (2, 5, 3, 3)),
    ("MaxPool1d", (2,), {}, (1, 2, 6)),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "return_indices": True}, (1, 2, 7, 7)),
    ("MaxPool3d", (2,), {}, (1, 1, 4, 4, 4)),
    ("AvgPool1d", (3,), {"padding": 1, "count_include_pad": False}, (1, 2, 7)),
    ("AvgPool2d", (2,), {"ceil_mode": True, "divisor_override": 3}, (1, 2, 5, 5)),
    ("AvgPool3d", (2,), {}, (1, 1, 4, 4, 4)),
    ("LPPool1d", (2, 3), {}, (1, 2, 7)),
    ("LPPool2d", (2, 2), {"stride": 1}, (1, 2, 4, 4)),
    ("AdaptiveAvgPool1d", (3,), {}, (1, 2, 7)),
    ("AdaptiveAvgPool2d", ((3, None),), {}, (1, 2, 7, 5)),
    ("AdaptiveAvgPool3d", (2,), {}, (1, 1, 4, 5, 3)),
    ("AdaptiveMaxPool1d", (3,), {}, (1, 2, 7)),
    ("AdaptiveMaxPool2d", (2,), {}, (1, 2, 5, 5)),
    ("Flatten", (), {}, (2, 3, 4)),
    ("Unflatten", (1, (2, 2)), {}, (3, 4)),
    ("PixelShuffle", (2,), {}, (1, 8, 2, 3)),
    ("PixelUnshuffle", (2,), {}, (1, 2, 4, 6)),
    ("ChannelShuffle", (2,), {}, (1, 4, 2, 3)),
    ("Upsample", (), {"scale_factor": 2}, (1, 2, 3, 4)),
    ("Upsample", (), {"size": (5, 7), "mode": "nearest-exact"}, (1, 2, 3, 4)),
    ("Upsample", (), {"scale_factor": 1.5, "mode": "linear"}, (1, 2, 5)),
    ("Upsample", (), {"size": (5, 3), "mode": "bilinear", "align_corners": True}, (1, 2, 3, 4)),
    ("Upsample", (), {"scale_factor": (2.0, 1.7), "mode": "bilinear"}, (1, 2, 3, 4)),
    ("Upsample", (), {"scale_factor": 2, "mode": "bicubic"}, (1, 2, 3, 4)),
    ("Upsample", (), {"size": (3, 4, 5), "mode": "trilinear"}, (1, 1, 2, 3, 3)),
    ("Upsample", (), {"size": 3, "mode": "area"}, (1, 1, 7)),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, (1, 1, 3, 3)),
    ("Unfold", ((2, 3),), {"padding": 1, "stride": 2, "dilation": (1, 2)}, (2, 3, 6, 8)),
    ("Fold", ((5, 6), (2, 3)), {"padding": 1, "stride": 2}, (2, 12, 9)),
    ("ConstantPad1d", (2, 1.5), {}, (2, 3)),
    ("ZeroPad2d", ((1, 2, 0, 1),), {}, (1, 2, 3, 3)),
    ("ReflectionPad2d", (1,), {}, (1, 2, 3, 3)),
    ("ReplicationPad3d", (1,), {}, (1, 1, 2, 3, 3)),
    ("CircularPad1d", ((1, 2),), {}, (1, 2, 4)),
    ("TransformerEncoderLayer", (8, 2, 16), {"dropout": 0.0}, (3, 2, 8)),
    (
        "TransformerEncoderLayer",
        (8, 2, 16),
        {"dropout": 0.0, "norm_first": True, "activation": "gelu", "batch_first": True},
        (2, 3, 8),
    ),
]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "shape"), LAYERS, ids=[f"{case[0]}-{i}" for i, case in enumerate(LAYERS)]
)
def test_layers(name, args, kwargs, shape):
    check(name, args, kwargs, normal(*shape))


def test_layers_in_evaluation():
    check("BatchNorm2d", (3,), {}, normal(2, 3, 4, 4), train=False)
    check("InstanceNorm1d", (3,), {"track_running_stats": True}, normal(2, 3, 4), train=False)
    for name in ("Dropout", "Dropout2d", "AlphaDropout", "RReLU"):
        check(name, (), {}, normal(2, 3, 4, 4), train=False)


ACTIVATIONS = [
    ("ReLU", ()),
    ("ReLU6", ()),
    ("SELU", ()),
    ("SiLU", ()),
    ("Mish", ()),
    ("Hardsigmoid", ()),
    ("Hardswish", ()),
    ("Sigmoid", ()),
    ("Tanh", ()),
    ("LogSigmoid", ()),
    ("Softsign", ()),
    ("Tanhshrink", ()),
    ("ELU", (0.7,)),
    ("CELU", (1.3,)),
    ("GELU", ()),
    ("GELU", ("tanh",)),
    ("LeakyReLU", (0.2,)),
    ("PReLU", ()),
    ("PReLU", (4,)),
    ("Threshold", (0.1, 2.0)),
    ("Hardtanh", (-0.5, 0.7)),
    ("Hardshrink", ()),
    ("Softshrink", (0.3,)),
    ("Softplus", (2.0,)),
    ("GLU", ()),
    ("Softmax", (1,)),
    ("LogSoftmax", (-1,)),
    ("Softmin", (0,)),
    ("Softmax2d", ()),
]


@pytest.mark.parametrize(("name", "args"), ACTIVATIONS)
def test_activations(name, args):
    check(name, args, {}, normal(2, 4, 2, 6) * 3)


def test_softmax_chooses_its_axis_as_pytorch_does():
    for shape in ((3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)):
        with pytest.warns(UserWarning, match="Implicit dimension"):
            theirs = torch.nn.Softmax()(torch.tensor(x := normal(*shape)))
        np.testing.assert_allclose(td.nn.Softmax()(td.tensor(x)).numpy(), theirs.numpy(), rtol=1e-6)


def test_bilinear():
    check("Bilinear", (3, 4, 5), {}, normal(2, 3), normal(2, 4))


def test_embeddings():
    index = np.array([[1, 2, 2], [4, 0, 2]])
    check("Embedding", (5, 3), {"padding_idx": 2}, index)
    check("Embedding", (5, 3), {"scale_grad_by_freq": True}, index)
    ours, theirs = load(td.nn.Embedding(5, 3, max_norm=0.5), torch.nn.Embedding(5, 3, max_norm=0.5))
    ours(td.tensor(index))
    theirs(torch.tensor(index))
    np.testing.assert_allclose(ours.weight.detach().numpy(), theirs.weight.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags(mode, padding):
    kwargs = {"mode": mode, "padding_idx": padding}
    check("EmbeddingBag", (6, 3), kwargs, np.array([[1, 2, 3], [2, 5, 0]]))
    check("EmbeddingBag", (6, 3), kwargs, np.array([1, 3, 2, 4, 5]), np.array([0, 2, 2, 4]))
    if mode == "sum":
        check("EmbeddingBag", (6, 3), kwargs, np.array([[1, 2, 3], [2, 5, 0]]), normal(2, 3),
              call=lambda m, _, x, w: m(x, per_sample_weights=w))  # fmt: skip


def test_unpooling():
    x = normal(1, 2, 6, 6)
    pooled, index = torch.nn.MaxPool2d(2, return_indices=True)(torch.tensor(x))
    check("MaxUnpool2d", (2,), {}, pooled.numpy(), index.numpy())
    check(
        "MaxUnpool2d",
        (2,),
        {},
        pooled.numpy(),
        index.numpy(),
        call=lambda m, _, a, i: m(a, i, output_size=(1, 2, 7, 6)),
    )


def test_transposed_convolution_of_a_given_size():
    check("ConvTranspose2d", (2, 3, 3), {"stride": 2, "padding": 1}, normal(1, 2, 4, 4),
          call=lambda m, _, x: m(x, output_size=(8, 7)))  # fmt: skip


# -- recurrent layers

RECURRENT = [
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2, "bidirectional": True, "bias": False}),
    ("LSTM", {"num_layers": 2}),
    ("LSTM", {"bidirectional": True, "batch_first": True, "proj_size": 2}),
    ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
]


@pytest.mark.parametrize(("name", "kwargs"), RECURRENT)
def test_recurrent_layers(name, kwargs):
    check(name, (3, 4), kwargs, normal(5, 2, 3))
    check(name, (3, 4), kwargs, normal(5, 3))
    layers, batch = (
        kwargs.get("num_layers", 1) * (2 if kwargs.get("bidirectional") else 1),
        5 if kwargs.get("batch_first") else 2,
    )
    h = normal(layers, batch, kwargs.get("proj_size", 4))
    if name == "LSTM":
        check(
            name, (3, 4), kwargs, normal(5, 2, 3), h, normal(layers, batch, 4), call=lambda m, _, x, h, c: m(x, (h, c))
        )
    else:
        check(name, (3, 4), kwargs, normal(5, 2, 3), h)


@pytest.mark.parametrize(("name", "kwargs"), RECURRENT)
def test_packed_sequences(name, kwargs):
    lengths = [2, 5, 3]
    kwargs = {**kwargs, "batch_first": True}

    def call(module, convert, x):
        package = td.nn.utils.rnn if convert is td.tensor else torch.nn.utils.rnn
        packed = package.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = module(packed)
        padded, sizes = package.pad_packed_sequence(out, batch_first=True, padding_value=1.0, total_length=6)
        assert sizes.tolist() == lengths
        return padded, last

    check(name, (3, 4), kwargs, normal(3, 5, 3), call=call)


def test_cells():
    for name in ("RNNCell", "LSTMCell", "GRUCell"):
        check(name, (3, 4), {}, normal(2, 3))
    check("GRUCell", (3, 4), {"bias": False}, normal(2, 3), normal(2, 4))
    check("LSTMCell", (3, 4), {}, normal(2, 3), normal(2, 4), normal(2, 4), call=lambda m, _, x, h, c: m(x, (h, c)))


# -- attention


def causal(convert, n):
    return convert(np.triu(np.ones((n, n), dtype=bool), 1))


@pytest.mark.parametrize("need_weights", [True, False])
def test_attention(need_weights):
    def call(module, convert, q, k, v):
        return module(q, k, v, need_weights=need_weights)

    check("MultiheadAttention", (8, 2), {}, normal(3, 2, 8), normal(5, 2, 8), normal(5, 2, 8), call=call)
    check(
        "MultiheadAttention",
        (8, 2),
        {"kdim": 4, "vdim": 6, "bias": False},
        normal(3, 2, 8),
        normal(5, 2, 4),
        normal(5, 2, 6),
        call=call,
    )
    check(
        "MultiheadAttention",
        (8, 2),
        {"add_bias_kv": True, "add_zero_attn": True},
        normal(3, 2, 8),
        normal(5, 2, 8),
        normal(5, 2, 8),
        call=call,
    )

    def masked(module, convert, x):
        padding = convert(np.array([[False] * 4, [False, False, True, True]]))
        return module(x, x, x, key_padding_mask=padding, attn_mask=causal(convert, 4), need_weights=need_weights,
                      average_attn_weights=False)  # fmt: skip

    check("MultiheadAttention", (8, 2), {"batch_first": True}, normal(2, 4, 8), call=masked)
    check("MultiheadAttention", (8, 2), {}, normal(4, 8), call=lambda m, _, x: m(x, x, x, need_weights=need_weights))
    per_head = normal(4, 4, 4)
    check("MultiheadAttention", (8, 2), {"batch_first": True}, normal(2, 4, 8),
          call=lambda m, c, x: m(x, x, x, attn_mask=c(per_head), need_weights=need_weights))  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_transformer():
    kwargs = {
        "d_model": 8,
        "nhead": 2,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "dim_feedforward": 16,
        "dropout": 0.0,
    }

    def call(module, convert, src, tgt):
        padding = convert(np.array([[False] * 4, [False, False, True, True]]))
        mask = module.generate_square_subsequent_mask(3, dtype=tgt.dtype)
        return module(src, tgt, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding)

    check("Transformer", (), {**kwargs, "batch_first": True}, normal(2, 4, 8), normal(2, 3, 8), call=call)
    check("Transformer", (), {**kwargs, "norm_first": True}, normal(4, 2, 8), normal(3, 2, 8), call=call)


# -- losses

X, Y = normal(4, 5), normal(4, 5)
SIGNS = np.where(normal(4) > 0, 1, -1)
LOSSES = [
    ("L1Loss", {}, (X, Y)),
    ("MSELoss", {"reduction": "sum"}, (X, Y)),
    ("SmoothL1Loss", {"beta": 0.5}, (X, Y)),
    ("HuberLoss", {"delta": 0.5}, (X, Y)),
    ("CrossEntropyLoss", {"label_smoothing": 0.1, "ignore_index": 2}, (X, np.array([0, 2, 4, 1]))),
    ("CrossEntropyLoss", {}, (X, np.exp(Y) / np.exp(Y).sum(1, keepdims=True))),
    ("NLLLoss", {"reduction": "none"}, (X, np.array([0, 2, 4, 1]))),
    ("BCELoss", {}, (1 / (1 + np.exp(-X)), np.abs(np.tanh(Y)))),
    ("BCEWithLogitsLoss", {}, (X, np.abs(np.tanh(Y)))),
    ("KLDivLoss", {"reduction": "batchmean"}, (X, np.abs(Y))),
    ("PoissonNLLLoss", {"full": True}, (X, np.abs(Y) * 3)),
    ("PoissonNLLLoss", {"log_input": False}, (np.abs(X), np.abs(Y))),
    ("GaussianNLLLoss", {"full": True}, (X, Y, np.abs(normal(4, 5)))),
    ("HingeEmbeddingLoss", {}, (normal(4), SIGNS)),
    ("MarginRankingLoss", {"margin": 0.2}, (normal(4), normal(4), SIGNS)),
    ("SoftMarginLoss", {}, (normal(4), SIGNS)),
    ("CosineEmbeddingLoss", {"margin": 0.1}, (X, Y, SIGNS)),
    ("MultiLabelSoftMarginLoss", {}, (X, (Y > 0).astype(np.int64))),
    ("MultiLabelMarginLoss", {}, (X, np.array([[3, 0, -1, 1, 2], [1, -1, 0, 0, 0], [4, 3, 2, 1, 0], [-1, 0, 1, 2, 3]]))),
    ("MultiMarginLoss", {"p": 2}, (X, np.array([0, 2, 4, 1]))),
    ("TripletMarginLoss", {"swap": True}, (X, Y, normal(4, 5))),
    ("TripletMarginWithDistanceLoss", {}, (X, Y, normal(4, 5))),
    ("CosineSimilarity", {}, (X, Y)),
    ("PairwiseDistance", {"p": 3}, (X, Y)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kwargs", "arrays"), LOSSES, ids=[f"{case[0]}-{i}" for i, case in enumerate(LOSSES)])
def test_losses(name, kwargs, arrays):
    check(name, (), kwargs, *arrays)


def test_weighted_losses():
    w = np.abs(normal(5))
    for name, target in (("CrossEntropyLoss", np.array([0, 2, 4, 1])), ("NLLLoss", np.array([0, 2, 4, 1])),
                         ("MultiMarginLoss", np.array([0, 2, 4, 1])), ("BCEWithLogitsLoss", np.abs(np.tanh(Y)))):  # fmt: skip
        same(getattr(td.nn, name)(weight=td.tensor(w)), getattr(torch.nn, name)(weight=torch.tensor(w)), X, target)
    same(
        td.nn.BCEWithLogitsLoss(pos_weight=td.tensor(w)),
        torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(w)),
        X,
        np.abs(np.tanh(Y)),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc(reduction):
    targets = np.array([[1, 2, 2, 3], [4, 1, 0, 0], [3, 3, 3, 3]])
    lengths, target_lengths = [7, 6, 7], [4, 2, 3]

    def call(module, convert, x):
        log_probs = (td if convert is td.tensor else torch).log_softmax(x, -1)
        return module(log_probs, convert(targets), convert(lengths), convert(target_lengths))

    def after_each_other(module, convert, x):
        log_probs = (td if convert is td.tensor else torch).log_softmax(x, -1)
        joined = np.concatenate([t[:n] for t, n in zip(targets, target_lengths, strict=True)])
        return module(log_probs, convert(joined), convert(lengths), convert(target_lengths))

    for way in (call, after_each_other):
        check("CTCLoss", (), {"reduction": reduction}, normal(7, 3, 5), call=way, rtol=1e-6)


def test_ctc_of_an_impossible_target():
    def call(module, convert, x):
        log_probs = (td if convert is td.tensor else torch).log_softmax(x, -1)
        return module(log_probs, convert([[1, 1, 1]]), convert([3]), convert([3]))

    check("CTCLoss", (), {"zero_infinity": True}, normal(3, 1, 4), call=call)
    assert np.isinf(call(td.nn.CTCLoss(), td.tensor, td.tensor(normal(3, 1, 4))).item())


# -- utils


def test_weight_norm():
    for dim in (0, 1, None):
        ours, theirs = load(
            td.nn.utils.parametrizations.weight_norm(td.nn.Linear(3, 4).double(), dim=dim),
            torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4).double(), dim=dim),
        )
        same(ours, theirs, normal(2, 3))


def test_spectral_norm():
    for ours, theirs in (
        (td.nn.Linear(3, 4), torch.nn.Linear(3, 4)),
        (td.nn.ConvTranspose2d(2, 3, 2), torch.nn.ConvTranspose2d(2, 3, 2)),
    ):
        ours, theirs = load(
            td.nn.utils.parametrizations.spectral_norm(ours.double()),
            torch.nn.utils.parametrizations.spectral_norm(theirs.double()),
        )
        same(ours, theirs, normal(2, 3) if "Linear" in type(ours).__name__ else normal(1, 2, 3, 3))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_clipping_by_norm(p):
    arrays = [normal(3, 4), normal(5)]
    ours, theirs = (
        [td.nn.Parameter(td.tensor(a)) for a in arrays],
        [torch.nn.Parameter(torch.tensor(a)) for a in arrays],
    )
    for a, b, g in zip(ours, theirs, (normal(3, 4), normal(5)), strict=True):
        a.grad, b.grad = td.tensor(g), torch.tensor(g)
    norm = td.nn.utils.clip_grad_norm_(ours, 0.7, p)
    np.testing.assert_allclose(norm.item(), torch.nn.utils.clip_grad_norm_(theirs, 0.7, p).item(), rtol=1e-6)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-6)


def test_initial_values_have_pytorchs_spread():
    td.manual_seed(0)
    torch.manual_seed(0)
    for make in (
        lambda nn: nn.Linear(200, 100),
        lambda nn: nn.Conv2d(20, 50, 3),
        lambda nn: nn.LSTM(50, 60),
        lambda nn: nn.Embedding(99, 50),
        lambda nn: nn.MultiheadAttention(64, 4),
        lambda nn: nn.Bilinear(20, 20, 20),
    ):
        for (name, p), (_, q) in zip(make(td.nn).named_parameters(), make(torch.nn).named_parameters(), strict=True):
            a, b = p.detach().numpy(), q.detach().numpy()
            np.testing.assert_allclose(np.abs(a).max(), np.abs(b).max(), rtol=0.25, atol=1e-9, err_msg=name)
            np.testing.assert_allclose(a.std(), b.std(), rtol=0.1 if a.ndim > 1 else 0.4, atol=1e-9, err_msg=name)
