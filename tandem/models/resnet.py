"""ResNet (He et al., 2016), with the stride in the 3x3 convolution. Names of weights as in torchvision."""

from __future__ import annotations

from tandem import nn
from tandem.nn import functional as F


def _shortcut(channels: int, out: int, stride: int):
    """What the input passes through where its shape changes; None where it stays."""
    if stride == 1 and channels == out:
        return None
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, channels: int, width: int, stride: int = 1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = _shortcut(channels, width, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, channels: int, width: int, stride: int = 1):
        super().__init__()
        out = self.expansion * width
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = _shortcut(channels, out, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """x: (n, 3, h, w), 224 x 224 in the paper -> scores (n, classes)"""

    def __init__(self, block, counts, num_classes: int = 1000, width: int = 64):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = width
        for i, count in enumerate(counts):
            blocks = []
            for k in range(count):
                blocks.append(block(channels, width << i, 2 if i > 0 and k == 0 else 1))
                channels = block.expansion * (width << i)
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(**settings) -> ResNet:
    """ResNet of 18 layers."""
    return ResNet(BasicBlock, (2, 2, 2, 2), **settings)


def resnet34(**settings) -> ResNet:
    """ResNet of 34 layers."""
    return ResNet(BasicBlock, (3, 4, 6, 3), **settings)


def resnet50(**settings) -> ResNet:
    """ResNet of 50 layers."""
    return ResNet(Bottleneck, (3, 4, 6, 3), **settings)


def resnet101(**settings) -> ResNet:
    """ResNet of 101 layers."""
    return ResNet(Bottleneck, (3, 4, 23, 3), **settings)
