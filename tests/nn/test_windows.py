"""Windows of images as columns, and back; responses of neighbouring channels."""

import numpy as np

import tandem as td
import tandem.nn.functional as F


def test_unfold_has_the_windows_in_its_columns():
    x = td.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    made = F.unfold(x, (2, 3), stride=(2, 1)).numpy()
    windows = np.lib.stride_tricks.sliding_window_view(x.numpy(), (2, 3), (2, 3))[:, :, ::2]
    np.testing.assert_array_equal(made, windows.transpose(0, 1, 4, 5, 2, 3).reshape(2, 18, 6))


def test_fold_is_the_gradient_of_unfold():
    x = td.randn(1, 2, 5, 5, requires_grad=True)
    columns = F.unfold(x, 3, padding=1, dilation=2)
    g = td.randn(*columns.shape)
    (expected,) = td.autograd.grad(columns, x, g)
    np.testing.assert_allclose(
        F.fold(g, (5, 5), 3, padding=1, dilation=2).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6
    )


def test_local_responses_are_divided_by_those_of_neighbours():
    x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    squares = np.pad(x**2, ((0, 0), (1, 1), (0, 0)))
    mean = (squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]) / 3
    made = F.local_response_norm(td.tensor(x), 3, alpha=0.5, beta=0.75, k=2.0).numpy()
    np.testing.assert_allclose(made, x / (2.0 + 0.5 * mean) ** 0.75, rtol=1e-5)
