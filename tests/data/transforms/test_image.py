"""Forms of an image."""

import random

import numpy as np
import pytest

from tandem.data import transforms as T
from tests.data.transforms.images import back, forms

PIL = pytest.importorskip("PIL.Image")


def picture(height=11, width=8):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize(
    "transform",
    [
        T.CenterCrop(5), T.CenterCrop(15), T.Pad((1, 2, 3, 4), fill=7), T.Pad(2, mode="reflect"), T.RandomCrop(6, padding=2),
        T.RandomCrop((12, 3), pad_if_needed=True), T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0), T.RandomRotation(30),
        T.RandomErasing(1.0, value=9), T.Resize(5, "nearest"),
    ],
    ids=lambda t: type(t).__name__,
)  # fmt: skip
def test_all_forms_of_an_image_are_treated_alike(transform):
    found = []
    for image in forms(picture()):
        random.seed(4)
        result = transform(image)
        assert type(result) is type(image) or isinstance(result, PIL.Image)
        found.append(back(result))
    assert np.array_equal(found[0], found[1])
    if not (isinstance(transform, T.Resize)):  # PIL's nearest rounds differently
        assert np.array_equal(found[0], found[2])
