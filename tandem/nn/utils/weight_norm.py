"""weight_norm and spectral_norm with the names of parameters that most published weights have: weight_g, weight_v, weight_orig.

nn.utils.parametrizations has them as parametrizations.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter
from tandem.nn.utils.parametrizations import as_matrix, other_axes, over_sigma, power_iteration, scale_to
from tandem.nn.utils.recomputed import Recomputed, hooks_of, take_hook


def _parameter(module: Module, name: str):
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"{type(module).__name__} has no parameter {name!r}")
    return weight


class WeightNorm(Recomputed):
    def __init__(self, name: str, dim: int | None):
        self.name, self.dim = name, dim

    def compute(self, module):
        v = getattr(module, self.name + "_v")
        return scale_to(getattr(module, self.name + "_g"), v, other_axes(v.ndim, self.dim))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Splits a weight into its length <name>_g and its direction <name>_v, along every index of axis dim (Salimans, 2016).

    >>> layer = td.nn.utils.weight_norm(td.nn.Linear(2, 3))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight_g', 'weight_v']
    """
    if any(hook.name == name for hook in hooks_of(module, WeightNorm).values()):
        raise RuntimeError(f"{type(module).__name__}.{name} has weight_norm already")
    weight, hook = _parameter(module, name), WeightNorm(name, dim)
    axes = other_axes(weight.ndim, dim)
    with no_grad():
        length = F.sqrt(F.sum(weight * weight, axes, keepdims=axes is not None))
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(length, weight.requires_grad))
    module.register_parameter(name + "_v", Parameter(weight.detach(), weight.requires_grad))
    setattr(module, name, hook.compute(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes a weight that weight_norm split one parameter again, with its present value."""
    hook = take_hook(module, WeightNorm, name)
    if hook is None:
        raise ValueError(f"{type(module).__name__}.{name} has no weight_norm")
    _settle(module, name, hook.compute(module), module._parameters[name + "_v"].requires_grad)
    del module._parameters[name + "_g"], module._parameters[name + "_v"]
    return module


def _settle(module: Module, name: str, value, requires_grad: bool):
    """Makes what was computed a parameter."""
    if name in module.__dict__:
        del module.__dict__[name]
    module.register_parameter(name, Parameter(value.detach().clone(), requires_grad))


class SpectralNorm(Recomputed):
    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float):
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute(self, module, iterate: bool | None = None):
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = as_matrix(weight, self.dim)
        if module.training if iterate is None else iterate:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    power_iteration(v, u, matrix.detach().mT, self.eps)  # v first: the order of PyTorch's hook
        # Copies, because the next forward changes the vectors that this one's backward needs.
        return over_sigma(weight, matrix, u.clone(), v.clone())


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight, kept as <name>_orig, by its largest singular value, estimated by power iteration while training
    (Miyato et al., 2018)."""
    if n_power_iterations <= 0:
        raise ValueError(f"n_power_iterations is {n_power_iterations}; it must be positive")
    if any(hook.name == name for hook in hooks_of(module, SpectralNorm).values()):
        raise RuntimeError(f"{type(module).__name__}.{name} has spectral_norm already")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    weight, hook = _parameter(module, name), SpectralNorm(name, n_power_iterations, dim, eps)
    with no_grad():
        rows, columns = as_matrix(weight, dim).shape
        made = {"_u": F.randn(rows, dtype=weight.dtype), "_v": F.randn(columns, dtype=weight.dtype)}
        made = {end: (x / F.sqrt(F.sum(x * x))).to(weight.device) for end, x in made.items()}
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())  # until the first forward, as it is
    for end, x in made.items():
        module.register_buffer(name + end, x)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes a weight that spectral_norm divides a plain parameter again, with its present value."""
    hook = take_hook(module, SpectralNorm, name)
    if hook is None:
        raise ValueError(f"{type(module).__name__}.{name} has no spectral_norm")
    _settle(module, name, hook.compute(module, iterate=False), module._parameters[name + "_orig"].requires_grad)
    del module._parameters[name + "_orig"], module._buffers[name + "_u"], module._buffers[name + "_v"]
    return module
