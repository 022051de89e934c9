"""State-space and linear-attention models, speech, time series, operators on functions."""

import itertools

import torch
import torch.nn.functional as F
from case import SCALE, Case, zoo
from torch import nn


def segment_sum(x):
    t = x.size(-1)
    c = torch.cumsum(x, dim=-1)
    difference = c[..., :, None] - c[..., None, :]
    mask = torch.tril(torch.ones(t, t, device=x.device, dtype=torch.bool))
    return difference.masked_fill(~mask, float("-inf"))


class SSD(nn.Module):
    """A state-space layer by chunks, as in Mamba 2."""

    def __init__(self, dim, state=32, head=32, chunk=32):
        super().__init__()
        self.inner, self.state, self.head, self.chunk = 2 * dim, state, head, chunk
        self.heads = self.inner // head
        self.in_proj = nn.Linear(dim, 2 * self.inner + 2 * state + self.heads, bias=False)
        self.conv = nn.Conv1d(
            self.inner + 2 * state, self.inner + 2 * state, 4, groups=self.inner + 2 * state, padding=3
        )
        self.dt_bias = nn.Parameter(torch.rand(self.heads))
        self.a_log = nn.Parameter(torch.log(torch.arange(1, self.heads + 1).float()))
        self.d = nn.Parameter(torch.ones(self.heads))
        self.norm, self.out_proj = nn.LayerNorm(self.inner), nn.Linear(self.inner, dim, bias=False)

    def forward(self, u):
        b, t, _ = u.shape
        z, xbc, dt = torch.split(self.in_proj(u), [self.inner, self.inner + 2 * self.state, self.heads], dim=-1)
        dt = F.softplus(dt + self.dt_bias)
        xbc = F.silu(self.conv(xbc.transpose(1, 2))[..., :t].transpose(1, 2))
        x, bb, cc = torch.split(xbc, [self.inner, self.state, self.state], dim=-1)
        x = x.view(b, t, self.heads, self.head)
        a = -torch.exp(self.a_log) * dt
        y = self.scan(x * dt.unsqueeze(-1), a, bb, cc) + x * self.d[:, None]
        return self.out_proj(self.norm(y.reshape(b, t, -1) * F.silu(z)))

    def scan(self, x, a, bb, cc):
        b, t, h, p = x.shape
        q, k = self.chunk, t // self.chunk
        x, bb, cc = x.view(b, k, q, h, p), bb.view(b, k, q, -1), cc.view(b, k, q, -1)
        a = a.view(b, k, q, h).permute(0, 3, 1, 2)
        cumulative = torch.cumsum(a, dim=-1)
        decay = torch.exp(segment_sum(a))
        inside = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", cc, bb, decay, x)
        to_end = torch.exp(cumulative[:, :, :, -1:] - cumulative)
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", bb, to_end, x)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], dim=1)
        between = torch.exp(segment_sum(F.pad(cumulative[:, :, :, -1], (1, 0))))
        states = torch.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
        across = torch.einsum("bcln,bchpn,bhcl->bclhp", cc, states, torch.exp(cumulative))
        return (inside + across).reshape(b, t, h, p)


class MambaLM(nn.Module):
    def __init__(self, dim=96, layers=3, vocabulary=500):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList([SSD(dim) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(layers)])
        self.out = nn.Linear(dim, vocabulary)

    def forward(self, x):
        h = self.embed(x)
        for norm, layer in zip(self.norms, self.layers):
            h = h + layer(norm(h))
        return self.out(h)


