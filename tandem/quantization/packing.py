"""Weights in the order that integer products read them (Note [Integer products] in src/library/gemm_int8.h)."""

from __future__ import annotations

import tandem as td
from tandem.ops.integer_products import PANEL, SMALL_PANEL


def packed(numbers):
    """(n, k) int8 -> (panels, k / 4, 32, 4), zeros where there are none."""
    n, k = numbers.shape
    panels, fours = -(-n // PANEL), -(-k // 4)
    whole = td.nn.functional.pad(numbers, (0, fours * 4 - k, 0, panels * PANEL - n))
    return whole.reshape(panels, PANEL, fours, 4).permute(0, 2, 1, 3).contiguous()


def packed_int4(numbers):
    """(n, groups, g) numbers from -8 to 7 -> (panels, groups, g / 8, 16, 4) bytes."""
    n, groups, g = numbers.shape
    panels = -(-n // SMALL_PANEL)
    whole = td.nn.functional.pad((numbers + 8).to(td.uint8), (0, 0, 0, 0, 0, panels * SMALL_PANEL - n))
    low, high = (
        h.reshape(panels, SMALL_PANEL, groups, g // 8, 4) for h in (whole[..., : g // 2], whole[..., g // 2 :])
    )
    return (low | (high << 4)).permute(0, 2, 3, 1, 4).contiguous()
