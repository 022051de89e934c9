import torch
import torch.nn.functional as F
from case import SCALE, Case, zoo
from torch import nn


def images(n, size, classes=100):
    return torch.randn(n * SCALE, 3, size, size), torch.randint(0, classes, (n * SCALE,))


def classify(model, x, y):
    return F.cross_entropy(model(x), y, label_smoothing=0.1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv, self.proj, self.drop = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Dropout(0.1)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        attn = self.drop(((q @ k.transpose(-2, -1)) * self.scale).softmax(dim=-1))
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(dim), Attention(dim, heads), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=128, depth=4, heads=4, patch=8, size=64):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.cls, self.pos = (
            nn.Parameter(torch.zeros(1, 1, dim)),
            nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, dim) * 0.02),
        )
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 100)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


@zoo
def vit():
    return Case(ViT(), images(8, 64), classify)


def windows(x, size):
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, c)


def unwindow(x, size, h, w):
    b = x.shape[0] // (h * w // size // size)
    x = x.view(b, h // size, w // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)


class SwinBlock(nn.Module):
    def __init__(self, dim, heads, resolution, window=4, shift=0):
        super().__init__()
        self.heads, self.window, self.shift, self.resolution = heads, window, shift, resolution
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        coords = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", relative[..., 0] * (2 * window - 1) + relative[..., 1])
        mask = None
        if shift:
            h = resolution
            marks = torch.zeros(1, h, h, 1)
            count = 0
            for a in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
                for b in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
                    marks[:, a, b, :] = count
                    count += 1
            m = windows(marks, window).squeeze(-1)
            mask = (m.unsqueeze(1) - m.unsqueeze(2)).ne(0).float() * -100.0
        self.register_buffer("mask", mask)

    def forward(self, x):
        h = self.resolution
        b, _, c = x.shape
        y = self.norm1(x).view(b, h, h, c)
        if self.shift:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = windows(y, self.window)
        n, t, _ = y.shape
        q, k, v = self.qkv(y).reshape(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attn = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(t, t, -1).permute(2, 0, 1).contiguous()
        attn = attn + bias.unsqueeze(0)
        if self.mask is not None:
            nw = self.mask.shape[0]
            attn = attn.view(n // nw, nw, self.heads, t, t) + self.mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.heads, t, t)
        y = self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))
        y = unwindow(y, self.window, h, h)
        if self.shift:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + y.view(b, h * h, c)
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self, dim=48, size=64):
        super().__init__()
        r = size // 4
        self.embed = nn.Conv2d(3, dim, 4, 4)
        self.stage1 = nn.Sequential(SwinBlock(dim, 3, r), SwinBlock(dim, 3, r, shift=2))
        self.merge, self.merge_norm = nn.Linear(4 * dim, 2 * dim, bias=False), nn.LayerNorm(4 * dim)
        self.stage2 = nn.Sequential(SwinBlock(2 * dim, 6, r // 2), SwinBlock(2 * dim, 6, r // 2, shift=2))
        self.norm, self.head, self.r = nn.LayerNorm(2 * dim), nn.Linear(2 * dim, 100), r

    def forward(self, x):
        x = self.stage1(self.embed(x).flatten(2).transpose(1, 2))
        b, _, c = x.shape
        x = x.view(b, self.r, self.r, c)
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        x = self.merge(self.merge_norm(x.view(b, -1, 4 * c)))
        return self.head(self.norm(self.stage2(x)).mean(1))


@zoo
def swin():
    return Case(Swin(), images(8, 64), classify)


@zoo
def mlp_mixer():
    dim, patches = 128, 64

    class MixerBlock(nn.Module):
        def __init__(self):
            super().__init__()
            mlp = lambda d, h: nn.Sequential(nn.Linear(d, h), nn.GELU(), nn.Linear(h, d))
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.tokens, self.channels = mlp(patches, 64), mlp(dim, 512)

        def forward(self, x):
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Conv2d(3, dim, 8, 8)
            self.blocks = nn.Sequential(*[MixerBlock() for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 100)

        def forward(self, x):
            x = self.embed(x).flatten(2).transpose(1, 2)
            return self.head(self.norm(self.blocks(x)).mean(dim=1))

    return Case(Mixer(), images(8, 64), classify)


class CLIP(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.vision = ViT(dim)
        self.vision.head = nn.Linear(dim, dim)
        self.words, self.pos = nn.Embedding(1000, dim), nn.Parameter(torch.randn(24, dim) * 0.01)
        layer = nn.TransformerEncoderLayer(
            dim, 4, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.text = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.project = nn.Linear(dim, dim, bias=False)
        self.scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, x, words):
        a = F.normalize(self.vision(x), dim=-1)
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        b = self.text(self.words(words) + self.pos, mask=mask, is_causal=True)[:, -1]
        b = F.normalize(self.project(b), dim=-1)
        return self.scale.exp() * a @ b.t()


@zoo
def clip():
    def loss(m, x, words):
        logits = m(x, words)
        y = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, y) + F.cross_entropy(logits.t(), y)) / 2

    inputs = torch.randn(8 * SCALE, 3, 64, 64), torch.randint(0, 1000, (8 * SCALE, 24))
    return Case(CLIP(), inputs, loss, lambda m, x, w: m(x, w))


class MaskedAutoencoder(nn.Module):
    def __init__(self, patches=64, patch=48, dim=128, decoder=64, depth=3):
        super().__init__()

        def layer(width):
            return nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )

        self.embed, self.pos = nn.Linear(patch, dim), nn.Parameter(torch.randn(1, patches, dim) * 0.02)
        self.encoder = nn.ModuleList([layer(dim) for _ in range(depth)])
        self.narrow, self.mask_token = nn.Linear(dim, decoder), nn.Parameter(torch.zeros(1, 1, decoder))
        self.decoder_pos = nn.Parameter(torch.randn(1, patches, decoder) * 0.02)
        self.decoder = nn.ModuleList([layer(decoder) for _ in range(2)])
        self.out = nn.Linear(decoder, patch)

    def forward(self, patches, noise):
        n, length, _ = patches.shape
        keep = length // 4
        shuffle = torch.argsort(noise, dim=1)
        restore = torch.argsort(shuffle, dim=1)
        x = self.embed(patches) + self.pos
        x = torch.gather(x, 1, shuffle[:, :keep].unsqueeze(-1).repeat(1, 1, x.shape[-1]))
        for block in self.encoder:
            x = block(x)
        x = self.narrow(x)
        x = torch.cat([x, self.mask_token.repeat(n, length - keep, 1)], dim=1)
        x = torch.gather(x, 1, restore.unsqueeze(-1).repeat(1, 1, x.shape[-1])) + self.decoder_pos
        for block in self.decoder:
            x = block(x)
        mask = torch.ones(n, length, device=x.device)
        mask[:, :keep] = 0
        return self.out(x), torch.gather(mask, 1, restore)


@zoo
def masked_autoencoder():
    n = 8 * SCALE

    def loss(m, x, noise):
        predicted, mask = m(x, noise)
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True)
        error = ((predicted - (x - mean) / (var + 1e-6) ** 0.5) ** 2).mean(-1)
        return (error * mask).sum() / mask.sum()

    inputs = torch.randn(n, 64, 48), torch.rand(n, 64)
    return Case(MaskedAutoencoder(), inputs, loss, lambda m, x, noise: m(x, noise)[0])
