"""Groups that are alike: one kernel, and for each the step that its own nest would have given."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.codegen import repeats
from tandem.codegen.repeats import Repeats
from tandem.graph.symbolic import Sym


@pytest.fixture
def compared(monkeypatch, tmp_path):
    """Pairs of steps: one taken from an earlier group, and what its own nest gives. Programs on disk would have neither."""
    found = []
    taken = Repeats.step

    def step(self, group):
        before = group.domain, group.order, group.unit
        known = len(self._made)
        made = taken(self, group)
        if len(self._made) == known and type(made) is repeats.KernelStep:
            own = [m.parts for m in group.members]
            group.domain, group.order, group.unit = before
            again = self.nests[group.kind](self.fusion, group)
            for m, parts in zip(group.members, own, strict=True):
                m.parts = parts
            found.append((made, again))
        return made

    monkeypatch.setattr(Repeats, "step", step)
    with td.switches(CACHE_DIR=str(tmp_path)):
        yield found


def same(a, b) -> bool:
    return a is b or (not isinstance(a, Sym) and not isinstance(b, Sym) and a == b)


def check(found):
    for made, again in found:
        assert again.kernel.key == made.kernel.key
        assert len(again.ints) == len(made.ints) and all(map(same, again.ints, made.ints))
        assert same(again.extent, made.extent) and same(again.work, made.work) and again.block == made.block
        assert set(again.nodes) == set(made.nodes) and again.element_cost == made.element_cost
        for a, b in zip([*again.buffers, *again.writes], [*made.buffers, *made.writes], strict=True):
            assert a is b or (
                a.kind == b.kind == "alloc" and all(map(same, a.strides, b.strides)) and a.dtype is b.dtype
            )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(24), nn.Linear(24, 24)

    def forward(self, x):
        return x + td.nn.functional.gelu(self.linear(self.norm(x)))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)

    def forward(self, x):
        return self.norm(self.conv(x)).relu() + x


@pytest.mark.parametrize(("layer", "shape"), [(Block, (7, 24)), (Images, (3, 6, 8, 8))])
@pytest.mark.parametrize("optimizer", [td.optim.AdamW, td.optim.SGD])
def test_layers_share_kernels(layer, shape, optimizer, compared):
    td.manual_seed(0)
    model = nn.Sequential(*[layer() for _ in range(4)])
    other = nn.Sequential(*[layer() for _ in range(4)])
    other.load_state_dict(model.state_dict())
    x = td.randn(*shape)

    def training(model):
        update = optimizer(model.parameters(), lr=0.1)

        def step():
            loss = (model(x) ** 2).mean()
            loss.backward()
            update.step()
            update.zero_grad()
            return loss

        return step

    compiled, eager = td.compile(training(model)), training(other)
    for _ in range(3):
        np.testing.assert_allclose(compiled().item(), eager().item(), rtol=2e-4)
    assert len(compared) > 4
    check(compared)


def test_what_differs_is_not_alike(compared):
    """Other constants, axes, types, shapes and numbers of readers."""

    def f(x, y, z):
        first = [(t.sum(1, keepdims=True) * k, t.sum(0)) for t in (x, y) for k in (2.0, 3.0)]
        return *[v for pair in first for v in pair], z.sum(1), (x + y).amax(1), (x * y).amax(1), (y + y).amax(1)

    x, y, z = td.randn(6, 5), td.randn(6, 5), td.randn(6, 5).to(td.float64)
    for a, b in zip(td.compile(f)(x, y, z), f(x, y, z), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
    check(compared)
