"""Gradients of attention that are written where the product that made queries, keys and values wants them."""

import numpy as np
import pytest

import tandem as td


def layer(x, w, heads, causal):
    b, t, _ = x.shape
    q, k, v = (x @ w).reshape(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    return td.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(b, t, -1)


def routines(fn) -> list[str]:
    return [getattr(s, "routine", "") for s in fn.graph().schedule.steps]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("t", [1, 5, 17, 300])
@pytest.mark.parametrize("dtype", [td.float32, td.float64, td.bfloat16])
def test_one_matrix_of_gradients(t, causal, dtype):
    rng = np.random.default_rng(0)
    x = td.asarray(rng.normal(size=(2, t, 24)), dtype=dtype)
    w = td.asarray(rng.normal(size=(24, 72)) * 0.3, dtype=dtype).requires_grad_()

    def step(x):
        layer(x, w, 3, causal).square().sum().backward()
        made, w.grad = w.grad, None
        return made

    fn = td.compile(step)
    actual, expected = fn(x), step(x)
    assert "attention_backward_packed" in routines(fn) and "concat" not in routines(fn)
    assert "attention_backward" not in routines(fn)
    tolerance = 1e-5 if dtype is not td.bfloat16 else 5e-2
    a, e = (v.to(td.float64).numpy() for v in (actual, expected))
    assert np.linalg.norm(a - e) <= tolerance * np.linalg.norm(e)


def test_parts_that_do_not_belong_together_stay_apart():
    """In another order, or of different lengths."""
    w = td.rand(8, 24, requires_grad=True)

    def turned(x):
        k, q, v = (x @ w).reshape(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        td.scaled_dot_product_attention(q, k, v).sum().backward()
        made, w.grad = w.grad, None
        return made

    def longer(x):
        k, v, q = (x @ w).reshape(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        td.scaled_dot_product_attention(q[:, :, :2], k, v).sum().backward()
        made, w.grad = w.grad, None
        return made

    for step in (turned, longer):
        fn, x = td.compile(step), td.rand(2, 6, 8)
        np.testing.assert_allclose(fn(x).numpy(), step(x).numpy(), rtol=1e-5, atol=1e-6)
        assert "attention_backward_packed" not in routines(fn)
