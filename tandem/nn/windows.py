"""Functions over windows that are made of others: patches, power-average pooling, unpooling, response normalisation."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError
from tandem.ops.define import op
from tandem.ops.prepare import show_shape


def _pair(v) -> tuple:
    return tuple(v) if isinstance(v, (tuple, list)) else (v, v)


def _window_positions(count, kernel: int, stride: int, dilation: int):
    """Index of every element of every window: (kernel * count)."""
    inside = F.Iota((kernel, count), 0, dtypes.int64)() * dilation
    start = F.Iota((kernel, count), 1, dtypes.int64)() * stride
    return F.reshape(inside + start, (kernel * count,))


def _count(name: str, n, kernel: int, stride: int, padding: int, dilation: int):
    count = (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    if count <= 0:
        raise ShapeError(
            name, f"a window of {kernel} (dilation {dilation}) does not fit into {n} with padding {padding}"
        )
    return count


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Patches of images as columns: (N, C, H, W) -> (N, C * kh * kw, number of patches).

    >>> td.nn.functional.unfold(td.arange(9.0).reshape(1, 1, 3, 3), 2)
    tensor([[[0., 1., 3., 4.],
             [1., 2., 4., 5.],
             [3., 4., 6., 7.],
             [4., 5., 7., 8.]]])
    """
    return _unfold(input, _pair(kernel_size), _pair(dilation), _pair(padding), _pair(stride))


@op(hidden=True, name="unfold")
def _unfold(x: Tensor, kernel, dilation, padding, stride):
    if x.ndim not in (3, 4):
        raise ShapeError("unfold", f"x is {show_shape(x.shape)}; it must be (N, C, H, W) or (C, H, W)")
    single = x.ndim == 3
    x = F.unsqueeze(x, 0) if single else x
    rows, columns = (_count("unfold", x.shape[2 + i], kernel[i], stride[i], padding[i], dilation[i]) for i in (0, 1))
    if any(padding):
        x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    n, c = x.shape[:2]
    x = F.index_select(x, 2, _window_positions(rows, kernel[0], stride[0], dilation[0]))
    x = F.index_select(x, 3, _window_positions(columns, kernel[1], stride[1], dilation[1]))
    x = F.permute(F.reshape(x, (n, c, kernel[0], rows, kernel[1], columns)), (0, 1, 2, 4, 3, 5))
    x = F.reshape(x, (n, c * kernel[0] * kernel[1], rows * columns))
    return F.reshape(x, x.shape[1:]) if single else x


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Adds patches up to images, the transpose of unfold: (N, C * kh * kw, number of patches) -> (N, C, *output_size)."""
    return _fold(input, _pair(output_size), _pair(kernel_size), _pair(dilation), _pair(padding), _pair(stride))


@op(hidden=True, name="fold")
def _fold(x: Tensor, size: Ints, kernel, dilation, padding, stride):
    single = x.ndim == 2
    x = F.unsqueeze(x, 0) if single else x
    rows, columns = (_count("fold", size[i], kernel[i], stride[i], padding[i], dilation[i]) for i in (0, 1))
    area = kernel[0] * kernel[1]
    if x.ndim != 3 or x.shape[1] % area != 0 or x.shape[2] != rows * columns:
        raise ShapeError(
            "fold", f"x is {show_shape(x.shape)}; it must be (N, C * {area}, {rows * columns}) for these windows"
        )
    n, c = x.shape[0], x.shape[1] // area
    x = F.permute(F.reshape(x, (n, c, kernel[0], kernel[1], rows, columns)), (0, 1, 2, 4, 3, 5))
    x = F.reshape(x, (n, c, kernel[0] * rows, kernel[1] * columns))
    for i, count in ((0, rows), (1, columns)):
        shape = tuple(size[i] + 2 * padding[i] if a == 2 + i else d for a, d in enumerate(x.shape))
        x = F.index_add(
            F.full(shape, 0, dtype=x.dtype), 2 + i, _window_positions(count, kernel[i], stride[i], dilation[i]), x
        )
    if any(padding):
        x = F.pad(x, (-padding[1], -padding[1], -padding[0], -padding[0]))
    return F.reshape(x, x.shape[1:]) if single else x


def _lp_pool(pool, axes: int):
    def lp_pool(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        """(sum of x ** norm_type over each window) ** (1 / norm_type)."""
        return _root_of_sums(
            input, pool, float(norm_type), kernel_size, kernel_size if stride is None else stride, ceil_mode, axes
        )

    lp_pool.__name__ = lp_pool.__qualname__ = f"lp_pool{axes}d"
    return lp_pool


@op(hidden=True, name="lp_pool")
def _root_of_sums(x: Tensor, pool, norm_type, kernel_size, stride, ceil_mode, axes):
    size = math.prod(kernel_size) if isinstance(kernel_size, tuple) else kernel_size**axes
    out = pool(F.power(x, norm_type), kernel_size, stride, 0, ceil_mode)
    return F.power(F.relu(out) * size, 1.0 / norm_type)


lp_pool1d, lp_pool2d, lp_pool3d = (_lp_pool(p, i + 1) for i, p in enumerate((F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)))


def _max_unpool(axes: int):
    def max_unpool(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        """Puts elements where max_pool's indices say; zeros elsewhere."""
        kernel, padding = (tuple(v) if isinstance(v, (tuple, list)) else (v,) * axes for v in (kernel_size, padding))
        stride = kernel if stride is None else tuple(stride) if isinstance(stride, (tuple, list)) else (stride,) * axes
        if output_size is None:
            sizes = [
                (n - 1) * s - 2 * p + k for n, s, p, k in zip(input.shape[-axes:], stride, padding, kernel, strict=True)
            ]
        else:
            sizes = list(output_size)[-axes:]
        return _place(input, indices, tuple(sizes))

    max_unpool.__name__ = max_unpool.__qualname__ = f"max_unpool{axes}d"
    return max_unpool


@op(hidden=True, name="max_unpool")
def _place(x: Tensor, indices: Tensor, sizes: Ints):
    if x.ndim != indices.ndim or any(a != b for a, b in zip(x.shape, indices.shape, strict=True)):
        raise ShapeError(
            "max_unpool", f"x is {show_shape(x.shape)} and indices {show_shape(indices.shape)}; they must be equal"
        )
    lead = x.shape[: x.ndim - len(sizes)]
    total, count = 1, 1
    for n, m in zip(sizes, x.shape[len(lead) :], strict=True):
        total, count = total * n, count * m
    flat = F.scatter(
        F.full((*lead, total), 0, dtype=x.dtype), -1, F.reshape(indices, (*lead, count)), F.reshape(x, (*lead, count))
    )
    return F.reshape(flat, (*lead, *sizes))


max_unpool1d, max_unpool2d, max_unpool3d = (_max_unpool(i) for i in (1, 2, 3))


@op(hidden=True)
def local_response_norm(x: Tensor, size, alpha=1e-4, beta=0.75, k=1.0):
    """x over (k + alpha * mean of squares over `size` neighbouring channels) ** beta. x: (N, C, *)"""
    if x.ndim < 3:
        raise ShapeError("local_response_norm", f"x is {show_shape(x.shape)}; it must be (N, C, *)")
    squares = F.reshape(x * x, (x.shape[0], 1, x.shape[1], -1))
    squares = F.pad(squares, (0, 0, size // 2, (size - 1) // 2))
    mean = F.reshape(F.avg_pool2d(squares, (size, 1), 1), x.shape)
    return x / F.power(mean * alpha + k, beta)
