"""Adam and its relatives."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.ops import full
from tandem.optim.numbers import decayed, exact, like, wide
from tandem.optim.optimizer import Optimizer, check, check_betas, rule


def moments(exp_avg, exp_avg_sq, g, beta1, beta2):
    """Running means of the gradient and of its square."""
    b1, b2 = exact(beta1, beta2)
    m = exp_avg + like(g, 1 - b1) * (g - exp_avg)
    return m, like(g, b2) * exp_avg_sq + like(g, 1 - b2) * (g * g)


def shrunk(p, g, lr, weight_decay, maximize: bool, decoupled: bool):
    """Parameter and gradient after weight decay: of the parameter itself (Loshchilov and Hutter, 2019), or in the gradient."""
    if not decoupled:
        return p, decayed(p, g, weight_decay, maximize)
    return p * like(p, 1 - exact(lr) * exact(weight_decay)), -g if maximize else g


def corrections(step, beta1, beta2):
    """What the running means are short of after so many steps."""
    count = exact(step)
    return 1 - F.power(exact(beta1), count), 1 - F.power(exact(beta2), count)


def _adam(param, step, exp_avg, exp_avg_sq, largest, grad, lr, beta1, beta2, eps, weight_decay, maximize, decoupled,
          size=None, root=None):  # fmt: skip
    """size, root: the learning rate and the root of the second mean, corrected; computed here from the step where they are None."""
    p, m, v, g = wide(param, exp_avg, exp_avg_sq, grad)
    step = step + 1
    p, g = shrunk(p, g, lr, weight_decay, maximize, decoupled)
    m, v = moments(m, v, g, beta1, beta2)
    largest = None if largest is None else F.maximum(wide(largest), v)
    if size is None:
        of_m, of_v = corrections(step, beta1, beta2)
        size, root = exact(lr) / of_m, F.sqrt(of_v)
    # size m / (sqrt(v) / root + eps), with one division of tensors less
    size, root = exact(size, root)
    scale, small = like(p, size * root, root * exact(eps))
    return p - scale * m / (F.sqrt(v if largest is None else largest) + small), step, m, v, largest


@rule("step", "exp_avg", "exp_avg_sq", elementwise=True)
def adam(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, grad: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor,
    eps: Tensor, weight_decay: Tensor, maximize, decoupled,
):  # fmt: skip
    return _adam(
        param, step, exp_avg, exp_avg_sq, None, grad, lr, beta1, beta2, eps, weight_decay, maximize, decoupled
    )[:4]


@rule("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", elementwise=True)
def amsgrad(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, max_exp_avg_sq: Tensor, grad: Tensor, lr: Tensor,
    beta1: Tensor, beta2: Tensor, eps: Tensor, weight_decay: Tensor, maximize, decoupled,
):  # fmt: skip
    return _adam(
        param, step, exp_avg, exp_avg_sq, max_exp_avg_sq, grad, lr, beta1, beta2, eps, weight_decay, maximize, decoupled
    )


@rule("step", "exp_avg", "exp_avg_sq", elementwise=True)
def adam_counted(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, grad: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor,
    eps: Tensor, weight_decay: Tensor, size: Tensor, root: Tensor, maximize, decoupled,
):  # fmt: skip
    return _adam(
        param,
        step,
        exp_avg,
        exp_avg_sq,
        None,
        grad,
        lr,
        beta1,
        beta2,
        eps,
        weight_decay,
        maximize,
        decoupled,
        size,
        root,
    )[:4]


@rule("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", elementwise=True)
def amsgrad_counted(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, max_exp_avg_sq: Tensor, grad: Tensor, lr: Tensor,
    beta1: Tensor, beta2: Tensor, eps: Tensor, weight_decay: Tensor, size: Tensor, root: Tensor, maximize, decoupled,
):  # fmt: skip
    return _adam(
        param, step, exp_avg, exp_avg_sq, max_exp_avg_sq, grad, lr, beta1, beta2, eps, weight_decay, maximize, decoupled,
        size, root,
    )  # fmt: skip


class Adam(Optimizer):
    """Steps by the running mean of the gradient over the root of that of its square (Kingma and Ba, 2015)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
                 maximize: bool = False, decoupled_weight_decay: bool = False, **ignored):  # fmt: skip
        check(lr=(lr, 0), eps=(eps, 0), weight_decay=(weight_decay, 0))
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay, "ignored": ignored,
        })  # fmt: skip

    def rule(self, group):
        kind = amsgrad if group["amsgrad"] else adam
        settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"])
        return kind, (*settings, group["maximize"], group.get("decoupled_weight_decay", False))

    def counted_rule(self, group, count):
        kind = amsgrad_counted if group["amsgrad"] else adam_counted
        lr, (beta1, beta2) = group["lr"], group["betas"]
        corrected = lr / (1 - beta1**count), math.sqrt(1 - beta2**count)
        settings = (lr, beta1, beta2, group["eps"], group["weight_decay"], *corrected)
        return kind, (*settings, group["maximize"], group.get("decoupled_weight_decay", False))


