"""Colours. Images are RGB, (..., 3, height, width), bytes or fractions in [0, 1]."""

from __future__ import annotations

from tandem.data.seeding import sample_random
from tandem.data.transforms.general import Transform
from tandem.data.transforms.image import as_array, is_pil
from tandem.errors import ShapeError, ValueRangeError

_LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue are, by ITU-R 601


def _grey(array):
    return _LUMA[0] * array[..., 0, :, :] + _LUMA[1] * array[..., 1, :, :] + _LUMA[2] * array[..., 2, :, :]


def _fractions(name: str, image):
    """(array of fractions in [0, 1], function back to what the image was)"""
    import numpy

    array, back = as_array(image)
    if array.ndim < 3 or array.shape[-3] != 3:
        raise ShapeError(name, f"an image of shape {tuple(array.shape)} has no 3 channels before height and width")
    kind = array.dtype
    if kind == numpy.uint8:
        return array.astype(numpy.float32) / 255, lambda a: back(numpy.rint(a.clip(0, 1) * 255).astype(kind))
    return array, lambda a: back(a.clip(0, 1).astype(kind))


class Grayscale(Transform):
    """An image without colour, with 1 channel or 3 equal ones.

    >>> td.data.transforms.Grayscale()(td.ones(3, 2, 2)).shape
    (1, 2, 2)
    """

    def __init__(self, num_output_channels: int = 1):
        if num_output_channels not in (1, 3):
            raise ValueRangeError("Grayscale", f"num_output_channels={num_output_channels} is not 1 or 3")
        self.num_output_channels = num_output_channels

    def __call__(self, image):
        import numpy

        if is_pil(image):
            grey = image.convert("L")
            return grey if self.num_output_channels == 1 else grey.convert("RGB")
        array, back = _fractions("Grayscale", image)
        grey = _grey(array)[..., None, :, :]
        return back(numpy.repeat(grey, self.num_output_channels, -3))


class RandomGrayscale(Transform):
    """Without colour, with probability p; the number of channels stays.

    >>> td.data.transforms.RandomGrayscale(p=1.0)(td.ones(3, 1, 1)).shape
    (3, 1, 1)
    """

    def __init__(self, p: float = 0.1):
        self.p = p

    def __call__(self, image):
        return Grayscale(3)(image) if sample_random().random() < self.p else image


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in random order.

    brightness, contrast, saturation: x draws a factor from max(0, 1 - x) to 1 + x; two numbers are bounds
    hue: x draws a shift from -x to x of the colour circle, at most 0.5

    >>> td.data.transforms.ColorJitter(brightness=(0.5, 0.5))(td.ones(3, 1, 1)).tolist()
    [[[0.5]], [[0.5]], [[0.5]]]
    """

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0):
        self.brightness, self.contrast, self.saturation = (
            _bounds(name, value, 1.0, 0.0, float("inf"))
            for name, value in (("brightness", brightness), ("contrast", contrast), ("saturation", saturation))
        )
        self.hue = _bounds("hue", hue, 0.0, -0.5, 0.5)

    def __call__(self, image):
        draw = sample_random()
        array, back = _fractions("ColorJitter", image)
        steps = [
            (function, draw.uniform(*bounds))
            for function, bounds in (
                (_brighten, self.brightness), (_contrast, self.contrast), (_saturate, self.saturation), (_turn_hue, self.hue),
            )
            if bounds is not None
        ]  # fmt: skip
        draw.shuffle(steps)
        for function, factor in steps:
            array = function(array, factor).clip(0, 1)
        return back(array)


def _bounds(name: str, value, middle: float, low: float, high: float):
    if isinstance(value, (int, float)):
        value = (max(middle - value, low), middle + value)
    first, last = value
    if not low <= first <= last <= high:
        raise ValueRangeError("ColorJitter", f"{name}={value!r} does not lie between {low} and {high}")
    return None if first == last == middle else (first, last)


def _brighten(array, factor: float):
    return array * array.dtype.type(factor)


def _contrast(array, factor: float):
    mean = _grey(array).mean(axis=(-2, -1), keepdims=True)[..., None, :, :]
    return (array - mean) * array.dtype.type(factor) + mean


def _saturate(array, factor: float):
    grey = _grey(array)[..., None, :, :]
    return (array - grey) * array.dtype.type(factor) + grey


def _turn_hue(array, shift: float):
    """Through hue, saturation and value."""
    import numpy

    red, green, blue = array[..., 0, :, :], array[..., 1, :, :], array[..., 2, :, :]
    value, least = array.max(-3), array.min(-3)
    chroma = value - least
    safe = numpy.where(chroma == 0, 1, chroma)
    hue = numpy.where(
        value == red,
        (green - blue) / safe % 6,
        numpy.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    hue = (hue / 6 + shift) % 1 * 6
    parts = []
    for offset in (5, 3, 1):  # red, green, blue
        k = (offset + hue) % 6
        parts.append(value - chroma * numpy.clip(numpy.minimum(k, 4 - k), 0, 1))
    return numpy.stack(parts, -3).astype(array.dtype)
