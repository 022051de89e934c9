import numpy as np
import pytest

from tests.library.layouts import FLOATS, TOLERANCE, assert_near, garbage, random, run


def reference(q, k, v, causal, mask, scale):
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(total > 0, e / total, 0)
        lse = (np.log(total) + np.where(np.isinf(top), 0, top))[..., 0]
    return p @ v, lse, p


def backward(g, q, k, v, p, out, scale):
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (g * out).sum(-1, keepdims=True)) * scale
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g


SIZES = [(1, 1, 1, 1, 1), (2, 3, 7, 7, 8), (1, 2, 100, 300, 16), (1, 1, 600, 270, 64), (3, 2, 50, 50, 20)]
SIZES += [(1, 2, 0, 5, 4), (1, 2, 5, 0, 4)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", ["", "bool", "float"])
def test_attention_and_its_gradient(dtype, size, causal, masked):
    batch, heads, queries, keys, depth = size
    rng = np.random.default_rng(0)
    # (B, T, H, D) in memory, as projections leave it
    q, k, v = (random(rng, (batch, n, heads, depth), dtype).transpose(0, 2, 1, 3) for n in (queries, keys, keys))
    shape = (batch, heads, queries, keys)
    mask = None
    if masked == "bool":
        mask = np.broadcast_to(rng.random((batch, 1, queries, keys)) > 0.3, shape)
        mask = mask & (np.arange(queries) != 3)[:, None]  # a row that sees nothing
    elif masked == "float":
        mask = np.broadcast_to(random(rng, (1, heads, 1, keys), dtype), shape)
    scale = depth**-0.5
    wide = [x.astype("float64") for x in (q, k, v)]
    wide_mask = mask.astype("float64") if masked == "float" else mask
    out, lse, p = reference(*wide, causal, wide_mask, scale)

    ints, extra = [causal, int(mask is not None)], [] if mask is None else [mask]
    lse_type = "float64" if dtype == np.dtype("float64") else "float32"
    outputs = [garbage((batch, queries, heads, depth), dtype).transpose(0, 2, 1, 3), (lse.shape, lse_type)]
    got, got_lse = run("attention", [q, k, v, *extra], outputs, ints, [scale])
    assert_near(out, got, scale=3)
    finite = np.isfinite(lse)
    np.testing.assert_array_equal(np.isfinite(got_lse), finite)
    np.testing.assert_allclose(got_lse[finite], lse[finite], rtol=1e-4 if lse_type == "float32" else 1e-12, atol=1e-4)

    g = random(rng, out.shape, dtype)
    expected = backward(g.astype("float64"), *wide, p, out, scale)
    results = run(
        "attention_backward", [g, q, k, v, got, got_lse, *extra], [(x.shape, dtype) for x in (q, k, v)], ints, [scale]
    )
    slack = 32 if dtype.itemsize == 2 else 8
    for e, r in zip(expected, results):
        tolerance = TOLERANCE[dtype.name] * slack * max(1.0, np.abs(e).max(initial=0))
        np.testing.assert_allclose(r.astype("float64"), e, atol=tolerance)


def test_attention_does_not_depend_on_threads():
    from tandem import _runtime

    rng = np.random.default_rng(0)
    q, k, v, g = (random(rng, (1, 3, 300, 32), "float32") for _ in range(4))
    before, results = _runtime.num_threads(), []
    try:
        for n in (1, 2, 4):
            _runtime.set_num_threads(n)
            out, lse = run("attention", [q, k, v], [(q.shape, "float32"), (q.shape[:3], "float32")], [1, 0], [0.2])
            grads = run("attention_backward", [g, q, k, v, out, lse], [(q.shape, "float32")] * 3, [1, 0], [0.2])
            results.append([out, lse, *grads])
    finally:
        _runtime.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a, b)
