"""Operators of PyTorch's runtime that programs call by name: layers with what their gradients need, copies of views."""

from __future__ import annotations

import tandem as td
import tandem.ops as F
from tandem.errors import ValueRangeError
from tandem.ops.extras import store
from tandem.torch import functions

# -- copies of views


def _copy_of(name: str, view):
    def copied(input, *args, out=None, **kwargs):
        made = view(input, *args, **kwargs)
        made = tuple(F.clone(t) for t in made) if isinstance(made, (tuple, list)) else F.clone(made)
        return store(name, made, out)

    copied.__name__ = copied.__qualname__ = name
    copied.__doc__ = f"A copy of {name.removesuffix('_copy')}, which would be a view."
    return copied


def _slice(x, dim=0, start=None, end=None, step=1):
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


_VIEWS = {
    "alias": lambda x: x,
    "as_strided": td.as_strided,
    "detach": td.detach,
    "diagonal": td.diagonal,
    "expand": lambda x, size, implicit=False: x.expand(size),
    "narrow": td.narrow,
    "permute": td.permute,
    "select": td.select,
    "slice": _slice,
    "split": td.split,
    "split_with_sizes": functions.split_with_sizes,
    "squeeze": functions.squeeze,
    "t": td.t,
    "transpose": td.transpose,
    "unbind": td.unbind,
    "unfold": lambda x, dimension, size, step: x.unfold(dimension, size, step),
    "unsqueeze": td.unsqueeze,
    "view": lambda x, size=None, dtype=None: x.view(size if dtype is None else dtype),
    "view_as_complex": td.view_as_complex,
    "view_as_real": td.view_as_real,
}
_COPIES = [f"{_name}_copy" for _name in _VIEWS]
for _name, _view in _VIEWS.items():
    globals()[f"{_name}_copy"] = _copy_of(f"{_name}_copy", _view)


# -- normalisation, with the statistics


def _statistics(x, axes, eps):
    """(mean, 1 / deviation), through which no gradient goes."""
    x = x.detach()
    return F.mean(x, axes, keepdims=True), F.rsqrt(F.var(x, axes, keepdims=True) + eps)


def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """(layer_norm, mean, 1 / deviation)."""
    axes = tuple(range(input.ndim - len(tuple(normalized_shape)), input.ndim))
    mean, scale = _statistics(input, axes, eps)
    return F.layer_norm(input, tuple(normalized_shape), weight, bias, eps), mean, scale


def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """(group_norm, mean, 1 / deviation), the latter (N, group)."""
    mean, scale = _statistics(input.reshape(N, group, C // group * HxW), 2, eps)
    return F.group_norm(input, group, weight, bias, eps), mean.reshape(N, group), scale.reshape(N, group)


def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, *, out=None):
    """(batch_norm, mean, 1 / deviation), the latter (C); empty where running statistics are used."""
    if training:
        axes = (0, *range(2, input.ndim))
        mean, scale = _statistics(input, axes, eps)
        saved = mean.reshape(-1), scale.reshape(-1)
    else:
        saved = td.empty(0, dtype=input.dtype), td.empty(0, dtype=input.dtype)
    made = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return store("native_batch_norm", (made, *saved), out)


def native_dropout(input, p, train=None):
    """(dropout, mask)."""
    if train is False:
        return F.clone(input), F.ones_like(input, dtype=td.bool)
    mask = F.bernoulli(F.full_like(input, 1 - p)).to(td.bool)
    return input * mask * (1 / (1 - p) if p < 1 else 0), mask


def native_dropout_backward(grad_output, mask, scale):
    """The gradient of native_dropout."""
    return grad_output * mask * scale


# -- sampling and pooling

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(input, grid, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sample, whose modes are numbers."""
    if not 0 <= interpolation_mode < 3 or not 0 <= padding_mode < 3:
        raise ValueRangeError(
            "grid_sampler", f"modes are {interpolation_mode} and {padding_mode}; they must be 0, 1 or 2"
        )
    sample = td.nn.functional.grid_sample
    return sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def affine_grid_generator(theta, size, align_corners):
    """affine_grid."""
    return td.nn.functional.affine_grid(theta, size, align_corners)


def max_pool2d_with_indices_backward(
    grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices, *, grad_input=None
):
    """The gradient of max_pool2d, from the positions of the largest elements."""
    planes = (*self.shape[:-2], self.shape[-2] * self.shape[-1])
    lines = (*self.shape[:-2], -1)
    made = F.scatter_add(
        td.zeros(planes, dtype=self.dtype, device=self.device), -1, indices.reshape(lines), grad_output.reshape(lines)
    )
    return store("max_pool2d_with_indices_backward", made.reshape(self.shape), grad_input)


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Convolution or its transpose over as many axes as input has after the first two."""
    axes = input.ndim - 2
    if transposed:
        call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
        return call(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return (F.conv1d, F.conv2d, F.conv3d)[axes - 1](input, weight, bias, stride, padding, dilation, groups)


def triangular_solve(input, A, upper=True, transpose=False, unitriangular=False, *, out=None):
    """(X with A X = input, A) for a triangular A. PyTorch advises torch.linalg.solve_triangular.

    >>> td.torch.triangular_solve(td.ones(2, 1), 2 * td.eye(2))[0].tolist()
    [[0.5], [0.5]]
    """
    matrix = A.mT if transpose else A
    solution = td.linalg.solve_triangular(matrix, input, upper=upper != transpose, unitriangular=unitriangular)
    return store("triangular_solve", (solution, F.clone(A)), out)


def frobenius_norm(input, dim=(), keepdim=False, *, out=None):
    """The root of the sum of squares over axes (all by default)."""
    return store("frobenius_norm", F.vector_norm(input, 2, tuple(dim) or None, keepdim), out)


td.Tensor.triangular_solve, td.Tensor.narrow_copy = triangular_solve, globals()["narrow_copy"]


__all__ = [
    *_COPIES, "affine_grid_generator", "convolution", "frobenius_norm", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d",
    "max_pool2d_with_indices_backward", "native_batch_norm", "native_dropout", "native_dropout_backward", "native_group_norm",
    "native_layer_norm", "triangular_solve",
]  # fmt: skip
