"""An optimiser of your own: an update rule for one parameter, and a class that says which numbers it takes.

    python examples/custom_optimizer.py

The rule is an operator that writes its parameter and state in place, so an update is one kernel that reads and writes everything
once. Groups, schedules, state_dict, td.compile and deferred graphs come with the base class.
"""

from __future__ import annotations

import tandem as td
import tandem.ops as F
from tandem import Tensor, nn
from tandem.nn.functional import cross_entropy
from tandem.optim.optimizer import Optimizer, rule

# Adan (Xie et al., 2022): Nesterov's look ahead, estimated from the differences of gradients. Names given to @rule are the state
# kept for each parameter, zeros of its shape at first; they follow `param`, then comes the gradient, then settings of the group.


@rule("exp_avg", "exp_avg_diff", "exp_avg_sq", "last_grad")
def adan(
    param: Tensor, exp_avg: Tensor, exp_avg_diff: Tensor, exp_avg_sq: Tensor, last_grad: Tensor,
    grad: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor, beta3: Tensor, eps: Tensor, weight_decay: Tensor,
):  # fmt: skip
    change = grad - last_grad
    exp_avg = (1 - beta1) * exp_avg + beta1 * grad
    exp_avg_diff = (1 - beta2) * exp_avg_diff + beta2 * change
    exp_avg_sq = (1 - beta3) * exp_avg_sq + beta3 * (grad + (1 - beta2) * change) ** 2
    step = lr * (exp_avg + (1 - beta2) * exp_avg_diff) / (F.sqrt(exp_avg_sq) + eps)
    return (param - step) / (1 + weight_decay * lr), exp_avg, exp_avg_diff, exp_avg_sq, grad


class Adan(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.02, 0.08, 0.01), eps=1e-8, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def rule(self, group):
        return adan, (group["lr"], *group["betas"], group["eps"], group["weight_decay"])


def by_hand(p, grads, lr=1e-3, betas=(0.02, 0.08, 0.01), eps=1e-8):
    """The same rule in NumPy, to compare with."""
    m, v, n, last = 0 * p, 0 * p, 0 * p, 0 * p
    for g in grads:
        m = (1 - betas[0]) * m + betas[0] * g
        v = (1 - betas[1]) * v + betas[1] * (g - last)
        n = (1 - betas[2]) * n + betas[2] * (g + (1 - betas[1]) * (g - last)) ** 2
        p = p - lr * (m + (1 - betas[1]) * v) / (n**0.5 + eps)
        last = g
    return p


def train(make, steps: int, compiled: bool):
    """Losses of a small network on scikit-learn's digits, with the optimiser that make(parameters) gives."""
    td.manual_seed(0)
    images, labels = td.data.sets.digits("train").tensors
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = make(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = td.compile(step) if compiled else step
    losses = []
    for _ in range(steps):
        rows = td.randint(0, len(images), (64,))
        losses.append(step(images[rows], labels[rows]).item())
    return losses


def main(steps: int = 300, show=print):
    """Compares the rule with NumPy, and Adan with AdamW; gives the difference and the losses of each run."""
    td.manual_seed(0)
    p, grads = nn.Parameter(td.randn(5, dtype=td.float64)), td.randn(10, 5, dtype=td.float64)
    expected = by_hand(p.detach().numpy().copy(), grads.numpy())
    optimizer = Adan([p])
    for g in grads:
        p.grad = g
        optimizer.step()
    difference = abs(p.detach().numpy() - expected).max()
    show(f"ten updates differ from the formula by {difference:.1e}")

    runs = {}
    for name, make in {"AdamW": lambda p: td.optim.AdamW(p, lr=1e-3), "Adan": lambda p: Adan(p, lr=5e-3)}.items():
        for compiled in (False, True):
            losses = runs[name, compiled] = train(make, steps, compiled)
            last = sum(losses[-20:]) / len(losses[-20:])
            show(f"{name:5s} {'compiled' if compiled else 'eager':8s}  loss {losses[0]:.3f} -> {last:.3f}")
    return difference, runs


if __name__ == "__main__":
    main()
