"""Encoders and decoders of text; mixtures of experts; sequence to sequence."""

import math

import torch
import torch.nn.functional as F
from case import SCALE, Case, zoo
from torch import nn

VOCABULARY = 2000


def tokens(n, t):
    return torch.randint(0, VOCABULARY, (n * SCALE, t))


def next_token_loss(model, x):
    logits = model(x[:, :-1])
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), x[:, 1:].reshape(-1))


class BertSelfAttention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1))
        probs = self.dropout(F.softmax(scores + mask, dim=-1))
        out = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        return out.view(x.size(0), x.size(1), -1)


class BertLayer(nn.Module):
    def __init__(self, dim, heads, dropout=0.1):
        super().__init__()
        self.attention, self.output = BertSelfAttention(dim, heads, dropout), nn.Linear(dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-12), nn.LayerNorm(dim, eps=1e-12)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.output(self.attention(x, mask))))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    def __init__(self, dim=128, layers=4, heads=4, context=128):
        super().__init__()
        self.words, self.positions, self.types = (
            nn.Embedding(VOCABULARY, dim, padding_idx=0),
            nn.Embedding(context, dim),
            nn.Embedding(2, dim),
        )
        self.norm, self.dropout = nn.LayerNorm(dim, eps=1e-12), nn.Dropout(0.1)
        self.layers = nn.ModuleList([BertLayer(dim, heads) for _ in range(layers)])
        self.transform, self.bias = nn.Linear(dim, dim), nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, x, lengths):
        t = x.size(1)
        places = torch.arange(t, device=x.device)
        h = self.words(x) + self.positions(places)[None] + self.types(torch.zeros_like(x))
        h = self.dropout(self.norm(h))
        mask = (places[None, :] < lengths[:, None])[:, None, None, :]
        mask = (1.0 - mask.float()) * -10000.0
        for layer in self.layers:
            h = layer(h, mask)
        return F.linear(F.gelu(self.transform(h)), self.words.weight, self.bias)


