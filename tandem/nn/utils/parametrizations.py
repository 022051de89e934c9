"""Parametrizations that are often used: weight normalisation, spectral normalisation, orthogonal matrices."""

from __future__ import annotations

from functools import partial

import tandem.ops as F
from tandem import dtypes, linalg
from tandem.autograd.modes import no_grad
from tandem.nn.module import Module
from tandem.nn.utils.parametrize import register_parametrization
from tandem.ops.define import op
from tandem.tensors.dtype_functions import finfo


def other_axes(ndim: int, dim: int | None) -> tuple[int, ...] | None:
    """All axes but one; None for all of them."""
    return None if dim is None or dim == -1 else tuple(a for a in range(ndim) if a != dim % ndim)


@op(hidden=True, name="weight_norm")
def scale_to(g: Tensor, v: Tensor, axes):
    return v * (g / F.sqrt(F.sum(v * v, axes, keepdims=axes is not None)))


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = dim

    def forward(self, weight_g, weight_v):
        return scale_to(weight_g, weight_v, other_axes(weight_v.ndim, self.dim))

    def right_inverse(self, weight):
        axes = other_axes(weight.ndim, self.dim)
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
def power_iteration(u: Tensor, v: Tensor, weight: Tensor, eps: Tensor):
    """Better estimates of the largest singular vectors."""

    def unit(x):
        return x / F.maximum(F.sqrt(F.sum(x * x)), eps)

    u = unit(F.matmul(weight, v))
    return u, unit(F.matmul(u, weight))


@op(hidden=True, name="spectral_norm")
def over_sigma(weight: Tensor, matrix: Tensor, u: Tensor, v: Tensor):
    return weight / F.sum(u * F.matmul(matrix, v))


def as_matrix(weight, dim: int):
    """A weight with axis dim first and all others in one."""
    if dim:
        weight = F.permute(weight, (dim, *(a for a in range(weight.ndim) if a != dim)))
    return weight.flatten(1)


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        super().__init__()
        if n_power_iterations <= 0:
            raise ValueError(f"n_power_iterations is {n_power_iterations}; it must be positive")
        self.dim, self.n_power_iterations, self.eps = dim % max(weight.ndim, 1), n_power_iterations, eps
        if weight.ndim > 1:
            with no_grad():
                matrix = as_matrix(weight, self.dim)
                rows, columns = matrix.shape
                for name, size in (("_u", rows), ("_v", columns)):
                    x = F.randn(size, dtype=weight.dtype, device=weight.device)
                    self.register_buffer(name, x / F.sqrt(F.sum(x * x)))
                self._iterate(matrix, 15)

    @no_grad()
    def _iterate(self, matrix, count: int):
        for _ in range(count):
            power_iteration(self._u, self._v, matrix.detach(), self.eps)

    def forward(self, weight):
        if weight.ndim == 1:
            return F.normalize(weight, axis=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # Copies, because the next forward changes the vectors that this one's backward needs.
        return over_sigma(weight, matrix, self._u.clone(), self._v.clone())

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


class _Orthogonal(Module):
    """A matrix with orthogonal columns (rows, if it is wide) from one without constraint. With a base, it is the base times one
    that starts near the identity (Lezcano Casado, 2019)."""

    def __init__(self, shape, orthogonal_map: str, use_trivialization: bool):
        super().__init__()
        self.shape, self.orthogonal_map, self.use_trivialization = tuple(shape), orthogonal_map, use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x):
        wide = x.shape[-2] < x.shape[-1]
        x = x.mT if wide else x
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            a = F.tril(x, -1)
            tau = 2.0 / (1.0 + F.sum(a * a, -2))
            signs = F.sign(F.diagonal(x, 0, -2, -1)).detach()  # ones and minus ones: not learned
            q = linalg.householder_product(a, tau) * signs[..., None, :]
        else:
            x = F.pad(F.tril(x), (0, n - k)) if n != k else F.tril(x)
            skew = x - (F.conj(x.mT) if x.dtype.is_complex else x.mT)
            if self.orthogonal_map == "matrix_exp":
                q = linalg.matrix_exp(skew)
            else:
                eye = F.eye(n, dtype=x.dtype, device=x.device)
                q = linalg.solve(eye - 0.5 * skew, eye + 0.5 * skew)
            q = q[..., :k] if n != k else q
        if self.use_trivialization:
            q = self.base @ q
        return q.mT if wide else q

    @no_grad()
    def right_inverse(self, value):
        if value.shape != self.shape:
            raise ValueError(f"an orthogonal matrix of shape {self.shape} cannot be made from {value.shape}")
        wide = value.shape[-2] < value.shape[-1]
        q = value.mT if wide else value
        n, k = q.shape[-2:]
        if not self.use_trivialization:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    f"a value cannot be assigned through {self.orthogonal_map} with use_trivialization=False"
                )
            a, tau = F.geqrf(q)
            diagonal = F.diagonal(a, 0, -2, -1)
            signs = F.sign(diagonal) * F.where(F.equal(tau, 0), -1.0, 1.0).to(a.dtype)  # no reflection where tau is 0
            a = _with_diagonal(a, signs)
            return a.mT if wide else a
        # The base becomes the value, made orthogonal and, if it is not square, completed at random.
        if n == k:
            q = q.clone() if _is_orthogonal(q) else _orthogonalised(q)
        else:
            more = F.randn(*q.shape[:-2], n, n - k, dtype=q.dtype)
            q = _orthogonalised(F.concat([q, more.to(q.device)], -1))
        self.base = q
        start = F.zeros_like(value.mT if wide else value)
        start = _with_diagonal(start, F.full((*start.shape[:-2], k), -1.0, dtype=start.dtype, device=start.device))
        return start.mT if wide else start


def _with_diagonal(matrix, diagonal):
    eye = F.eye(matrix.shape[-2], matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return matrix * (1 - eye) + eye * diagonal[..., None, :]


def _is_orthogonal(q) -> bool:
    eye = F.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    gram = (F.conj(q.mT) if q.dtype.is_complex else q.mT) @ q
    slack = 10.0 * q.shape[-2] * finfo(dtypes.part_dtype(q.dtype)).eps
    return bool(F.all(F.less(F.abs(gram - eye), slack)).item())


def _orthogonalised(a):
    """The factor Q of a = QR with positive numbers on R's diagonal."""
    q, r = linalg.qr(a)
    diagonal = F.diagonal(r, 0, -2, -1)
    return q * (diagonal / F.abs(diagonal))[..., None, :]


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:  # fmt: skip
    """Keeps a matrix orthogonal: its columns, or its rows if it is wide, have length 1 and are at right angles.

    orthogonal_map: "matrix_exp" or "cayley", of a skew-symmetric matrix, or "householder", a product of reflections; by default the
    first for square matrices, the last for others.

    >>> layer = td.nn.utils.parametrizations.orthogonal(td.nn.Linear(3, 3))
    >>> bool((layer.weight.mT @ layer.weight - td.eye(3)).abs().max() < 1e-5)
    True
    """
    weight = getattr(module, name, None)
    if weight is None or not hasattr(weight, "ndim"):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    if weight.ndim < 2:
        raise ValueError(f"{name} is {weight.shape}; only matrices can be orthogonal")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.dtype.is_complex else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f"orthogonal_map is {orthogonal_map!r}; it must be 'matrix_exp', 'cayley' or 'householder'")
    if orthogonal_map == "householder" and weight.dtype.is_complex:
        raise ValueError("householder is for real matrices")
    made = _Orthogonal(weight.shape, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)
