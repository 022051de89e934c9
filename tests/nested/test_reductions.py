"""Reductions of nested tensors, and arguments that must not be overlooked: every result is that of the tensors one by one."""

import numpy as np
import pytest

import tandem as td
from tandem.nn import functional as F

from .test_tensor import nested, parts, same

ALONG_ROWS = {
    "var": lambda x: x.var(-1), "std": lambda x: x.std(dim=-1, unbiased=False), "argmax": lambda x: x.argmax(-1),
    "amin": lambda x: x.amin(-1), "prod": lambda x: x.prod(-1), "any": lambda x: (x > 1).any(-1), "norm": lambda x: x.norm(dim=-1),
    "all": lambda x: (x > -1).all(-1), "logsumexp": lambda x: x.logsumexp(-1), "cumsum": lambda x: x.cumsum(-1),
    "max": lambda x: x.max(-1).values, "where it is": lambda x: x.min(-1).indices, "kept": lambda x: x.sum(-1, keepdim=True),
    "normalize": lambda x: F.normalize(x, dim=-1), "cosine": lambda x: F.cosine_similarity(x, x * x + 1, dim=-1),
    "unsqueeze": lambda x: x.unsqueeze(-1), "squeeze": lambda x: x.unsqueeze(-1).squeeze(-1),
    "double": lambda x: x.softmax(-1, dtype=td.float64),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONG_ROWS)
def test_along_an_axis_of_rows(name):
    same(ALONG_ROWS[name](nested(4)), [ALONG_ROWS[name](p) for p in parts(4)])


ALONG_TENSORS = {
    "sum": lambda x, d: x.sum(d), "mean": lambda x, d: x.mean(d), "amax": lambda x, d: x.amax(d), "amin": lambda x, d: x.amin(d),
    "any": lambda x, d: (x > 1).any(d), "all": lambda x, d: (x > -1).all(d), "count": lambda x, d: (x > 0).sum(d),
    "max": lambda x, d: x.max(d).values, "where": lambda x, d: x.max(d).indices, "where else": lambda x, d: x.min(d).indices,
    "double": lambda x, d: x.sum(d, dtype=td.float64), "kept": lambda x, d: x.sum(d, keepdim=True),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONG_TENSORS)
def test_along_the_ragged_axis(name):
    made = ALONG_TENSORS[name](nested(4), 1)
    expected = td.stack([ALONG_TENSORS[name](p, 0) for p in parts(4)])
    assert made.dtype is expected.dtype and made.shape == expected.shape
    np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_softmax_and_log_softmax_of_another_type_along_the_ragged_axis():
    for function in (td.softmax, td.log_softmax):
        made = function(nested(4), 1, dtype=td.float64)
        assert made.dtype is td.float64
        same(made, [function(p, 0, dtype=td.float64) for p in parts(4)])


def test_of_all_elements():
    x, whole = nested(4), td.cat(parts(4))
    for function in (td.sum, td.mean, td.amax, td.amin, td.var, td.std, td.norm):
        np.testing.assert_allclose(function(x).item(), function(whole).item(), rtol=1e-5)
    assert x.sum(dtype=td.float64).dtype is td.float64 and (x > 0).any() and not (x > 0).all()


def test_writes_in_place():
    x, y = nested(4), nested(4, seed=1)
    x += y
    x.mul_(2.0)
    same(x, [(a + b) * 2 for a, b in zip(parts(4), parts(4, seed=1), strict=True)])
    same(x.masked_fill_(x > 0, 0.0).relu_(), [p * 0 for p in parts(4)])


def test_batches_are_joined():
    same(td.cat([nested(4), nested(4, seed=1)]), [*parts(4), *parts(4, seed=1)])


def test_what_does_not_broadcast_is_refused_whatever_the_sizes_of_values_allow():
    x = td.nested.nested_tensor([td.ones(2, 4), td.ones(2, 4)])  # 4 rows of 4
    with pytest.raises(td.ShapeError, match="3 and 2 axes do not go together"):
        x + td.nested.nested_tensor([td.ones(2), td.ones(2)])
    with pytest.raises(td.ShapeError, match=r"\(3, 1, 4\) meets a nested one"):
        x + td.ones(3, 1, 4)
    with pytest.raises(td.ShapeError, match="do not broadcast"):
        x + td.ones(2, 2, 1, 4)


def test_divergence_is_divided_by_the_number_of_tensors():
    x, y = nested(4).log_softmax(-1), nested(4, seed=1).softmax(-1)
    rows = zip(x.unbind(), y.unbind(), strict=True)
    expected = sum(F.kl_div(a, b, reduction="sum").item() for a, b in rows) / 3
    np.testing.assert_allclose(F.kl_div(x, y, reduction="batchmean").item(), expected, rtol=1e-5)


def test_weights_of_a_loss_meet_rows_as_operands_do():
    x, y, w = nested(4), nested(4, seed=1), td.rand(3, 1, 4)
    made = F.binary_cross_entropy_with_logits(x, (y > 0).float(), weight=w, reduction="none")
    rows = zip(parts(4), parts(4, seed=1), w, strict=True)
    same(made, [F.binary_cross_entropy_with_logits(a, (b > 0).float(), weight=c, reduction="none") for a, b, c in rows])


def test_targets_of_classes_are_nested():
    with pytest.raises(td.ShapeError, match="there must be a target for every row"):
        F.cross_entropy(nested(4), td.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0]))


@pytest.mark.parametrize("attention", [False, True])
def test_compiled_functions_notice_different_lengths(attention):
    def fn(x, y):
        if attention:
            x, y = (t.unflatten(-1, (2, 2)).transpose(1, 2) for t in (x, y))
            return td.scaled_dot_product_attention(x, x, y).sum(2)
        return (x + y).sum(1)

    compiled = td.compile(fn)
    make = lambda *lengths: td.nested.nested_tensor(parts(4, lengths=lengths))
    compiled(make(2, 3), make(2, 3))
    with pytest.raises(td.ValueRangeError, match="nested tensors of different lengths do not go together"):
        compiled(make(2, 3), make(3, 2))


@pytest.mark.parametrize("kind", [td.nn.LSTM, td.nn.GRU, td.nn.RNN])
def test_recurrent_layers(kind):
    td.manual_seed(0)
    layer = kind(4, 3, num_layers=2, bidirectional=True)
    out, states = layer(nested(4))
    expected = [layer(p) for p in parts(4)]
    same(out, [one for one, _ in expected])
    last = states[0] if kind is td.nn.LSTM else states
    firsts = [s[0] if kind is td.nn.LSTM else s for _, s in expected]
    np.testing.assert_allclose(last.detach().numpy(), td.stack(firsts, 1).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_attention_with_masks_and_dropout_of_weights():
    td.manual_seed(0)
    layer = td.nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.5)
    x = nested(4)
    mask = td.rand(5, 5) < 0.3
    mask.fill_diagonal_(False)
    layer.eval()
    made, _ = layer(x, x, x, attn_mask=mask)
    ones = [layer(p[None], p[None], p[None], attn_mask=mask[: len(p), : len(p)])[0][0] for p in parts(4)]
    same(made, ones)
    layer.train()
    made, _ = layer(x, x, x, is_causal=True)
    assert made.shape == x.shape and not td.equal(made.values(), layer(x, x, x, is_causal=True)[0].values()).all()
    td.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)(x).sum().backward()
