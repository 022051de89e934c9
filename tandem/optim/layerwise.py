"""Rules for large batches and large models: LARS, LAMB, Lion, Adafactor."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import DTypeError
from tandem.ops import full
from tandem.optim.adam import corrections, moments
from tandem.optim.numbers import exact, like, norm, wide
from tandem.optim.optimizer import Optimizer, as_float, check, check_betas, rule, state_of


def trust(of_param, of_update, scale=1.0):
    """Ratio of two norms, 1 where one of them is 0."""
    fine = F.logical_and(F.greater(of_param, 0), F.greater(of_update, 0))
    return F.where(fine, scale * of_param / F.where(fine, of_update, 1.0), 1.0)


@rule("momentum_buffer")
def lars(
    param: Tensor, momentum_buffer: Tensor, grad: Tensor, lr: Tensor, momentum: Tensor, weight_decay: Tensor,
    trust_coefficient: Tensor, eps: Tensor, nesterov, maximize,
):  # fmt: skip
    p, buffer, g = wide(param, momentum_buffer, grad)
    lr, momentum, decay, coefficient, eps = like(p, lr, momentum, weight_decay, trust_coefficient, eps)
    g = -g if maximize else g
    of_param = norm(p)
    g = (g + decay * p) * trust(of_param, norm(g) + decay * of_param + eps, coefficient)
    buffer = momentum * buffer + g
    return p - lr * (g + momentum * buffer if nesterov else buffer), buffer


class LARS(Optimizer):
    """SGD with momentum whose step is scaled, parameter by parameter, by the ratio of norms of parameter and gradient
    (You et al., 2017)."""

    def __init__(self, params, lr=1e-3, momentum: float = 0.9, weight_decay: float = 0, trust_coefficient: float = 1e-3,
                 eps: float = 1e-8, nesterov: bool = False, *, maximize: bool = False):  # fmt: skip
        check(lr=(lr, 0), momentum=(momentum, 0), weight_decay=(weight_decay, 0), eps=(eps, 0))
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust_coefficient": trust_coefficient, "eps": eps,
            "nesterov": nesterov, "maximize": maximize,
        })  # fmt: skip

    def rule(self, group):
        names = ("lr", "momentum", "weight_decay", "trust_coefficient", "eps", "nesterov", "maximize")
        return lars, tuple(group[name] for name in names)


@rule("step", "exp_avg", "exp_avg_sq")
def lamb(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, grad: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor,
    eps: Tensor, weight_decay: Tensor, maximize,
):  # fmt: skip
    p, m, v, g = wide(param, exp_avg, exp_avg_sq, grad)
    step = step + 1
    m, v = moments(m, v, -g if maximize else g, beta1, beta2)
    of_m, of_v = like(p, *corrections(step, beta1, beta2))
    update = (m / of_m) / (F.sqrt(v / of_v) + like(p, eps)) + like(p, weight_decay) * p
    return p - like(p, lr) * trust(norm(p), norm(update)) * update, step, m, v


class LAMB(Optimizer):
    """Adam whose step is scaled, parameter by parameter, by the ratio of norms of parameter and step (You et al., 2020)."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps: float = 1e-6, weight_decay: float = 0, *, maximize: bool = False
    ):
        check(lr=(lr, 0), eps=(eps, 0), weight_decay=(weight_decay, 0))
        check_betas(betas)
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        )

    def rule(self, group):
        return lamb, (group["lr"], *group["betas"], group["eps"], group["weight_decay"], group["maximize"])


@rule("exp_avg", elementwise=True)
def lion(
    param: Tensor,
    exp_avg: Tensor,
    grad: Tensor,
    lr: Tensor,
    beta1: Tensor,
    beta2: Tensor,
    weight_decay: Tensor,
    maximize,
):
    p, m, g = wide(param, exp_avg, grad)
    g = -g if maximize else g
    shrink, size, b1, b2 = like(p, 1 - exact(lr) * exact(weight_decay), lr, 1 - exact(beta1), 1 - exact(beta2))
    return p * shrink - size * F.sign(m + b1 * (g - m)), m + b2 * (g - m)


