"""Making tensors from data, numbers and other libraries' arrays."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem import devices as _devices
from tandem.errors import ShapeError, ValueRangeError
from tandem.ops.create import _full, on_device
from tandem.ops.create import uninitialised as _uninitialised
from tandem.ops.from_data import as_tensor, asarray, tensor  # noqa: F401
from tandem.ops.from_data import finish_tensor as _finish
from tandem.ops.from_data import given_dtype as _dtype


def _shape(shape, more, size) -> tuple:
    """Sizes given as one tuple, loose, or by PyTorch's keyword."""
    if size is not None:
        shape = size
    if shape is None:
        return ()
    if isinstance(shape, (tuple, list)):
        if more:
            raise ValueRangeError(
                None, f"sizes {more} after the shape {tuple(shape)}; give one tuple, or all sizes loose"
            )
        return tuple(shape)
    return (shape, *more)


def from_numpy(array):
    """A tensor on the memory of a NumPy array: changes show on both sides; read-only arrays give read-only tensors.

    >>> import numpy as np
    >>> td.from_numpy(np.ones(2, dtype=np.float32))
    tensor([1., 1.])
    """
    return _runtime.from_numpy(array)


def from_dlpack(x, *, device=None, copy: bool | None = None):
    """A tensor on the memory of any DLPack producer.

    >>> import numpy as np
    >>> td.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    return on_device(_runtime.from_dlpack(x, copy), device)


def check_device(device):
    """An explicit device is a demand: what is not there is an error."""
    if device is None:
        return
    _devices.as_device(device)


def empty(shape=None, *more, size=None, dtype=None, device=None, requires_grad: bool = False):
    """A tensor whose elements are not initialised.

    >>> td.empty(2, 3).shape
    (2, 3)
    """
    wanted = _shape(shape, more, size)
    return _finish(_uninitialised(wanted, _dtype(dtype) or dtypes.default_float(), device), requires_grad)


def zeros(shape=None, *more, size=None, dtype=None, device=None, requires_grad: bool = False):
    """A tensor of zeros.

    >>> td.zeros(2)
    tensor([0., 0.])
    """
    return _filled("zeros", 0, _shape(shape, more, size), dtype or dtypes.default_float(), device, requires_grad)


def _filled(name: str, value: int, shape: tuple, dtype, device, requires_grad: bool):
    try:
        if device is None and not requires_grad and not _devices.meta.on:
            return _full(shape, value, dtype=dtype)
        return F.full(shape, value, dtype=dtype, device=device, requires_grad=requires_grad)
    except ShapeError as error:  # by the name that the user wrote
        raise ShapeError(name, error.rule, error.fix) from None


def ones(shape=None, *more, size=None, dtype=None, device=None, requires_grad: bool = False):
    """A tensor of ones.

    >>> td.ones(2)
    tensor([1., 1.])
    """
    return _filled("ones", 1, _shape(shape, more, size), dtype or dtypes.default_float(), device, requires_grad)
