"""Graphs, point clouds, recommenders, fields, reinforcement learning."""

import math

import torch
import torch.nn.functional as F
from case import SCALE, Case, zoo
from torch import nn


def graph(nodes, edges, features):
    return torch.randn(nodes, features), torch.randint(0, nodes, (2, edges))


class GCNLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, edges):
        source, target = edges
        degree = torch.zeros(x.size(0), device=x.device).index_add_(
            0, target, torch.ones(edges.size(1), device=x.device)
        )
        norm = degree.clamp(min=1).rsqrt()
        x = self.linear(x)
        messages = x[source] * (norm[source] * norm[target]).unsqueeze(1)
        return torch.zeros_like(x).index_add(0, target, messages)


@zoo
def gcn():
    x, edges = graph(4000 * SCALE, 40000 * SCALE, 64)
    y = torch.randint(0, 10, (x.shape[0],))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = GCNLayer(64, 64), GCNLayer(64, 10)

        def forward(self, x, edges):
            return self.two(F.dropout(F.relu(self.one(x, edges)), 0.5, self.training), edges)

    loss = lambda m, x, e, y: F.cross_entropy(m(x, e), y)
    return Case(Model(), (x, edges, y), loss, lambda m, x, e, y: m(x, e), mixed=False)


class GATLayer(nn.Module):
    def __init__(self, inputs, outputs, heads):
        super().__init__()
        self.heads, self.size = heads, outputs
        self.linear = nn.Linear(inputs, heads * outputs, bias=False)
        self.source, self.target = (nn.Parameter(torch.randn(1, heads, outputs) * 0.1) for _ in range(2))

    def forward(self, x, edges):
        a, b = edges
        n = x.size(0)
        h = self.linear(x).view(n, self.heads, self.size)
        score = F.leaky_relu((h * self.source).sum(-1)[a] + (h * self.target).sum(-1)[b], 0.2)
        index = b.unsqueeze(1).expand_as(score)
        top = torch.full((n, self.heads), float("-inf"), device=x.device).scatter_reduce(0, index, score, "amax")
        weight = torch.exp(score - top[b])
        total = torch.zeros(n, self.heads, device=x.device).index_add(0, b, weight)
        weight = weight / (total[b] + 1e-16)
        out = torch.zeros_like(h).index_add(0, b, h[a] * weight.unsqueeze(-1))
        return out.flatten(1)


@zoo
def gat():
    x, edges = graph(2000 * SCALE, 20000 * SCALE, 64)
    y = torch.randint(0, 10, (x.shape[0],))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = GATLayer(64, 16, 4), GATLayer(64, 10, 1)

        def forward(self, x, edges):
            return self.two(F.elu(self.one(x, edges)), edges)

    loss = lambda m, x, e, y: F.cross_entropy(m(x, e), y)
    return Case(Model(), (x, edges, y), loss, lambda m, x, e, y: m(x, e), mixed=False)


class PointNet(nn.Module):
    def __init__(self, classes=40):
        super().__init__()
        conv = lambda i, o: nn.Sequential(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())
        self.transform = nn.Sequential(conv(3, 32), conv(32, 64))
        self.fc = nn.Linear(64, 9)
        self.features = nn.Sequential(conv(3, 64), conv(64, 128), conv(128, 256))
        self.head = nn.Sequential(
            nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, classes)
        )

    def forward(self, x):
        t = torch.max(self.transform(x), 2)[0]
        t = self.fc(t).view(-1, 3, 3) + torch.eye(3, device=x.device)
        x = torch.bmm(x.transpose(1, 2), t).transpose(1, 2)
        return self.head(torch.max(self.features(x), 2)[0])


@zoo
def pointnet():
    inputs = torch.randn(8 * SCALE, 3, 512), torch.randint(0, 40, (8 * SCALE,))
    return Case(PointNet(), inputs, lambda m, x, y: F.cross_entropy(m(x), y))


