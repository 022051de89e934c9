"""Transformers: masks, orders of normalisation, batches in front or behind."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


def layers(**settings):
    td.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **settings), 2).eval()


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_causal_mask_hides_what_comes_later(norm_first):
    model = layers(batch_first=True, norm_first=norm_first)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    x = td.randn(3, 5, 8)
    y = x.clone()
    y[:, 3:] = 0.0
    a, b = model(x, mask=mask), model(y, mask=mask)
    np.testing.assert_allclose(a[:, :3].detach().numpy(), b[:, :3].detach().numpy(), atol=1e-6)
    assert np.abs((a - b)[:, 3:].detach().numpy()).max() > 1e-3


def test_padded_positions_are_not_looked_at():
    model = layers(batch_first=True)
    x = td.randn(1, 4, 8)
    y = x.clone()
    y[:, 3] = 7.0
    padding = td.tensor([[False, False, False, True]])
    a, b = (model(t, src_key_padding_mask=padding)[:, :3].detach().numpy() for t in (x, y))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_batch_may_be_the_first_axis_or_the_second():
    x = td.randn(2, 5, 8)
    first, second = layers(batch_first=True)(x), layers()(x.transpose(0, 1)).transpose(0, 1)
    np.testing.assert_allclose(first.detach().numpy(), second.detach().numpy(), atol=1e-6)


def test_an_encoder_and_a_decoder_learn_to_copy():
    td.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    source = td.randn(4, 3, 8)
    optimizer = td.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = ((model(source, source) - source) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_a_causal_hint_takes_the_place_of_its_mask():
    td.manual_seed(0)
    attend, x = td.nn.MultiheadAttention(8, 2, batch_first=True), td.randn(2, 5, 8)
    mask = td.nn.Transformer.generate_square_subsequent_mask(5)
    expected = attend(x, x, x, attn_mask=mask, need_weights=False)[0]
    hinted = attend(x, x, x, attn_mask=mask, need_weights=False, is_causal=True)[0]
    td.testing.assert_close(hinted, expected)
    padding = td.tensor([[False] * 5, [False] * 4 + [True]])
    both = attend(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=True)[0]
    td.testing.assert_close(both[0], expected[0])