class Lion(Optimizer):
    """Steps by the sign of a running mean of gradients (Chen et al., 2023)."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay: float = 0, *, maximize: bool = False):
        check(lr=(lr, 0), weight_decay=(weight_decay, 0))
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    def rule(self, group):
        return lion, (group["lr"], *group["betas"], group["weight_decay"], group["maximize"])


_EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}  # relative rounding of each dtype


def _size(x):
    """Root of the mean square."""
    return F.sqrt(F.mean(x * x))


def _adafactor(p, g, variance, step, lr, eps1, eps2, d, weight_decay):
    """p after a step by g over the root of its estimated variance, no longer than d and in proportion to p."""
    rate = like(p, F.minimum(exact(lr), 1 / F.sqrt(exact(step))))
    alpha = F.maximum(like(p, eps2), _size(p)) * rate
    p = p * like(p, 1 - exact(lr) * exact(weight_decay))
    update = g / F.sqrt(F.maximum(variance, like(p, exact(eps1) * exact(eps1))))
    return p - alpha / F.maximum(1.0, _size(update) / like(p, d)) * update


@rule("step", "variance")
def adafactor_vector(
    param: Tensor, step: Tensor, variance: Tensor, grad: Tensor, lr: Tensor, beta2_decay: Tensor, eps1: Tensor, eps2: Tensor,
    d: Tensor, weight_decay: Tensor, maximize,
):  # fmt: skip
    p, v, g = wide(param, variance, grad)
    step, g = step + 1, -g if maximize else g
    v = v + like(p, F.power(exact(step), exact(beta2_decay))) * (g * g - v)
    return _adafactor(p, g, v, step, lr, eps1, eps2, d, weight_decay), step, v


@rule("step", "row_var", "col_var")
def adafactor_matrix(
    param: Tensor, step: Tensor, row_var: Tensor, col_var: Tensor, grad: Tensor, lr: Tensor, beta2_decay: Tensor, eps1: Tensor,
    eps2: Tensor, d: Tensor, weight_decay: Tensor, maximize,
):  # fmt: skip
    p, rows, columns, g = wide(param, row_var, col_var, grad)
    step, g = step + 1, -g if maximize else g
    fresh = like(p, F.power(exact(step), exact(beta2_decay)))
    rows = rows + fresh * (F.mean(g * g, -1, keepdims=True) - rows)
    columns = columns + fresh * (F.mean(g * g, -2, keepdims=True) - columns)
    variance = rows * columns / F.maximum(F.mean(rows, -2, keepdims=True), like(p, eps1))
    return _adafactor(p, g, variance, step, lr, eps1, eps2, d, weight_decay), step, rows, columns


class Adafactor(Optimizer):
    """Adam with the squares of a matrix kept as one row and one column (Shazeer and Stern, 2018)."""

    def __init__(self, params, lr=1e-2, beta2_decay: float = -0.8, eps=(None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
                 maximize: bool = False, **ignored):  # fmt: skip
        check(lr=(lr, 0), weight_decay=(weight_decay, 0), d=(d, 1))
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "maximize": maximize,
            "ignored": ignored,
        })  # fmt: skip

    def update(self, group):
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.dtype.is_complex:
                raise DTypeError("Adafactor", f"a parameter is {p.dtype}; Adafactor is for real ones", fix="use Adam")
            kind = adafactor_matrix if p.ndim > 1 else adafactor_vector
            state = self.state[p]
            if not state:
                shapes = {
                    "row_var": (*p.shape[:-1], 1),
                    "col_var": (*p.shape[:-2], 1, *p.shape[-1:]),
                    "variance": p.shape,
                    "step": (),
                }
                with state_of(p):
                    made = {
                        k: full(shapes[k], 0.0, dtype=p.dtype if shapes[k] else None, device=getattr(p, "device", None))
                        for k in kind.state
                    }
                state.update(made)
            eps1, eps2 = group["eps"]
            eps1 = _EPSILON[p.dtype.name] if eps1 is None else eps1
            settings = (
                group["lr"],
                group["beta2_decay"],
                eps1,
                eps2,
                group["d"],
                group["weight_decay"],
                group["maximize"],
            )
            kind(p, *[state[k] for k in kind.state], p.grad, *(as_float(s) for s in settings))
