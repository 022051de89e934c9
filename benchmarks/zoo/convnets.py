import torch
import torch.nn.functional as F
from case import SCALE, Case, zoo
from torch import nn


def images(n, size, channels=3, classes=100):
    return torch.randn(n * SCALE, channels, size, size), torch.randint(0, classes, (n * SCALE,))


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


class LayerNorm2d(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(1e-6 * torch.ones(dim))

    def forward(self, x):
        skip = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)
        x = self.pwconv2(self.act(self.pwconv1(self.norm(x))))
        x = self.gamma * x
        return skip + x.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, depths=(2, 2, 4, 2), dims=(48, 96, 192, 384), classes=100):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dims[0], 4, stride=4), LayerNorm2d(dims[0]))
        self.stages = nn.ModuleList()
        self.downs = nn.ModuleList()
        for i, (depth, dim) in enumerate(zip(depths, dims)):
            self.stages.append(nn.Sequential(*[ConvNeXtBlock(dim) for _ in range(depth)]))
            if i < 3:
                self.downs.append(nn.Sequential(LayerNorm2d(dim), nn.Conv2d(dim, dims[i + 1], 2, stride=2)))
        self.norm = nn.LayerNorm(dims[-1])
        self.head = nn.Linear(dims[-1], classes)

    def forward(self, x):
        x = self.stem(x)
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i < 3:
                x = self.downs[i](x)
        return self.head(self.norm(x.mean([-2, -1])))


@zoo
def convnext():
    return Case(ConvNeXt(), images(4, 96), classify, images=True)


class DenseLayer(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features):
        x = torch.cat(features, 1)
        x = self.conv1(F.relu(self.norm1(x), inplace=True))
        return self.conv2(F.relu(self.norm2(x), inplace=True))


class DenseBlock(nn.Module):
    def __init__(self, count, channels, growth):
        super().__init__()
        self.layers = nn.ModuleList([DenseLayer(channels + i * growth, growth) for i in range(count)])

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    def __init__(self, growth=16, blocks=(4, 8, 8, 6), classes=100):
        super().__init__()
        channels = 2 * growth
        layers = [nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(True)]
        layers.append(nn.MaxPool2d(3, 2, 1))
        for i, count in enumerate(blocks):
            layers.append(DenseBlock(count, channels, growth))
            channels += count * growth
            if i < len(blocks) - 1:
                layers += [nn.BatchNorm2d(channels), nn.ReLU(True), nn.Conv2d(channels, channels // 2, 1, bias=False)]
                layers.append(nn.AvgPool2d(2))
                channels //= 2
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.features(x), inplace=True)
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


@zoo
def densenet():
    return Case(DenseNet(), images(4, 96), classify, images=True)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, reduced, 1), nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        scale = torch.sigmoid(self.fc2(F.silu(self.fc1(scale))))
        return scale * x


class MBConv(nn.Module):
    def __init__(self, inputs, outputs, expand, kernel, stride):
        super().__init__()
        hidden = inputs * expand
        layers = []
        if expand != 1:
            layers += [nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.SiLU()]
        layers += [
            nn.Conv2d(hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.SiLU(),
            SqueezeExcite(hidden, max(1, inputs // 4)),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.block = nn.Sequential(*layers)
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.block(x) if self.skip else self.block(x)


@zoo
def efficientnet():
    setting = [
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 2),
        (6, 5, 1, 112, 2),
        (6, 5, 2, 192, 2),
    ]
    layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU()]
    channels = 32
    for expand, kernel, stride, outputs, count in setting:
        for i in range(count):
            layers.append(MBConv(channels, outputs, expand, kernel, stride if i == 0 else 1))
            channels = outputs
    layers += [nn.Conv2d(channels, 640, 1, bias=False), nn.BatchNorm2d(640), nn.SiLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(640, 100)]
    return Case(nn.Sequential(*layers), images(4, 96), classify, images=True)


class RegBlock(nn.Module):
    def __init__(self, inputs, outputs, stride, group=16):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride, 1, groups=outputs // group, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.se = SqueezeExcite(outputs, inputs // 4)
        self.conv3, self.bn3 = nn.Conv2d(outputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.proj = None
        if stride != 1 or inputs != outputs:
            self.proj = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(self.se(y)))
        return F.relu(y + (x if self.proj is None else self.proj(x)))


@zoo
def regnet():
    layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(True)]
    channels = 32
    for outputs, count in ((48, 1), (96, 2), (208, 4), (432, 2)):
        for i in range(count):
            layers.append(RegBlock(channels, outputs, 2 if i == 0 else 1))
            channels = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100)]
    return Case(nn.Sequential(*layers), images(4, 96), classify, images=True)


