"""LeNet-5 (LeCun et al., 1998), with rectifiers and max pooling as it is written today."""

from __future__ import annotations

from tandem import nn


class LeNet(nn.Module):
    """x: (n, channels, 28, 28) -> scores (n, classes)

    >>> td.models.LeNet()(td.zeros(2, 1, 28, 28)).shape
    (2, 10)
    """

    def __init__(self, num_classes: int = 10, channels: int = 1):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes)
        )  # fmt: skip

    def forward(self, x):
        return self.classifier(self.features(x))