@zoo
def bert():
    x = tokens(8, 64)
    labels = torch.where(torch.rand(x.shape) < 0.15, x, torch.full_like(x, -100))
    lengths = torch.randint(20, 65, (x.shape[0],))
    loss = lambda m, x, n, y: F.cross_entropy(m(x, n).view(-1, VOCABULARY), y.view(-1), ignore_index=-100)
    return Case(Bert(), (x, lengths, labels), loss, lambda m, x, n, y: m(x, n))


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rotary(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


def rotate_half(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class GroupedAttention(nn.Module):
    def __init__(self, dim, heads, kv_heads, window=None, halves=False):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.window, self.halves = heads, kv_heads, dim // heads, window, halves
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, kv_heads * self.size, bias=False)
        self.wv, self.wo = nn.Linear(dim, kv_heads * self.size, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.wk(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        v = self.wv(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        turn = rotate_half if self.halves else rotary
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
        v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        if self.window is None:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            i = torch.arange(t, device=x.device)
            mask = (i[None, :] <= i[:, None]) & (i[None, :] > i[:, None] - self.window)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.wo(out.transpose(1, 2).contiguous().view(b, t, -1))


class LlamaBlock(nn.Module):
    def __init__(self, dim, heads, kv_heads, **more):
        super().__init__()
        self.attention, self.norm1, self.norm2 = (
            GroupedAttention(dim, heads, kv_heads, **more),
            RMSNorm(dim),
            RMSNorm(dim),
        )
        hidden = int(8 * dim / 3)
        self.w1, self.w2, self.w3 = (
            nn.Linear(dim, hidden, bias=False),
            nn.Linear(hidden, dim, bias=False),
            nn.Linear(dim, hidden, bias=False),
        )

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, dim=192, layers=4, heads=6, kv_heads=2, context=128, **more):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, dim)
        self.blocks = nn.ModuleList([LlamaBlock(dim, heads, kv_heads, **more) for _ in range(layers)])
        self.norm, self.out = RMSNorm(dim), nn.Linear(dim, VOCABULARY, bias=False)
        size = dim // heads
        freqs = 1.0 / (10000 ** (torch.arange(0, size, 2).float() / size))
        angles = torch.outer(torch.arange(context).float(), freqs)
        if more.get("halves"):
            angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x):
        h, t = self.embed(x), x.shape[1]
        for block in self.blocks:
            h = block(h, self.cos[:t], self.sin[:t])
        return self.out(self.norm(h))


@zoo
def llama():
    return Case(Llama(), (tokens(4, 97),), next_token_loss)


@zoo
def mistral():
    return Case(Llama(window=32, halves=True), (tokens(4, 97),), next_token_loss)


class T5Attention(nn.Module):
    def __init__(self, dim, heads, buckets=32):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.bias = nn.Embedding(buckets, heads)

    def bucket(self, distance, buckets=32, most=128):
        n = torch.clamp(-distance, min=0)
        exact = buckets // 2
        large = exact + (torch.log(n.float().clamp(min=1) / exact) / math.log(most / exact) * (buckets - exact)).long()
        return torch.where(n < exact, n, torch.clamp(large, max=buckets - 1))

    def forward(self, x, memory=None, causal=False):
        b, t, d = x.shape
        source = x if memory is None else memory
        split = lambda y: y.view(b, -1, self.heads, d // self.heads).transpose(1, 2)
        q, k, v = split(self.q(x)), split(self.k(source)), split(self.v(source))
        scores = q @ k.transpose(3, 2)
        if memory is None:
            i = torch.arange(t, device=x.device)
            distance = i[None, :] - i[:, None]
            scores = scores + self.bias(self.bucket(distance)).permute(2, 0, 1)[None]
            if causal:
                scores = scores.masked_fill(distance[None, None] > 0, float("-inf"))
        weights = F.dropout(F.softmax(scores.float(), dim=-1).type_as(scores), 0.1, self.training)
        return self.o((weights @ v).transpose(1, 2).reshape(b, t, d))


class T5Block(nn.Module):
    def __init__(self, dim, heads, decoder):
        super().__init__()
        self.norm, self.attention = RMSNorm(dim), T5Attention(dim, heads)
        self.cross_norm, self.cross = (RMSNorm(dim), T5Attention(dim, heads)) if decoder else (None, None)
        self.ff_norm, self.wi, self.wo = (
            RMSNorm(dim),
            nn.Linear(dim, 4 * dim, bias=False),
            nn.Linear(4 * dim, dim, bias=False),
        )
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, memory=None):
        x = x + self.dropout(self.attention(self.norm(x), causal=memory is not None))
        if memory is not None:
            x = x + self.dropout(self.cross(self.cross_norm(x), memory))
        return x + self.dropout(self.wo(self.dropout(F.relu(self.wi(self.ff_norm(x))))))


class T5(nn.Module):
    def __init__(self, dim=128, layers=2, heads=4):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, dim)
        self.encoder = nn.ModuleList([T5Block(dim, heads, False) for _ in range(layers)])
        self.decoder = nn.ModuleList([T5Block(dim, heads, True) for _ in range(layers)])
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)

    def forward(self, source, target):
        h = self.embed(source)
        for block in self.encoder:
            h = block(h)
        memory, y = self.norm1(h), self.embed(target)
        for block in self.decoder:
            y = block(y, memory)
        return (self.norm2(y) * (y.shape[-1] ** -0.5)) @ self.embed.weight.t()


@zoo
def t5():
    def loss(m, x, y):
        return F.cross_entropy(m(x, y[:, :-1]).flatten(0, 1), y[:, 1:].flatten(), label_smoothing=0.1)

    return Case(T5(), (tokens(4, 64), tokens(4, 49)), loss, lambda m, x, y: m(x, y))


