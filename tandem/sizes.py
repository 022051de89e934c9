"""td.Size: sizes as PyTorch spells them."""

from __future__ import annotations

import math


class Size(tuple):
    """A tuple of sizes. `x.shape` is a plain tuple and equal to one.

    >>> td.ones(2, 3).shape == td.Size([2, 3])
    True
    """

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor with these sizes."""
        return math.prod(self)
