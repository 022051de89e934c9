"""Parametrizations that are often used: weight normalisation, spectral normalisation."""

from __future__ import annotations

from functools import partial

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.nn.module import Module
from tandem.nn.utils.parametrize import register_parametrization
from tandem.ops.define import op


def _other_axes(ndim: int, dim: int | None) -> tuple[int, ...] | None:
    """All axes but one; None for all of them."""
    return None if dim is None or dim == -1 else tuple(a for a in range(ndim) if a != dim % ndim)


@op(hidden=True, name="weight_norm")
def _scale_to(g: Tensor, v: Tensor, axes):
    return v * (g / F.sqrt(F.sum(v * v, axes, keepdims=axes is not None)))


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = dim

    def forward(self, weight_g, weight_v):
        return _scale_to(weight_g, weight_v, _other_axes(weight_v.ndim, self.dim))

    def right_inverse(self, weight):
        axes = _other_axes(weight.ndim, self.dim)
        return F.sqrt(F.sum(weight * weight, axes, keepdims=axes is not None)), weight

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


def _rename(name, module, state, prefix, *rest):
    """Files from before parametrizations call the two tensors weight_g and weight_v."""
    for i, old in enumerate(("_g", "_v")):
        if prefix + name + old in state:
            state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(prefix + name + old)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Splits a weight into its length g and its direction v, along every index of axis dim (Salimans and Kingma, 2016).

    >>> layer = td.nn.utils.parametrizations.weight_norm(td.nn.Linear(2, 3))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    module.register_load_state_dict_pre_hook(partial(_rename, name))
    return module


@op(hidden=True, name="spectral_norm", mutates=("u", "v"))
def _power_iteration(u: Tensor, v: Tensor, weight: Tensor, eps: Tensor):
    """Better estimates of the largest singular vectors."""

    def unit(x):
        return x / F.maximum(F.sqrt(F.sum(x * x)), eps)

    u = unit(F.matmul(weight, v))
    return u, unit(F.matmul(u, weight))


@op(hidden=True, name="spectral_norm")
def _over_sigma(weight: Tensor, matrix: Tensor, u: Tensor, v: Tensor):
    return weight / F.sum(u * F.matmul(matrix, v))


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(f"n_power_iterations is {n_power_iterations}; it must be positive")
        self.dim, self.n_power_iterations, self.eps = dim % max(weight.ndim, 1), n_power_iterations, eps
        if weight.ndim > 1:
            with no_grad():
                matrix = self._matrix(weight)
                rows, columns = matrix.shape
                for name, size in (("_u", rows), ("_v", columns)):
                    x = F.randn(size, dtype=weight.dtype)
                    self.register_buffer(name, x / F.sqrt(F.sum(x * x)))
                self._iterate(matrix, 15)

    def _matrix(self, weight):
        if self.dim:
            weight = F.permute(weight, (self.dim, *(a for a in range(weight.ndim) if a != self.dim)))
        return weight.flatten(1)

    @no_grad()
    def _iterate(self, matrix, count: int):
        for _ in range(count):
            _power_iteration(self._u, self._v, matrix.detach(), self.eps)

    def forward(self, weight):
        if weight.ndim == 1:
            return F.normalize(weight, axis=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # Copies, because the next forward changes the vectors that this one's backward needs.
        return _over_sigma(weight, matrix, self._u.clone(), self._v.clone())

    def right_inverse(self, value):
        return value  # of all weights with this direction the one that changes least


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value, estimated by power iteration while training (Miyato et al., 2018)."""
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    weight = getattr(module, name)
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
