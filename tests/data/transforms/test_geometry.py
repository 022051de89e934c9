"""Crops, flips, sizes and rotations of images."""

import numpy as np
import pytest

import tandem as td
from tandem.data import transforms as T
from tests.data.transforms.images import back, forms

PIL = pytest.importorskip("PIL.Image")


def picture(height=11, width=8):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_flips_and_crops_by_hand():
    image = td.arange(12).reshape(1, 3, 4)
    assert [[[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8]]] == T.RandomHorizontalFlip(1.0)(image).tolist()
    assert [[[8, 9, 10, 11], [4, 5, 6, 7], [0, 1, 2, 3]]] == T.RandomVerticalFlip(1.0)(image).tolist()
    assert image is T.RandomVerticalFlip(0.0)(image)
    assert [[[5, 6]]] == T.CenterCrop((1, 2))(image).tolist()
    tops = {tuple(T.RandomCrop(1)(image).flatten().tolist()) for _ in range(200)}
    assert 12 == len(tops)  # every place comes


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 4), (22, 17), (3, 16)])
def test_resize_is_as_pil_has_it(interpolation, size):
    array = picture(16, 12) // 2 + 64  # far from the ends, where PIL cuts off between its passes
    ours = back(T.Resize(size, interpolation)(forms(array)[0])).astype(int)
    theirs = back(T.Resize(size, interpolation)(PIL.fromarray(array))).astype(int)
    assert np.abs(ours - theirs).max() <= 1  # PIL computes with 8 bits


def test_resize_by_the_shorter_side():
    assert (3, 6, 10) == T.Resize(6)(td.zeros(3, 12, 20)).shape
    constant = T.Resize((7, 9))(td.full((1, 20, 30), 0.25))
    assert np.allclose(0.25, constant.numpy())


def test_random_resized_crop_covers_sizes():
    image = td.rand(3, 20, 10)
    for _ in range(20):
        assert (3, 8, 8) == T.RandomResizedCrop(8)(image).shape
    assert (3, 4, 4) == T.RandomResizedCrop(4, scale=(1.0, 1.0))(td.rand(3, 2, 40)).shape


def test_erasing_changes_one_rectangle_and_not_the_original():
    image = td.ones(3, 20, 20)
    erased = T.RandomErasing(1.0)(image)
    assert 1200.0 == float(image.sum())
    zeros = erased.numpy()[0] == 0
    rows, columns = np.where(zeros.any(1))[0], np.where(zeros.any(0))[0]
    assert zeros[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    assert not np.array_equal(T.RandomErasing(1.0, value="random")(image).numpy(), image.numpy())


def test_rotation_by_right_angles():
    image = td.rand(3, 5, 5)
    for quarter in range(4):
        turned = T.RandomRotation((90 * quarter, 90 * quarter))(image)
        assert np.array_equal(np.rot90(image.numpy(), quarter, (-2, -1)), turned.numpy())
