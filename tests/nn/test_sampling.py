"""grid_sample, affine_grid, antialiased resizing and fractional pooling."""

import numpy as np
import pytest
import scipy.ndimage

import tandem as td
from tests.check import assert_close, check_op

F = td.nn.functional


RNG = np.random.default_rng(2)


def test_affine_grid_of_the_identity():
    theta = td.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    corners = F.affine_grid(theta, (1, 1, 3, 3), align_corners=True)
    assert corners[0, 0, :, 0].tolist() == [-1.0, 0.0, 1.0] and corners[0, :, 0, 1].tolist() == [-1.0, 0.0, 1.0]
    assert_close(F.affine_grid(theta, (1, 1, 2, 4))[0, 0, :, 0], np.array([-0.75, -0.25, 0.25, 0.75]))
    theta = RNG.normal(size=(2, 3, 4))
    check_op(lambda t: F.affine_grid(t, (2, 1, 2, 3, 2)), lambda t: np.asarray(F.affine_grid(td.tensor(t), (2, 1, 2, 3, 2))),
             inputs=[(theta,)], names=["affine_grid"], deferred=False)  # fmt: skip
    with pytest.raises(td.errors.ShapeError, match="affine_grid"):
        F.affine_grid(td.tensor(theta[:, :2]), (2, 1, 4, 4))


@pytest.mark.parametrize(
    ("mode", "padding"),
    [("bilinear", "zeros"), ("bilinear", "border"), ("bicubic", "reflection"), ("nearest", "zeros")],
)
def test_grid_sample(mode, padding):
    image, grid = RNG.normal(size=(2, 2, 3, 4)), RNG.uniform(-1.3, 1.3, (2, 2, 2, 2))

    def reference(image, grid):
        order = {"bilinear": 1, "nearest": 0}.get(mode)
        if order is None or padding != "border":
            return np.asarray(F.grid_sample(td.tensor(image), td.tensor(grid), mode, padding, True))
        read = scipy.ndimage.map_coordinates
        places = [(grid[..., 1] + 1) * (3 - 1) / 2, (grid[..., 0] + 1) * (4 - 1) / 2]
        return np.stack([
            [read(image[n, c], [p[n] for p in places], order=order, mode="nearest") for c in range(2)] for n in range(2)
        ])  # fmt: skip

    check_op(
        F.grid_sample,
        reference,
        inputs=[(image, grid)],
        args=(mode, padding, True),
        names=["grid_sample"],
        second=mode != "nearest",
    )


def test_grid_sample_reads_an_identity_grid_as_the_image():
    image = td.tensor(RNG.normal(size=(1, 2, 4, 5)))
    theta = td.tensor([[[1.0, 0, 0], [0, 1, 0]]], dtype=td.float64)
    for mode in ("bilinear", "nearest", "bicubic"):
        for corners in (True, False):
            grid = F.affine_grid(theta, image.shape, align_corners=corners)
            assert_close(F.grid_sample(image, grid, mode, "border", corners), image.numpy(), atol=1e-9)
    far = F.grid_sample(image, td.full((1, 1, 1, 2), float("nan"), dtype=td.float64))
    assert far.shape == (1, 2, 1, 1)
    with pytest.raises(td.errors.ShapeError, match="grid_sample"):
        F.grid_sample(image, td.zeros(1, 2, 2, 3))
    with pytest.raises(td.errors.ValueRangeError, match="mode is 'cubic'"):
        F.grid_sample(image, td.zeros(1, 2, 2, 2, dtype=td.float64), "cubic")


def test_fractional_pooling():
    x = RNG.normal(size=(2, 3, 9, 8))
    td.manual_seed(0)
    y, index = F.fractional_max_pool2d(td.tensor(x), 2, output_size=(4, 5), return_indices=True)
    np.testing.assert_array_equal(
        np.take_along_axis(x.reshape(2, 3, -1), index.numpy().reshape(2, 3, -1), 2), y.numpy().reshape(2, 3, -1)
    )
    assert F.fractional_max_pool3d(td.zeros(2, 6, 6, 6), (2, 3, 2), output_ratio=0.5).shape == (2, 3, 3, 3)
    samples = td.tensor(RNG.uniform(size=(2, 3, 2)))
    check_op(lambda a: F.fractional_max_pool2d(a, 2, output_size=3, _random_samples=samples),
             lambda a: np.asarray(F.fractional_max_pool2d(td.tensor(a), 2, output_size=3, _random_samples=samples)),
             inputs=[(x[:, :, :5, :5],)], names=["fractional_max_pool2d"], deferred=False)  # fmt: skip
    with pytest.raises(td.errors.ShapeError, match="do not fit"):
        F.fractional_max_pool2d(td.zeros(1, 1, 4, 4), 3, output_size=3)
    assert F.max_pool2d_with_indices(td.tensor(x), 2)[1].shape == (2, 3, 4, 4)
    assert F.adaptive_max_pool1d_with_indices(td.zeros(1, 2, 6), 3)[0].shape == (1, 2, 3)
