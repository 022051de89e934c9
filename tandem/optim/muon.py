"""Muon: steps for matrices whose singular values are made alike."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError
from tandem.ops import full_like
from tandem.optim.numbers import exact, like, wide
from tandem.optim.optimizer import Optimizer, as_float, check, rule, state_of


def _orthogonal(update, a, b, c, eps, steps: int):
    """A matrix with the singular vectors of `update` and singular values near 1, by Newton-Schulz iteration in bfloat16."""
    x = F.astype(update, dtypes.bfloat16)
    tall = x.shape[0] > x.shape[1]
    x = F.matrix_transpose(x) if tall else x
    norm = F.sqrt(F.sum(F.square(F.astype(x, dtypes.float32))))
    a, b, c = (F.astype(v, dtypes.float32) for v in (a, b, c))
    x = F.astype(x / F.maximum(norm, F.astype(eps, dtypes.float32)), dtypes.bfloat16)
    for _ in range(steps):
        gram = F.matmul(x, F.matrix_transpose(x))
        mixed = F.astype(b * gram + c * F.matmul(gram, gram), dtypes.bfloat16)
        x = F.astype(a * x + F.matmul(mixed, x), dtypes.bfloat16)
    return F.matrix_transpose(x) if tall else x


@rule("momentum_buffer")
def muon(
    param: Tensor, momentum_buffer: Tensor, grad: Tensor, lr: Tensor, adjusted_lr: Tensor, weight_decay: Tensor, momentum: Tensor,
    a: Tensor, b: Tensor, c: Tensor, eps: Tensor, nesterov, ns_steps,
):  # fmt: skip
    p, buffer, g = wide(param, momentum_buffer, grad)
    fresh, keep, shrink, size = like(p, 1 - exact(momentum), momentum, 1 - exact(lr) * exact(weight_decay), adjusted_lr)
    buffer = buffer + fresh * (g - buffer)
    update = _orthogonal(g + keep * (buffer - g) if nesterov else buffer, a, b, c, eps, ns_steps)
    return p * shrink - size * F.astype(update, p.dtype), buffer


class Muon(Optimizer):
    """Momentum whose matrices are made orthogonal before the step (Jordan et al., 2024): for the matrices of hidden layers;
    give biases, embeddings and heads to another optimiser.

    adjust_lr_fn: "original" (the default) scales the step by sqrt(max(1, rows / columns)), "match_rms_adamw" by
    0.2 * sqrt(max(rows, columns)), so that settings found for AdamW can be kept.
    """

    def __init__(self, params, lr=1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients=(3.4445, -4.7750, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: str | None = None):  # fmt: skip
        check(lr=(lr, 0), weight_decay=(weight_decay, 0), momentum=(momentum, 0))
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"adjust_lr_fn is {adjust_lr_fn!r}; it must be 'original' or 'match_rms_adamw'")
        if len(ns_coefficients) != 3:
            raise ValueError(f"ns_coefficients must be three numbers; there are {len(ns_coefficients)}")
        if not 0 <= ns_steps < 100:
            raise ValueError(f"ns_steps is {ns_steps}; it must be less than 100")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2:
                self.param_groups.pop()
                raise ValueError(f"Muon is for matrices; a parameter has shape {tuple(p.shape)}")
            if p.dtype.is_complex:
                self.param_groups.pop()
                raise DTypeError("Muon", f"a parameter is {p.dtype}; Muon is for real ones", fix="use Adam")

    def update(self, group):
        lr, decay, momentum = (as_float(group[name]) for name in ("lr", "weight_decay", "momentum"))
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if state.get("momentum_buffer") is None:
                with state_of(p):
                    state["momentum_buffer"] = full_like(p, 0)
            rows, columns = p.shape
            if group["adjust_lr_fn"] == "match_rms_adamw":
                factor = 0.2 * math.sqrt(max(rows, columns))
            else:
                factor = math.sqrt(max(1, rows / columns))
            numbers = (lr, lr * factor, decay, momentum, *group["ns_coefficients"], group["eps"])
            muon(
                p, state["momentum_buffer"], p.grad, *(as_float(n) for n in numbers),
                group["nesterov"] and momentum != 0, group["ns_steps"],
            )  # fmt: skip