class AdamW(Adam):
    """Adam whose weight decay shrinks parameters directly (Loshchilov and Hutter, 2019)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
                 maximize: bool = False, **ignored):  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True, **ignored
        )

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


@rule("step", "exp_avg", "exp_inf", elementwise=True)
def adamax(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_inf: Tensor, grad: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor,
    eps: Tensor, weight_decay: Tensor, maximize,
):  # fmt: skip
    p, m, u, g = wide(param, exp_avg, exp_inf, grad)
    step = step + 1
    g = decayed(p, g, weight_decay, maximize)
    m = m + like(p, 1 - exact(beta1)) * (g - m)
    u = F.maximum(like(p, beta2) * u, F.abs(g) + like(p, eps))
    size = like(p, exact(lr) / (1 - F.power(exact(beta1), exact(step))))
    return p - size * m / u, step, m, u


class Adamax(Optimizer):
    """Adam with the largest recent gradient in place of the root mean square (Kingma and Ba, 2015)."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0, *, maximize: bool = False,
                 **ignored):  # fmt: skip
        check(lr=(lr, 0), eps=(eps, 0), weight_decay=(weight_decay, 0))
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "ignored": ignored,
        })  # fmt: skip

    def rule(self, group):
        return adamax, (group["lr"], *group["betas"], group["eps"], group["weight_decay"], group["maximize"])


@rule("step", "mu_product", "exp_avg", "exp_avg_sq", elementwise=True)
def nadam(
    param: Tensor, step: Tensor, mu_product: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, grad: Tensor, lr: Tensor, beta1: Tensor,
    beta2: Tensor, eps: Tensor, weight_decay: Tensor, momentum_decay: Tensor, maximize, decoupled,
):  # fmt: skip
    p, m, v, g = wide(param, exp_avg, exp_avg_sq, grad)
    step = step + 1
    p, g = shrunk(p, g, lr, weight_decay, maximize, decoupled)
    m, v = moments(m, v, g, beta1, beta2)
    count, decay, rate = exact(step), exact(momentum_decay), exact(lr)
    mu, mu_next = (exact(beta1) * (1 - 0.5 * F.power(0.96, n * decay)) for n in (count, count + 1))
    mu_product = mu_product * F.astype(mu, mu_product.dtype)
    product = exact(mu_product)
    denominator = F.sqrt(v / like(p, 1 - F.power(exact(beta2), count))) + like(p, eps)
    of_g, of_m = like(p, rate * (1 - mu) / (1 - product), rate * mu_next / (1 - product * mu_next))
    return p - (of_g * g + of_m * m) / denominator, step, mu_product, m, v


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016)."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *, maximize: bool = False,
                 **ignored):  # fmt: skip
        check(lr=(lr, 0), eps=(eps, 0), weight_decay=(weight_decay, 0), momentum_decay=(momentum_decay, 0))
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "ignored": ignored,
        })  # fmt: skip

    def new_state(self, p, group, names):
        return super().new_state(p, group, names) | {"mu_product": full((), 1.0, device=getattr(p, "device", None))}

    def rule(self, group):
        settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"], group["momentum_decay"])
        return nadam, (*settings, group["maximize"], group["decoupled_weight_decay"])


