"""DCGAN (Radford et al., 2016): generator and discriminator of strided convolutions for 64 x 64 images."""

from __future__ import annotations

import itertools

from tandem import nn


def _start(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    """noise: (n, latent, 1, 1) -> images (n, channels, 64, 64) between -1 and 1"""

    def __init__(self, latent: int = 100, width: int = 64, channels: int = 3):
        super().__init__()
        sizes = [latent, 8 * width, 4 * width, 2 * width, width]
        layers = []
        for i, (a, b) in enumerate(itertools.pairwise(sizes)):
            stride, padding = (1, 0) if i == 0 else (2, 1)
            layers += [nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.main = nn.Sequential(*layers, nn.ConvTranspose2d(width, channels, 4, 2, 1, bias=False), nn.Tanh())
        self.apply(_start)

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    """images: (n, channels, 64, 64) -> how real they look (n), before the sigmoid"""

    def __init__(self, width: int = 64, channels: int = 3):
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        layers = [nn.Conv2d(channels, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)]
        self.main = nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 0, bias=False))
        self.apply(_start)

    def forward(self, images):
        return self.main(images).flatten()