@zoo
def mamba2():
    x = torch.randint(0, 500, (4 * SCALE, 128))
    return Case(MambaLM(), (x,), lambda m, x: F.cross_entropy(m(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten()))


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.cumsum(torch.einsum("bhtd,bhte->bhtde", k, v), dim=2)
        norm = torch.einsum("bhtd,bhtd->bht", q, torch.cumsum(k, dim=2)) + 1e-6
        out = torch.einsum("bhtd,bhtde->bhte", q, kv) / norm.unsqueeze(-1)
        return self.out(out.transpose(1, 2).reshape(b, t, d))


@zoo
def linear_attention():
    dim = 64
    layer = lambda: nn.Sequential(nn.LayerNorm(dim), LinearAttention(dim))
    mlp = lambda: nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([part() for _ in range(2) for part in (layer, mlp)])
            self.head = nn.Linear(dim, 10)

        def forward(self, x):
            for part in self.parts:
                x = x + part(x)
            return self.head(x.mean(dim=1))

    inputs = torch.randn(4 * SCALE, 128, dim), torch.randint(0, 10, (4 * SCALE,))
    return Case(Model(), inputs, lambda m, x, y: F.cross_entropy(m(x), y))


class WaveNetLayer(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.dilation = dilation
        self.filter, self.gate = (nn.Conv1d(channels, channels, 2, dilation=dilation) for _ in range(2))
        self.residual, self.skip = nn.Conv1d(channels, channels, 1), nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        padded = F.pad(x, (self.dilation, 0))
        h = torch.tanh(self.filter(padded)) * torch.sigmoid(self.gate(padded))
        return x + self.residual(h), self.skip(h)


class WaveNet(nn.Module):
    def __init__(self, channels=32, classes=256, depth=8):
        super().__init__()
        self.embed = nn.Embedding(classes, channels)
        self.layers = nn.ModuleList([WaveNetLayer(channels, 2 ** (i % 8)) for i in range(depth)])
        self.out = nn.Sequential(
            nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU(), nn.Conv1d(channels, classes, 1)
        )

    def forward(self, x):
        h, skips = self.embed(x).transpose(1, 2), 0
        for layer in self.layers:
            h, skip = layer(h)
            skips = skips + skip
        return self.out(skips)


@zoo
def wavenet():
    x = torch.randint(0, 256, (2 * SCALE, 1025))
    return Case(WaveNet(), (x,), lambda m, x: F.cross_entropy(m(x[:, :-1]), x[:, 1:]), lambda m, x: m(x))


class ConformerBlock(nn.Module):
    def __init__(self, dim, heads=4, kernel=15):
        super().__init__()
        ff = lambda: nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, 4 * dim),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(4 * dim, dim),
            nn.Dropout(0.1),
        )
        self.ff1, self.ff2 = ff(), ff()
        self.norm, self.attention = nn.LayerNorm(dim), nn.MultiheadAttention(dim, heads, dropout=0.1, batch_first=True)
        self.conv_norm = nn.LayerNorm(dim)
        self.conv = nn.Sequential(
            nn.Conv1d(dim, 2 * dim, 1),
            nn.GLU(dim=1),
            nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim),
            nn.BatchNorm1d(dim),
            nn.SiLU(),
            nn.Conv1d(dim, dim, 1),
        )
        self.last = nn.LayerNorm(dim)

    def forward(self, x, padding):
        x = x + 0.5 * self.ff1(x)
        h = self.norm(x)
        x = x + self.attention(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        x = x + self.conv(self.conv_norm(x).transpose(1, 2)).transpose(1, 2)
        return self.last(x + 0.5 * self.ff2(x))


class Conformer(nn.Module):
    def __init__(self, dim=96, layers=2, classes=30):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
        self.proj = nn.Linear(16 * 20, dim)
        self.blocks = nn.ModuleList([ConformerBlock(dim) for _ in range(layers)])
        self.out = nn.Linear(dim, classes)

    def forward(self, x, lengths):
        h = self.sub(x.unsqueeze(1))
        h = self.proj(h.permute(0, 2, 1, 3).flatten(2))
        padding = torch.arange(h.shape[1], device=x.device)[None, :] >= lengths[:, None]
        for block in self.blocks:
            h = block(h, padding)
        return F.log_softmax(self.out(h), dim=-1)


@zoo
def conformer():
    n = 4 * SCALE
    lengths, targets = torch.randint(32, 41, (n,)), torch.randint(1, 30, (n, 12))

    def loss(m, x, lengths, targets):
        sizes = torch.full((x.shape[0],), 12, dtype=torch.long)
        return F.ctc_loss(m(x, lengths).transpose(0, 1), targets, lengths, sizes, zero_infinity=True)

    return Case(Conformer(), (torch.randn(n, 160, 80), lengths, targets), loss, lambda m, x, n, y: m(x, n))


class TCN(nn.Module):
    def __init__(self, channels=(8, 32, 32, 64), kernel=5):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.utils.weight_norm(nn.Conv1d(i, o, kernel, padding=(kernel - 1) * 2**j, dilation=2**j))
             for j, (i, o) in enumerate(itertools.pairwise(channels))]
        )  # fmt: skip
        self.downs = nn.ModuleList([nn.Conv1d(i, o, 1) for i, o in itertools.pairwise(channels)])
        self.kernel, self.out = kernel, nn.Linear(channels[-1], 1)

    def forward(self, x):
        for j, (conv, down) in enumerate(zip(self.convs, self.downs)):
            cut = (self.kernel - 1) * 2**j
            x = F.relu(F.dropout(F.relu(conv(x)[:, :, :-cut]), 0.1, self.training) + down(x))
        return self.out(x[:, :, -1])


@zoo
def tcn():
    inputs = torch.randn(8 * SCALE, 8, 256), torch.randn(8 * SCALE, 1)
    return Case(TCN(), inputs, lambda m, x, y: F.mse_loss(m(x), y))


class SpectralConv2d(nn.Module):
    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.rand(channels, channels, modes, modes, dtype=torch.cfloat) / channels**2)

    def forward(self, x):
        ft = torch.fft.rfft2(x)
        m = self.modes
        out = torch.zeros_like(ft)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", ft[:, :, :m, :m], self.weight)
        return torch.fft.irfft2(out, s=x.shape[-2:])


@zoo
def fourier_operator():
    width = 24

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lift, self.proj = nn.Conv2d(3, width, 1), nn.Conv2d(width, 1, 1)
            self.spectral = nn.ModuleList([SpectralConv2d(width, 12) for _ in range(3)])
            self.local = nn.ModuleList([nn.Conv2d(width, width, 1) for _ in range(3)])

        def forward(self, x):
            x = self.lift(x)
            for s, w in zip(self.spectral, self.local):
                x = F.gelu(s(x) + w(x))
            return self.proj(x)

    inputs = torch.randn(4 * SCALE, 3, 64, 64), torch.randn(4 * SCALE, 1, 64, 64)
    return Case(Model(), inputs, lambda m, x, y: F.mse_loss(m(x), y), mixed=False)


class LSTMTagger(nn.Module):
    def __init__(self, vocabulary=1000, dim=64, hidden=96, tags=12):
        super().__init__()
        self.embed, self.lstm = (
            nn.Embedding(vocabulary, dim),
            nn.LSTM(dim, hidden, 2, batch_first=True, bidirectional=True, dropout=0.2),
        )
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, x):
        return self.out(self.lstm(self.embed(x))[0])


@zoo
def lstm_tagger():
    x, y = torch.randint(0, 1000, (16 * SCALE, 40)), torch.randint(0, 12, (16 * SCALE, 40))
    return Case(LSTMTagger(), (x, y), lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten()))
