"""Stochastic gradient descent."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.ops import full
from tandem.optim.numbers import decayed, exact, like, wide
from tandem.optim.optimizer import (
    Optimizer,
    Tensor,
    as_float,
    check,
    no_decay,
    parts,
    rule,
    state_of,
    together_for,
    zeros_for,
)


@rule(elementwise=True)
def sgd(param: Tensor, grad: Tensor, lr: Tensor, weight_decay: Tensor, maximize):
    p, g = wide(param, grad)
    return p - like(p, lr) * decayed(p, g, weight_decay, maximize)


def _with_momentum(param, momentum_buffer, grad, lr, weight_decay, momentum, dampening, nesterov, maximize):
    p, buffer, g = wide(param, momentum_buffer, grad)
    lr, momentum, fresh = like(p, lr, momentum, 1 - exact(dampening))
    g = decayed(p, g, weight_decay, maximize)
    buffer = momentum * buffer + fresh * g
    return p - lr * (g + momentum * buffer if nesterov else buffer), buffer


@rule("momentum_buffer", elementwise=True)
def sgd_momentum(
    param: Tensor, momentum_buffer: Tensor, grad: Tensor, lr: Tensor, weight_decay: Tensor, momentum: Tensor, dampening: Tensor,
    nesterov, maximize,
):  # fmt: skip
    return _with_momentum(param, momentum_buffer, grad, lr, weight_decay, momentum, dampening, nesterov, maximize)


@rule("momentum_buffer", "step", elementwise=True)
def sgd_counted(
    param: Tensor, momentum_buffer: Tensor, step: Tensor, grad: Tensor, lr: Tensor, weight_decay: Tensor, momentum: Tensor,
    dampening: Tensor, nesterov, maximize,
):  # fmt: skip
    """sgd_momentum where a program makes the first step and those after it: the first gradient is not dampened."""
    dampening = F.where(F.equal(step, 0), 0.0, exact(dampening))
    return *_with_momentum(
        param, momentum_buffer, grad, lr, weight_decay, momentum, dampening, nesterov, maximize
    ), step + 1


class SGD(Optimizer):
    """p -= lr * (grad + weight_decay * p), through a buffer with momentum if that is not 0."""

    def __init__(self, params, lr=1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False, *, maximize: bool = False, **ignored):  # fmt: skip
        check(lr=(lr, 0), momentum=(momentum, 0), weight_decay=(weight_decay, 0))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"nesterov needs momentum and no dampening; they are {momentum} and {dampening}")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "ignored": ignored,
        })  # fmt: skip

    def sparse_rule(self, group):
        return sgd, (group["lr"], 0.0, group["maximize"])

    def update(self, group):
        lr, momentum, decay = (as_float(group[name]) for name in ("lr", "momentum", "weight_decay"))
        maximize = group["maximize"]
        together = together_for(group)
        dampening, nesterov = as_float(group["dampening"]), group["nesterov"]
        usual = (lr, decay, maximize) if momentum == 0 else (lr, decay, momentum, dampening, nesterov, maximize)
        apply, names = (sgd, ()) if momentum == 0 else (sgd_momentum, sgd_momentum.state)
        params, i = list(group["params"]), 0
        while i < len(params):
            if together is None:
                i = _runtime.apply_rule(params, i, self.state, names, apply, usual)
                if i == len(params):
                    break
            p, i = params[i], i + 1
            g = p.grad
            if g is None:
                continue
            if g._in_parts:
                no_decay("SGD", group)
                if momentum == 0:
                    self.update_rows(group, p, g)
                    continue
                g = g.to_dense()  # rows that were used before move on
            settings, rule = usual, apply
            if momentum == 0:
                tensors = (p, g)
            else:
                state = self.state[p]
                if state.get("momentum_buffer") is None:  # the first gradient fills the buffer whole
                    with state_of(p):
                        state["momentum_buffer"] = zeros_for(p)
                        if not isinstance(p, Tensor) and not (isinstance(dampening, float) and dampening == 0):
                            # A graph is built once for all steps, so it has to count them.
                            state["step"] = full((), 0.0, dtype=dtypes.float32)
                    settings = lr, decay, momentum, 0.0, nesterov, maximize
                tensors = (p, state["momentum_buffer"], g)
                if "step" in state:
                    tensors, rule, settings = (*tensors[:2], state["step"], g), sgd_counted, usual
            if together is None or not together.add(rule, settings, tensors):
                rule(*map(parts, tensors), *settings)
        if together is not None:
            together.flush()