class ConvBN(nn.Module):
    def __init__(self, inputs, outputs, **kwargs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Mixed(nn.Module):
    def __init__(self, inputs, pool):
        super().__init__()
        self.one = ConvBN(inputs, 64, kernel_size=1)
        self.five1, self.five2 = ConvBN(inputs, 48, kernel_size=1), ConvBN(48, 64, kernel_size=5, padding=2)
        self.three1, self.three2 = ConvBN(inputs, 64, kernel_size=1), ConvBN(64, 96, kernel_size=3, padding=1)
        self.tall = ConvBN(96, 96, kernel_size=(7, 1), padding=(3, 0))
        self.wide = ConvBN(96, 96, kernel_size=(1, 7), padding=(0, 3))
        self.pool = ConvBN(inputs, pool, kernel_size=1)

    def forward(self, x):
        pooled = F.avg_pool2d(x, kernel_size=3, stride=1, padding=1)
        branches = [
            self.one(x),
            self.five2(self.five1(x)),
            self.tall(self.wide(self.three2(self.three1(x)))),
            self.pool(pooled),
        ]
        return torch.cat(branches, 1)


@zoo
def inception_v3():
    model = nn.Sequential(
        ConvBN(3, 32, kernel_size=3, stride=2),
        ConvBN(32, 64, kernel_size=3, padding=1),
        nn.MaxPool2d(3, 2),
        ConvBN(64, 80, kernel_size=1),
        ConvBN(80, 192, kernel_size=3),
        nn.MaxPool2d(3, 2),
        Mixed(192, 32),
        Mixed(256, 64),
        Mixed(288, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(288, 100),
    )
    return Case(model, images(4, 119), classify, images=True)


class ExcitedVolumes(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.norm = nn.Conv3d(inputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(4, outputs)
        self.scale = nn.Sequential(
            nn.Linear(outputs, outputs // 4), nn.ReLU(), nn.Linear(outputs // 4, outputs), nn.Sigmoid()
        )

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        return x * self.scale(x.mean((2, 3, 4)))[:, :, None, None, None]


@zoo
def video():
    model = nn.Sequential(
        ExcitedVolumes(3, 16), nn.MaxPool3d((1, 2, 2)), ExcitedVolumes(16, 32), nn.MaxPool3d(2), ExcitedVolumes(32, 64),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    inputs = torch.randn(2 * SCALE, 3, 8, 32, 32), torch.randint(0, 10, (2 * SCALE,))
    return Case(model, inputs, classify)


def squash(s, dim=-1):
    norm2 = (s**2).sum(dim=dim, keepdim=True)
    return norm2 / (1.0 + norm2) * s / torch.sqrt(norm2 + 1e-8)


class CapsNet(nn.Module):
    def __init__(self, classes=10, routings=3):
        super().__init__()
        self.routings = routings
        self.conv = nn.Conv2d(1, 32, 9)
        self.primary = nn.Conv2d(32, 64, 9, stride=2)
        self.W = nn.Parameter(0.05 * torch.randn(1, 8 * 36, classes, 16, 8))
        self.decoder = nn.Sequential(
            nn.Linear(16 * classes, 128), nn.ReLU(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 784), nn.Sigmoid()
        )

    def forward(self, x, y):
        u = self.primary(F.relu(self.conv(x)))
        b = u.shape[0]
        u = squash(u.view(b, 8, 8, 6, 6).permute(0, 1, 3, 4, 2).reshape(b, -1, 8))
        u_hat = (self.W @ u[:, :, None, :, None]).squeeze(-1)  # b, capsules, classes, 16
        logits = torch.zeros(b, u_hat.shape[1], u_hat.shape[2], 1, device=x.device)
        stopped = u_hat.detach()
        for i in range(self.routings):
            c = F.softmax(logits, dim=2)
            if i < self.routings - 1:
                v = squash((c * stopped).sum(dim=1, keepdim=True))
                logits = logits + (stopped * v).sum(dim=-1, keepdim=True)
            else:
                v = squash((c * u_hat).sum(dim=1))
        lengths = v.norm(dim=-1)
        masked = (v * F.one_hot(y, v.shape[1]).float().unsqueeze(-1)).flatten(1)
        return lengths, self.decoder(masked)


@zoo
def capsules():
    n = 8 * SCALE

    def loss(m, x, y):
        lengths, image = m(x, y)
        t = F.one_hot(y, 10).float()
        margin = t * F.relu(0.9 - lengths) ** 2 + 0.5 * (1 - t) * F.relu(lengths - 0.1) ** 2
        return margin.sum(1).mean() + 0.0005 * ((image - x.flatten(1)) ** 2).sum(1).mean()

    return Case(CapsNet(), (torch.rand(n, 1, 28, 28), torch.randint(0, 10, (n,))), loss, lambda m, x, y: m(x, y))
