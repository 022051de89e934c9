"""Tensors of data: numbers, nested lists, arrays of other libraries."""

from __future__ import annotations

from collections.abc import Sequence

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem import devices as _devices
from tandem.errors import DeviceError, DTypeError, ValueRangeError


def finish_tensor(t, requires_grad: bool):
    if requires_grad:
        t.requires_grad = True
    return t


def given_dtype(dtype):
    return None if dtype is None else dtypes.as_dtype(dtype)


def _copied(x, dtype):
    return F.clone(x) if dtype is None or x.dtype is dtype else x.to(dtype)


def tensor(data, *, dtype=None, device=None, requires_grad: bool = False):
    """A new tensor with a copy of the data: numbers, nested lists, arrays or tensors. Floats default to float32, ints to int64.

    >>> td.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    dtype = given_dtype(dtype)
    if type(data) is list:
        made = _runtime.from_data(data, dtype)
        device = device or _default_device()
    elif isinstance(data, _runtime.Tensor):
        made = _copied(data.detach(), dtype)
    elif hasattr(data, "__dlpack__") or hasattr(data, "__array__"):
        made = _copied(asarray(data), dtype)
        device = device or _default_device()
    else:
        made = _from_data("tensor", data, dtype)
        device = device or _default_device()
    made = made if device is None else F.create.on_device(made, device)
    return finish_tensor(made, True) if requires_grad else made


def _from_data(name: str, data, dtype):
    if data is None:
        raise DTypeError(name, "data is None; numbers, nested lists, arrays or tensors are needed")
    if not isinstance(data, (list, tuple, str)) and isinstance(data, Sequence):  # a deque, a range
        data = list(data)
    return _runtime.from_data(data, dtype)


def _default_device():
    """The device of the scope that new tensors are made in, unless that is the CPU."""
    if _devices.meta.on:
        return _devices.META
    code = _runtime.default_device()
    return _devices.DEVICES[code] if code else None


def asarray(obj, *, dtype=None, device=None, copy: bool | None = None):
    """obj as a tensor, sharing memory where that is possible and copy is not True.

    >>> td.asarray([1.0, 2.0])
    tensor([1., 2.])
    """
    if device is not None and _devices.is_meta(device):
        return F.create.on_device(asarray(obj, dtype=dtype, copy=copy), device)
    if device is not None:
        if _devices.code_of(device) != (_runtime.device_index(obj) if isinstance(obj, _runtime.Tensor) else 0):
            if copy is False:
                raise DeviceError(
                    "asarray", f"the data cannot be on {device} without a copy", fix="leave out copy=False"
                )
            return F.create.on_device(asarray(obj, dtype=dtype, copy=copy), device)
    dtype = given_dtype(dtype)
    if isinstance(obj, _runtime.Tensor):
        made = obj
    elif type(obj).__module__ == "numpy" or hasattr(obj, "__array_interface__"):
        import numpy

        made = _runtime.from_numpy(numpy.asarray(obj))
    elif hasattr(obj, "__dlpack__"):
        made = _runtime.from_dlpack(obj)
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        made = _runtime.from_buffer(obj)
    elif hasattr(obj, "__array__"):
        import numpy

        made = _runtime.from_numpy(numpy.asarray(obj))
    else:
        if copy is False:
            raise ValueRangeError(
                "asarray", f"a {type(obj).__name__} cannot be shared without a copy", fix="leave out copy=False"
            )
        return _from_data("asarray", obj, dtype)
    if dtype is not None and made.dtype is not dtype:
        if copy is False:
            raise ValueRangeError(
                "asarray", f"{made.dtype} cannot become {dtype} without a copy", fix="leave out copy=False"
            )
        return made.to(dtype)  # of complex numbers the real part, as NumPy and PyTorch have it
    return F.clone(made) if copy else made


as_tensor = asarray
