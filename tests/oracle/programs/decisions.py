"""Programs about decisions, graphs, distributions and equations, in PyTorch's words. Each takes a Kit and gives a list of numbers."""


# ruff: noqa: E501, RUF059

import copy
import math

import numpy as np


def sac(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    D = torch.distributions

    class Actor(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 16), nn.ReLU())
            self.mu = nn.Linear(16, 2)
            self.ls = nn.Linear(16, 2)

        def forward(self, s, eps):
            h = self.net(s)
            mu, ls = self.mu(h), torch.clamp(self.ls(h), -5, 2)
            base = D.Normal(mu, ls.exp())
            pre = mu + ls.exp() * eps
            a = torch.tanh(pre)
            lp = base.log_prob(pre).sum(-1) - (2 * (math.log(2) - pre - F.softplus(-2 * pre))).sum(-1)
            d = D.TransformedDistribution(D.Independent(base, 1), [D.TanhTransform(cache_size=1)])
            return a, lp, d

    class Q(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))

        def forward(self, s, a):
            return self.net(torch.cat([s, a], dim=-1)).squeeze(-1)

    pi, q1, q2 = init(Actor()), init(Q()), init(Q())
    t1, t2 = copy.deepcopy(q1), copy.deepcopy(q2)
    for p in (*t1.parameters(), *t2.parameters()):
        p.requires_grad = False
    la = torch.zeros(1, requires_grad=True)
    oq = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=3e-3)
    op = torch.optim.Adam(pi.parameters(), lr=3e-3)
    oa = torch.optim.Adam([la], lr=3e-3)
    s, a, r, s2, d = T(8, 3), torch.tanh(T(8, 2)), T(8), T(8, 3), torch.tensor(rng.integers(0, 2, 8).astype(np.float32))
    e1, e2 = T(8, 2), T(8, 2)

    def step():
        with torch.no_grad():
            a2, lp2, _ = pi(s2, e1)
            y = r + 0.99 * (1 - d) * (torch.min(t1(s2, a2), t2(s2, a2)) - la.exp() * lp2)
        lq = F.mse_loss(q1(s, a), y) + F.mse_loss(q2(s, a), y)
        oq.zero_grad()
        lq.backward()
        oq.step()
        for p in q1.parameters():
            p.requires_grad_(False)
        for p in q2.parameters():
            p.requires_grad_(False)
        an, lp, dist = pi(s, e2)
        lpi = (la.exp().detach() * lp - torch.min(q1(s, an), q2(s, an))).mean() + 0.0 * dist.log_prob(
            torch.tanh(e2).detach() * 0.5
        ).mean()
        op.zero_grad()
        lpi.backward()
        op.step()
        for p in q1.parameters():
            p.requires_grad_(True)
        for p in q2.parameters():
            p.requires_grad_(True)
        lal = -(la * (lp.detach() - 2.0)).mean()
        oa.zero_grad()
        lal.backward()
        oa.step()
        with torch.no_grad():
            for q, t in ((q1, t1), (q2, t2)):
                for p, pt in zip(q.parameters(), t.parameters()):
                    pt.data.mul_(0.995)
                    pt.data.add_(0.005 * p.data)
        return lq, lpi, lal, dist.log_prob(torch.tanh(e2).detach() * 0.5).mean()

    st = comp(step)
    out = []
    for _ in range(4):
        out += [v.item() for v in st()]
    return out


