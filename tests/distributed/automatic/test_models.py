"""Plans for models of other kinds: gradients are those of one process, whole and in two stages."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist

nn, F = td.nn, td.nn.functional


class UNet(nn.Module):
    """Skip connections between stages."""

    def __init__(self):
        super().__init__()
        double = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.GroupNorm(4, b), nn.ReLU())
        self.down, self.middle, self.up = double(3, 8), double(8, 16), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join, self.out = double(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.up(self.middle(F.max_pool2d(a, 2)))
        return self.out(self.join(td.cat([a, b], 1)))


class Experts(nn.Module):
    """A mixture of experts: of four, each row goes to two."""

    def __init__(self, width=16):
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)) for _ in range(4)]
        )

    def forward(self, x):
        chosen, which = self.gate(x).softmax(-1).topk(2, -1)
        share = td.zeros(x.shape[0], 4).scatter(-1, which, chosen)
        return x + sum(share[:, k : k + 1] * expert(x) for k, expert in enumerate(self.experts))


class Tables(nn.Module):
    """A model of recommendation: products of looked-up rows."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(n, 8, mode="sum") for n in (40, 20, 10)])
        self.dense, self.top = nn.Linear(5, 8), nn.Linear(24, 1)

    def forward(self, x, *rows):
        found = td.stack([self.dense(x), *[t(r) for t, r in zip(self.tables, rows, strict=True)]], 1)
        return self.top((found @ found.transpose(1, 2)).flatten(1)[:, :8].repeat(1, 3)).squeeze(-1)


class Translator(nn.Module):
    """An encoder and a decoder that reads all of it, with one table for both and for the result."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 16)
        self.body = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, s, t):
        mask = nn.Transformer.generate_square_subsequent_mask(t.shape[1])
        return (self.body(self.table(s), self.table(t), tgt_mask=mask) @ self.table.weight.T).flatten(0, 1)


class Recurrent(nn.Module):
    """An encoder, and a decoder with attention."""

    def __init__(self):
        super().__init__()
        self.table, self.read, self.write = (
            nn.Embedding(12, 8),
            nn.GRU(8, 8, batch_first=True),
            nn.GRU(8, 8, batch_first=True),
        )
        self.out = nn.Linear(16, 12)

    def forward(self, s, t):
        memory, state = self.read(self.table(s))
        h, _ = self.write(self.table(t), state)
        return self.out(td.cat([h, (h @ memory.transpose(1, 2)).softmax(-1) @ memory], -1)).flatten(0, 1)


def made(kind):
    td.manual_seed(0)
    model, words = kind(), lambda *shape: td.randint(0, 12, shape)
    entropy = lambda *a: F.cross_entropy(model(*a[:-1]), a[-1].flatten() if a[-1].ndim == 2 else a[-1])
    if kind is UNet:
        return model, (td.randn(4, 3, 8, 8), td.randint(0, 2, (4, 8, 8))), entropy
    if kind is Experts:
        return model, (td.randn(8, 16), words(8)), entropy
    if kind is Tables:
        rows = [td.randint(0, n, (8, 3)) for n in (40, 20, 10)]
        return model, (td.randn(8, 5), *rows, td.rand(8)), lambda *a: F.mse_loss(model(*a[:-1]), a[-1])
    return model, (words(4, 5), words(4, 3), words(4, 3)), entropy


@pytest.mark.slow  # searches and compiles whole models
@pytest.mark.parametrize("kind", [UNet, Experts, Tables, Translator, Recurrent])
@pytest.mark.parametrize("options", [{"mesh": (2,)}, {"stages": 2, "micro_batches": 2}], ids=["whole", "two stages"])
def test_gradients_are_those_of_one_process(kind, options):
    model, args, loss = made(kind)
    whole = loss(*args)
    whole.backward()
    expected = {name: p.grad.numpy() for name, p in model.named_parameters()}
    copies = [made(kind) for _ in range(2)]

    def work():
        own, args, loss = copies[dist.get_rank()]
        where = dist.Mesh(2) if "mesh" in options else dist.Topology.processors(2)
        plan = td.parallelize(loss, args, where, **{k: v for k, v in options.items() if k != "mesh"}).apply(own)
        found = plan.step(*args).item()
        numpy = lambda g: (g.full_tensor() if hasattr(g, "full_tensor") else g).numpy()
        return found, {name: numpy(p.grad) for name, p in own.named_parameters() if p.grad is not None}

    results = dist.spawn(work, 2, engine="threads", timeout=300)
    assert set().union(*(gradients for _, gradients in results)) == set(expected)
    for found, gradients in results:
        assert found == pytest.approx(whole.item(), rel=1e-5)
        for name, g in gradients.items():
            np.testing.assert_allclose(g, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)
