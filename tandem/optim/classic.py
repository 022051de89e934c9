"""Older rules: Rprop, which looks at signs only, and ASGD, which averages its iterates."""

from __future__ import annotations

import tandem.ops as F
from tandem.ops import full, full_like
from tandem.optim.numbers import decayed, exact, like, wide
from tandem.optim.optimizer import Optimizer, check, rule


@rule("step", "prev", "step_size")
def rprop(
    param: Tensor, step: Tensor, prev: Tensor, step_size: Tensor, grad: Tensor, shrink: Tensor, grow: Tensor, smallest: Tensor,
    largest: Tensor, maximize,
):  # fmt: skip
    p, before, size, g = wide(param, prev, step_size, grad)
    shrink, grow, smallest, largest = like(p, shrink, grow, smallest, largest)
    g = -g if maximize else g
    same = before * g
    size = size * F.where(F.greater(same, 0), grow, F.where(F.less(same, 0), shrink, 1.0))
    size = F.minimum(F.maximum(size, smallest), largest)
    g = F.where(F.less(same, 0), 0.0, g)  # after a turn of the sign the parameter stays for one step
    return p - F.sign(g) * size, step + 1, g, size


class Rprop(Optimizer):
    """Steps whose size grows while the gradient keeps its sign and shrinks when it turns (Riedmiller and Braun, 1993).

    For whole batches: signs of noisy gradients turn by chance.
    """

    def __init__(self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, maximize: bool = False, **ignored):
        check(lr=(lr, 0))
        if not 0 < etas[0] < 1 < etas[1]:
            raise ValueError(f"etas is {etas}; the first must be between 0 and 1, the second greater than 1")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize, "ignored": ignored,
        })  # fmt: skip

    def new_state(self, p, group, names):
        lr = float(group["lr"])
        return {
            "step": full((), 0.0, device=getattr(p, "device", None)),
            "prev": full_like(p, 0),
            "step_size": full_like(p, complex(lr, lr) if p.dtype.is_complex else lr),
        }

    def rule(self, group):
        return rprop, (*group["etas"], *group["step_sizes"], group["maximize"])


@rule("step", "eta", "mu", "ax")
def asgd(
    param: Tensor, step: Tensor, eta: Tensor, mu: Tensor, ax: Tensor, grad: Tensor, lr: Tensor, lambd: Tensor, alpha: Tensor,
    t0: Tensor, weight_decay: Tensor, maximize,
):  # fmt: skip
    p, average, g = wide(param, ax, grad)
    step = step + 1
    shrink, size, share = like(p, 1 - exact(lambd) * exact(eta), eta, mu)
    p = p * shrink - size * decayed(p, g, weight_decay, maximize)
    average = F.where(F.equal(mu, 1), p, average + (p - average) * share)
    lr, lambd, count = exact(lr, lambd, step)
    eta = lr / F.power(1 + lambd * lr * count, exact(alpha))
    mu = 1 / F.maximum(1.0, count - exact(t0))
    return p, step, F.astype(eta, step.dtype), F.astype(mu, step.dtype), average


class ASGD(Optimizer):
    """Descent whose iterates are averaged from step t0 on; the average is `state[p]["ax"]` (Polyak and Juditsky, 1992)."""

    def __init__(self, params, lr=1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0,
                 foreach=None, maximize: bool = False, **ignored):  # fmt: skip
        check(lr=(lr, 0), weight_decay=(weight_decay, 0))
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "maximize": maximize,
            "ignored": ignored,
        })  # fmt: skip

    def new_state(self, p, group, names):
        device = getattr(p, "device", None)
        start = {"step": 0.0, "eta": float(group["lr"]), "mu": 1.0}
        return {k: full((), v, device=device) for k, v in start.items()} | {"ax": full_like(p, 0)}

    def rule(self, group):
        return asgd, tuple(group[name] for name in ("lr", "lambd", "alpha", "t0", "weight_decay", "maximize"))