@rule("step", "exp_avg", "exp_avg_sq", elementwise=True)
def radam(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, grad: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor,
    eps: Tensor, weight_decay: Tensor, maximize, decoupled,
):  # fmt: skip
    p, m, v, g = wide(param, exp_avg, exp_avg_sq, grad)
    step = step + 1
    p, g = shrunk(p, g, lr, weight_decay, maximize, decoupled)
    m, v = moments(m, v, g, beta1, beta2)
    of_m, of_v = corrections(step, beta1, beta2)
    count, b2 = exact(step), exact(beta2)
    limit = 2 / (1 - b2) - 1
    length = limit - 2 * count * F.power(b2, count) / of_v  # of the simple moving average that this one is like
    square = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)
    certain = F.greater(length, 5)
    rectified = F.sqrt(F.where(certain, square, 1.0) * of_v)
    size, scale = like(p, exact(lr) / of_m, rectified)
    return p - size * m * F.where(certain, scale / (F.sqrt(v) + like(p, eps)), 1.0), step, m, v


class RAdam(Optimizer):
    """Adam that steps by the mean gradient alone until the variance is known well enough (Liu et al., 2020)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 decoupled_weight_decay: bool = False, *, maximize: bool = False, **ignored):  # fmt: skip
        check(lr=(lr, 0), eps=(eps, 0), weight_decay=(weight_decay, 0))
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "ignored": ignored,
        })  # fmt: skip

    def rule(self, group):
        settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"])
        return radam, (*settings, group["maximize"], group["decoupled_weight_decay"])


@rule("step", "exp_avg", "exp_avg_sq")
def sparse_adam_rows(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, grad: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor,
    eps: Tensor, maximize,
):  # fmt: skip
    p, m, v, g = wide(param, exp_avg, exp_avg_sq, grad)
    step = step + 1
    m, v = moments(m, v, -g if maximize else g, beta1, beta2)
    of_m, of_v = corrections(step, beta1, beta2)
    size = like(p, exact(lr) * F.sqrt(of_v) / of_m)
    return p - size * m / (F.sqrt(v) + like(p, eps)), step, m, v


@rule("step", "exp_avg", "exp_avg_sq")
def sparse_adam(
    param: Tensor, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, grad: Tensor, lr: Tensor, beta1: Tensor, beta2: Tensor,
    eps: Tensor, maximize,
):  # fmt: skip
    old = wide(param, exp_avg, exp_avg_sq)
    moved, step, m, v = sparse_adam_rows(param, step, exp_avg, exp_avg_sq, grad, lr, beta1, beta2, eps, maximize)
    g = grad
    used = F.any(F.not_equal(g, 0), tuple(range(1, g.ndim)), keepdims=True) if g.ndim > 1 else F.not_equal(g, 0)
    kept = [F.where(used, new, before) for new, before in zip((moved, m, v), old, strict=True)]
    return kept[0], step, *kept[1:]


class SparseAdam(Optimizer):
    """Adam for embeddings: only rows with a gradient, that is those that the batch used, are changed, and only their state.

    Gradients may be sparse (Embedding(..., sparse=True)), so that the time of a step does not depend on the size of the table; of
    dense ones, rows of zeros count as not used.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps: float = 1e-8, maximize: bool = False):
        check(lr=(lr, 0), eps=(eps, 0))
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def rule(self, group):
        return sparse_adam, (group["lr"], *group["betas"], group["eps"], group["maximize"])

    def sparse_rule(self, group):
        return sparse_adam_rows, self.rule(group)[1]
