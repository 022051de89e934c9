"""Neural-network functions against PyTorch's."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as T

import tandem as td
import tandem.nn.functional as F
from tests.oracle.compare import compare

pytestmark = pytest.mark.oracle
RNG = np.random.default_rng(29)


def normal(*shape):
    return RNG.normal(size=shape)


ACTIVATIONS = {
    "relu": {}, "relu6": {}, "leaky_relu": {"negative_slope": 0.2}, "elu": {"alpha": 0.7}, "celu": {"alpha": 0.7}, "selu": {},
    "gelu": {"approximate": "tanh"}, "silu": {}, "mish": {}, "softplus": {"beta": 2.0, "threshold": 3.0}, "softsign": {},
    "hardtanh": {"min_val": -0.5, "max_val": 0.7}, "hardsigmoid": {}, "hardswish": {}, "logsigmoid": {}, "tanhshrink": {},
    "softshrink": {"lambd": 0.3}, "hardshrink": {"lambd": 0.3}, "threshold": {"threshold": 0.1, "value": 2.0}, "glu": {"dim": 1},
    "softmax": {"dim": 1}, "log_softmax": {"dim": 0}, "softmin": {"dim": 1}, "normalize": {"p": 3.0, "dim": 0},
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    options = ACTIVATIONS[name]
    compare(lambda x: getattr(F, name)(x, **options), lambda x: getattr(T, name)(x, **options), normal(5, 6) * 3)


def test_gelu_and_prelu():
    compare(F.gelu, T.gelu, normal(5, 6) * 3)
    compare(F.prelu, T.prelu, normal(2, 3, 4), normal(3))


CONVOLUTIONS = [
    ("conv1d", (2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
    ("conv2d", (2, 3, 7, 8), (4, 3, 3, 2), {"padding": "same", "dilation": (1, 2)}),
    ("conv2d", (2, 3, 7, 8), (4, 3, 3, 2), {"padding": "valid"}),
    ("conv2d", (2, 4, 7, 8), (8, 1, 3, 3), {"stride": (2, 1), "padding": (0, 1), "groups": 4}),
    ("conv3d", (1, 2, 5, 6, 4), (3, 2, 2, 3, 3), {"stride": (1, 2, 1), "padding": 1}),
    ("conv_transpose1d", (2, 4, 5), (4, 3, 3), {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2}),
    ("conv_transpose2d", (2, 4, 5, 4), (4, 3, 3, 2), {"stride": (2, 1), "padding": 1, "dilation": (1, 2)}),
    ("conv_transpose3d", (1, 2, 3, 3, 2), (2, 3, 2, 2, 3), {"stride": 2, "output_padding": 1}),
]


@pytest.mark.parametrize(("name", "x", "w", "options"), CONVOLUTIONS)
def test_convolutions(name, x, w, options):
    outputs = w[0] if "transpose" not in name else w[1] * options.get("groups", 1)
    compare(
        lambda *a: getattr(F, name)(*a, **options),
        lambda *a: getattr(T, name)(*a, **options),
        normal(*x),
        normal(*w),
        normal(outputs),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("ceil", [False, True])
def test_pools(spatial, ceil):
    x = normal(2, 3, *(9, 7, 6)[:spatial])
    options = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": ceil}
    dilated = options | {"dilation": 2, "return_indices": True}
    largest, average = f"max_pool{spatial}d", f"avg_pool{spatial}d"
    compare(lambda x: getattr(F, largest)(x, **dilated), lambda x: getattr(T, largest)(x, **dilated), x)
    for include in (False, True):
        o = options | {"count_include_pad": include}
        compare(lambda x, o=o: getattr(F, average)(x, **o), lambda x, o=o: getattr(T, average)(x, **o), x)
    if spatial > 1:
        o = options | {"divisor_override": 7}
        compare(lambda x: getattr(F, average)(x, **o), lambda x: getattr(T, average)(x, **o), x)
    sizes = (4, 5, 2)[:spatial]
    for name in (f"adaptive_avg_pool{spatial}d", f"adaptive_max_pool{spatial}d"):
        compare(lambda x, n=name: getattr(F, n)(x, sizes), lambda x, n=name: getattr(T, n)(x, sizes), x)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction):
    x, t = normal(4, 5), normal(4, 5)
    probability, logits = RNG.uniform(0.05, 0.95, (4, 5)), normal(4, 5)
    o = {"reduction": reduction}
    for name, extra in (
        ("mse_loss", {}),
        ("l1_loss", {}),
        ("smooth_l1_loss", {"beta": 0.4}),
        ("huber_loss", {"delta": 0.4}),
    ):
        compare(
            lambda x, t, n=name, e=extra: getattr(F, n)(x, t, **o, **e),
            lambda x, t, n=name, e=extra: getattr(T, n)(x, t, **o, **e),
            x,
            t,
        )
    target = RNG.uniform(0, 1, (4, 5))
    compare(lambda *a: F.binary_cross_entropy(*a, **o), lambda *a: T.binary_cross_entropy(*a, **o), probability, target)
    w = RNG.uniform(0.5, 2, 5)
    compare(lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w, **o),
            lambda x, t, w: T.binary_cross_entropy_with_logits(x, t, pos_weight=w.detach(), **o), logits, target, w)  # fmt: skip
    log = np.log(probability)
    compare(lambda *a: F.kl_div(*a, **o), lambda *a: T.kl_div(*a, **o), log, target)
    compare(
        lambda *a: F.kl_div(*a, log_target=True, **o), lambda *a: T.kl_div(*a, log_target=True, **o), log, normal(4, 5)
    )
    classes = np.array([1, 4, 2, 0])
    weight = RNG.uniform(0.5, 2, 5)
    for extra in ({}, {"ignore_index": 2}, {"label_smoothing": 0.2}, {"ignore_index": 2, "label_smoothing": 0.2}):
        c = o | extra
        compare(
            lambda x, w, c=c: F.cross_entropy(x, td.tensor(classes), w, **c),
            lambda x, w, c=c: T.cross_entropy(x, torch.tensor(classes), w.detach(), **c),
            x,
            weight,
        )
        compare(
            lambda x, c=c: F.cross_entropy(x, td.tensor(classes), **c),
            lambda x, c=c: T.cross_entropy(x, torch.tensor(classes), **c),
            x,
        )
    compare(
        lambda x, w: F.nll_loss(x, td.tensor(classes), w, **o),
        lambda x, w: T.nll_loss(x, torch.tensor(classes), w.detach(), **o),
        x,
        weight,
    )
    images, labels = normal(2, 5, 3, 2), RNG.integers(0, 5, (2, 3, 2))
    compare(
        lambda x: F.cross_entropy(x, td.tensor(labels), **o),
        lambda x: T.cross_entropy(x, torch.tensor(labels), **o),
        images,
    )
    compare(
        lambda x, p: F.cross_entropy(x, p, label_smoothing=0.1, **o),
        lambda x, p: T.cross_entropy(x, p, label_smoothing=0.1, **o),
        x,
        target,
    )


def test_normalisations():
    x = normal(4, 6, 3, 2)
    w, b = normal(6), normal(6)
    m, v = normal(6), RNG.uniform(0.5, 2, 6)
    compare(
        lambda x, w, b: F.layer_norm(x, (3, 2), w, b),
        lambda x, w, b: T.layer_norm(x, (3, 2), w, b),
        x,
        normal(3, 2),
        normal(3, 2),
    )
    compare(lambda x, w: F.rms_norm(x, (3, 2), w), lambda x, w: T.rms_norm(x, (3, 2), w), x, normal(3, 2))
    compare(lambda x, w, b: F.group_norm(x, 3, w, b), lambda x, w, b: T.group_norm(x, 3, w, b), x, w, b)
    compare(
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: T.instance_norm(x, weight=w, bias=b),
        x,
        w,
        b,
    )
    for training in (True, False):
        ours, theirs = (td.tensor(m), td.tensor(v)), (torch.tensor(m), torch.tensor(v))
        compare(
            lambda x, w, b, ours=ours, t=training: F.batch_norm(x, *ours, w, b, t, 0.3),
            lambda x, w, b, theirs=theirs, t=training: T.batch_norm(x, *theirs, w, b, t, 0.3),
            x,
            w,
            b,
        )
        for a, t in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), t.numpy(), rtol=1e-10)


def test_linear_maps():
    compare(F.linear, T.linear, normal(2, 3, 4), normal(5, 4), normal(5))
    compare(F.bilinear, T.bilinear, normal(2, 3), normal(2, 4), normal(5, 3, 4), normal(5))
    compare(F.cosine_similarity, T.cosine_similarity, normal(3, 4), normal(3, 4))
    compare(F.pairwise_distance, T.pairwise_distance, normal(3, 4), normal(3, 4))
    index = np.array([[1, 2], [0, 1]])
    compare(
        lambda w: F.embedding(td.tensor(index), w, 1), lambda w: T.embedding(torch.tensor(index), w, 1), normal(4, 3)
    )


EINSUM = ["bhqd,bhkd->bhqk", "bhqd,bhkd,de->bqe", "...qd,...kd->...k", "bhqd,bhkd->"]


@pytest.mark.parametrize("equation", EINSUM)
def test_einsum(equation):
    arrays = [normal(2, 3, 4, 5), normal(2, 3, 6, 5), normal(5, 2)][: equation.count(",") + 1]
    compare(lambda *a: td.einsum(equation, *a), lambda *a: torch.einsum(equation, *a), *arrays)


def test_attention():
    q, k, v = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 7)
    compare(F.scaled_dot_product_attention, T.scaled_dot_product_attention, q, k, v)
    compare(lambda *a: F.scaled_dot_product_attention(*a, is_causal=True, scale=0.2),
            lambda *a: T.scaled_dot_product_attention(*a, is_causal=True, scale=0.2), q, k, v)  # fmt: skip
    compare(F.scaled_dot_product_attention, T.scaled_dot_product_attention, q, k, v, normal(5, 6))
    allowed = np.tri(5, 6, 1, dtype=bool)
    compare(F.scaled_dot_product_attention, T.scaled_dot_product_attention, q, k, v, allowed)
    few = normal(2, 1, 6, 4), normal(2, 1, 6, 7)
    compare(
        lambda *a: F.scaled_dot_product_attention(*a, enable_gqa=True),
        lambda *a: T.scaled_dot_product_attention(*a, enable_gqa=True),
        q,
        *few,
    )


def test_cells():
    for name, gates in (("rnn_tanh_cell", 1), ("rnn_relu_cell", 1), ("gru_cell", 3)):
        arrays = (
            normal(2, 4),
            normal(2, 3),
            normal(3 * gates, 4),
            normal(3 * gates, 3),
            normal(3 * gates),
            normal(3 * gates),
        )
        compare(getattr(F, name), getattr(torch, name), *arrays)
    arrays = normal(2, 4), normal(2, 3), normal(2, 3), normal(12, 4), normal(12, 3), normal(12), normal(12)
    compare(lambda x, h, c, *w: F.lstm_cell(x, (h, c), *w), lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w), *arrays)


def test_second_derivatives():
    """Through a network of several functions at once."""
    x, w, v = normal(2, 3, 6, 6), normal(4, 3, 3, 3), normal(5, 16)

    def network(conv2d, batch_norm, gelu, max_pool2d, linear, softmax):
        def run(x, w, v):
            h = max_pool2d(gelu(batch_norm(conv2d(x, w, padding=1), None, None, training=True)), 3)
            return softmax(linear(h.reshape((2, 16)), v), 1)

        return run

    def twice(run, grad):
        def gradients(*inputs):
            first = grad((run(*inputs) ** 2).sum(), inputs, create_graph=True)
            return grad(sum((g * g).sum() for g in first), inputs)

        return gradients

    ours, theirs = (network(m.conv2d, m.batch_norm, m.gelu, m.max_pool2d, m.linear, m.softmax) for m in (F, T))
    a = twice(ours, td.autograd.grad)(*(td.tensor(t, requires_grad=True) for t in (x, w, v)))
    b = twice(theirs, torch.autograd.grad)(*(torch.tensor(t, requires_grad=True) for t in (x, w, v)))
    for g, e in zip(a, b, strict=True):
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=1e-6, atol=1e-9)
