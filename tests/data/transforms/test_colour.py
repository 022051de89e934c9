"""Colours of images."""

import colorsys

import numpy as np
import pytest

import tandem as td
from tandem.data import transforms as T

PIL = pytest.importorskip("PIL.Image")


def test_hue_is_turned_as_colorsys_has_it():
    image = np.random.default_rng(1).random((3, 4, 5))
    turned = T.ColorJitter(hue=(0.2, 0.2))(image)
    for y in range(4):
        for x in range(5):
            h, s, v = colorsys.rgb_to_hsv(*image[:, y, x])
            assert np.allclose(colorsys.hsv_to_rgb((h + 0.2) % 1, s, v), turned[:, y, x])


def test_brightness_contrast_saturation():
    image = np.random.default_rng(2).random((3, 4, 5)) * 0.5
    grey = np.tensordot([0.299, 0.587, 0.114], image, 1)
    assert np.allclose(image * 1.5, T.ColorJitter(brightness=(1.5, 1.5))(image))
    assert np.allclose(np.clip((image - grey.mean()) * 2 + grey.mean(), 0, 1), T.ColorJitter(contrast=(2, 2))(image))
    assert np.allclose(np.broadcast_to(grey, (3, 4, 5)), T.ColorJitter(saturation=(0, 0))(image))
    assert np.allclose(grey[None], T.Grayscale()(image))
    colours = T.ColorJitter(0.5, 0.5, 0.5, 0.3)(td.from_numpy((image * 255).astype(np.uint8)))
    assert td.uint8 is colours.dtype
    with pytest.raises(ValueError, match="hue"):
        T.ColorJitter(hue=0.6)
    with pytest.raises(ValueError, match="no 3 channels"):
        T.ColorJitter(0.5)(td.zeros(1, 2, 2))