class Experts(nn.Module):
    def __init__(self, dim, count=8, chosen=2):
        super().__init__()
        self.gate = nn.Linear(dim, count, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim)) for _ in range(count)]
        )
        self.chosen = chosen

    def forward(self, x):
        flat = x.view(-1, x.shape[-1])
        weights = F.softmax(self.gate(flat), dim=1, dtype=torch.float)
        weights, selected = torch.topk(weights, self.chosen, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        result = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            row, place = torch.where(selected == i)
            result.index_add_(0, row, expert(flat[row]) * weights[row, place, None])
        return result.view_as(x)


class MoEBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.experts = nn.MultiheadAttention(dim, heads, batch_first=True), Experts(dim)

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.experts(self.norm2(x))


class MixtureLM(nn.Module):
    def __init__(self, dim=128, layers=2, heads=4):
        super().__init__()
        self.embed, self.out = nn.Embedding(VOCABULARY, dim), nn.Linear(dim, VOCABULARY)
        self.blocks = nn.ModuleList([MoEBlock(dim, heads) for _ in range(layers)])

    def forward(self, x):
        t = x.shape[1]
        mask = torch.triu(torch.full((t, t), float("-inf"), device=x.device), diagonal=1)
        h = self.embed(x)
        for block in self.blocks:
            h = block(h, mask)
        return self.out(h)


@zoo
def mixture_of_experts():
    return Case(MixtureLM(), (tokens(4, 65),), next_token_loss)


class AttentionDecoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed, self.cell = nn.Embedding(VOCABULARY, dim), nn.GRUCell(2 * dim, dim)
        self.wa, self.ua, self.va = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 1)
        self.out = nn.Linear(dim, VOCABULARY)

    def forward(self, target, memory, state):
        keys, results = self.ua(memory), []
        for i in range(target.shape[1]):
            scores = self.va(torch.tanh(self.wa(state).unsqueeze(1) + keys)).squeeze(-1)
            context = torch.bmm(F.softmax(scores, dim=-1).unsqueeze(1), memory).squeeze(1)
            state = self.cell(torch.cat([self.embed(target[:, i]), context], dim=1), state)
            results.append(self.out(state))
        return torch.stack(results, dim=1)


class Seq2Seq(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.embed, self.encoder = (
            nn.Embedding(VOCABULARY, dim),
            nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True),
        )
        self.decoder = AttentionDecoder(dim)

    def forward(self, source, target):
        memory, state = self.encoder(self.embed(source))
        return self.decoder(target, memory, state.transpose(0, 1).reshape(source.shape[0], -1))


@zoo
def seq2seq():
    loss = lambda m, x, y: F.cross_entropy(m(x, y[:, :-1]).flatten(0, 1), y[:, 1:].flatten())
    return Case(Seq2Seq(), (tokens(16, 24), tokens(16, 17)), loss, lambda m, x, y: m(x, y))


class SpatialGate(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.norm = nn.LayerNorm(dim // 2)
        self.weight = nn.Parameter(torch.randn(length, length) * 1e-3)
        self.bias = nn.Parameter(torch.ones(length))

    def forward(self, x):
        u, v = x.chunk(2, dim=-1)
        mask = torch.tril(torch.ones_like(self.weight))
        v = torch.einsum("bnd,mn->bmd", self.norm(v), self.weight * mask) + self.bias.unsqueeze(-1)
        return u * v


class GMLP(nn.Module):
    def __init__(self, vocabulary=1000, dim=96, length=128, depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        block = lambda: nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), SpatialGate(4 * dim, length), nn.Linear(2 * dim, dim)
        )
        self.blocks = nn.ModuleList([block() for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + block(h)
        return self.norm(h) @ self.embed.weight.t()


@zoo
def gmlp():
    x = torch.randint(0, 1000, (4 * SCALE, 129))
    return Case(
        GMLP(),
        (x,),
        lambda m, x: F.cross_entropy(m(x[:, :-1]).reshape(-1, 1000), x[:, 1:].reshape(-1)),
        lambda m, x: m(x[:, :-1]),
    )
