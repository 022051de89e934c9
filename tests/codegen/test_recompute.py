"""memory_budget: the same numbers in less memory."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


def training(memory_budget):
    td.manual_seed(0)
    layers = []
    for _ in range(6):
        layers += [nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.2)]
    model = nn.Sequential(*layers, nn.Linear(32, 4))
    optimizer = td.optim.SGD(model.parameters(), lr=0.1)
    x = td.sin(td.arange(512.0 * 32)).reshape(512, 32)
    y = td.arange(512) % 4

    @td.compile(memory_budget=memory_budget)
    def step():
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [step().item() for _ in range(3)]
    return losses, [p.detach().numpy() for p in model.parameters()], step.memory()["peak"]


def test_less_memory_and_the_same_numbers():
    losses, parameters, peak = training(None)
    for part in (0.85, 0.72):
        again, same, less = training(part)
        np.testing.assert_allclose(again, losses, rtol=1e-6)
        for a, b in zip(same, parameters, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
        assert less <= part * peak
    _, _, least = training(1000)  # bytes: cannot be reached, gets as close as it can
    assert least < 0.72 * peak


def test_a_budget_that_is_met_changes_nothing():
    _, _, peak = training(None)
    assert training(1.0)[2] == peak
    assert training(2 * peak)[2] == peak


def test_a_wrong_budget_is_refused():
    with pytest.raises(td.ValueRangeError, match="memory_budget is 0"):
        td.compile(lambda x: x, memory_budget=0)
    with pytest.raises(td.DTypeError, match="memory_budget is 'half', of type str; it must be a number"):
        td.compile(lambda x: x, memory_budget="half")


def test_again_is_the_value_itself():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    from tandem.ops import again

    y = again(x) * 3
    y.sum().backward()
    assert y.tolist() == [3.0, 6.0] and x.grad.tolist() == [3.0, 3.0]


def test_a_result_is_computed_again_from_what_is_in_memory_not_from_where_its_kernel_began():
    """Normalised rows come from the kernel that also applies tanh to a product; tanh is kept for backward, the product is not."""
    td.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (td.nn.Linear(32, 32), td.nn.Tanh(), td.nn.LayerNorm(32))]
    model = td.nn.Sequential(*layers)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        for p in model.parameters():
            p.grad = None if p.ndim == 1 else p.grad
        return loss

    x = td.rand(64, 32)
    peaks = []
    for budget in (1.0, 0.5):
        run = td.compile(step, memory_budget=budget)
        run(x)
        peaks.append(run.memory()["peak"])
    assert peaks[1] < 0.75 * peaks[0]