def a2c_gae(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    D = torch.distributions
    net = init(nn.ModuleDict({"body": nn.Linear(4, 16), "pi": nn.Linear(16, 3), "v": nn.Linear(16, 1)}))
    S, R, done = T(6, 2, 4), T(6, 2), torch.tensor(rng.integers(0, 2, (6, 2)).astype(np.float32))
    A = torch.tensor(rng.integers(0, 3, (6, 2)))
    opt = torch.optim.RMSprop(net.parameters(), lr=7e-3, alpha=0.99, eps=1e-5)
    sched = torch.optim.lr_scheduler.LinearLR(opt, start_factor=1.0, end_factor=0.1, total_iters=4)

    def step():
        h = torch.tanh(net["body"](S))
        dist = D.Categorical(logits=net["pi"](h))
        v = net["v"](h).squeeze(-1)
        adv = torch.zeros(2)
        advs = []
        nv = v[-1].detach()
        for t in reversed(range(6)):
            delta = R[t] + 0.99 * nv * (1 - done[t]) - v[t].detach()
            adv = delta + 0.99 * 0.95 * (1 - done[t]) * adv
            advs.insert(0, adv)
            nv = v[t].detach()
        adv = torch.stack(advs)
        ret = adv + v.detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        l = -(dist.log_prob(A) * adv).mean() + 0.5 * F.mse_loss(v, ret) - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        l.backward()
        n = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        return l, n

    st = comp(step)
    out = []
    for _ in range(4):
        out += [v.item() for v in st()]
        sched.step()
    return out + [sched.get_last_lr()[0]]


def gat(kit):
    torch, nn, F, T, init, run, comp, rng = kit

    class GATLayer(nn.Module):
        def __init__(self, i, o, heads, concat=True):
            super().__init__()
            self.W = nn.Parameter(torch.empty(heads, i, o))
            self.a1 = nn.Parameter(torch.empty(heads, o, 1))
            self.a2 = nn.Parameter(torch.empty(heads, o, 1))
            self.concat = concat
            nn.init.xavier_uniform_(self.W, gain=1.414)

        def forward(self, h, adj):
            Wh = torch.einsum("ni,hio->hno", h, self.W)
            e = F.leaky_relu(Wh @ self.a1 + (Wh @ self.a2).transpose(1, 2), negative_slope=0.2)
            att = torch.where(adj > 0, e, -9e15 * torch.ones_like(e)).softmax(dim=-1)
            y = att @ Wh
            return F.elu(y.permute(1, 0, 2).reshape(h.size(0), -1)) if self.concat else y.mean(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1 = GATLayer(5, 4, 3)
            self.l2 = GATLayer(12, 3, 2, concat=False)

        def forward(self, x, adj):
            return F.log_softmax(self.l2(self.l1(x, adj), adj), dim=1)

    m = init(Net())
    x = T(9, 5)
    adj = (torch.tensor(rng.uniform(size=(9, 9)).astype(np.float32)) > 0.6).float() + torch.eye(9)
    y = torch.tensor(rng.integers(0, 3, 9))
    mask = torch.tensor([True] * 5 + [False] * 4)
    # sparse message passing beside it
    src, dst = adj.nonzero(as_tuple=True)
    gcn = init(nn.Linear(5, 3))

    def loss():
        h = gcn(x)
        deg = torch.zeros(9).scatter_add_(0, dst, torch.ones(len(dst)))
        agg = torch.zeros(9, 3).index_add_(0, dst, h[src]) / deg.clamp(min=1).unsqueeze(1)
        mx = torch.zeros(9, 3).scatter_reduce(
            0, dst.unsqueeze(1).expand(-1, 3), h[src], reduce="amax", include_self=False
        )
        return F.nll_loss(m(x, adj)[mask], y[mask]) + F.cross_entropy(agg + mx, y)

    return run(m, loss, torch.optim.Adam([*m.parameters(), *gcn.parameters()], lr=5e-3, weight_decay=5e-4))


def neural_process(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    D = torch.distributions
    enc = init(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 8)))
    dec = init(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2)))
    x = T(3, 10, 1)
    y = torch.sin(x)
    eps = T(3, 4)

    def latent(x, y):
        r = enc(torch.cat([x, y], -1)).mean(dim=1)
        mu, s = r.chunk(2, dim=-1)
        return D.Normal(mu, 0.1 + 0.9 * torch.sigmoid(s))

    def loss():
        q, p = latent(x, y), latent(x[:, :4], y[:, :4])
        z = q.loc + q.scale * eps
        o = dec(torch.cat([x, z.unsqueeze(1).repeat(1, x.shape[1], 1)], -1))
        mu, s = torch.split(o, 1, dim=-1)
        py = D.Independent(D.Normal(mu, 0.1 + 0.9 * F.softplus(s)), 1)
        return -py.log_prob(y).sum(-1).mean() + D.kl_divergence(q, p).sum(-1).mean()

    return run(enc, loss, torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=5e-3))


