"""Dropout: zeroes elements or channels at random while training. `inplace` is accepted and changes nothing."""

from __future__ import annotations

from tandem.nn import functional as F
from tandem.nn.module import Module


class _Dropout(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"p is {p}; a probability lies between 0 and 1")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zeroes each element with probability p while training, and scales the others by 1 / (1 - p).

    >>> td.nn.Dropout(0.5).eval()(td.ones(2))
    tensor([1., 1.])
    """

    def forward(self, input):
        return F.dropout(input, self.p, self.training) if self.training else input


class Dropout1d(_Dropout):
    """Dropout of whole channels. input: (N, C, L) or (C, L)"""

    def forward(self, input):
        return F.dropout1d(input, self.p, self.training) if self.training else input


class Dropout2d(_Dropout):
    """Dropout of whole channels. input: (N, C, H, W) or (C, H, W)"""

    def forward(self, input):
        return F.dropout2d(input, self.p, self.training) if self.training else input


class Dropout3d(_Dropout):
    """Dropout of whole channels. input: (N, C, D, H, W) or (C, D, H, W)"""

    def forward(self, input):
        return F.dropout3d(input, self.p, self.training) if self.training else input


class AlphaDropout(_Dropout):
    """Dropout for SELU networks: keeps mean and variance."""

    def forward(self, input):
        return F.alpha_dropout(input, self.p, self.training) if self.training else input


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels."""

    def forward(self, input):
        return F.feature_alpha_dropout(input, self.p, self.training) if self.training else input
