"""An image in all its forms, and back."""

import numpy as np
import pytest

import tandem as td

PIL = pytest.importorskip("PIL.Image")


def forms(array):
    """One image as a tensor, as an array, and of PIL."""
    channels_first = np.ascontiguousarray(array.transpose(2, 0, 1))
    return td.from_numpy(channels_first.copy()), channels_first, PIL.fromarray(array)


def back(image):
    """An image of any form as an array (height, width, channels)."""
    if isinstance(image, td.Tensor):
        return image.numpy().transpose(1, 2, 0)
    if isinstance(image, np.ndarray):
        return image.transpose(1, 2, 0)
    return np.asarray(image)
