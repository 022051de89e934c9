"""Where pixels go: crops, flips, sizes, padding, rotation, erasing."""

from __future__ import annotations

import math

from tandem.data.seeding import sample_random
from tandem.data.transforms.general import Transform
from tandem.data.transforms.image import as_array, crop, pair, resize, size_of
from tandem.errors import ShapeError, ValueRangeError


class CenterCrop(Transform):
    """The middle of an image; smaller images are padded with zeros.

    >>> td.data.transforms.CenterCrop(2)(td.arange(16).reshape(4, 4)).tolist()
    [[5, 6], [9, 10]]
    """

    def __init__(self, size):
        self.size = pair("CenterCrop", size)

    def __call__(self, image):
        height, width = self.size
        image = _at_least(image, height, width, 0, "constant")
        h, w = size_of(image)
        return crop(image, round((h - height) / 2), round((w - width) / 2), height, width)


class Pad(Transform):
    """A border around an image. padding: one number, (left and right, top and bottom), or (left, top, right, bottom).

    mode: "constant" with `fill`, "edge", "reflect" or "symmetric"

    >>> td.data.transforms.Pad(1)(td.ones(1, 1)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(self, padding, fill=0, mode: str = "constant"):
        sides = (padding,) * 4 if isinstance(padding, int) else tuple(padding)
        sides = sides * 2 if len(sides) == 2 else sides
        if len(sides) != 4 or any(n < 0 for n in sides):
            raise ValueRangeError("Pad", f"padding={padding!r} is not one, two or four numbers that are not negative")
        if mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueRangeError("Pad", f"mode={mode!r} is not 'constant', 'edge', 'reflect' or 'symmetric'")
        self.padding, self.fill, self.mode = sides, fill, mode

    def __call__(self, image):
        import numpy

        left, top, right, bottom = self.padding
        array, back = as_array(image)
        widths = [(0, 0)] * (array.ndim - 2) + [(top, bottom), (left, right)]
        extra = {"constant_values": self.fill} if self.mode == "constant" else {}
        return back(numpy.pad(array, widths, self.mode, **extra))


def _at_least(image, height: int, width: int, fill, mode: str):
    h, w = size_of(image)
    if h >= height and w >= width:
        return image
    across, down = max(width - w, 0), max(height - h, 0)
    return Pad((across // 2, down // 2, across - across // 2, down - down // 2), fill, mode)(image)


class RandomCrop(Transform):
    """A part of an image at a random place. padding: as for Pad, added before; pad_if_needed pads images that are too small.

    >>> td.data.transforms.RandomCrop(2)(td.zeros(3, 5, 5)).shape
    (3, 2, 2)
    """

    def __init__(self, size, padding=None, pad_if_needed: bool = False, fill=0, padding_mode: str = "constant"):
        self.size, self.padding, self.pad_if_needed = pair("RandomCrop", size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def __call__(self, image):
        if self.padding is not None:
            image = Pad(self.padding, self.fill, self.padding_mode)(image)
        height, width = self.size
        if self.pad_if_needed:
            image = _at_least(image, height, width, self.fill, self.padding_mode)
        h, w = size_of(image)
        if h < height or w < width:
            raise ShapeError(
                "RandomCrop", f"an image of {h} x {w} has no part of {height} x {width}", fix="pass pad_if_needed=True"
            )
        draw = sample_random().randint
        return crop(image, draw(0, h - height), draw(0, w - width), height, width)


class Resize(Transform):
    """An image in another size: (height, width), or the length of the shorter side.

    interpolation: "nearest", "bilinear" or "bicubic"; antialias averages where the image shrinks, as PIL does

    >>> td.data.transforms.Resize(2)(td.ones(3, 4, 8)).shape
    (3, 2, 4)
    """

    def __init__(self, size, interpolation: str = "bilinear", antialias: bool = True):
        if not isinstance(size, int):
            size = pair("Resize", size)
        self.size, self.interpolation, self.antialias = size, interpolation, antialias

    def __call__(self, image):
        height, width = size_of(image)
        if isinstance(self.size, int):
            short = min(height, width)
            target = (round(height * self.size / short), round(width * self.size / short))
        else:
            target = self.size
        return resize(image, *target, self.interpolation, self.antialias)


class RandomResizedCrop(Transform):
    """A part of random area and shape, brought to one size: the usual augmentation for classifying photographs.

    scale: bounds of the area, as a share of the image; ratio: bounds of width / height

    >>> td.data.transforms.RandomResizedCrop(4)(td.ones(3, 9, 7)).shape
    (3, 4, 4)
    """

    def __init__(
        self, size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation: str = "bilinear", antialias: bool = True
    ):
        self.size, self.scale, self.ratio = pair("RandomResizedCrop", size), scale, ratio
        self.interpolation, self.antialias = interpolation, antialias

    def __call__(self, image):
        height, width = size_of(image)
        draw = sample_random()
        for _ in range(10):
            area = height * width * draw.uniform(*self.scale)
            aspect = math.exp(draw.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top, left = draw.randint(0, height - h), draw.randint(0, width - w)
                break
        else:  # an image too long or too high for the ratios: its middle
            aspect = min(max(width / height, self.ratio[0]), self.ratio[1])
            w, h = min(width, round(height * aspect)), min(height, round(width / aspect))
            top, left = (height - h) // 2, (width - w) // 2
        return resize(crop(image, top, left, h, w), *self.size, self.interpolation, self.antialias)


class _RandomFlip(Transform):
    axis = -1

    def __init__(self, p: float = 0.5):
        self.p = p

    def __call__(self, image):
        if sample_random().random() >= self.p:
            return image
        array, back = as_array(image)
        return back(array[..., ::-1] if self.axis == -1 else array[..., ::-1, :])


class RandomHorizontalFlip(_RandomFlip):
    """Left and right exchanged, with probability p.

    >>> td.data.transforms.RandomHorizontalFlip(p=1.0)(td.tensor([[1, 2]])).tolist()
    [[2, 1]]
    """


class RandomVerticalFlip(_RandomFlip):
    """Top and bottom exchanged, with probability p.

    >>> td.data.transforms.RandomVerticalFlip(p=1.0)(td.tensor([[1], [2]])).tolist()
    [[2], [1]]
    """

    axis = -2


class RandomRotation(Transform):
    """A turn by a random angle, in degrees from -degrees to degrees or between two bounds, about the middle; corners get `fill`.

    >>> td.data.transforms.RandomRotation((90, 90))(td.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """

    def __init__(self, degrees, fill=0):
        self.degrees = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)
        self.fill = fill

    def __call__(self, image):
        import numpy

        angle = math.radians(sample_random().uniform(*self.degrees))
        array, back = as_array(image)
        height, width = array.shape[-2:]
        y, x = numpy.mgrid[:height, :width].astype(numpy.float64)
        y, x = y - (height - 1) / 2, x - (width - 1) / 2
        sine, cosine = math.sin(angle), math.cos(angle)
        rows = numpy.rint(sine * x + cosine * y + (height - 1) / 2 - 1e-9).astype(int)
        columns = numpy.rint(cosine * x - sine * y + (width - 1) / 2 - 1e-9).astype(int)
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        turned = array[..., rows.clip(0, height - 1), columns.clip(0, width - 1)]
        return back(numpy.where(inside, turned, numpy.asarray(self.fill, array.dtype)))


class RandomErasing(Transform):
    """A rectangle of random area and place filled with a value, or with normal noise if value="random" (Zhong et al. 2020).

    >>> td.data.transforms.RandomErasing(p=0.0)(td.ones(1, 4, 4)).sum()
    tensor(16.)
    """

    def __init__(self, p: float = 0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0):
        self.p, self.scale, self.ratio, self.value = p, scale, ratio, value

    def __call__(self, image):
        draw = sample_random()
        if draw.random() >= self.p:
            return image
        import numpy

        array, back = as_array(image)
        height, width = array.shape[-2:]
        for _ in range(10):
            area = height * width * draw.uniform(*self.scale)
            aspect = math.exp(draw.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
            if 0 < h < height and 0 < w < width:
                top, left = draw.randint(0, height - h), draw.randint(0, width - w)
                array = array.copy()
                part = array[..., top : top + h, left : left + w]
                if self.value == "random":
                    part[...] = numpy.random.default_rng(draw.getrandbits(64)).standard_normal(part.shape)
                else:
                    value = numpy.asarray(self.value, array.dtype)
                    part[...] = value.reshape(-1, 1, 1) if value.ndim else value
                return back(array)
        return image
