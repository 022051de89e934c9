"""LSTM on a device: the loop of the CPU, in float32 and under autocast."""

import numpy as np
import pytest

import tandem as td
from tandem import nn

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def everything(model, x, first):
    out, (h, c) = model(x, first)
    loss = (out.float() ** 2).sum() + (h.float() * 2).sum() + (c.float() ** 2).sum()
    return [
        v.detach().float().cpu().numpy() for v in (out, h, c, *td.autograd.grad(loss, [x, *first, *model.parameters()]))
    ]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("hidden", [16, 26])
@pytest.mark.parametrize("low", [False, True])
def test_lstm_on_a_device_equals_the_cpu(hidden, bidirectional, low):
    td.manual_seed(0)
    model = nn.LSTM(12, hidden, 2, bidirectional=bidirectional)
    layers = 4 if bidirectional else 2
    x = td.randn(9, 3, 12).requires_grad_()
    first = tuple(td.randn(layers, 3, hidden).requires_grad_() for _ in range(2))
    want = everything(model, x, first)
    there = nn.LSTM(12, hidden, 2, bidirectional=bidirectional)
    there.load_state_dict(model.state_dict())
    there = there.to("cuda")
    moved = x.detach().to("cuda").requires_grad_(), tuple(s.detach().to("cuda").requires_grad_() for s in first)
    if low:
        with td.autocast("cuda", td.bfloat16):
            have = everything(there, *moved)
    else:
        have = everything(there, *moved)
    for a, b in zip(have, want):
        assert np.linalg.norm(a - b) <= (3e-2 if low else 1e-5) * np.linalg.norm(b)


def test_a_compiled_training_step():
    td.manual_seed(0)
    model = nn.LSTM(8, 20).to("cuda")
    optimizer = td.optim.SGD(model.parameters(), lr=0.1)
    x = td.randn(7, 4, 8, device="cuda")

    def step():
        loss = (model(x)[0] ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = td.compile(step)
    losses = [float(compiled()) for _ in range(6)]
    assert losses == sorted(losses, reverse=True)
