"""Composition, conversion, normalisation."""

from __future__ import annotations

from tandem import _runtime, dtypes
from tandem.data.seeding import sample_random
from tandem.data.transforms.image import as_array, is_pil
from tandem.errors import ShapeError

Tensor = _runtime.Tensor


class Transform:
    """Base: called with a sample; shows its settings."""

    def __repr__(self):
        settings = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({settings})"


class Compose(Transform):
    """Transforms one after the other.

    >>> td.data.transforms.Compose([str.strip, str.upper])(" a ")
    'A'
    """

    def __init__(self, transforms):
        self.transforms = list(transforms)

    def __call__(self, sample):
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Lambda(Transform):
    """Any function as a transform.

    >>> td.data.transforms.Lambda(abs)(-1)
    1
    """

    def __init__(self, function):
        self.function = function

    def __call__(self, sample):
        return self.function(sample)


class RandomApply(Transform):
    """Some transforms with probability p, else nothing.

    >>> td.data.transforms.RandomApply([abs], p=1.0)(-1)
    1
    """

    def __init__(self, transforms, p: float = 0.5):
        self.transforms, self.p = list(transforms), p

    def __call__(self, sample):
        return Compose(self.transforms)(sample) if sample_random().random() < self.p else sample


class RandomChoice(Transform):
    """One of several transforms.

    >>> td.data.transforms.RandomChoice([abs])(-1)
    1
    """

    def __init__(self, transforms):
        self.transforms = list(transforms)

    def __call__(self, sample):
        return sample_random().choice(self.transforms)(sample)


class ToTensor(Transform):
    """A PIL image or an array (height, width, channels) as a float tensor (channels, height, width) in [0, 1].

    Bytes are divided by 255; other types stay as they are. A tensor is taken to be in that order already.

    >>> import numpy as np
    >>> td.data.transforms.ToTensor()(np.full((2, 2, 3), 255, np.uint8)).shape
    (3, 2, 2)
    """

    def __call__(self, image):
        import numpy

        if isinstance(image, Tensor):
            array = image.detach().numpy()
        else:
            array = numpy.asarray(image)
            if is_pil(image) and array.dtype == bool:
                array = array.astype(numpy.uint8) * 255
            array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
        if array.dtype == numpy.uint8:
            array = array.astype(numpy.float32) / numpy.float32(255)
        return _runtime.from_numpy(numpy.ascontiguousarray(array))


class ConvertDtype(Transform):
    """An image with elements of another type; whole numbers and fractions are scaled to each other's range.

    >>> td.data.transforms.ConvertDtype(td.float32)(td.tensor([[255]], dtype=td.uint8))
    tensor([[1.]])
    """

    def __init__(self, dtype):
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(self, image):
        import numpy

        array, back = as_array(image)
        target = self.dtype.numpy
        if array.dtype == target:
            return image
        if array.dtype.kind in "iu" and self.dtype.is_floating:
            return back(array.astype(target) / target.type(numpy.iinfo(array.dtype).max))
        if array.dtype.kind == "f" and self.dtype.is_integer:
            top = numpy.iinfo(target).max
            return back(numpy.clip(array * (top + 1 - 1e-3), 0, top).astype(target))
        return back(array.astype(target))


class Normalize(Transform):
    """(image - mean) / std for each channel of an image (..., channels, height, width).

    >>> td.data.transforms.Normalize(0.5, 0.5)(td.ones(1, 1, 1))
    tensor([[[1.]]])
    """

    def __init__(self, mean, std):
        self.mean, self.std = mean, std
        self._factors = {}

    def __call__(self, image):
        import numpy

        array, back = as_array(image)
        if array.dtype.kind != "f":
            raise ShapeError(
                "Normalize",
                f"the image is {array.dtype}; fractions are needed",
                fix="use ToTensor() or ConvertDtype before",
            )
        if array.dtype not in self._factors:
            columns = [numpy.asarray(v, array.dtype).reshape(-1, 1, 1) for v in (self.mean, self.std)]
            self._factors = {array.dtype: (columns[0], (1 / columns[1]).astype(array.dtype))}
        mean, factor = self._factors[array.dtype]
        channels = array.shape[-3] if array.ndim > 2 else 1
        if mean.shape[0] not in (1, channels):
            raise ShapeError("Normalize", f"there are {mean.shape[0]} means and {channels} channels")
        result = array - mean if array.ndim > 2 else (array[None] - mean)[0]
        result *= factor if array.ndim > 2 else factor[0]
        return back(result)

    def __getstate__(self):
        return {**vars(self), "_factors": {}}
