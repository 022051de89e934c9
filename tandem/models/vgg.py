"""VGG (Simonyan and Zisserman, 2015). Names of weights as in torchvision."""

from __future__ import annotations

from tandem import nn

_PLANS = {  # channels of convolutions; 0 is a pooling
    11: (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    13: (64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    16: (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0),
    19: (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0),
}


class VGG(nn.Module):
    """x: (n, 3, 224, 224), or any size from 32 up -> scores (n, classes). depth: 11, 13, 16 or 19 layers with weights."""

    def __init__(
        self, depth: int, num_classes: int = 1000, batch_norm: bool = False, dropout: float = 0.5, width: int = 4096
    ):
        super().__init__()
        layers, channels = [], 3
        for out in _PLANS[depth]:
            if out == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers.append(nn.Conv2d(channels, out, 3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(out))
            layers.append(nn.ReLU())
            channels = out
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 49, width), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, num_classes),
        )  # fmt: skip

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def vgg11(**settings) -> VGG:
    """VGG with 8 convolutions."""
    return VGG(11, **settings)


def vgg13(**settings) -> VGG:
    """VGG with 10 convolutions."""
    return VGG(13, **settings)


def vgg16(**settings) -> VGG:
    """VGG with 13 convolutions."""
    return VGG(16, **settings)


def vgg19(**settings) -> VGG:
    """VGG with 16 convolutions."""
    return VGG(19, **settings)
