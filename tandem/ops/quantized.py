"""Products with weights of 8 and 4 bits that never write the weights as floats: for few rows, which are as fast as memory is."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.ops.define import op


@op(internal=True)
def int8_linear(x: Tensor, weight: Tensor, scale: Tensor):
    """x (n, k) float, weight (o, k) int8, scale (o, g) of groups of k / g -> (n, o): x @ (weight * scale).T"""
    rows = F.reshape(x, (x.shape[0], 1, x.shape[1]))
    if scale.shape[1] == 1:
        return F.sum(rows * F.astype(weight, x.dtype), -1) * F.reshape(scale, (scale.shape[0],))
    outputs, groups = scale.shape
    parts = F.reshape(x, (x.shape[0], 1, groups, -1)) * F.astype(F.reshape(weight, (outputs, groups, -1)), x.dtype)
    return F.sum(F.sum(parts, -1) * scale, -1)


@op(internal=True)
def int4_linear(x: Tensor, weight: Tensor, scale: Tensor):
    """x (n, k) float, weight (o, g, k / 2g) uint8, scale (o, g) -> (n, o).

    A byte has two weights, each plus 8: its low half one of the group's first half, its high half the one as far into the second.
    """
    groups, half = weight.shape[1:]
    halves = F.reshape(x, (x.shape[0], 1, groups, 2, half))
    low = F.astype(F.bitwise_and(weight, 15), x.dtype) - 8.0
    high = F.astype(F.bitwise_right_shift(weight, 4), x.dtype) - 8.0
    parts = halves[:, :, :, 0] * low + halves[:, :, :, 1] * high
    return F.sum(F.sum(parts, -1) * scale, -1)


def unpack_int4(weight, dtype=dtypes.float32):
    """(o, g, k / 2g) bytes -> (o, g, k / g) numbers from -8 to 7."""
    low, high = F.bitwise_and(weight, 15), F.bitwise_right_shift(weight, 4)
    return F.astype(F.concat([low, high], -1), dtype) - 8.0
