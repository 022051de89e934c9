"""What transforms of images share: NumPy arrays (..., height, width) as the common form.

Samples are small, and each has its own size: NumPy, which needs no plan per layout, is the right tool in a worker.
"""

from __future__ import annotations

import sys

from tandem import _runtime
from tandem.errors import DTypeError, ShapeError, ValueRangeError

Tensor = _runtime.Tensor


def is_pil(image) -> bool:
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


def size_of(image) -> tuple[int, int]:
    """(height, width)"""
    if is_pil(image):
        return image.height, image.width
    if not hasattr(image, "ndim"):
        raise DTypeError("transforms", f"an image is a tensor, an array or a PIL image, not a {type(image).__name__}")
    if image.ndim < 2:
        raise ShapeError("transforms", f"an image of shape {tuple(image.shape)} has no height and width")
    return image.shape[-2], image.shape[-1]


def as_array(image):
    """(array (..., height, width), function that turns such an array into what the image was)"""
    import numpy

    size_of(image)
    if is_pil(image):
        module = sys.modules["PIL.Image"]
        array = numpy.asarray(image)
        if array.ndim == 3:
            return array.transpose(2, 0, 1), lambda a: module.fromarray(
                numpy.ascontiguousarray(a.transpose(1, 2, 0)), image.mode
            )
        return array, lambda a: module.fromarray(numpy.ascontiguousarray(a), image.mode)
    if isinstance(image, Tensor):
        return image.detach().numpy(), lambda a: _runtime.from_numpy(numpy.ascontiguousarray(a).reshape(a.shape))
    return image, lambda a: a


def pair(name: str, value) -> tuple[int, int]:
    """(height, width), from one number for both or two."""
    sizes = (value, value) if isinstance(value, int) else tuple(value)
    if len(sizes) != 2 or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise ValueRangeError(name, f"size {value!r} is not a positive int or two of them")
    return sizes


def crop(image, top: int, left: int, height: int, width: int):
    if is_pil(image):
        return image.crop((left, top, left + width, top + height))
    return image[..., top : top + height, left : left + width]


def resize(image, height: int, width: int, interpolation: str = "bilinear", antialias: bool = True):
    """An image in another size. Where it shrinks, pixels are averaged over the area they come from (antialias)."""
    if size_of(image) == (height, width):
        return image
    if is_pil(image):
        module = sys.modules["PIL.Image"]
        return image.resize((width, height), getattr(module.Resampling, interpolation.upper()))
    array, back = as_array(image)
    kind = array.dtype
    if interpolation == "nearest":
        rows = [int(i * array.shape[-2] / height) for i in range(height)]
        columns = [int(i * array.shape[-1] / width) for i in range(width)]
        return back(array[..., rows, :][..., columns])
    import numpy

    wide = array.astype(numpy.float32 if kind.itemsize <= 4 else numpy.float64)
    down = _weights(array.shape[-2], height, interpolation, antialias).astype(wide.dtype)
    across = _weights(array.shape[-1], width, interpolation, antialias).astype(wide.dtype)
    result = down @ wide @ across.T
    if kind.kind in "iu":
        bounds = numpy.iinfo(kind)
        result = numpy.clip(numpy.rint(result), bounds.min, bounds.max)
    return back(result.astype(kind))


_CACHE: dict = {}  # weights by sizes; samples of one dataset have few


def _weights(old: int, new: int, interpolation: str, antialias: bool):
    """The matrix (new, old) that resizes one axis: each row the filter's weights, which sum to 1."""
    import numpy

    key = (old, new, interpolation, antialias)
    if key not in _CACHE:
        if interpolation not in ("bilinear", "bicubic"):
            raise ValueRangeError(
                "Resize", f"interpolation={interpolation!r} is not 'nearest', 'bilinear' or 'bicubic'"
            )
        scale = old / new
        stretch = max(scale, 1.0) if antialias else 1.0
        centres = (numpy.arange(new) + 0.5) * scale - 0.5
        reach = (1 if interpolation == "bilinear" else 2) * stretch
        first = int(numpy.floor(reach)) + 1
        offsets = numpy.arange(-first, first + 1)
        positions = numpy.floor(centres)[:, None] + offsets
        distance = numpy.abs(positions - centres[:, None]) / stretch
        if interpolation == "bilinear":
            values = numpy.clip(1 - distance, 0, None)
        else:  # Keys' cubic, with a = -0.5 where it averages and -0.75 where it only interpolates, as PIL and PyTorch have it
            a = -0.5 if antialias else -0.75
            near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
            far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
            values = numpy.where(distance <= 1, near, numpy.where(distance < 2, far, 0))
        inside = (positions >= 0) & (positions < old)
        if antialias:
            values = values * inside  # what lies outside counts for nothing ...
        matrix = numpy.zeros((new, old))
        clipped = numpy.clip(positions, 0, old - 1).astype(int)  # ... or repeats the border
        numpy.add.at(matrix, (numpy.arange(new)[:, None].repeat(len(offsets), 1), clipped), values)
        if len(_CACHE) > 256:
            _CACHE.clear()
        _CACHE[key] = matrix / matrix.sum(1, keepdims=True)
    return _CACHE[key]
