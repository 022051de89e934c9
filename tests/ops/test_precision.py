"""What adds many 16-bit numbers up does so in float32: sums, counts, means, norms and losses, forward and backward."""

import numpy as np
import pytest

import tandem as td

nnf = td.nn.functional
classes = lambda x: td.zeros(x.numel() // 10, dtype=td.int64)
rows = lambda x: x.reshape(2, -1)
zeros = lambda x: td.zeros_like(x)
ones = lambda x: td.ones_like(x)

# Of a vector; results fit into float16 for elements between 0.25 and 1.25.
CASES = {
    "mean": td.mean,
    "var": td.var,
    "std": lambda x: td.std(x, correction=1),
    "var_mean": lambda x: td.var_mean(x)[0],
    "std_mean": lambda x: td.std_mean(x)[1],
    "nanmean": td.nanmean,
    "sum": lambda x: td.sum(x / 256),
    "nansum": lambda x: td.nansum(x / 256),
    "amax": lambda x: td.amax(x - x.detach() + 1),  # all are the largest, and share the gradient
    "logsumexp": lambda x: td.logsumexp(x, -1),
    "logcumsumexp": lambda x: td.logcumsumexp(x / 16, -1),
    "norm_2": td.vector_norm,
    "norm_3": lambda x: td.vector_norm(x, 3),
    "norm_1": lambda x: td.vector_norm(x / 256, 1),
    "norm_inf": lambda x: td.vector_norm(x, float("inf")),
    "normalize": lambda x: td.normalize(x, axis=-1),
    "cosine_similarity": lambda x: td.cosine_similarity(x, ones(x), -1),
    "pairwise_distance": lambda x: td.pairwise_distance(rows(x), zeros(rows(x))),
    "cdist": lambda x: td.cdist(rows(x), zeros(rows(x))),
    "pdist": lambda x: td.pdist(td.stack([x, zeros(x)])),
    "dist": lambda x: td.dist(x, zeros(x)),
    "renorm": lambda x: td.renorm(rows(x), 2, 0, 1.0),
    "softmax": lambda x: td.softmax(x, -1),
    "log_softmax": lambda x: td.log_softmax(x, -1),
    "layer_norm": lambda x: td.layer_norm(x, x.shape),
    "rms_norm": lambda x: td.rms_norm(x, x.shape, eps=1e-5),
    "batch_norm": lambda x: td.batch_norm(x.reshape(-1, 2), training=True),
    "group_norm": lambda x: td.group_norm(x.reshape(1, 2, -1), 1),
    "instance_norm": lambda x: td.instance_norm(x.reshape(1, 2, -1)),
    "mse_loss": lambda x: td.mse_loss(x, zeros(x)),
    "l1_loss": lambda x: td.l1_loss(x, zeros(x)),
    "smooth_l1_loss": lambda x: td.smooth_l1_loss(x, zeros(x)),
    "huber_loss": lambda x: td.huber_loss(x, zeros(x)),
    "weighted_mse_loss": lambda x: td.mse_loss(x, zeros(x), weight=ones(x)),
    "binary_cross_entropy": lambda x: td.binary_cross_entropy(td.clip(x, 0.25, 0.75), zeros(x)),
    "binary_cross_entropy_with_logits": lambda x: td.binary_cross_entropy_with_logits(x, zeros(x)),
    "kl_div": lambda x: td.kl_div(x, ones(x)),
    "cross_entropy": lambda x: td.cross_entropy(x.reshape(-1, 10), classes(x)),
    "cross_entropy_smoothed": lambda x: td.cross_entropy(x.reshape(-1, 10), classes(x), label_smoothing=0.1),
    "cross_entropy_of_many_classes": lambda x: td.cross_entropy(x.reshape(1, -1), td.zeros(1, dtype=td.int64)),
    "nll_loss": lambda x: td.nll_loss(x.reshape(-1, 1), td.zeros(x.numel(), dtype=td.int64)),
    "poisson_nll_loss": lambda x: nnf.poisson_nll_loss(x, zeros(x)),
    "gaussian_nll_loss": lambda x: nnf.gaussian_nll_loss(x, zeros(x), ones(x)),
    "soft_margin_loss": lambda x: nnf.soft_margin_loss(x, ones(x)),
    "hinge_embedding_loss": lambda x: nnf.hinge_embedding_loss(x, ones(x)),
    "margin_ranking_loss": lambda x: nnf.margin_ranking_loss(x, zeros(x), -ones(x)),
    "triplet_margin_loss": lambda x: nnf.triplet_margin_loss(rows(x), zeros(rows(x)), ones(rows(x)) * 0.5),
    "cosine_embedding_loss": lambda x: nnf.cosine_embedding_loss(rows(x), ones(rows(x)), td.ones(2)),
    "multi_margin_loss": lambda x: nnf.multi_margin_loss(x.reshape(-1, 10), classes(x)),
    "multilabel_soft_margin_loss": lambda x: nnf.multilabel_soft_margin_loss(rows(x), zeros(rows(x))),
    "avg_pool": lambda x: td.avg_pool1d(x.reshape(1, 1, -1), x.numel()),
    "adaptive_avg_pool": lambda x: td.adaptive_avg_pool1d(x.reshape(1, 1, -1), 1),
    "embedding_bag": lambda x: nnf.embedding_bag(td.arange(x.numel()).reshape(1, -1), x.reshape(-1, 1)),
    "scatter_add": lambda x: td.zeros(1, dtype=x.dtype).scatter_add(0, classes(x), x[: x.numel() // 10] / 64),
    "index_add": lambda x: td.zeros(1, dtype=x.dtype).index_add(0, classes(x), x[: x.numel() // 10] / 64),
    "scatter_mean": lambda x: td.scatter_reduce(td.zeros(1, dtype=x.dtype), 0, classes(x), x[: x.numel() // 10], "mean"),
    "repeated_rows": lambda x: x[:1][classes(x)] / 64,
    "expanded": lambda x: td.expand(x[:1], x.shape) / 256,
    "trapezoid": lambda x: td.trapezoid(x / 256),
    "cov": lambda x: td.cov(rows(x)),
    "quantile": lambda x: td.quantile(x, 0.25),
    "matmul": lambda x: (x / 256).reshape(1, -1) @ x.reshape(-1, 1),
    "cumsum": lambda x: td.cumsum(x[:5000], 0),
    "cumprod": lambda x: td.cumprod(x[:16], 0),
    "prod": lambda x: td.prod(x[:16]),
}  # fmt: skip
EPSILON = {td.float16: 2.0**-11, td.bfloat16: 2.0**-8}


def _value_and_gradient(f, x, seed):
    x = x.detach().clone().requires_grad_()
    y = f(x)
    g = td.tensor(np.random.default_rng(seed).random(tuple(y.shape)) + 0.5).to(td.bfloat16).to(y.dtype)
    y.backward(g)
    return y.detach(), x.grad


def _distance(got, want):
    """Largest distance, over the largest value: single ones may be differences of others."""
    got, want = (np.asarray(v.to(td.float64).numpy()) for v in (got, want))
    return np.abs(got - want).max() / np.abs(want).max()


def _check(name, dtype, size, compiled=False):
    x = td.tensor(np.random.default_rng(size).random(size) + 0.25).to(dtype)
    f = CASES[name]
    y, g = _value_and_gradient(td.compile(f) if compiled else f, x, size)
    exact_y, exact_g = _value_and_gradient(f, x.to(td.float64), size)
    assert y.dtype is dtype
    assert g.dtype is dtype
    assert _distance(y, exact_y) < 3 * EPSILON[dtype] + _least(dtype, exact_y)
    assert _distance(g, exact_g) < 4 * EPSILON[dtype] + _least(dtype, exact_g)


def _least(dtype, exact):
    """What float16 has nothing smaller than, over the largest value."""
    return 2.0**-24 / np.abs(exact.numpy()).max() if dtype is td.float16 else 0.0


@pytest.mark.parametrize("dtype", [td.float16, td.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_reductions_of_16_bits_are_as_good_as_their_result(name, dtype):
    _check(name, dtype, 70_000)


@pytest.mark.parametrize("name", ["mean", "var", "mse_loss", "softmax", "cross_entropy", "layer_norm", "norm_2"])
def test_compiled_ones_are_too(name):
    _check(name, td.float16, 70_000, compiled=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 3_000, 1_000_000, 10_000_000])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [td.float16, td.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_reductions_of_all_sizes(name, dtype, compiled, size):
    if size > 1_000_000 and name in ("sum", "nansum", "norm_1", "trapezoid", "cumsum", "expanded", "matmul"):
        pytest.skip("the result does not fit into float16")
    _check(name, dtype, size, compiled)


def test_counts_do_not_overflow():
    assert td.ones(70_000, dtype=td.float16).mean().item() == 1.0
    assert td.ones(3_000, dtype=td.bfloat16).mean().item() == 1.0


def test_norms_of_gradients_do_not_overflow():
    p = td.nn.Parameter(td.zeros(2, dtype=td.float16))
    p.grad = td.tensor([30000.0, 40000.0]).to(td.float16)
    assert td.nn.utils.clip_grad_norm_([p], 0.5).item() == pytest.approx(50000, rel=1e-3)
    np.testing.assert_allclose(p.grad.to(td.float32).numpy(), [0.3, 0.4], rtol=1e-3)


def test_autocast_keeps_losses_in_float32():
    x = td.ones(4, dtype=td.bfloat16)
    with td.autocast("cpu", dtype=td.bfloat16):
        assert td.mse_loss(x, x).dtype is td.float32
        assert td.cross_entropy(x.reshape(1, 4), td.zeros(1, dtype=td.int64)).dtype is td.float32


@pytest.mark.parametrize("p", [1, 2, 3])
def test_distances_of_long_rows_are_as_good_as_short_ones(p):
    x = np.random.default_rng(0).random(1_000_000, dtype=np.float32)
    got = td.pdist(td.tensor(np.stack([x, np.zeros_like(x)])), p).item()
    assert got == pytest.approx((x.astype(np.float64) ** p).sum() ** (1 / p), rel=1e-6)


@pytest.mark.parametrize("dtype", [td.bfloat16, td.float16])
def test_a_number_that_meets_16_bits_keeps_its_own_precision(dtype):
    x = (td.arange(1, 200) / 37).to(dtype)
    exact = x.to(td.float64)
    rounded = lambda y: y.to(td.float32).to(dtype).tolist()
    factor = 0.9987  # which is 1 in bfloat16
    assert (x * factor).tolist() == rounded(exact * factor)
    assert (factor * x).tolist() == rounded(exact * factor)
    assert (x / 3.3).tolist() == rounded(exact / 3.3)
    assert x.clone().mul_(factor).tolist() == rounded(exact * factor)
    assert td.addcmul(x, x, x, value=factor).tolist() == rounded(exact + factor * exact * exact)
    assert td.lerp(x, x * 0, 0.3).tolist() == rounded(exact * 0.7)
    assert td.leaky_relu(-x, 0.0333).tolist() == rounded(-exact * 0.0333)
    assert (x * factor).dtype is dtype
    step = td.compile(lambda x: x * factor + 0)
    assert step(x).tolist() == rounded(exact * factor)


def test_factors_of_16_bit_products_are_exact():
    a = td.full((2, 2), 1.0, dtype=td.bfloat16)
    made = td.addmm(a, a, a, beta=2.0315, alpha=3.4445)
    assert made.tolist() == td.full((2, 2), 2.0315 + 3.4445 * 2).to(td.bfloat16).tolist()
