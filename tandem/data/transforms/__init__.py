"""Transforms: small objects that are called with a sample.

    augment = transforms.Compose([
        transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(),
        transforms.ToTensor(), transforms.Normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
    ])

Images are tensors or arrays (..., height, width), or PIL images, which crops, flips, resizes and paddings keep as what they are.
Random ones draw from td.data.sample_random(): in a loader, what they do to a sample depends on seed, epoch and index.
"""

from tandem.data.transforms.colour import ColorJitter, Grayscale, RandomGrayscale
from tandem.data.transforms.general import Compose, ConvertDtype, Lambda, Normalize, RandomApply, RandomChoice, ToTensor
from tandem.data.transforms.geometry import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from tandem.data.transforms.text import Characters, Tokenize

__all__ = [
    "CenterCrop", "Characters", "ColorJitter", "Compose", "ConvertDtype", "Grayscale", "Lambda", "Normalize", "Pad", "RandomApply",
    "RandomChoice", "RandomCrop", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomResizedCrop", "RandomRotation",
    "RandomVerticalFlip", "Resize", "ToTensor", "Tokenize",
]  # fmt: skip
