"""A small network."""

from __future__ import annotations

import tandem as td
from tandem import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.Linear(5 * 9, 3)

    def forward(self, x):
        y = td.nn.functional.max_pool2d(td.relu(self.norm(self.conv(x))), 2)
        return self.linear(y.flatten(1)).softmax(-1)
