"""Inception v3 (Szegedy et al., 2016). Names of weights as in torchvision."""

from __future__ import annotations

import tandem as td
from tandem import nn
from tandem.nn import functional as F


class ConvNorm(nn.Module):
    def __init__(self, channels: int, out: int, kernel, **settings):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel, bias=False, **settings)
        self.bn = nn.BatchNorm2d(out, eps=0.001)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


def _average(x):
    return F.avg_pool2d(x, 3, 1, 1)


class InceptionA(nn.Module):
    def __init__(self, channels: int, pool: int):
        super().__init__()
        self.branch1x1 = ConvNorm(channels, 64, 1)
        self.branch5x5_1, self.branch5x5_2 = ConvNorm(channels, 48, 1), ConvNorm(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = ConvNorm(channels, 64, 1)
        self.branch3x3dbl_2, self.branch3x3dbl_3 = ConvNorm(64, 96, 3, padding=1), ConvNorm(96, 96, 3, padding=1)
        self.branch_pool = ConvNorm(channels, pool, 1)

    def forward(self, x):
        return td.cat(
            [
                self.branch1x1(x),
                self.branch5x5_2(self.branch5x5_1(x)),
                self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x))),
                self.branch_pool(_average(x)),
            ],
            1,
        )


class InceptionB(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.branch3x3 = ConvNorm(channels, 384, 3, stride=2)
        self.branch3x3dbl_1 = ConvNorm(channels, 64, 1)
        self.branch3x3dbl_2, self.branch3x3dbl_3 = ConvNorm(64, 96, 3, padding=1), ConvNorm(96, 96, 3, stride=2)

    def forward(self, x):
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return td.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, 2)], 1)


class InceptionC(nn.Module):
    def __init__(self, channels: int, c7: int):
        super().__init__()
        wide, high = {"padding": (0, 3)}, {"padding": (3, 0)}
        self.branch1x1 = ConvNorm(channels, 192, 1)
        self.branch7x7_1 = ConvNorm(channels, c7, 1)
        self.branch7x7_2, self.branch7x7_3 = ConvNorm(c7, c7, (1, 7), **wide), ConvNorm(c7, 192, (7, 1), **high)
        self.branch7x7dbl_1 = ConvNorm(channels, c7, 1)
        self.branch7x7dbl_2, self.branch7x7dbl_3 = ConvNorm(c7, c7, (7, 1), **high), ConvNorm(c7, c7, (1, 7), **wide)
        self.branch7x7dbl_4, self.branch7x7dbl_5 = ConvNorm(c7, c7, (7, 1), **high), ConvNorm(c7, 192, (1, 7), **wide)
        self.branch_pool = ConvNorm(channels, 192, 1)

    def forward(self, x):
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        return td.cat(
            [
                self.branch1x1(x),
                self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x))),
                self.branch7x7dbl_5(self.branch7x7dbl_4(double)),
                self.branch_pool(_average(x)),
            ],
            1,
        )


class InceptionD(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = ConvNorm(channels, 192, 1), ConvNorm(192, 320, 3, stride=2)
        self.branch7x7x3_1 = ConvNorm(channels, 192, 1)
        self.branch7x7x3_2 = ConvNorm(192, 192, (1, 7), padding=(0, 3))
        self.branch7x7x3_3 = ConvNorm(192, 192, (7, 1), padding=(3, 0))
        self.branch7x7x3_4 = ConvNorm(192, 192, 3, stride=2)

    def forward(self, x):
        seven = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        return td.cat([self.branch3x3_2(self.branch3x3_1(x)), self.branch7x7x3_4(seven), F.max_pool2d(x, 3, 2)], 1)


class InceptionE(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        wide, high = {"padding": (0, 1)}, {"padding": (1, 0)}
        self.branch1x1 = ConvNorm(channels, 320, 1)
        self.branch3x3_1 = ConvNorm(channels, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = ConvNorm(384, 384, (1, 3), **wide), ConvNorm(384, 384, (3, 1), **high)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = ConvNorm(channels, 448, 1), ConvNorm(448, 384, 3, padding=1)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = (
            ConvNorm(384, 384, (1, 3), **wide),
            ConvNorm(384, 384, (3, 1), **high),
        )
        self.branch_pool = ConvNorm(channels, 192, 1)

    def forward(self, x):
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        parts = [self.branch1x1(x), self.branch3x3_2a(three), self.branch3x3_2b(three)]
        return td.cat(
            [*parts, self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double), self.branch_pool(_average(x))], 1
        )


class InceptionAux(nn.Module):
    def __init__(self, channels: int, num_classes: int):
        super().__init__()
        self.conv0, self.conv1 = ConvNorm(channels, 128, 1), ConvNorm(128, 768, 5)
        self.fc = nn.Linear(768, num_classes)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.conv1(self.conv0(F.avg_pool2d(x, 5, 3))), 1).flatten(1))


class InceptionV3(nn.Module):
    """x: (n, 3, 299, 299), or from 75 pixels a side -> scores (n, classes); while training (scores, auxiliary scores)."""

    def __init__(self, num_classes: int = 1000, aux_logits: bool = True, dropout: float = 0.5):
        super().__init__()
        self.Conv2d_1a_3x3 = ConvNorm(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = ConvNorm(32, 32, 3)
        self.Conv2d_2b_3x3 = ConvNorm(32, 64, 3, padding=1)
        self.Conv2d_3b_1x1 = ConvNorm(64, 80, 1)
        self.Conv2d_4a_3x3 = ConvNorm(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = InceptionA(192, 32), InceptionA(256, 64), InceptionA(288, 64)
        self.Mixed_6a = InceptionB(288)
        self.Mixed_6b, self.Mixed_6c = InceptionC(768, 128), InceptionC(768, 160)
        self.Mixed_6d, self.Mixed_6e = InceptionC(768, 160), InceptionC(768, 192)
        self.AuxLogits = InceptionAux(768, num_classes) if aux_logits else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = InceptionD(768), InceptionE(1280), InceptionE(2048)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2048, num_classes)

    def forward(self, x):
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, 2)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(F.max_pool2d(x, 3, 2))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        # Small images leave nothing for the auxiliary classifier, which averages windows of 5 x 5 twice over.
        use_aux = self.training and self.AuxLogits is not None and x.shape[-1] >= 17
        aux = self.AuxLogits(x) if use_aux else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        scores = self.fc(self.dropout(F.adaptive_avg_pool2d(x, 1)).flatten(1))
        return scores if aux is None else (scores, aux)
