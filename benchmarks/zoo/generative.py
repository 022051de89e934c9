"""Diffusion, GANs, autoencoders."""

import math

import torch
import torch.nn.functional as F
from case import SCALE, Case, zoo
from torch import nn


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(0, half, dtype=torch.float32, device=t.device) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class ResnetBlock(nn.Module):
    def __init__(self, inputs, outputs, embedding):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.emb = nn.Linear(embedding, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.dropout = nn.Dropout(0.1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb(F.silu(emb))[:, :, None, None]
        h = self.conv2(self.dropout(F.silu(self.norm2(h))))
        return h + self.skip(x)


class AttnBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.qkv, self.proj = (
            nn.GroupNorm(8, channels),
            nn.Conv2d(channels, 3 * channels, 1),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c, h * w).unbind(1)
        weight = torch.bmm(q.transpose(1, 2), k) * (c**-0.5)
        weight = torch.softmax(weight, dim=-1)
        out = torch.bmm(v, weight.transpose(1, 2)).reshape(b, c, h, w)
        return x + self.proj(out)


class DiffusionUNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        e = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, e), nn.SiLU(), nn.Linear(e, e))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.d1, self.d2 = ResnetBlock(width, width, e), ResnetBlock(width, 2 * width, e)
        self.down1, self.down2 = nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(2 * width, 2 * width, 3, 2, 1)
        self.m1, self.attn, self.m2 = (
            ResnetBlock(2 * width, 2 * width, e),
            AttnBlock(2 * width),
            ResnetBlock(2 * width, 2 * width, e),
        )
        self.u1, self.u2 = ResnetBlock(4 * width, 2 * width, e), ResnetBlock(3 * width, width, e)
        self.up1, self.up2 = (
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
        )
        self.out = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, self.width))
        h1 = self.d1(self.first(x), emb)
        h2 = self.d2(self.down1(h1), emb)
        h = self.m2(self.attn(self.m1(self.down2(h2), emb)), emb)
        h = self.up1(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        h = self.u1(torch.cat([h, h2], dim=1), emb)
        h = self.up2(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        h = self.u2(torch.cat([h, h1], dim=1), emb)
        return self.out(h)


@zoo
def ddpm():
    n = 4 * SCALE
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), dim=0)

    def loss(model, x, noise, t, alphas):
        a = alphas[t][:, None, None, None]
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        return F.mse_loss(model(noisy, t), noise)

    inputs = torch.randn(n, 3, 32, 32), torch.randn(n, 3, 32, 32), torch.randint(0, 1000, (n,)), alphas
    return Case(DiffusionUNet(), inputs, loss, lambda m, x, noise, t, a: m(x, t), images=True)


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class DiTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def forward(self, x, c):
        a, b, g, a2, b2, g2 = self.ada(c).chunk(6, dim=1)
        h = modulate(self.norm1(x), a, b)
        x = x + g.unsqueeze(1) * self.attn(h, h, h, need_weights=False)[0]
        return x + g2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), a2, b2))


class DiT(nn.Module):
    def __init__(self, dim=128, depth=4, heads=4, patch=4, size=32):
        super().__init__()
        self.patch, self.dim = patch, dim
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.pos = nn.Parameter(torch.randn(1, (size // patch) ** 2, dim) * 0.02)
        self.time = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.label = nn.Embedding(10, dim)
        self.blocks = nn.ModuleList([DiTBlock(dim, heads) for _ in range(depth)])
        self.norm, self.out = nn.LayerNorm(dim, elementwise_affine=False), nn.Linear(dim, patch * patch * 3)

    def forward(self, x, t, y):
        n, _, hh, ww = x.shape
        h = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        c = self.time(timestep_embedding(t, self.dim)) + self.label(y)
        for block in self.blocks:
            h = block(h, c)
        h = self.out(self.norm(h))
        p, k = self.patch, hh // self.patch
        h = h.reshape(n, k, k, p, p, 3)
        return torch.einsum("nhwpqc->nchpwq", h).reshape(n, 3, hh, ww)


@zoo
def dit():
    n = 8 * SCALE
    inputs = (
        torch.randn(n, 3, 32, 32),
        torch.randint(0, 1000, (n,)),
        torch.randint(0, 10, (n,)),
        torch.randn(n, 3, 32, 32),
    )
    return Case(
        DiT(), inputs, lambda m, x, t, y, noise: F.mse_loss(m(x, t, y), noise), lambda m, x, t, y, noise: m(x, t, y)
    )


class Generator(nn.Module):
    def __init__(self, latent=64, width=32):
        super().__init__()
        up = lambda i, o: [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
        self.main = nn.Sequential(
            nn.ConvTranspose2d(latent, 4 * width, 4, 1, 0, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.ReLU(True),
            *up(4 * width, 2 * width),
            *up(2 * width, width),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.InstanceNorm2d(2 * width, affine=True),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * width, 1, 8),
        )

    def forward(self, x):
        return self.main(x).view(-1)


@zoo
def gan():
    def step(model, optimizers, real, z):
        generator, discriminator = model[0], model[1]
        fake = generator(z)
        optimizers[1].zero_grad()
        d = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake.detach())).mean()
        d.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        g = F.softplus(-discriminator(fake)).mean()
        g.backward()
        optimizers[0].step()
        return d + g

    n = 16 * SCALE
    adam = lambda m: [torch.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.999)) for part in m]
    model = nn.ModuleList([Generator(), Discriminator()])
    inputs = torch.randn(n, 3, 32, 32), torch.randn(n, 64)
    return Case(model, inputs, None, lambda m, real, z: m[0](z), step, adam, images=True)


class VAE(nn.Module):
    def __init__(self, width=32, latent=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1),
            nn.ELU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(2 * width * 64, 256),
        )
        self.mu, self.logvar = nn.Linear(256, latent), nn.Linear(256, latent)
        self.decode = nn.Sequential(nn.Linear(latent, 2 * width * 64), nn.ELU())
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
            nn.Conv2d(2 * width, width, 3, padding=1),
            nn.ELU(),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x):
        h = F.elu(self.encoder(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.up(self.decode(z).view(x.shape[0], -1, 8, 8))), mu, logvar


@zoo
def vae():
    def loss(model, x):
        found, mu, logvar = model(x)
        reconstruction = F.binary_cross_entropy(found, x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return (reconstruction + kld) / x.shape[0]

    return Case(VAE(), (torch.rand(16 * SCALE, 3, 32, 32),), loss, images=True, mixed=False)


class VQVAE(nn.Module):
    def __init__(self, width=32, codes=128, dim=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, dim, 4, 2, 1))
        self.codes = nn.Embedding(codes, dim)
        nn.init.uniform_(self.codes.weight, -1 / codes, 1 / codes)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(dim, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1)
        )

    def forward(self, x):
        z = self.encoder(x).permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, z.shape[-1])
        distances = (
            flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codes.weight.t() + self.codes.weight.pow(2).sum(1)
        )
        index = torch.argmin(distances, dim=1)
        q = self.codes(index).view_as(z)
        commit = F.mse_loss(z, q.detach()) * 0.25 + F.mse_loss(q, z.detach())
        q = z + (q - z).detach()
        return self.decoder(q.permute(0, 3, 1, 2)), commit


@zoo
def vqvae():
    def loss(model, x):
        found, commit = model(x)
        return F.mse_loss(found, x) + commit

    return Case(VQVAE(), (torch.rand(8 * SCALE, 3, 64, 64),), loss, images=True)
