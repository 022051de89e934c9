"""Programs about text and sound, in PyTorch's words. Each takes a Kit and gives a list of numbers."""


# ruff: noqa: B007, F841, RUF059

import math

import numpy as np


def speech_ctc_conformerish(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class Conv(nn.Module):
        def __init__(self, d, k=3):
            super().__init__()
            self.ln = nn.LayerNorm(d)
            self.pw1 = nn.Conv1d(d, 2 * d, 1)
            self.dw = nn.Conv1d(d, d, k, padding=k // 2, groups=d)
            self.bn = nn.BatchNorm1d(d)
            self.pw2 = nn.Conv1d(d, d, 1)

        def forward(self, x):
            y = self.ln(x).transpose(1, 2)
            y = F.glu(self.pw1(y), dim=1)
            y = F.silu(self.bn(self.dw(y)))
            return x + self.pw2(y).transpose(1, 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.sub = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU())
            self.lin = nn.Linear(4 * 4, 12)
            self.blocks = nn.ModuleList([Conv(12) for _ in range(2)])
            self.att = nn.MultiheadAttention(12, 3, batch_first=True)
            self.out = nn.Linear(12, 6)

        def forward(self, x, lens):
            x = self.sub(x.unsqueeze(1))
            b, c, t, f = x.size()
            x = self.lin(x.transpose(1, 2).contiguous().view(b, t, c * f))
            lens = torch.div(torch.div(lens + 1, 2, rounding_mode="floor") + 1, 2, rounding_mode="floor")
            pad = torch.arange(t)[None, :] >= lens[:, None]
            for bl in self.blocks:
                x = bl(x)
            x = x + self.att(x, x, x, key_padding_mask=pad, need_weights=False)[0]
            return F.log_softmax(self.out(x), dim=-1), lens

    m = init(Net())
    x = T(3, 24, 16)
    lens = torch.tensor([24, 20, 16])
    tgt = torch.tensor([1, 2, 3, 1, 4, 5])
    tl = torch.tensor([3, 2, 1])
    crit = nn.CTCLoss(blank=0, reduction="mean", zero_infinity=True)

    def loss():
        lp, l = m(x, lens)
        return crit(lp.permute(1, 0, 2), tgt, l, tl)

    opt = torch.optim.Adam(m.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    return run(m, loss, opt)


def mixture_of_experts(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class MoE(nn.Module):
        def __init__(self, d, n=4, k=2):
            super().__init__()
            self.gate = nn.Linear(d, n, bias=False)
            self.experts = nn.ModuleList(
                [nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(n)]
            )
            self.k = k
            self.n = n

        def forward(self, x):
            flat = x.reshape(-1, x.shape[-1])
            logits = self.gate(flat)
            w = F.softmax(logits, dim=1, dtype=torch.float)
            top, idx = torch.topk(w, self.k, dim=-1)
            top = top / top.sum(dim=-1, keepdim=True)
            out = torch.zeros_like(flat)
            mask = F.one_hot(idx, num_classes=self.n).permute(2, 1, 0)
            for e in range(self.n):
                i, t = torch.where(mask[e])
                cur = self.experts[e](flat[t]) * top[t, i, None]
                out.index_add_(0, t, cur.to(flat.dtype))
            frac = F.one_hot(idx, self.n).float().mean((0, 1))
            aux = self.n * torch.sum(frac * w.mean(0))
            return out.reshape(x.shape), aux

    m = init(MoE(8))
    x = T(2, 5, 8)
    y = T(2, 5, 8)

    def loss():
        o, aux = m(x)
        return F.mse_loss(o, y) + 0.01 * aux

    return run(m, loss, torch.optim.AdamW(m.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, fused=False))


def llama(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    from dataclasses import dataclass

    @dataclass
    class Cfg:
        dim: int = 16
        heads: int = 4
        kv: int = 2
        layers: int = 2
        vocab: int = 30
        maxlen: int = 16

    class RMSNorm(nn.Module):
        def __init__(self, d, eps=1e-5):
            super().__init__()
            self.eps = eps
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)).type_as(
                x
            ) * self.weight

    def freqs(d, n):
        f = 1.0 / (10000.0 ** (torch.arange(0, d, 2)[: d // 2].float() / d))
        f = torch.outer(torch.arange(n, dtype=torch.float32), f)
        return torch.polar(torch.ones_like(f), f)

    def rope(q, k, fc):
        q_ = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        k_ = torch.view_as_complex(k.float().reshape(*k.shape[:-1], -1, 2))
        fc = fc.view(1, fc.shape[0], 1, fc.shape[1])
        return torch.view_as_real(q_ * fc).flatten(3).type_as(q), torch.view_as_real(k_ * fc).flatten(3).type_as(k)

    class Att(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.h, self.kv, self.d = c.heads, c.kv, c.dim // c.heads
            self.wq = nn.Linear(c.dim, c.heads * self.d, bias=False)
            self.wk = nn.Linear(c.dim, c.kv * self.d, bias=False)
            self.wv = nn.Linear(c.dim, c.kv * self.d, bias=False)
            self.wo = nn.Linear(c.heads * self.d, c.dim, bias=False)
            self.register_buffer("ck", torch.zeros(2, c.maxlen, c.kv, self.d), persistent=False)
            self.register_buffer("cv", torch.zeros(2, c.maxlen, c.kv, self.d), persistent=False)

        def forward(self, x, start, fc, mask, cache):
            b, t, _ = x.shape
            q, k, v = (
                self.wq(x).view(b, t, self.h, self.d),
                self.wk(x).view(b, t, self.kv, self.d),
                self.wv(x).view(b, t, self.kv, self.d),
            )
            q, k = rope(q, k, fc)
            if cache:
                self.ck[:b, start : start + t] = k
                self.cv[:b, start : start + t] = v
                k, v = self.ck[:b, : start + t], self.cv[:b, : start + t]
            k, v = (
                z[:, :, :, None, :].expand(-1, -1, -1, self.h // self.kv, -1).reshape(b, z.shape[1], self.h, self.d)
                for z in (k, v)
            )
            s = torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1)) / math.sqrt(self.d)
            if mask is not None:
                s = s + mask
            o = F.softmax(s.float(), dim=-1).type_as(q) @ v.transpose(1, 2)
            return self.wo(o.transpose(1, 2).contiguous().view(b, t, -1))

    class FF(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.w1 = nn.Linear(d, 24, bias=False)
            self.w2 = nn.Linear(24, d, bias=False)
            self.w3 = nn.Linear(d, 24, bias=False)

        def forward(self, x):
            return self.w2(F.silu(self.w1(x)) * self.w3(x))

    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.a = Att(c)
            self.f = FF(c.dim)
            self.n1 = RMSNorm(c.dim)
            self.n2 = RMSNorm(c.dim)

        def forward(self, x, *r):
            x = x + self.a(self.n1(x), *r)
            return x + self.f(self.n2(x))

    class LM(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.c = c
            self.emb = nn.Embedding(c.vocab, c.dim)
            self.layers = nn.ModuleList(Block(c) for _ in range(c.layers))
            self.norm = RMSNorm(c.dim)
            self.out = nn.Linear(c.dim, c.vocab, bias=False)
            self.out.weight = self.emb.weight
            self.fc = freqs(c.dim // c.heads, c.maxlen * 2)

        def forward(self, tok, start=0, cache=False):
            b, t = tok.shape
            h = self.emb(tok)
            fc = self.fc[start : start + t]
            mask = None
            if t > 1:
                mask = torch.full((t, t), float("-inf"))
                mask = torch.triu(mask, diagonal=1)
                mask = torch.hstack([torch.zeros((t, start)), mask]).type_as(h)
            for l in self.layers:
                h = l(h, start, fc, mask, cache)
            return self.out(self.norm(h)).float()

    m = init(LM(Cfg()))
    tok = torch.tensor(rng.integers(0, 30, (2, 10)))
    decay = [p for n, p in m.named_parameters() if p.dim() >= 2]
    nodecay = [p for n, p in m.named_parameters() if p.dim() < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": nodecay, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95)
    )
    out = run(m, lambda: F.cross_entropy(m(tok[:, :-1]).view(-1, 30), tok[:, 1:].reshape(-1)), opt)
    m.eval()
    with torch.inference_mode():
        cur = tok[:, :4]
        pos = 0
        ids = []
        logits = m(cur, 0, True)
        for i in range(5):
            nxt = torch.argmax(logits[:, -1], dim=-1, keepdim=True)
            ids.append(nxt)
            logits = m(nxt, 4 + i, True)
        full = torch.cat([tok[:, :4]] + ids, dim=1)
        ref = m(full)
        out += [(ref[:, -1] - logits[:, -1]).abs().max().item() < 1e-4] + full.flatten().tolist()
        probs = torch.softmax(logits[:, -1] / 0.8, -1)
        ps, pi = torch.sort(probs, dim=-1, descending=True)
        cs = torch.cumsum(ps, dim=-1)
        ps[cs - ps > 0.9] = 0.0
        ps.div_(ps.sum(dim=-1, keepdim=True))
        out += ps[:, :3].flatten().tolist()
    return [float(v) for v in out]


def beam_search(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    enc = init(nn.GRU(6, 8, batch_first=True))
    emb = init(nn.Embedding(12, 6))
    dec = init(nn.GRUCell(6, 8))
    head = init(nn.Linear(8, 12))
    src = torch.tensor(rng.integers(0, 12, (2, 5)))
    with torch.no_grad():
        _, h = enc(emb(src))
        h = h[-1]
        B, K, V = 2, 3, 12
        h = h.repeat_interleave(K, dim=0)
        seq = torch.full((B * K, 1), 1, dtype=torch.long)
        score = torch.zeros(B, K)
        score[:, 1:] = -1e9
        score = score.view(-1)
        done = torch.zeros(B * K, dtype=torch.bool)
        for t in range(6):
            h2 = dec(emb(seq[:, -1]), h)
            lp = F.log_softmax(head(h2) * 5, dim=-1)
            lp = lp.masked_fill(done[:, None], float("-inf"))
            lp[done, 0] = 0
            tot = (score[:, None] + lp).view(B, K * V)
            score, idx = tot.topk(K, dim=1)
            beam = torch.div(idx, V, rounding_mode="floor")
            tok = idx % V
            flat = (beam + torch.arange(B).unsqueeze(1) * K).view(-1)
            seq = torch.cat([seq[flat], tok.view(-1, 1)], dim=1)
            h = h2[flat]
            done = done[flat] | (tok.view(-1) == 0)
            score = score.view(-1)
            if done.all():
                break
        best = score.view(B, K).argmax(-1)
        return score.tolist() + seq.view(B, K, -1)[torch.arange(B), best].flatten().float().tolist()


def t5_relative_bias(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class RelAtt(nn.Module):
        def __init__(self, d, h, buckets=8, maxd=16):
            super().__init__()
            self.h = h
            self.qkv = nn.Linear(d, 3 * d, bias=False)
            self.o = nn.Linear(d, d, bias=False)
            self.bias = nn.Embedding(buckets, h)
            self.nb, self.md = buckets, maxd

        def bucket(self, rel):
            n = self.nb // 2
            out = (rel > 0).to(torch.long) * n
            r = torch.abs(rel)
            me = n // 2
            small = r < me
            large = me + (torch.log(r.float() / me) / math.log(self.md / me) * (n - me)).to(torch.long)
            large = torch.min(large, torch.full_like(large, n - 1))
            return out + torch.where(small, r, large)

        def forward(self, x, bias=None):
            b, t, d = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
            if bias is None:
                c = torch.arange(t)[:, None]
                m = torch.arange(t)[None, :]
                bias = self.bias(self.bucket(m - c)).permute([2, 0, 1]).unsqueeze(0)
            a = torch.softmax((q @ k.transpose(3, 2) + bias).float(), dim=-1).type_as(q)
            return self.o((a @ v).transpose(1, 2).contiguous().view(b, -1, d)), bias

    class Enc(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(20, 12)
            self.l = nn.ModuleList([RelAtt(12, 3) for _ in range(2)])
            self.n = nn.ModuleList([nn.RMSNorm(12, eps=1e-6) for _ in range(3)])
            self.ff = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.0), nn.Linear(24, 12))

        def forward(self, ids):
            x = self.emb(ids)
            bias = None
            for n, l in zip(self.n, self.l):
                o, bias = l(n(x), bias)
                x = x + o
            return self.n[2](x + self.ff(x)) * (12**-0.5) @ self.emb.weight.T

    m = init(Enc())
    ids = torch.tensor(rng.integers(0, 20, (3, 11)))
    lab = ids.clone()
    lab[:, ::3] = -100
    opt = torch.optim.Adafactor(m.parameters(), lr=1e-2)
    return run(m, lambda: F.cross_entropy(m(ids).transpose(1, 2), lab, ignore_index=-100), opt)


def bert_mlm(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True)

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok = nn.Embedding(40, 16, padding_idx=0)
            self.pos = nn.Embedding(12, 16)
            self.seg = nn.Embedding(2, 16)
            self.ln = nn.LayerNorm(16, eps=1e-12)
            self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.pool = nn.Linear(16, 16)
            self.nsp = nn.Linear(16, 2)
            self.tr = nn.Linear(16, 16)
            self.bias = nn.Parameter(torch.zeros(40))
            self.register_buffer("pid", torch.arange(12).expand((1, -1)))
            self.apply(self._init)

        def _init(self, mod):
            if isinstance(mod, nn.Linear):
                mod.weight.data.normal_(mean=0.0, std=0.02)
                if mod.bias is not None:
                    mod.bias.data.zero_()
            elif isinstance(mod, nn.Embedding):
                mod.weight.data.normal_(mean=0.0, std=0.02)
                if mod.padding_idx is not None:
                    mod.weight.data[mod.padding_idx].zero_()

        def forward(self, ids, seg, mask):
            h = self.ln(self.tok(ids) + self.pos(self.pid[:, : ids.size(1)]) + self.seg(seg))
            h = self.enc(h, src_key_padding_mask=~mask)
            lm = F.linear(F.gelu(self.tr(h)), self.tok.weight, self.bias)
            return lm, self.nsp(torch.tanh(self.pool(h[:, 0])))

    m = init(Bert())
    ids = torch.tensor(rng.integers(1, 40, (3, 10)))
    ids[1, 7:] = 0
    seg = torch.tensor(rng.integers(0, 2, (3, 10)))
    mask = ids.ne(0)
    lab = torch.where(torch.tensor(rng.uniform(size=(3, 10))) < 0.4, ids, torch.tensor(-100))
    nsp = torch.tensor([0, 1, 0])
    no_decay = ["bias", "ln.weight", "norm"]
    groups = [
        {"params": [p for n, p in m.named_parameters() if not any(k in n for k in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in m.named_parameters() if any(k in n for k in no_decay)], "weight_decay": 0.0},
    ]
    opt = torch.optim.AdamW(groups, lr=5e-3, eps=1e-8)

    def lam(s, warm=2, total=8):
        return float(s) / max(1, warm) if s < warm else max(0.0, (total - s) / (total - warm))

    sch = torch.optim.lr_scheduler.LambdaLR(opt, lam)

    def step():
        m.train()
        lm, ns = m(ids, seg, mask)
        l = F.cross_entropy(lm.view(-1, 40), lab.view(-1)) + F.cross_entropy(ns, nsp)
        l.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), max_norm=1.0)
        opt.step()
        m.zero_grad()
        return l

    st = comp(step)
    out = []
    for _ in range(5):
        out.append(st().item())
        sch.step()
        out += [g["lr"] for g in opt.param_groups]
    return out


def tcn(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    weight_norm = nn.utils.weight_norm

    class Chomp(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.n = n

        def forward(self, x):
            return x[:, :, : -self.n].contiguous()

    class Block(nn.Module):
        def __init__(self, i, o, k, d):
            super().__init__()
            p = (k - 1) * d
            self.conv1 = weight_norm(nn.Conv1d(i, o, k, padding=p, dilation=d))
            self.conv2 = weight_norm(nn.Conv1d(o, o, k, padding=p, dilation=d))
            self.net = nn.Sequential(self.conv1, Chomp(p), nn.ReLU(), nn.Dropout(0.0), self.conv2, Chomp(p), nn.ReLU())
            self.down = nn.Conv1d(i, o, 1) if i != o else None

        def forward(self, x):
            r = x if self.down is None else self.down(x)
            return torch.relu(self.net(x) + r)

    m = nn.Sequential(Block(2, 6, 3, 1), Block(6, 6, 3, 2))
    h = nn.Linear(6, 1)
    init(m)
    init(h)
    x, y = T(4, 2, 20), T(4, 1)
    opt = torch.optim.Adam([*m.parameters(), *h.parameters()], lr=4e-3)
    return run(m, lambda: F.mse_loss(h(m(x)[:, :, -1]), y), opt) + [float(len(m.state_dict()))]


def wavenet(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class Wave(nn.Module):
        def __init__(self, c=8, q=16):
            super().__init__()
            self.q = q
            self.emb = nn.Embedding(q, c)
            self.f = nn.ModuleList()
            self.g = nn.ModuleList()
            self.s = nn.ModuleList()
            self.r = nn.ModuleList()
            self.dil = [1, 2, 4]
            for d in self.dil:
                self.f.append(nn.Conv1d(c, c, 2, dilation=d))
                self.g.append(nn.Conv1d(c, c, 2, dilation=d))
                self.s.append(nn.Conv1d(c, c, 1))
                self.r.append(nn.Conv1d(c, c, 1))
            self.e1 = nn.Conv1d(c, c, 1)
            self.e2 = nn.Conv1d(c, q, 1)

        def forward(self, x):
            h = self.emb(x).transpose(1, 2)
            skip = 0
            for f, g, s, r, d in zip(self.f, self.g, self.s, self.r, self.dil):
                p = F.pad(h, (d, 0))
                z = torch.tanh(f(p)) * torch.sigmoid(g(p))
                skip = skip + s(z)
                h = h + r(z)
            return self.e2(F.relu(self.e1(F.relu(skip))))

    wav = torch.tensor(np.sin(np.linspace(0, 20, 40)).astype(np.float32))[None].repeat(2, 1)
    mu = torch.tensor(15.0)
    enc = torch.sign(wav) * torch.log1p(mu * wav.abs()) / torch.log1p(mu)
    ids = ((enc + 1) / 2 * mu + 0.5).to(torch.int64)
    m = init(Wave())
    out = run(m, lambda: F.cross_entropy(m(ids[:, :-1]), ids[:, 1:]), torch.optim.Rprop(m.parameters(), lr=1e-3))
    with torch.no_grad():
        cur = ids[:1, :5]
        for _ in range(4):
            cur = torch.cat([cur, m(cur)[:, :, -1:].argmax(1)], dim=-1)
    return out + cur.flatten().float().tolist()
