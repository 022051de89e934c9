"""Programs about images, in PyTorch's words. Each takes a Kit and gives a list of numbers."""


# ruff: noqa: RUF059

import math

import numpy as np


def detection_fcos(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    def giou(a, b):
        lt = torch.max(a[..., :2], b[..., :2])
        rb = torch.min(a[..., 2:], b[..., 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh[..., 0] * wh[..., 1]
        area = lambda z: (z[..., 2] - z[..., 0]) * (z[..., 3] - z[..., 1])
        union = area(a) + area(b) - inter
        c = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
        return inter / union - (c - union) / c

    body = init(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.GroupNorm(2, 8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, 2, 1),
            nn.ReLU(inplace=True),
        )
    )
    cls = init(nn.Conv2d(8, 4, 3, padding=1))
    box = init(nn.Conv2d(8, 4, 3, padding=1))
    nn.init.constant_(cls.bias, -math.log((1 - 0.01) / 0.01))
    x = T(2, 3, 16, 16)
    ys, xs = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
    pts = torch.stack([xs, ys], -1).reshape(-1, 2).float() * 4 + 2
    gt = torch.tensor([[2.0, 2.0, 10.0, 10.0], [4.0, 0.0, 15.0, 12.0]])
    lab = torch.tensor([1, 3])

    def focal(p, t, alpha=0.25, gamma=2.0):
        ce = F.binary_cross_entropy_with_logits(p, t, reduction="none")
        pr = torch.sigmoid(p)
        pt = pr * t + (1 - pr) * (1 - t)
        return ((alpha * t + (1 - alpha) * (1 - t)) * ce * (1 - pt) ** gamma).sum()

    def loss():
        f = body(x)
        c = cls(f).flatten(2).transpose(1, 2)
        d = F.softplus(box(f)).flatten(2).transpose(1, 2) * 4
        pred = torch.cat([pts - d[..., :2], pts + d[..., 2:]], -1)
        inside = (
            ((pts[None, :, None, :] > gt[:, None, None, :2]) & (pts[None, :, None, :] < gt[:, None, None, 2:]))
            .all(-1)
            .squeeze(-1)
        )
        t = F.one_hot(lab, 4).float()[:, None] * inside[..., None]
        n = inside.sum().clamp(min=1)
        l = focal(c, t) / n
        g = giou(pred[inside], gt[:, None].expand(-1, 16, -1)[inside])
        return l + (1 - g).sum() / n

    ps = [*body.parameters(), *cls.parameters(), *box.parameters()]
    return run(body, loss, torch.optim.SGD(ps, lr=0.01, momentum=0.9, weight_decay=1e-4))


def segmentation_dice(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class DoubleConv(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.double_conv = nn.Sequential(
                nn.Conv2d(i, o, kernel_size=3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
                nn.Conv2d(o, o, kernel_size=3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
            )

        def forward(self, x):
            return self.double_conv(x)

    class Up(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.up = nn.ConvTranspose2d(i, i // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(i, o)

        def forward(self, a, b):
            a = self.up(a)
            dy = b.size()[2] - a.size()[2]
            dx = b.size()[3] - a.size()[3]
            a = F.pad(a, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            return self.conv(torch.cat([b, a], dim=1))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.inc = DoubleConv(3, 4)
            self.d1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 8))
            self.d2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(8, 16))
            self.u1 = Up(16, 8)
            self.u2 = Up(8, 4)
            self.out = nn.Conv2d(4, 3, 1)

        def forward(self, x):
            a = self.inc(x)
            b = self.d1(a)
            c = self.d2(b)
            return self.out(self.u2(self.u1(c, b), a))

    m = init(UNet())
    x = T(2, 3, 13, 11)
    y = torch.tensor(rng.integers(0, 3, (2, 13, 11)))

    def dice(i, t, eps=1e-6):
        inter = 2 * (i * t).sum(dim=(-1, -2))
        s = i.sum(dim=(-1, -2)) + t.sum(dim=(-1, -2))
        s = torch.where(s == 0, inter, s)
        return ((inter + eps) / (s + eps)).mean()

    def loss():
        o = m(x)
        return (
            F.cross_entropy(o, y) + 1 - dice(F.softmax(o, dim=1).float(), F.one_hot(y, 3).permute(0, 3, 1, 2).float())
        )

    opt = torch.optim.RMSprop(m.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True)
    out = run(m, loss, opt)
    m.eval()
    with torch.no_grad():
        out.append(m(x).argmax(1).float().mean().item())
    return out


def siamese(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.Sequential(
                nn.Conv2d(1, 4, 3),
                nn.PReLU(),
                nn.MaxPool2d(2, stride=2),
                nn.Conv2d(4, 8, 3),
                nn.PReLU(8),
                nn.AdaptiveMaxPool2d((2, 2)),
            )
            self.f = nn.Linear(32, 4)

        def forward(self, x):
            return F.normalize(self.f(self.c(x).view(x.size()[0], -1)), p=2, dim=-1)

    m = init(Net())
    a, p, n = T(5, 1, 12, 12), T(5, 1, 12, 12), T(5, 1, 12, 12)
    tri = nn.TripletMarginLoss(margin=0.5, p=2, swap=True)
    cos = nn.CosineEmbeddingLoss(margin=0.2)
    lab = torch.tensor([1, -1, 1, 1, -1])

    def loss():
        ea, ep, en = m(a), m(p), m(n)
        d = F.pairwise_distance(ea, ep, keepdim=True)
        t = (lab < 0).float()[:, None]
        contrast = torch.mean((1 - t) * torch.pow(d, 2) + t * torch.pow(torch.clamp(1.0 - d, min=0.0), 2))
        dm = torch.cdist(torch.cat([ea, ep]), torch.cat([ea, ep]), p=2.0)
        hard = (dm + 10 * torch.eye(10)).min(dim=1)[0].mean()
        return tri(ea, ep, en) + cos(ea, en, lab) + contrast - 0.01 * hard

    return run(m, loss, torch.optim.Adamax(m.parameters(), lr=5e-3))


def style_transfer(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    vgg = init(
        nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.ReLU(inplace=False),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.ReLU(inplace=False),
        )
    ).eval()
    for p in vgg.parameters():
        p.requires_grad_(False)
    content, style = T(1, 3, 12, 12).sigmoid(), T(1, 3, 12, 12).sigmoid()
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)

    def gram(x):
        a, b, c, d = x.size()
        f = x.view(a * b, c * d)
        return torch.mm(f, f.t()).div(a * b * c * d)

    def feats(x):
        x = (x - mean) / std
        out = []
        for l in vgg.children():
            x = l(x)
            if isinstance(l, nn.ReLU):
                out.append(x)
        return out

    with torch.no_grad():
        ct = feats(content)
        stt = [gram(f) for f in feats(style)]
    img = content.clone().requires_grad_(True)
    opt = torch.optim.LBFGS([img], max_iter=4, line_search_fn="strong_wolfe")
    out = []

    def closure():
        with torch.no_grad():
            img.clamp_(0, 1)
        opt.zero_grad()
        f = feats(img)
        sl = sum(F.mse_loss(gram(a), b) for a, b in zip(f, stt))
        cl = F.mse_loss(f[1], ct[1])
        tv = (img[:, :, 1:] - img[:, :, :-1]).abs().sum() + (img[..., 1:] - img[..., :-1]).abs().sum()
        l = 1e3 * sl + cl + 1e-4 * tv
        l.backward()
        return l

    for _ in range(3):
        out.append(float(opt.step(closure)))
    return out + [img.detach().clamp(0, 1).mean().item()]


def conv_autoencoder(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class AE(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Sequential(
                nn.Conv2d(1, 4, 4, 2, 1),
                nn.LeakyReLU(0.2, True),
                nn.Conv2d(4, 8, 4, 2, 1),
                nn.BatchNorm2d(8),
                nn.LeakyReLU(0.2, True),
                nn.Flatten(),
                nn.Linear(8 * 4 * 4, 6),
            )
            self.d = nn.Sequential(
                nn.Linear(6, 128),
                nn.Unflatten(1, (8, 4, 4)),
                nn.ConvTranspose2d(8, 4, 4, 2, 1),
                nn.BatchNorm2d(4),
                nn.ReLU(True),
                nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1),
                nn.Sigmoid(),
            )

        def forward(self, x):
            z = self.e(x)
            return self.d(z), z

    m = init(AE())
    x = torch.tensor(rng.uniform(size=(6, 1, 16, 16)).astype(np.float32))

    def loss():
        y, z = m(x)
        return (
            F.binary_cross_entropy(y, x, reduction="sum") / x.size(0) + 1e-3 * z.abs().sum(1).mean() + F.l1_loss(y, x)
        )

    opt = torch.optim.Adam(m.parameters(), lr=2e-3, amsgrad=True)
    sch = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0, threshold=10.0)
    out = []

    def step():
        opt.zero_grad()
        l = loss()
        l.backward()
        opt.step()
        return l

    st = comp(step)
    for _ in range(4):
        v = st().item()
        out.append(v)
        sch.step(v)
    return out + [opt.param_groups[0]["lr"]]


def distillation(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    teacher = init(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 5))).eval()
    student = init(nn.Sequential(nn.Linear(6, 8), nn.Hardswish(), nn.Linear(8, 5)))
    teacher.requires_grad_(False)
    feats = {}
    h1 = teacher[0].register_forward_hook(lambda mod, i, o: feats.__setitem__("t", o.detach()))
    h2 = student[0].register_forward_hook(lambda mod, i, o: feats.__setitem__("s", o))
    proj = init(nn.Linear(8, 32))
    x = T(16, 6)
    y = torch.tensor(rng.integers(0, 5, 16))
    Tm = 3.0
    opt = torch.optim.SGD(
        [{"params": student.parameters()}, {"params": proj.parameters(), "lr": 0.01}], lr=0.1, momentum=0.9
    )
    sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4)
    kd = nn.KLDivLoss(reduction="batchmean", log_target=False)

    def step():
        with torch.no_grad():
            tl = teacher(x)
        sl = student(x)
        l = (
            0.7 * kd(F.log_softmax(sl / Tm, dim=1), F.softmax(tl / Tm, dim=1)) * Tm**2
            + 0.3 * F.cross_entropy(sl, y, label_smoothing=0.1)
            + 0.1 * F.smooth_l1_loss(proj(feats["s"]), feats["t"])
        )
        opt.zero_grad()
        l.backward()
        opt.step()
        return l

    st = comp(step)
    out = []
    for _ in range(4):
        out.append(st().item())
        sch.step()
    h1.remove()
    h2.remove()
    return out
