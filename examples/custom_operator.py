"""Operators of your own, with gradients of your own, in three ways: a composition, an operator with its rules, a Python function.

    python examples/custom_operator.py

All three can be used in modules, differentiated, and called inside td.compile. The first two become part of the fused program and
have gradients of any order; the third runs Python forward and backward, and can do anything.
"""

from __future__ import annotations

import math

import numpy as np

import tandem as td
import tandem.ops as F
from tandem import Tensor
from tandem.graph import Type
from tandem.ops.define import Composite, op, register

# 1. A composition. `@op` makes a function over operators an operator: one kernel forward, one backward, one record on the tape.
#    The gradient comes free. (hidden=True: it does not become td.sine_linear.)


@op(hidden=True)
def sine_linear(x: Tensor, frequency: Tensor):  # "Tensor" tells the dispatcher what the parameter is
    """x + sin(frequency * x)^2 / frequency: an activation for periodic signals (Ziyin et al., 2020)."""
    return x + F.sin(frequency * x) ** 2 / frequency


# 2. An operator with its own rule. log(cosh(x)) overflows as it is written, and the gradient that follows from a form that does
#    not is a long way round to tanh(x). So: what it is made of (expand), and what its gradient is (grad), both in operators.


@register
class LogCosh(Composite):
    name = "example_log_cosh"

    def infer(self, x: Type) -> Type:
        """The only rule for shape and dtype."""
        return Type(x.dtype, x.shape)

    def expand(self, x):
        size = F.abs(x)
        return size + F.softplus(-2.0 * size) - math.log(2.0)

    def grad(self, g, x):
        """Written in operators, so it can be differentiated again."""
        return g * F.tanh(x)


@op(hidden=True)
def log_cosh(x: Tensor):
    """log(cosh(x)), elementwise: a loss that is square for small errors and absolute for large ones."""
    return LogCosh()(x)


# 3. A Python function. Rounding has no useful gradient; quantised networks pretend that it has ("straight through").


class Quantize(td.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        return (x.clamp(-1, 1) * levels).round() / levels

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= 1), None  # one gradient for each argument of forward


def check_gradient(function, x, step: float = 1e-5) -> float:
    """The largest difference between the gradient of sum(function(x)) and finite differences, in float64."""
    x = td.tensor(x, dtype=td.float64)
    ours = td.grad(lambda x: function(x).sum())(x).numpy()
    values = x.numpy()
    theirs = [
        (function(td.tensor(values + step * e)).sum() - function(td.tensor(values - step * e)).sum()).item()
        / (2 * step)
        for e in np.eye(len(values))
    ]
    return float(np.abs(ours - np.array(theirs)).max())


def main(steps: int = 200, seed: int = 0, show=print):
    """Checks the gradients and trains a small network that uses all three; gives the errors and the losses."""
    td.manual_seed(seed)
    points = np.linspace(-3, 3, 7)
    frequency = td.tensor(2.0, dtype=td.float64)
    errors = {
        "sine_linear": check_gradient(lambda x: sine_linear(x, frequency), points),
        "log_cosh": check_gradient(log_cosh, points),
        "log_cosh, second order": check_gradient(td.grad(lambda x: log_cosh(x).sum()), points),
    }
    for name, error in errors.items():
        show(f"{name}: gradient differs from finite differences by {error:.1e}")
    show(f"log_cosh(1000) = {log_cosh(td.tensor(1000.0)).item()}, where log(cosh(1000)) overflows")

    # A network with a learned frequency and weights of 17 values each.
    x = td.linspace(-3, 3, 128)[:, None]
    y = td.sin(3 * x) + 0.3 * x
    w1, w2 = (td.nn.Parameter(td.randn(*shape) * scale) for shape, scale in [((1, 32), 1.0), ((32, 1), 0.2)])
    b1, speed = td.nn.Parameter(td.rand(32) * 6 - 3), td.nn.Parameter(td.tensor(1.0))
    optimizer = td.optim.Adam([w1, w2, b1, speed], lr=2e-2)

    @td.compile
    def step():
        optimizer.zero_grad()
        hidden = sine_linear(x @ w1 + b1, speed)
        loss = log_cosh(hidden @ Quantize.apply(w2, 8) - y).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step().item() for _ in range(steps)]
    show(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; the frequency is {speed.item():.2f}")
    return errors, losses


if __name__ == "__main__":
    main()
