# ruff: noqa: F821  (annotations of operator functions say how the dispatcher treats arguments)
"""What attention with shared heads becomes on targets that have no kernel for it."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tandem.ops.define import op
from tandem.ops.flex_attention import FlexAttention, FlexAttentionBackward


@op(hidden=True)
def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None):
    rest = () if mask is None else (mask,)
    return FlexAttention(None, None, None, None, False, bool(rest), False, 0.5, ()).composed(q, k, v, *rest)


@op(hidden=True)
def gradients(g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, mask: Tensor | None = None):
    rest = () if mask is None else (mask,)
    backward = FlexAttentionBackward(None, None, None, None, False, bool(rest), False, 0.5, ())
    return backward.composed(g, q, k, v, out, sums, *rest)


@pytest.mark.parametrize("queries, masked", [(1, True), (1, False), (5, False), (3, True)])
def test_heads_that_share_keys_are_rows_of_one(queries, masked):
    q, k, v = td.randn(2, 6, queries, 8), td.randn(2, 3, 7, 8), td.randn(2, 3, 7, 8)
    mask = [(td.rand(2, 1, queries, 7) > 0.3) | (td.arange(7) == 0)] if masked else []

    def whole(q, k, v):
        keys, values = (x.repeat_interleave(2, 1) for x in (k, v))
        return td.scaled_dot_product_attention(q, keys, values, *mask, scale=0.5)

    expected, vjp = td.vjp(whole, q, k, v)
    out, sums = attend(q, k, v, *mask)
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    g = td.randn(*q.shape)
    for found, want in zip(gradients(g, q, k, v, out, sums, *mask), vjp(g), strict=True):
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    program = str(td.compile(attend).graph(q, k, v, *mask))
    assert (f",3,{2 * queries},8]" in program) == (not masked or queries == 1)
