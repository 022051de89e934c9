"""Attention within rows of different lengths."""

import numpy as np
import pytest

import tandem as td
from tandem.ops.ragged_attention import ragged_attention
from tests.check import check_op
from tests.ops.test_edges import beside


@pytest.mark.parametrize("causal", [False, True])
def test_ragged_attention(causal):
    start_q, start_k = td.tensor([0, 3, 3, 7]), td.tensor([0, 2, 4, 9])
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((7, 2, 4), (9, 2, 4), (9, 2, 3)))

    def reference(q, k, v):
        out = np.zeros((7, 2, 3), np.float32)
        for a, b, c, d in ((0, 3, 0, 2), (3, 7, 4, 9)):
            scores = np.einsum("thd,shd->hts", q[a:b], k[c:d]) / 2
            if causal:
                scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
            raised = np.exp(scores - scores.max(-1, keepdims=True))
            out[a:b] = np.einsum("hts,she->the", raised / raised.sum(-1, keepdims=True), v[c:d])
        return out

    check_op(
        lambda q, k, v: ragged_attention(q, k, v, *beside(q, [start_q, start_k]), causal, None),
        reference,
        inputs=[(q, k, v)],
        names=["ragged_attention"],
        transforms=False,
        rtol=1e-4,
        atol=1e-5,
    )


def test_starts_are_checked():
    with pytest.raises(ValueError, match="starts of sequences go from 0 to 2, but there are 3 rows"):
        x = td.ones(3, 1, 2)
        ragged_attention(x, x, x, td.tensor([0, 2]), td.tensor([0, 3]), False, None)
