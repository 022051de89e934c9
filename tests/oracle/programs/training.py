"""Programs about how training is done, in PyTorch's words: quantisation, precision, checkpoints, loaders, hooks, averages. Each takes a Kit and gives a list of numbers."""


# ruff: noqa: E501, E721, RUF059

import math
import os
import tempfile

import numpy as np


def fake_quant(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class FQ(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, qmin, qmax):
            q = torch.round(x / scale)
            mask = (q >= qmin) & (q <= qmax)
            ctx.save_for_backward(mask, x, scale)
            ctx.q = (qmin, qmax)
            return torch.clamp(q, qmin, qmax) * scale

        @staticmethod
        def backward(ctx, g):
            mask, x, scale = ctx.saved_tensors
            qmin, qmax = ctx.q
            v = x / scale
            gs = torch.where(
                v <= qmin,
                torch.full_like(v, qmin),
                torch.where(v >= qmax, torch.full_like(v, qmax), torch.round(v) - v),
            )
            return g * mask, (g * gs).sum().view(1) / math.sqrt(x.numel() * qmax), None, None

    class QLinear(nn.Linear):
        def __init__(self, i, o):
            super().__init__(i, o)
            self.sw = nn.Parameter(torch.tensor([0.05]))
            self.sa = nn.Parameter(torch.tensor([0.1]))

        def forward(self, x):
            return F.linear(FQ.apply(x, self.sa, -8, 7), FQ.apply(self.weight, self.sw, -8, 7), self.bias)

    m = nn.Sequential(QLinear(5, 12), nn.ReLU6(), QLinear(12, 3))
    init(m)
    with torch.no_grad():
        for l in (m[0], m[2]):
            l.sw.fill_(0.05)
            l.sa.fill_(0.1)
    x, y = T(10, 5), torch.tensor(rng.integers(0, 3, 10))

    class STE(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, g):
            return F.hardtanh(g)

    return run(
        m,
        lambda: F.cross_entropy(m(x), y) + 0.01 * STE.apply(m[0].weight).mean(),
        torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9),
    )


def amp_bf16(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    m = init(nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)))
    x = T(16, 8)
    y = torch.tensor(rng.integers(0, 4, 16))
    opt = torch.optim.AdamW(m.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    out = []

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            o = m(x)
            l = F.cross_entropy(o, y)
        assert o.dtype == torch.bfloat16
        scaler.scale(l).backward()
        scaler.unscale_(opt) if scaler.is_enabled() else None
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return l.float()

    st = comp(step)
    for _ in range(4):
        out.append(round(st().item(), 2))
    return out


def checkpointing(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    from_utils = torch.utils.checkpoint
    checkpoint, checkpoint_sequential = from_utils.checkpoint, from_utils.checkpoint_sequential
    blocks = init(nn.ModuleList([nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6)) for _ in range(3)]))
    seq = init(nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(4)]))
    x = T(5, 6).requires_grad_(True)

    def loss():
        h = x
        for b in blocks:
            h = h + checkpoint(b, h, use_reentrant=False)
        h = checkpoint_sequential(seq, 2, h, use_reentrant=False)
        return checkpoint(lambda a, k: (a * k).pow(2).mean(), h, 2.0, use_reentrant=False)

    out = run(blocks, loss, torch.optim.SGD([*blocks.parameters(), *seq.parameters()], lr=0.1))
    return out + [x.grad.abs().sum().item()]