class EdgeConv(nn.Module):
    def __init__(self, inputs, outputs, k=8):
        super().__init__()
        self.k = k
        self.conv = nn.Sequential(
            nn.Conv2d(2 * inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)
        )

    def forward(self, x):
        b, c, n = x.shape
        inner = -2 * torch.matmul(x.transpose(2, 1), x)
        xx = torch.sum(x**2, dim=1, keepdim=True)
        near = (-xx - inner - xx.transpose(2, 1)).topk(k=self.k, dim=-1)[1]
        index = (near + torch.arange(b, device=x.device).view(-1, 1, 1) * n).view(-1)
        points = x.transpose(2, 1).contiguous()
        neighbours = points.view(b * n, -1)[index, :].view(b, n, self.k, c)
        centre = points.view(b, n, 1, c).repeat(1, 1, self.k, 1)
        feature = torch.cat((neighbours - centre, centre), dim=3).permute(0, 3, 1, 2).contiguous()
        return self.conv(feature).max(dim=-1, keepdim=False)[0]


@zoo
def dgcnn():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.head = EdgeConv(3, 32), EdgeConv(32, 64), nn.Linear(96, 40)

        def forward(self, x):
            a = self.one(x)
            b = self.two(a)
            return self.head(torch.cat([a, b], 1).max(-1)[0])

    inputs = torch.randn(4 * SCALE, 3, 256), torch.randint(0, 40, (4 * SCALE,))
    return Case(Model(), inputs, lambda m, x, y: F.cross_entropy(m(x), y))


class DLRM(nn.Module):
    def __init__(self, tables=8, rows=5000, dim=16):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, dim, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, dim), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(dim + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, offset=-1))

    def forward(self, dense, sparse, offsets):
        x = self.bottom(dense)
        found = [x] + [table(sparse[i], offsets) for i, table in enumerate(self.tables)]
        t = torch.stack(found, dim=1)
        z = torch.bmm(t, t.transpose(1, 2))
        flat = z[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, flat], dim=1)).squeeze(1)


@zoo
def dlrm():
    n = 256 * SCALE
    inputs = (
        torch.randn(n, 13),
        torch.randint(0, 5000, (8, 3 * n)),
        torch.arange(0, 3 * n, 3),
        torch.randint(0, 2, (n,)).float(),
    )
    loss = lambda m, d, s, o, y: F.binary_cross_entropy_with_logits(m(d, s, o), y)
    return Case(DLRM(), inputs, loss, lambda m, d, s, o, y: m(d, s, o))


class Tower(nn.Module):
    def __init__(self, rows, dim=32):
        super().__init__()
        self.embed = nn.Embedding(rows, dim)
        self.mlp = nn.Sequential(nn.Linear(dim + 10, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, dim))

    def forward(self, ids, features):
        return F.normalize(self.mlp(torch.cat([self.embed(ids), features], dim=-1)), dim=-1)


@zoo
def two_tower():
    n = 256 * SCALE
    model = nn.ModuleList([Tower(10000), Tower(5000)])

    def loss(m, users, a, items, b):
        logits = m[0](users, a) @ m[1](items, b).t() / 0.07
        return F.cross_entropy(logits, torch.arange(logits.size(0), device=logits.device))

    inputs = torch.randint(0, 10000, (n,)), torch.randn(n, 10), torch.randint(0, 5000, (n,)), torch.randn(n, 10)
    return Case(model, inputs, loss, lambda m, u, a, i, b: (m[0](u, a) * m[1](i, b)).sum(-1))


class NeRF(nn.Module):
    def __init__(self, width=64, frequencies=6):
        super().__init__()
        self.frequencies = frequencies
        size = 3 + 6 * frequencies
        self.first = nn.ModuleList([nn.Linear(size if i == 0 else width, width) for i in range(3)])
        self.second = nn.ModuleList([nn.Linear(size + width if i == 0 else width, width) for i in range(2)])
        self.sigma, self.colour = nn.Linear(width, 1), nn.Linear(width, 3)

    def encode(self, x):
        found = [x]
        for i in range(self.frequencies):
            found += [torch.sin(2.0**i * math.pi * x), torch.cos(2.0**i * math.pi * x)]
        return torch.cat(found, dim=-1)

    def forward(self, origins, directions, depths):
        points = origins[:, None, :] + directions[:, None, :] * depths[None, :, None]
        e = self.encode(points)
        h = e
        for layer in self.first:
            h = F.relu(layer(h))
        h = torch.cat([h, e], dim=-1)
        for layer in self.second:
            h = F.relu(layer(h))
        sigma, colour = F.relu(self.sigma(h)).squeeze(-1), torch.sigmoid(self.colour(h))
        steps = torch.cat([depths[1:] - depths[:-1], torch.full((1,), 1e10, device=depths.device)])
        alpha = 1.0 - torch.exp(-sigma * steps)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], dim=-1), dim=-1)[:, :-1]
        weights = alpha * through
        return (weights[..., None] * colour).sum(dim=1)


