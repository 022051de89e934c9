"""flex_attention: score functions, masks by blocks, grouped queries, gradients; and what attention does with dropout and masks."""

import math

import numpy as np
import pytest

import tandem as td
from tandem.nn.attention.flex_attention import (
    AuxRequest,
    create_block_mask,
    flex_attention,
    noop_mask,
)
from tests.nn.cases import MASKS

F = td.nn.functional


def with_gradients(fn, *tensors):
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = fn(*leaves)
    (out * td.cos(td.arange(out.numel(), dtype=out.dtype)).reshape(out.shape)).sum().backward()
    return [out.detach(), *(t.grad for t in leaves)]


def indices(shape):
    return [td.arange(n).reshape([-1 if i == j else 1 for j in range(4)]) for i, n in enumerate(shape)]


def by_hand(q, k, v, score_mod=None, mask_mod=None):
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeats, 1) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if score_mod is not None:
        scores = score_mod(scores, *indices(scores.shape))
    if mask_mod is not None:
        scores = td.where(mask_mod(*indices(scores.shape)), scores, -math.inf)
    return td.nan_to_num(td.softmax(scores, -1)) @ v


def operands(b=2, h=4, g=2, t=70, s=150, d=8, dtype=td.float64):
    td.manual_seed(0)
    return [td.randn(b, heads, n, d, dtype=dtype) for heads, n in ((h, t), (g, s), (g, s))]


def assert_alike(first, second, tolerance=1e-9):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance)


td.manual_seed(1)


BIAS = td.randn(4, 300, dtype=td.float64)


SCORES = {
    "alibi": lambda s, b, h, i, j: s + (j - i) * 2.0 ** (-(h + 1)),
    "softcap": lambda s, b, h, i, j: 3 * td.tanh(s / 3),
    "captured": lambda s, b, h, i, j: s + BIAS[h, i - j + 150],
    "by batch": lambda s, b, h, i, j: td.where(b == 0, s * 0.5, s - 1.0),
}


@pytest.mark.parametrize("name", SCORES)
def test_score_functions_equal_the_formula(name):
    score = SCORES[name]
    q, k, v = operands()
    own = with_gradients(lambda *x: flex_attention(*x, score_mod=score, enable_gqa=True), q, k, v)
    assert_alike(own, with_gradients(lambda *x: by_hand(*x, score_mod=score), q, k, v))
    compiled = td.compile(lambda *x: flex_attention(*x, score_mod=score, enable_gqa=True))
    assert_alike(own, with_gradients(compiled, q, k, v))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("size", [16, (32, 64), 128])
def test_masks_by_blocks_equal_the_formula(name, size):
    mask = MASKS[name]
    q, k, v = operands(dtype=td.float32)
    blocks = create_block_mask(mask, None, None, 70, 150, BLOCK_SIZE=size)
    score = SCORES["alibi"]
    own = with_gradients(lambda *x: flex_attention(*x, score, blocks, enable_gqa=True), q, k, v)
    assert_alike(own, with_gradients(lambda *x: by_hand(*x, score, mask), q, k, v), 2e-4)


def test_masks_may_differ_by_batch_and_head():
    q, k, v = operands(h=4, g=4)
    mask = lambda b, h, i, j: (j < 50 * (b + 1)) & ((h != 1) | (i >= j))
    blocks = create_block_mask(mask, 2, 4, 70, 150, BLOCK_SIZE=16)
    own = with_gradients(lambda *x: flex_attention(*x, block_mask=blocks), q, k, v)
    assert_alike(own, with_gradients(lambda *x: by_hand(*x, mask_mod=mask), q, k, v))


def test_captured_tensors_take_gradients():
    q, k, v = operands(h=4, g=4)
    own = with_gradients(lambda w, *x: flex_attention(*x, lambda s, b, h, i, j: s + w[h, i - j + 150]), BIAS, q, k, v)
    other = with_gradients(lambda w, *x: by_hand(*x, lambda s, b, h, i, j: s + w[h, i - j + 150]), BIAS, q, k, v)
    assert_alike(own, other)


def test_second_derivatives_are_those_of_the_formula():
    q, k, v = operands(b=1, h=2, g=1, t=3, s=4, d=2)

    def twice(fn):
        x = q.detach().requires_grad_()
        (first,) = td.autograd.grad((fn(x) ** 2).sum(), x, create_graph=True)
        return td.autograd.grad((first**2).sum(), x)

    own = twice(lambda x: flex_attention(x, k, v, SCORES["softcap"], enable_gqa=True))
    assert_alike(own, twice(lambda x: by_hand(x, k, v, SCORES["softcap"])))


def test_logarithms_of_sums_and_their_gradients():
    q, k, v = operands(h=2, g=2)
    score = SCORES["softcap"]
    scores = score(q @ k.mT / math.sqrt(8), *indices((2, 2, 70, 150)))
    _, lse = flex_attention(q, k, v, score, return_lse=True)
    assert_alike([lse], [td.logsumexp(scores, -1)])
    assert_alike([flex_attention(q, k, v, score, return_aux=AuxRequest(lse=True))[1].lse], [lse])
    own = with_gradients(lambda x: flex_attention(x, k, v, score, return_lse=True)[1], q)
    assert_alike(
        own, with_gradients(lambda x: td.logsumexp(score(x @ k.mT / math.sqrt(8), *indices((2, 2, 70, 150))), -1), q)
    )


