"""Pooling layers."""

from __future__ import annotations

from tandem.nn import functional as F
from tandem.nn.module import Module


class _MaxPool(Module):
    """The largest element of each window; stride is kernel_size by default. return_indices: also where it was."""

    def __init__(
        self, kernel_size, stride=None, padding=0, dilation=1, return_indices: bool = False, ceil_mode: bool = False
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def forward(self, input):
        return self._pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window. input: (N, C, L) or (C, L)

    >>> td.nn.MaxPool1d(2)(td.arange(4.0).reshape(1, 1, 4))
    tensor([[[1., 3.]]])
    """

    _pool = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The largest element of each window. input: (N, C, H, W) or (C, H, W)"""

    _pool = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The largest element of each window. input: (N, C, D, H, W) or (C, D, H, W)"""

    _pool = staticmethod(F.max_pool3d)


class _MaxUnpool(Module):
    """Puts elements back where MaxPool's indices say they were; zeros elsewhere."""

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def forward(self, input, indices, output_size=None):
        return self._unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The partial inverse of MaxPool1d(return_indices=True)."""

    _unpool = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """The partial inverse of MaxPool2d(return_indices=True)."""

    _unpool = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """The partial inverse of MaxPool3d(return_indices=True)."""

    _unpool = staticmethod(F.max_unpool3d)


class AvgPool1d(Module):
    """The mean of each window. input: (N, C, L) or (C, L)"""

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode: bool = False, count_include_pad: bool = True):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad

    def forward(self, input):
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window. input: (N, C, H, W) or (C, H, W). divisor_override: what to divide sums by instead."""

    _pool = staticmethod(F.avg_pool2d)

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None):  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input):
        return self._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool3d(AvgPool2d):
    """The mean of each window. input: (N, C, D, H, W) or (C, D, H, W). divisor_override: what to divide sums by instead."""

    _pool = staticmethod(F.avg_pool3d)


class _LPPool(Module):
    """(sum of x ** norm_type over each window) ** (1 / norm_type)."""

    def __init__(self, norm_type: float, kernel_size, stride=None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input):
        return self._pool(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """Power-average pooling. input: (N, C, L) or (C, L)"""

    _pool = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """Power-average pooling. input: (N, C, H, W) or (C, H, W)"""

    _pool = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """Power-average pooling. input: (N, C, D, H, W) or (C, D, H, W)"""

    _pool = staticmethod(F.lp_pool3d)


class _AdaptiveAvgPool(Module):
    """Means over windows that divide the axes as evenly as possible into output_size; None keeps a size."""

    def __init__(self, output_size):
        super().__init__()
        self.output_size = output_size

    def forward(self, input):
        return self._pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over output_size windows. input: (N, C, L) or (C, L)"""

    _pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over output_size windows. input: (N, C, H, W) or (C, H, W)

    >>> td.nn.AdaptiveAvgPool2d(1)(td.ones(2, 3, 5, 7)).shape
    (2, 3, 1, 1)
    """

    _pool = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over output_size windows. input: (N, C, D, H, W) or (C, D, H, W)"""

    _pool = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPool(Module):
    """Maxima over windows that divide the axes as evenly as possible into output_size; None keeps a size."""

    def __init__(self, output_size, return_indices: bool = False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input):
        return self._pool(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over output_size windows. input: (N, C, L) or (C, L)"""

    _pool = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over output_size windows. input: (N, C, H, W) or (C, H, W)"""

    _pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over output_size windows. input: (N, C, D, H, W) or (C, D, H, W)"""

    _pool = staticmethod(F.adaptive_max_pool3d)
