"""Floats as whole numbers of few bits times a scale, one for every group of weights."""

from __future__ import annotations

import tandem as td
from tandem.errors import ShapeError, ValueRangeError

LARGEST = {8: 127, 4: 7}


def groups_of(weight, bits: int, group: int | None):
    """weight (o, ...) as (o, g, k): groups of so many weights of an output, or all of them."""
    if bits not in LARGEST:
        raise ValueRangeError("quantize", f"bits is {bits}; it may be 8 or 4")
    flat = weight.reshape(weight.shape[0], -1)
    size = group or flat.shape[1]
    if size < 1 or flat.shape[1] % size or (bits == 4 and size % 2):
        even = "; 4 bits need an even number" if bits == 4 else ""
        raise ShapeError(
            "quantize", f"{flat.shape[1]} weights of an output cannot be groups of {size}{even}",
            fix="name the layer in skip, or take another group",
        )  # fmt: skip
    return flat.reshape(flat.shape[0], flat.shape[1] // size, size)


def scales_of(grouped, bits: int):
    """(o, g): the largest of a group is the largest number; a group of zeros has scale 1."""
    largest = grouped.abs().amax(-1)
    return td.where(largest > 0, largest / LARGEST[bits], 1.0)


def rounded(grouped, scale, bits: int):
    return (grouped / scale[..., None]).round().clamp(-LARGEST[bits], LARGEST[bits])
