import numpy as np
import pytest
import scipy.special as ss

import tandem as td
from tests.check import CHECKED, assert_close, check_gradients, check_op

RNG = np.random.default_rng(19)


def attention(q, k, v, mask=None, causal=False, scale=None):
    scores = np.einsum("...td,...sd->...ts", q, k) * (scale or 1 / np.sqrt(q.shape[-1]))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return ss.softmax(scores, -1) @ v


def operands(*lead, t=3, s=4, d=2, e=3):
    return tuple(RNG.normal(size=(*lead, *shape)).astype(np.float32) for shape in ((t, d), (s, d), (s, e)))


@pytest.mark.parametrize("lead", [(2, 2), (), (3,), (1, 2, 2)])
def test_attention(lead):
    check_op(
        td.scaled_dot_product_attention,
        attention,
        inputs=[operands(*lead)],
        rtol=1e-4,
        atol=1e-5,
        second=len(lead) == 2,
    )


def test_causal_and_scale():
    check_op(td.scaled_dot_product_attention, lambda q, k, v: attention(q, k, v, causal=True, scale=0.3), inputs=[operands(1, 2)],
             kwargs={"is_causal": True, "scale": 0.3}, rtol=1e-4, atol=1e-5)  # fmt: skip


def test_masks():
    q, k, v = operands(2, 1)
    allowed = RNG.random((2, 1, 3, 4)) < 0.6
    allowed[..., 0] = True
    check_op(td.scaled_dot_product_attention, attention, inputs=[(q, k, v, allowed)], rtol=1e-4, atol=1e-5)
    check_op(
        td.scaled_dot_product_attention,
        attention,
        inputs=[(q, k, v, RNG.normal(size=(3, 4)).astype(np.float32))],
        rtol=1e-4,
        atol=1e-5,
    )


def test_row_without_keys():
    q, k, v = (td.tensor(a.astype(np.float64), requires_grad=True) for a in operands(1, 1))
    mask = td.tensor(np.array([[True] * 4, [False] * 4, [True] * 4]))
    y = td.scaled_dot_product_attention(q, k, v, mask)
    assert_close(y[0, 0, 1], np.zeros(3))
    y.sum().backward()
    assert np.isfinite(q.grad.numpy()).all() and (q.grad.numpy()[0, 0, 1] == 0).all()
    check_gradients(
        lambda q, k, v: td.scaled_dot_product_attention(q, k, v, mask),
        tuple(a.astype(np.float64) for a in operands(1, 1)),
    )


def test_grouped_heads():
    q, k, v = operands(1, 4)
    few = k[:, :2], v[:, :2]
    y = td.scaled_dot_product_attention(td.tensor(q), *(td.tensor(a) for a in few), enable_gqa=True)
    assert_close(y, attention(q, *(np.repeat(a, 2, 1) for a in few)), rtol=1e-4, atol=1e-5)


def test_dropout():
    q, k, v = (td.tensor(a) for a in operands(2, 2))
    y = td.scaled_dot_product_attention(q, k, v, dropout_p=0.5, generator=td.Generator(1))
    again = td.scaled_dot_product_attention(q, k, v, dropout_p=0.5, generator=td.Generator(1))
    assert_close(y, again.numpy())
    assert (y.numpy() != td.scaled_dot_product_attention(q, k, v).numpy()).any()


def test_output_has_the_layout_of_the_query():
    heads = [td.randn(2, 5, 3, 4).transpose(1, 2).requires_grad_() for _ in range(3)]
    y = td.scaled_dot_product_attention(*heads)
    assert y.transpose(1, 2).is_contiguous()
    (y * y).sum().backward()
    assert heads[1].grad.transpose(1, 2).is_contiguous()


def test_errors():
    q, k, v = (td.tensor(a) for a in operands(1))
    with pytest.raises(td.ShapeError, match="must be"):
        td.scaled_dot_product_attention(q, v, k)
    with pytest.raises(td.ValueRangeError, match="exclude"):
        td.scaled_dot_product_attention(q, k, v, td.zeros(3, 4), is_causal=True)
    with pytest.raises(td.ShapeError, match="broadcast"):
        td.scaled_dot_product_attention(q, k, v, td.zeros(3, 5))


@pytest.mark.parametrize("t", [1, 4, 6, 13, 50, 100])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (3, 1, 0, 2), (0, 1, 3, 2)])
def test_rows_as_they_lie_in_memory(t, order):
    """Tiles read queries and incoming gradients in place, whatever their strides, and nothing behind their last row."""
    rng = np.random.default_rng(3)
    place = np.argsort(order)

    def lying(*shape):
        x = rng.normal(size=[shape[a] for a in order]).astype(np.float32)
        return td.from_numpy(x).permute(*place.tolist())

    q, k, v, g = (lying(2, 3, n, 20) for n in (t, 40, 40, t))
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = td.scaled_dot_product_attention(*leaves, is_causal=True)
    out.backward(g)
    plain = [td.asarray(x.numpy(), dtype=td.float64, copy=True).requires_grad_() for x in (q, k, v)]
    scores = plain[0] @ plain[1].mT / np.sqrt(20)
    scores = td.where(td.from_numpy(np.tri(t, 40, dtype=bool)), scores, td.tensor(-np.inf, dtype=td.float64))
    expected = td.softmax(scores, -1) @ plain[2]
    expected.backward(g.to(td.float64))
    assert_close(out, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    for have, want in zip(leaves, plain):
        assert_close(have.grad, want.grad.numpy(), rtol=1e-4, atol=1e-5)


CHECKED.add("scaled_dot_product_attention")


@pytest.mark.parametrize("dtype", [td.float32, td.float64])
@pytest.mark.parametrize("queries, groups", [(1, 1), (1, 4), (3, 2), (8, 1), (9, 1)])
def test_a_few_queries_are_as_many(dtype, queries, groups):
    """Few of them read keys and values where they lie; the formula says what they give."""
    td.manual_seed(0)
    q = td.randn(2, 2 * groups, queries, 20, dtype=dtype)
    stored = td.randn(2, 2, 37, 2, 20, dtype=dtype)  # a cache: keys and values of a head are not neighbours
    k, v = stored[0].permute(0, 2, 1, 3), stored[1].permute(0, 2, 1, 3)
    seen = td.rand(2, 1, queries, 37) > 0.4
    seen[0, 0, 0] = False
    for mask in (None, seen, td.randn(2, 2 * groups, queries, 37, dtype=dtype), seen[:1, :, :1]):
        got = td.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        wide_k, wide_v = (x.repeat_interleave(groups, 1) for x in (k, v))
        scores = q @ wide_k.transpose(2, 3) / 20**0.5
        if mask is not None:
            scores = td.where(mask, scores, -float("inf")) if mask.dtype is td.bool else scores + mask
        weights = td.nan_to_num(scores.softmax(-1), 0.0)
        np.testing.assert_allclose(got.numpy(), (weights @ wide_v).numpy(), rtol=2e-5, atol=2e-5)
