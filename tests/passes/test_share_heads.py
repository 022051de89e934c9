"""share_heads: keys and values that were repeated for grouped queries are read where they lie."""

import pytest

import tandem as td

F = td.nn.functional


def by_interleaving(x, n):
    return x.repeat_interleave(n, dim=1)


def by_expanding(x, n):
    b, g, s, d = x.shape
    return x[:, :, None].expand(b, g, n, s, d).reshape(b, g * n, s, d)


def step(repeat, causal):
    def fn(q, k, v):
        out = F.scaled_dot_product_attention(q, repeat(k, 4), repeat(v, 4), is_causal=causal)
        out.square().sum().backward()
        return q.grad, k.grad, v.grad

    return fn


def leaves():
    td.manual_seed(0)
    return [td.randn(2, heads, 20, 8, dtype=td.float64, requires_grad=True) for heads in (8, 2, 2)]


@pytest.mark.parametrize("repeat", [by_interleaving, by_expanding])
@pytest.mark.parametrize("causal", [False, True])
def test_repeated_heads_are_shared_in_training(repeat, causal, capsys):
    expected = step(repeat, causal)(*leaves())
    with td.switches(PRINT="share_heads"):
        found = td.compile(step(repeat, causal))(*leaves())
        [g.numpy() for g in found]
    printed = capsys.readouterr().out
    assert "flex_attention[" in printed and "flex_attention_backward[" in printed
    for a, b in zip(expected, found, strict=True):
        td.testing.assert_close(a, b)


def test_gradients_that_others_read_stay_apart():
    def fn(q, k, v):
        repeated = by_interleaving(k, 4)
        repeated.retain_grad()
        F.scaled_dot_product_attention(q, repeated, by_interleaving(v, 4)).sum().backward()
        return repeated.grad, k.grad

    for a, b in zip(fn(*leaves()), td.compile(fn)(*leaves()), strict=True):
        td.testing.assert_close(a, b)
