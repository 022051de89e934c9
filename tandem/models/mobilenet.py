"""MobileNet v1 (Howard et al., 2017) and v2 (Sandler et al., 2018). Names of v2's weights as in torchvision."""

from __future__ import annotations

from tandem import nn


def _layer(channels: int, out: int, kernel: int, stride: int, groups: int = 1, activation=nn.ReLU6) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False), nn.BatchNorm2d(out), activation()
    )  # fmt: skip


def _divisible(channels: float, by: int = 8) -> int:
    """The nearest multiple that is not below nine tenths."""
    rounded = max(by, int(channels + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * channels else rounded


class MobileNetV1(nn.Module):
    """Depthwise separable convolutions. x: (n, 3, h, w) -> scores (n, classes)"""

    def __init__(self, num_classes: int = 1000, width: float = 1.0):
        super().__init__()
        size = lambda c: int(c * width)
        layers, channels = [_layer(3, size(32), 3, 2, activation=nn.ReLU)], size(32)
        for out, stride in (
            (64, 1),
            (128, 2),
            (128, 1),
            (256, 2),
            (256, 1),
            (512, 2),
            *[(512, 1)] * 5,
            (1024, 2),
            (1024, 1),
        ):
            layers.append(_layer(channels, channels, 3, stride, channels, nn.ReLU))
            layers.append(_layer(channels, size(out), 1, 1, activation=nn.ReLU))
            channels = size(out)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class InvertedResidual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int, expand: int):
        super().__init__()
        hidden = channels * expand
        layers = [_layer(channels, hidden, 1, 1)] if expand != 1 else []
        layers += [
            _layer(hidden, hidden, 3, stride, hidden),
            nn.Conv2d(hidden, out, 1, bias=False),
            nn.BatchNorm2d(out),
        ]
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and channels == out

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    """Inverted residuals with linear bottlenecks. x: (n, 3, h, w) -> scores (n, classes)"""

    def __init__(self, num_classes: int = 1000, width: float = 1.0, dropout: float = 0.2):
        super().__init__()
        channels, last = _divisible(32 * width), _divisible(1280 * max(1.0, width))
        layers = [_layer(3, channels, 3, 2)]
        for expand, out, count, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
        ):  # fmt: skip
            out = _divisible(out * width)
            for k in range(count):
                layers.append(InvertedResidual(channels, out, stride if k == 0 else 1, expand))
                channels = out
        layers.append(_layer(channels, last, 1, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))
