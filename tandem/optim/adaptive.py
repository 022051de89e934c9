"""Rules that scale steps by sums or means of squared gradients: Adagrad, Adadelta, RMSprop."""

from __future__ import annotations

import tandem.ops as F
from tandem.ops import full, full_like
from tandem.optim.numbers import decayed, exact, like, wide
from tandem.optim.optimizer import Optimizer, check, no_decay, rule


@rule("step", "sum", elementwise=True)
def adagrad(
    param: Tensor,
    step: Tensor,
    sum: Tensor,
    grad: Tensor,
    lr: Tensor,
    lr_decay: Tensor,
    weight_decay: Tensor,
    eps: Tensor,
    maximize,
):
    p, total, g = wide(param, sum, grad)
    step = step + 1
    g = decayed(p, g, weight_decay, maximize)
    total = total + g * g
    size = like(p, exact(lr) / (1 + (exact(step) - 1) * exact(lr_decay)))
    return p - size * g / (F.sqrt(total) + like(p, eps)), step, total


class Adagrad(Optimizer):
    """Steps over the root of the sum of all squared gradients (Duchi et al., 2011)."""

    def __init__(self, params, lr=1e-2, lr_decay: float = 0, weight_decay: float = 0, initial_accumulator_value: float = 0,
                 eps: float = 1e-10, *, maximize: bool = False, **ignored):  # fmt: skip
        check(lr=(lr, 0), lr_decay=(lr_decay, 0), weight_decay=(weight_decay, 0), eps=(eps, 0))
        check(initial_accumulator_value=(initial_accumulator_value, 0))
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "initial_accumulator_value": initial_accumulator_value,
            "eps": eps, "maximize": maximize, "ignored": ignored,
        })  # fmt: skip

    def new_state(self, p, group, names):
        return {
            "step": full((), 0.0, device=getattr(p, "device", None)),
            "sum": full_like(p, group["initial_accumulator_value"]),
        }

    def rule(self, group):
        return adagrad, (group["lr"], group["lr_decay"], group["weight_decay"], group["eps"], group["maximize"])

    def sparse_rule(self, group):
        no_decay("Adagrad", group)
        return self.rule(group)


@rule("step", "square_avg", "acc_delta", elementwise=True)
def adadelta(
    param: Tensor, step: Tensor, square_avg: Tensor, acc_delta: Tensor, grad: Tensor, lr: Tensor, rho: Tensor, eps: Tensor,
    weight_decay: Tensor, maximize,
):  # fmt: skip
    p, squares, deltas, g = wide(param, square_avg, acc_delta, grad)
    lr, rho, fresh, eps = like(p, lr, rho, 1 - exact(rho), eps)
    g = decayed(p, g, weight_decay, maximize)
    squares = rho * squares + fresh * (g * g)
    delta = F.sqrt(deltas + eps) / F.sqrt(squares + eps) * g
    return p - lr * delta, step + 1, squares, rho * deltas + fresh * (delta * delta)


class Adadelta(Optimizer):
    """Steps whose units match those of the parameter (Zeiler, 2012)."""

    def __init__(self, params, lr=1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0, *, maximize: bool = False,
                 **ignored):  # fmt: skip
        check(lr=(lr, 0), rho=(rho, 0), eps=(eps, 0), weight_decay=(weight_decay, 0))
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "ignored": ignored,
        })  # fmt: skip

    def rule(self, group):
        return adadelta, (group["lr"], group["rho"], group["eps"], group["weight_decay"], group["maximize"])


def _rmsprop(param, step, square_avg, buffer, grad_avg, grad, lr, alpha, eps, weight_decay, momentum, maximize):
    p, squares, g = wide(param, square_avg, grad)
    lr, alpha, fresh = like(p, lr, alpha, 1 - exact(alpha))
    g = decayed(p, g, weight_decay, maximize)
    squares = alpha * squares + fresh * (g * g)
    if grad_avg is not None:
        grad_avg = wide(grad_avg)
        grad_avg = grad_avg + fresh * (g - grad_avg)
    variance = squares if grad_avg is None else squares - grad_avg * grad_avg
    delta = g / (F.sqrt(variance) + like(p, eps))
    if buffer is not None:
        delta = buffer = like(p, momentum) * wide(buffer) + delta
    return tuple(v for v in (p - lr * delta, step + 1, squares, buffer, grad_avg) if v is not None)


@rule("step", "square_avg", elementwise=True)
def rmsprop(
    param: Tensor, step: Tensor, square_avg: Tensor, grad: Tensor, lr: Tensor, alpha: Tensor, eps: Tensor, weight_decay: Tensor,
    momentum: Tensor, maximize,
):  # fmt: skip
    return _rmsprop(param, step, square_avg, None, None, grad, lr, alpha, eps, weight_decay, momentum, maximize)


@rule("step", "square_avg", "momentum_buffer", elementwise=True)
def rmsprop_momentum(
    param: Tensor, step: Tensor, square_avg: Tensor, momentum_buffer: Tensor, grad: Tensor, lr: Tensor, alpha: Tensor, eps: Tensor,
    weight_decay: Tensor, momentum: Tensor, maximize,
):  # fmt: skip
    return _rmsprop(
        param, step, square_avg, momentum_buffer, None, grad, lr, alpha, eps, weight_decay, momentum, maximize
    )


@rule("step", "square_avg", "grad_avg", elementwise=True)
def rmsprop_centered(
    param: Tensor, step: Tensor, square_avg: Tensor, grad_avg: Tensor, grad: Tensor, lr: Tensor, alpha: Tensor, eps: Tensor,
    weight_decay: Tensor, momentum: Tensor, maximize,
):  # fmt: skip
    return _rmsprop(param, step, square_avg, None, grad_avg, grad, lr, alpha, eps, weight_decay, momentum, maximize)


@rule("step", "square_avg", "momentum_buffer", "grad_avg", elementwise=True)
def rmsprop_both(
    param: Tensor, step: Tensor, square_avg: Tensor, momentum_buffer: Tensor, grad_avg: Tensor, grad: Tensor, lr: Tensor,
    alpha: Tensor, eps: Tensor, weight_decay: Tensor, momentum: Tensor, maximize,
):  # fmt: skip
    return _rmsprop(
        param, step, square_avg, momentum_buffer, grad_avg, grad, lr, alpha, eps, weight_decay, momentum, maximize
    )


class RMSprop(Optimizer):
    """Steps over the root of the running mean of squared gradients. centered: less the square of their mean."""

    def __init__(self, params, lr=1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0, momentum: float = 0,
                 centered: bool = False, *, maximize: bool = False, **ignored):  # fmt: skip
        check(lr=(lr, 0), alpha=(alpha, 0), eps=(eps, 0), weight_decay=(weight_decay, 0), momentum=(momentum, 0))
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered, "weight_decay": weight_decay,
            "maximize": maximize, "ignored": ignored,
        })  # fmt: skip

    def rule(self, group):
        kinds = ((rmsprop, rmsprop_momentum), (rmsprop_centered, rmsprop_both))
        kind = kinds[bool(group["centered"])][group["momentum"] > 0]
        return kind, (
            group["lr"],
            group["alpha"],
            group["eps"],
            group["weight_decay"],
            group["momentum"],
            group["maximize"],
        )
