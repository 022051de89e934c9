"""Operators of PyTorch's runtime, reductions under masks, windows."""

import math

import numpy as np
import pytest

import tandem.torch as torch


def test_copies_of_views_share_no_memory():
    x = torch.arange(6).reshape(2, 3)
    for made in (
        torch.view_copy(x, (3, 2)), torch.permute_copy(x, (1, 0)), torch.t_copy(x), torch.narrow_copy(x, 1, 0, 2),
        torch.expand_copy(x, (4, 2, 3)), torch.unsqueeze_copy(x, 0), torch.alias_copy(x), *torch.unbind_copy(x, 0),
        torch.slice_copy(x, 1, 0, 2), torch.select_copy(x, 0, 1), torch.diagonal_copy(x),
    ):  # fmt: skip
        made.zero_()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_normalisation_with_statistics():
    x = torch.randn(4, 6, 5, dtype=torch.float64)
    y, mean, scale = torch.native_layer_norm(x, (5,), None, None, 1e-5)
    np.testing.assert_allclose(y.numpy(), ((x - mean) * scale).numpy())
    assert mean.shape == (4, 6, 1)
    y, mean, scale = torch.native_group_norm(x, None, None, 4, 6, 5, 2, 1e-5)
    assert mean.shape == scale.shape == (4, 2)
    y, mean, scale = torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    np.testing.assert_allclose(mean.numpy(), x.numpy().mean((0, 2)))
    np.testing.assert_allclose(scale.numpy(), 1 / np.sqrt(x.numpy().var((0, 2)) + 1e-5))


def test_grid_sampler_is_grid_sample():
    x, grid = torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2) * 2 - 1
    expected = torch.nn.functional.grid_sample(x, grid, "nearest", "border", True)
    assert torch.equal(torch.grid_sampler(x, grid, 1, 1, True), expected)
    with pytest.raises(ValueError, match="modes are 7"):
        torch.grid_sampler(x, grid, 7, 1, True)


def test_gradient_of_max_pooling_from_positions():
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    y, where = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    (expected,) = torch.autograd.grad(y.sum(), x)
    made = torch.max_pool2d_with_indices_backward(torch.ones_like(y), x.detach(), 2, 2, 0, 1, False, where)
    assert torch.equal(made, expected)


def test_masked_reductions_leave_out_what_the_mask_does_not_hold():
    x = torch.tensor([[1.0, 2.0, 9.0], [4.0, 5.0, 6.0]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert torch.masked.sum(x, 1, mask=mask).tolist() == [3.0, 0.0]
    assert torch.masked.prod(x, 1, mask=mask).tolist() == [2.0, 1.0]
    assert torch.masked.amax(x, 1, mask=mask).tolist() == [2.0, -math.inf]
    assert torch.masked.argmin(x, 1, mask=mask).tolist()[0] == 0
    assert torch.masked.mean(x, 1, mask=mask)[0].item() == 1.5 and math.isnan(
        torch.masked.mean(x, 1, mask=mask)[1].item()
    )
    assert torch.masked.var(x, 1, mask=mask)[0].item() == 0.5
    assert torch.masked.softmax(x, 1, mask=mask)[0, 2].item() == 0.0
    assert torch.masked.amax(x.to(torch.int32), 0, mask=mask).tolist() == [1, 2, -(2**31)]
    with pytest.raises(TypeError, match="mask is float32"):
        torch.masked.sum(x, mask=x)


def test_windows():
    windows = torch.signal.windows
    np.testing.assert_allclose(windows.hamming(7, dtype=torch.float64).numpy(), np.hamming(7))
    np.testing.assert_allclose(windows.blackman(7, dtype=torch.float64).numpy(), np.blackman(7), atol=1e-12)
    np.testing.assert_allclose(windows.kaiser(7, beta=5.0, dtype=torch.float64).numpy(), np.kaiser(7, 5.0))
    np.testing.assert_allclose(windows.bartlett(7, dtype=torch.float64).numpy(), np.bartlett(7))
    np.testing.assert_allclose(windows.hann(6, sym=False, dtype=torch.float64).numpy(), np.hanning(7)[:-1], atol=1e-12)
    assert windows.gaussian(1).tolist() == [1.0] and windows.nuttall(0).shape == (0,)
    for call in (lambda: windows.hann(-1), lambda: windows.gaussian(3, std=0), lambda: windows.general_cosine(3, a=[])):
        with pytest.raises(ValueError, match=r"M is|std is|no coefficients"):
            call()


def test_triangular_solve():
    a, b = torch.tensor([[2.0, 1.0], [0.0, 4.0]]), torch.ones(2, 1)
    x, _ = torch.triangular_solve(b, a)
    np.testing.assert_allclose((a @ x).numpy(), b.numpy())
    x, _ = torch.triangular_solve(b, a, transpose=True)
    np.testing.assert_allclose((a.mT @ x).numpy(), b.numpy())
