"""Whole training steps, with modules and optimisers, give the same compiled as eagerly."""

import numpy as np
import pytest

import tandem as td
from tandem import nn, optim


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.inner = (
            nn.LayerNorm(width),
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)),
        )

    def forward(self, x):
        return x + self.inner(self.norm(x))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), Residual(8), nn.Linear(8, 3)), (5, 6)),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                  nn.Linear(16, 3)), (5, 1, 4, 4)),
    "attention": (lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Flatten(),
                                        nn.Linear(24, 3)), (5, 3, 8)),
}  # fmt: skip


def losses(make, shape, optimizer, compiled):
    td.manual_seed(0)
    model = make()
    o = optimizer(model.parameters())
    criterion = nn.CrossEntropyLoss()
    rng = np.random.default_rng(0)
    x, y = td.tensor(rng.normal(size=shape).astype(np.float32)), td.tensor(rng.integers(0, 3, shape[0]))

    def step(x, y):
        o.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        o.step()
        return loss

    step = td.compile(step) if compiled else step
    schedule = optim.lr_scheduler.ExponentialLR(o, 0.9)
    seen = []
    for _ in range(6):
        seen.append(step(x, y).item())
        schedule.step()
    return seen, {k: v.numpy().copy() for k, v in model.state_dict().items()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", [
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.AdamW(p, lr=0.02), lambda p: optim.Adafactor(p, lr=0.05),
], ids=["sgd", "adamw", "adafactor"])  # fmt: skip
def test_compiled_training_is_eager_training(name, optimizer):
    eager, state = losses(*MODELS[name], optimizer, compiled=False)
    compiled, other = losses(*MODELS[name], optimizer, compiled=True)
    assert eager[-1] < eager[0]
    np.testing.assert_allclose(compiled, eager, rtol=2e-4)
    for key, value in state.items():
        np.testing.assert_allclose(other[key], value, rtol=2e-3, atol=2e-4, err_msg=key)


def test_compiled_recurrent_layers():
    td.manual_seed(0)
    layer = nn.LSTM(3, 4, bidirectional=True)
    x = td.randn(5, 2, 3)
    out, (h, c) = layer(x)
    compiled = td.compile(lambda x: layer(x))
    for _ in range(2):
        again, (h2, c2) = compiled(x)
        for a, b in ((out, again), (h, h2), (c, c2)):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