def pinn(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    net = init(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)))
    xt = T(20, 2)

    def loss():
        x = xt[:, :1].clone().requires_grad_(True)
        t = xt[:, 1:].clone().requires_grad_(True)
        u = net(torch.cat([x, t], dim=1))
        ux, ut = torch.autograd.grad(u, [x, t], grad_outputs=torch.ones_like(u), create_graph=True)
        uxx = torch.autograd.grad(ux, x, torch.ones_like(ux), retain_graph=True, create_graph=True, only_inputs=True)[0]
        f = ut + u * ux - 0.01 / math.pi * uxx
        return f.pow(2).mean() + (net(torch.cat([x, 0 * t], 1)) + torch.sin(math.pi * x)).pow(2).mean()

    return run(net, loss, torch.optim.Adam(net.parameters(), lr=1e-2))


def flow_spline_dist(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    D = torch.distributions
    loc = nn.Parameter(torch.zeros(2))
    raw = nn.Parameter(torch.zeros(2, 2))
    mix = nn.Parameter(torch.zeros(3))
    mus = nn.Parameter(torch.tensor(rng.normal(size=(3, 2)).astype(np.float32)))
    x = T(20, 2)

    def loss():
        L = D.transform_to(D.constraints.lower_cholesky)(raw)
        mvn = D.MultivariateNormal(loc, scale_tril=L)
        flow = D.TransformedDistribution(
            mvn, [D.AffineTransform(0.1, 1.5), D.ComposeTransform([D.SigmoidTransform(), D.AffineTransform(-4.0, 8.0)])]
        )
        gmm = D.MixtureSameFamily(D.Categorical(logits=mix), D.Independent(D.Normal(mus, torch.ones(3, 2)), 1))
        return (
            -flow.log_prob(x.clamp(-3.5, 3.5)).mean()
            - gmm.log_prob(x).mean()
            + D.kl_divergence(mvn, D.MultivariateNormal(torch.zeros(2), torch.eye(2)))
        )

    return run(None, loss, torch.optim.ASGD([loc, raw, mix, mus], lr=0.05))


def hypernetwork(kit):
    torch, nn, F, T, init, run, comp, rng = kit
    target = init(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)))
    shapes = {k: v.shape for k, v in target.named_parameters()}
    n = sum(math.prod(v) for v in shapes.values())
    hyper = init(nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, n)))
    c = T(4, 3)
    x = T(4, 6, 2)
    y = T(4, 6, 1)
    fc = torch.func.functional_call

    def params(v):
        out, i = {}, 0
        for k, s in shapes.items():
            out[k] = v[i : i + math.prod(s)].view(s)
            i += math.prod(s)
        return out

    def loss():
        w = hyper(c)
        each = [F.mse_loss(fc(target, params(w[i]), (x[i],)), y[i]) for i in range(4)]
        batched = torch.func.vmap(lambda v, a: fc(target, params(v), (a,)))(w, x)
        return torch.stack(each).mean() + 0.1 * batched.square().mean()

    out = run(hyper, loss, torch.optim.Adam(hyper.parameters(), lr=1e-2))
    g = torch.func.vmap(torch.func.grad(lambda p, a, b: F.mse_loss(fc(target, p, (a,)), b)), in_dims=(None, 0, 0))(
        {k: v.detach() for k, v in target.named_parameters()}, x, y
    )
    return out + [v.square().sum().item() for v in g.values()]