def test_score_functions_with_other_operators_use_the_whole_matrix():
    q, k, v = operands(h=2, g=2)
    table = td.rand(5, 3, dtype=td.float64)
    score = lambda s, b, h, i, j: s + table[j % 5].sum()
    own = with_gradients(lambda *x: flex_attention(*x, score), q, k, v)
    total = table.sum(1)
    assert_alike(own, with_gradients(lambda *x: by_hand(*x, lambda s, b, h, i, j: s + total[j % 5]), q, k, v))


def test_numbers_that_change_make_no_new_kernel():
    q, k, v = operands(h=2, g=2)
    for factor in (0.5, 2.0):
        score = lambda s, b, h, i, j, factor=factor: s * factor
        assert_alike([flex_attention(q, k, v, score)], [by_hand(q, k, v, score)])


def test_mistakes_are_named():
    q, k, v = operands()
    with pytest.raises(td.ShapeError, match=r"fewer key heads(.|\n)*enable_gqa=True"):
        flex_attention(q, k, v)
    with pytest.raises(td.ShapeError, match=r"score_mod gives a tensor of shape \(3,\)"):
        flex_attention(q, k, v, lambda s, b, h, i, j: s + td.ones(3), enable_gqa=True)
    with pytest.raises(td.DTypeError, match="mask_mod must give one bool"):
        create_block_mask(lambda b, h, i, j: i - j, None, None, 70, 150)
    with pytest.raises(td.ShapeError, match=r"made for lengths \(10, 10\)"):
        flex_attention(q, k, v, block_mask=create_block_mask(noop_mask, None, None, 10, 10), enable_gqa=True)
    with pytest.raises(td.ShapeError, match=r"must be \(B, H, T, D\)"):
        flex_attention(q[0], k, v)


@pytest.mark.parametrize("masked", [False, True])
def test_dropout_is_that_of_the_whole_matrix(masked):
    q, k, v = operands(h=2, g=2, dtype=td.float64)
    bias = td.randn(2, 1, 1, 150, dtype=td.float64) if masked else td.zeros(1, 1, 1, 1, dtype=td.float64)

    def formula(q, k, v, bias):
        return td.dropout(td.softmax(q @ k.mT / math.sqrt(8) + bias, -1), 0.3) @ v

    def own(q, k, v, bias):
        return F.scaled_dot_product_attention(q, k, v, bias if masked else None, dropout_p=0.3) + 0.0 * bias.sum()

    results = []
    for fn in (formula, own, td.compile(own)):
        td.manual_seed(3)
        results.append(with_gradients(fn, q, k, v, bias)[: 5 if masked else 4])
    assert_alike(results[0], results[1])
    assert_alike(results[1], results[2])


@pytest.mark.parametrize(
    "shape", [(2, 4, 70, 150), (1, 4, 70, 150), (4, 70, 150), (2, 1, 1, 150), (70, 1), (1,), (2, 4, 1, 1)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_of_masks_are_as_small_as_the_masks(shape, threads):
    q, k, v = operands(h=4, g=2)
    mask = td.randn(*shape, dtype=td.float64)
    before = td.get_num_threads()
    td.set_num_threads(threads)
    try:
        own = with_gradients(lambda *x: F.scaled_dot_product_attention(*x, enable_gqa=True), q, k, v, mask)
    finally:
        td.set_num_threads(before)

    def formula(q, k, v, mask):
        return td.softmax(q @ k.repeat_interleave(2, 1).mT / math.sqrt(8) + mask, -1) @ v.repeat_interleave(2, 1)

    assert_alike(own, with_gradients(formula, q, k, v, mask))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("g", [1, 2, 4])
def test_heads_that_are_shared_are_not_repeated(g, causal):
    q, k, v = operands(g=g, t=300, s=300)
    own = with_gradients(lambda *x: F.scaled_dot_product_attention(*x, is_causal=causal, enable_gqa=True), q, k, v)
    assert_alike(own, with_gradients(lambda *x: by_hand(*x, mask_mod=MASKS["causal"] if causal else None), q, k, v))


def test_vmap_over_shared_heads_and_dropout():
    q, k, v = operands(b=3, t=5, s=6)
    one = lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)[0]
    assert_alike([td.vmap(one)(q, k, v)], [F.scaled_dot_product_attention(q, k, v, enable_gqa=True)])


@pytest.mark.parametrize("compiled", [False, True])
def test_training_never_holds_the_matrix_of_scores(compiled):
    q, k, v = (x.requires_grad_() for x in operands(b=1, h=2, g=2, t=512, s=512, dtype=td.float32))
    blocks = create_block_mask(MASKS["window"], None, None, 512, 512)

    def step():
        flex_attention(q, k, v, SCORES["softcap"], blocks).sum().backward()

    step = td.compile(step) if compiled else step
    step()
    with td.profiler.profile() as found:
        step()
    steps = [line for line in str(found).splitlines() if "flex_attention_backward" in line]
    assert len(steps) <= 1 and all(line.split()[3] == "1" for line in steps), str(found)