@zoo
def nerf():
    n = 512 * SCALE
    inputs = torch.randn(n, 3), F.normalize(torch.randn(n, 3), dim=-1), torch.linspace(2.0, 6.0, 32), torch.rand(n, 3)
    return Case(NeRF(), inputs, lambda m, o, d, t, y: F.mse_loss(m(o, d, t), y), lambda m, o, d, t, y: m(o, d, t))


class ActorCritic(nn.Module):
    def __init__(self, observations=24, actions=6, width=64):
        super().__init__()
        mlp = lambda o: nn.Sequential(
            nn.Linear(observations, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, o)
        )
        self.actor, self.critic = mlp(actions), mlp(1)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, x):
        return self.actor(x), self.critic(x).squeeze(-1)


@zoo
def ppo():
    n = 1024 * SCALE

    def loss(model, x, actions, old, advantage, returns):
        mean, value = model(x)
        distribution = torch.distributions.Normal(mean, model.log_std.exp())
        log_prob = distribution.log_prob(actions).sum(-1)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = torch.exp(log_prob - old)
        policy = -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage).mean()
        return policy + 0.5 * (returns - value).pow(2).mean() - 0.01 * distribution.entropy().sum(-1).mean()

    inputs = torch.randn(n, 24), torch.randn(n, 6), torch.randn(n), torch.randn(n), torch.randn(n)
    return Case(ActorCritic(), inputs, loss)


@zoo
def dqn():
    net = lambda: nn.Sequential(
        nn.Conv2d(4, 16, 8, 4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, 6),
    )
    model = nn.ModuleList([net(), net()])
    n = 16 * SCALE

    def loss(m, x, following, actions, rewards, done):
        q = m[0](x.float() / 255).gather(1, actions.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = m[0](following.float() / 255).argmax(1, keepdim=True)
            target = rewards + 0.99 * (1 - done) * m[1](following.float() / 255).gather(1, best).squeeze(1)
        return F.smooth_l1_loss(q, target)

    frames = lambda: torch.randint(0, 256, (n, 4, 84, 84), dtype=torch.uint8)
    inputs = frames(), frames(), torch.randint(0, 6, (n,)), torch.randn(n), torch.zeros(n)
    return Case(model, inputs, loss, lambda m, x, *rest: m[0](x.float() / 255), images=True)


class ODEBlock(nn.Module):
    def __init__(self, dim=32, steps=6):
        super().__init__()
        self.f, self.steps = nn.Sequential(nn.Linear(dim + 1, 64), nn.Tanh(), nn.Linear(64, dim)), steps

    def derivative(self, t, x):
        return self.f(torch.cat([x, torch.full_like(x[:, :1], t)], dim=1))

    def forward(self, x):
        h = 1.0 / self.steps
        for i in range(self.steps):
            t = i * h
            k1 = self.derivative(t, x)
            k2 = self.derivative(t + h / 2, x + h / 2 * k1)
            k3 = self.derivative(t + h / 2, x + h / 2 * k2)
            k4 = self.derivative(t + h, x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x


@zoo
def neural_ode():
    model = nn.Sequential(nn.Linear(8, 32), ODEBlock(), nn.Linear(32, 2))
    inputs = torch.randn(256 * SCALE, 8), torch.randint(0, 2, (256 * SCALE,))
    return Case(model, inputs, lambda m, x, y: F.cross_entropy(m(x), y))
