"""Detection, segmentation, super-resolution: images in, maps out."""

import torch
import torch.nn.functional as F
from case import SCALE, Case, zoo
from torch import nn


def conv_bn_relu(inputs, outputs, kernel=3, stride=1, dilation=1):
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=16, classes=5):
        super().__init__()
        double = lambda i, o: nn.Sequential(conv_bn_relu(i, o), conv_bn_relu(o, o))
        self.down = nn.ModuleList([double(3, width), double(width, 2 * width), double(2 * width, 4 * width)])
        self.middle = double(4 * width, 8 * width)
        self.ups = nn.ModuleList([nn.ConvTranspose2d(2 * c, c, 2, stride=2) for c in (4 * width, 2 * width, width)])
        self.convs = nn.ModuleList([double(2 * c, c) for c in (4 * width, 2 * width, width)])
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, conv in zip(self.ups, self.convs):
            x = conv(torch.cat([skips.pop(), up(x)], dim=1))
        return self.out(x)


@zoo
def unet():
    inputs = torch.randn(2 * SCALE, 3, 96, 96), torch.randint(0, 5, (2 * SCALE, 96, 96))
    return Case(UNet(), inputs, lambda m, x, y: F.cross_entropy(m(x), y), images=True)


class ASPP(nn.Module):
    def __init__(self, inputs, outputs, rates=(6, 12, 18)):
        super().__init__()
        self.convs = nn.ModuleList(
            [conv_bn_relu(inputs, outputs, 1)] + [conv_bn_relu(inputs, outputs, 3, 1, r) for r in rates]
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inputs, outputs, 1), nn.ReLU())
        self.project = nn.Sequential(conv_bn_relu(5 * outputs, outputs, 1), nn.Dropout(0.5))

    def forward(self, x):
        found = [conv(x) for conv in self.convs]
        pooled = F.interpolate(self.pool(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        return self.project(torch.cat(found + [pooled], dim=1))


class DeepLab(nn.Module):
    def __init__(self, classes=21):
        super().__init__()
        self.backbone = nn.Sequential(
            conv_bn_relu(3, 32, 3, 2),
            conv_bn_relu(32, 64, 3, 2),
            conv_bn_relu(64, 128, 3, 2),
            conv_bn_relu(128, 128, 3, 1, 2),
        )
        self.aspp = ASPP(128, 64)
        self.head = nn.Sequential(conv_bn_relu(64, 64), nn.Conv2d(64, classes, 1))

    def forward(self, x):
        y = self.head(self.aspp(self.backbone(x)))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


@zoo
def deeplab():
    target = torch.randint(0, 21, (2 * SCALE, 128, 128))
    target[:, :8] = 255
    loss = lambda m, x, y: F.cross_entropy(m(x), y, ignore_index=255)
    return Case(DeepLab(), (torch.randn(2 * SCALE, 3, 128, 128), target), loss, images=True)


class FPN(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.inner = nn.ModuleList([nn.Conv2d(c, width, 1) for c in channels])
        self.outer = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in channels])

    def forward(self, features):
        last = self.inner[-1](features[-1])
        results = [self.outer[-1](last)]
        for i in range(len(features) - 2, -1, -1):
            lateral = self.inner[i](features[i])
            last = lateral + F.interpolate(last, size=lateral.shape[-2:], mode="nearest")
            results.insert(0, self.outer[i](last))
        return results


class RetinaNet(nn.Module):
    def __init__(self, classes=20, anchors=9, width=64):
        super().__init__()
        self.stem = nn.Sequential(conv_bn_relu(3, 32, 3, 2), conv_bn_relu(32, 32, 3, 2))
        self.stages = nn.ModuleList(
            [conv_bn_relu(32, 64, 3, 2), conv_bn_relu(64, 128, 3, 2), conv_bn_relu(128, 256, 3, 2)]
        )
        self.fpn = FPN((64, 128, 256), width)
        tower = lambda: nn.Sequential(
            *[m for _ in range(2) for m in (nn.Conv2d(width, width, 3, padding=1), nn.ReLU())]
        )
        self.cls_tower, self.box_tower = tower(), tower()
        self.cls, self.box = (
            nn.Conv2d(width, anchors * classes, 3, padding=1),
            nn.Conv2d(width, anchors * 4, 3, padding=1),
        )
        self.classes = classes

    def forward(self, x):
        x, features = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        scores, boxes = [], []
        for level in self.fpn(features):
            c, b = self.cls(self.cls_tower(level)), self.box(self.box_tower(level))
            n, _, h, w = c.shape
            scores.append(c.view(n, -1, self.classes, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, self.classes))
            boxes.append(b.view(n, -1, 4, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, 4))
        return torch.cat(scores, dim=1), torch.cat(boxes, dim=1)


def focal_loss(logits, targets, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce * ((1 - p_t) ** gamma)
    return ((alpha * targets + (1 - alpha) * (1 - targets)) * loss).sum()


@zoo
def retinanet():
    n, anchors = 2 * SCALE, 9 * (16 * 16 + 8 * 8 + 4 * 4)
    labels = torch.randint(-1, 20, (n, anchors))
    boxes = torch.randn(n, anchors, 4)

    def loss(model, x, labels, boxes):
        scores, found = model(x)
        positive = labels >= 10
        target = torch.zeros_like(scores)
        target[positive, labels[positive]] = 1.0
        valid = labels >= 0
        count = max(1, positive.sum().item())
        classes = focal_loss(scores[valid], target[valid]) / count
        return classes + F.smooth_l1_loss(found[positive], boxes[positive], reduction="sum") / count

    return Case(RetinaNet(), (torch.randn(n, 3, 128, 128), labels, boxes), loss, images=True)


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x):
        return x + self.body(x).mul(0.1)


@zoo
def edsr():
    width = 32
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        *[ResBlock(width) for _ in range(6)],
        nn.Conv2d(width, 4 * width, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Conv2d(width, 3, 3, padding=1),
    )
    inputs = torch.rand(4 * SCALE, 3, 48, 48), torch.rand(4 * SCALE, 3, 96, 96)
    return Case(model, inputs, lambda m, x, y: F.l1_loss(m(x), y), images=True)


class DenseResidual(nn.Module):
    def __init__(self, width=32, growth=16):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv2d(width + i * growth, growth if i < 4 else width, 3, 1, 1) for i in range(5)]
        )

    def forward(self, x):
        found = [x]
        for i, conv in enumerate(self.convs):
            y = conv(torch.cat(found, 1))
            found.append(F.leaky_relu(y, 0.2) if i < 4 else y)
        return found[-1] * 0.2 + x


class RRDBNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 1, 1)
        self.trunk = nn.Sequential(*[DenseResidual(width) for _ in range(4)])
        self.up, self.last = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, x):
        x = self.first(x)
        x = x + self.trunk(x)
        x = F.leaky_relu(self.up(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.last(x)


@zoo
def esrgan():
    inputs = torch.rand(2 * SCALE, 3, 48, 48), torch.rand(2 * SCALE, 3, 96, 96)
    return Case(RRDBNet(), inputs, lambda m, x, y: F.l1_loss(m(x), y), images=True)