def loader_resume(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    data = torch.utils.data

    class Pairs(data.Dataset):
        def __init__(self):
            r = np.random.default_rng(5)
            self.x = [r.normal(size=(int(r.integers(2, 6)), 3)).astype(np.float32) for _ in range(13)]

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return torch.from_numpy(self.x[i]), i % 2

    def collate(batch):
        xs, ys = zip(*batch)
        lens = torch.tensor([len(a) for a in xs])
        return nn.utils.rnn.pad_sequence(xs, batch_first=True), lens, torch.tensor(ys)

    ds = Pairs()
    tr, va = data.Subset(ds, list(range(9))), data.Subset(ds, list(range(9, 13)))
    rnn = init(nn.LSTM(3, 5, num_layers=2, batch_first=True, bidirectional=True))
    head = init(nn.Linear(10, 2))
    opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-2)
    sch = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)

    def fwd(x, lens):
        p = nn.utils.rnn.pack_padded_sequence(x, lens, batch_first=True, enforce_sorted=False)
        o, (h, c) = rnn(p)
        o, l = nn.utils.rnn.pad_packed_sequence(o, batch_first=True)
        return head(torch.cat([h[-2], h[-1]], dim=1)) + 0 * o.sum()

    out = []

    def epoch():
        rnn.train()
        for x, lens, y in data.DataLoader(
            tr, batch_size=4, shuffle=False, collate_fn=collate, drop_last=False, num_workers=0
        ):
            l = F.cross_entropy(fwd(x, lens), y)
            opt.zero_grad()
            l.backward()
            opt.step()
            out.append(l.item())
        sch.step()
        with torch.no_grad():
            out.append(
                np.mean(
                    [
                        (fwd(x, l).argmax(1) == y).float().mean().item()
                        for x, l, y in data.DataLoader(va, 2, collate_fn=collate)
                    ]
                )
            )

    epoch()
    path = os.path.join(tempfile.mkdtemp(), "ck.pt")
    torch.save(
        {
            "rnn": rnn.state_dict(),
            "head": head.state_dict(),
            "opt": opt.state_dict(),
            "sch": sch.state_dict(),
            "epoch": 1,
        },
        path,
    )
    epoch()
    expect = out[-4:]
    ck = torch.load(path, map_location="cpu")
    rnn.load_state_dict(ck["rnn"])
    head.load_state_dict(ck["head"])
    opt.load_state_dict(ck["opt"])
    sch.load_state_dict(ck["sch"])
    assert ck["epoch"] == 1
    epoch()
    out.append(float(np.allclose(expect, out[-4:], rtol=1e-6)))
    td_ = data.TensorDataset(torch.arange(10), torch.arange(10) * 2)
    a, b = data.random_split(td_, [7, 3], generator=torch.Generator().manual_seed(0))
    out += [float(len(a)), float(len(b)), float(len(data.ConcatDataset([a, b])))]
    ws = data.WeightedRandomSampler([1.0, 2.0, 3.0], 5)
    out.append(float(len(list(ws))))
    bs = data.BatchSampler(data.SequentialSampler(td_), 3, True)
    out += [float(len(list(bs)))]
    return [float(v) for v in out]


def hooks_and_apply(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    m = init(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 2)))
    log = []

    def fh(name):
        return lambda mod, i, o: log.append((name, o.detach().abs().mean().item()))

    hs = [mod.register_forward_hook(fh(n)) for n, mod in m.named_modules() if isinstance(mod, nn.Linear)]
    hs += [
        m[0].register_forward_pre_hook(lambda mod, i: (i[0] * 2,)),
        m[3].register_full_backward_hook(
            lambda mod, gi, go: log.append(("b", gi[0].abs().sum().item() + go[0].abs().sum().item()))
        ),
    ]
    m[0].weight.register_hook(lambda g: g.clamp(-0.05, 0.05))
    x = T(5, 4)
    y = T(5, 2)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        l = F.mse_loss(m(x), y)
        l.backward()
        log.append(("l", l.item()))
        log.append(("g", m[0].weight.grad.abs().max().item()))
        opt.step()
    for h in hs:
        h.remove()

    def f(mod):
        if type(mod) == nn.Linear:
            nn.init.constant_(mod.weight, 0.1)
            mod.bias.data.fill_(0.01)

    m.apply(f)
    m.half().float()
    m.requires_grad_(False)
    m[3].requires_grad_(True)
    n = sum(p.numel() for p in m.parameters() if p.requires_grad)
    l = m(x).sum()
    l.backward()
    return [v for _, v in log] + [
        float(n),
        l.item(),
        float(sum(p.grad is not None for p in m.parameters())),
        float(len(list(m.modules()))),
        m.get_submodule("2.0").weight.sum().item(),
    ]


def swa_ema(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    swa = torch.optim.swa_utils
    m = init(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)))
    x, y = T(12, 4), T(12, 1)
    ema = swa.AveragedModel(m, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9), use_buffers=True)
    avg = swa.AveragedModel(m)
    opt = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)
    ss = swa.SWALR(opt, swa_lr=0.01, anneal_epochs=2, anneal_strategy="linear")
    out = []

    def step():
        opt.zero_grad()
        l = F.huber_loss(m(x), y, delta=0.5)
        l.backward()
        opt.step()
        return l

    st = comp(step)
    for i in range(5):
        out.append(st().item())
        ema.update_parameters(m)
        if i >= 2:
            avg.update_parameters(m)
            ss.step()
    swa.update_bn([x[:6], x[6:]], avg)
    m.eval()
    ema.eval()
    avg.eval()
    return (
        out + [F.mse_loss(z(x), y).item() for z in (m, ema, avg)] + [opt.param_groups[0]["lr"], float(avg.n_averaged)]
    )
