"""Attention on a device in 16-bit types: the values and gradients of float32, every time the same bits."""

import numpy as np
import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def everything(q, k, v, g, mask=None, **options):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = td.scaled_dot_product_attention(*leaves, mask, **options)
    return [out.detach(), *td.autograd.grad(out, leaves, g)]


def compare(shapes, dtype=td.bfloat16, mask=None, **options):
    td.manual_seed(0)
    q, k, v, g = (td.randn(*s).to(dtype) for s in shapes)
    there = everything(*(x.to("cuda") for x in (q, k, v, g)), None if mask is None else mask.to("cuda"), **options)
    again = everything(*(x.to("cuda") for x in (q, k, v, g)), None if mask is None else mask.to("cuda"), **options)
    here = everything(*(x.float() for x in (q, k, v, g)), mask, **options)
    for have, same, want in zip(there, again, here):
        assert have.dtype == dtype
        np.testing.assert_array_equal(have.cpu().float().numpy(), same.cpu().float().numpy())
        error = np.linalg.norm(have.cpu().float().numpy() - want.numpy())
        size = max(np.linalg.norm(want.numpy()), 1.0)  # gradients through one key or a scale of 0 are zeros
        assert error < (1e-2 if dtype == td.bfloat16 else 2e-3) * size


@pytest.mark.parametrize("dtype", [td.bfloat16, td.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [16, 40, 64, 96, 128])
def test_sizes_of_heads(d, causal, dtype):
    compare([(2, 3, 150, d)] * 4, dtype, is_causal=causal)


@pytest.mark.parametrize(("t", "s"), [(1, 1), (1, 300), (64, 64), (65, 63), (300, 1), (257, 513), (513, 100)])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(t, s, causal):
    compare([(1, 2, t, 64), (1, 2, s, 64), (1, 2, s, 64), (1, 2, t, 64)], is_causal=causal)


@pytest.mark.parametrize("dtype", [td.bool, td.float32, td.bfloat16])
@pytest.mark.parametrize("shape", [(100, 130), (2, 1, 100, 130), (2, 3, 1, 130)])
def test_masks(shape, dtype):
    mask = td.randn(*shape)
    mask = mask > -0.5 if dtype == td.bool else mask.to(dtype)
    compare([(2, 3, 100, 64), (2, 3, 130, 64), (2, 3, 130, 64), (2, 3, 100, 64)], mask=mask)


def test_a_query_that_sees_nothing_gives_zeros_and_no_gradient():
    mask = td.ones(70, 70, dtype=td.bool)
    mask[3] = False
    q, k, v, g = (td.randn(1, 1, 70, 64, device="cuda").to(td.bfloat16) for _ in range(4))
    out, dq, dk, dv = everything(q, k, v, g, mask.to("cuda"))
    assert not out[0, 0, 3].cpu().float().numpy().any()
    assert not dq[0, 0, 3].cpu().float().numpy().any()
    assert all(np.isfinite(x.cpu().float().numpy()).all() for x in (out, dq, dk, dv))


@pytest.mark.parametrize("scale", [0.3, -0.2, 0.0])
def test_scales(scale):
    compare([(1, 2, 100, 64)] * 4, scale=scale, is_causal=True)


def test_heads_inside_one_matrix_of_queries_keys_and_values():
    td.manual_seed(0)
    x = td.randn(2, 100, 3, 4, 64).to(td.bfloat16)

    def attend(x):
        q, k, v = x.permute(2, 0, 3, 1, 4).unbind(0)
        return td.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 100, 256)

    want = attend(x.float()).numpy()
    np.testing.assert_allclose(attend(x.to("cuda")).cpu().float().numpy(), want, atol=2e-2)
    odd = td.randn(1 + x.numel()).to(td.bfloat16).to("cuda")[1:].reshape(x.shape)  # starts at an odd element
    np.testing.assert_allclose(attend(odd).cpu().float().numpy(), attend(odd.cpu().float()).numpy(), atol=2e-2)
