"""Making tensors from data, numbers and other libraries' arrays."""

from __future__ import annotations

from collections.abc import Sequence

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem import devices as _devices
from tandem.errors import DeviceError, DTypeError, ShapeError, ValueRangeError
from tandem.ops.create import _full, on_device


def _finish(t, requires_grad: bool):
    if requires_grad:
        t.requires_grad = True
    return t


def _dtype(dtype):
    return None if dtype is None else dtypes.as_dtype(dtype)


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


def _copied(x, dtype):
    return F.clone(x) if dtype is None or x.dtype is dtype else x.to(dtype)


def tensor(data, *, dtype=None, device=None, requires_grad: bool = False):
    """A new tensor with a copy of the data: numbers, nested lists, arrays or tensors. Floats default to float32, ints to int64.

    >>> td.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    dtype = _dtype(dtype)
    if isinstance(data, _runtime.Tensor):
        made = _copied(data.detach(), dtype)
    elif hasattr(data, "__dlpack__") or hasattr(data, "__array__"):
        made = _copied(asarray(data), dtype)
        device = device or _default_device()
    else:
        made = _from_data("tensor", data, dtype)
        device = device or _default_device()
    return _finish(on_device(made, device), requires_grad)


def _from_data(name: str, data, dtype):
    if data is None:
        raise DTypeError(name, "data is None; numbers, nested lists, arrays or tensors are needed")
    if not isinstance(data, (list, tuple, str)) and isinstance(data, Sequence):  # a deque, a range
        data = list(data)
    return _runtime.from_data(data, dtype)


def _default_device():
    """The device of the scope that new tensors are made in, unless that is the CPU."""
    code = _runtime.default_device()
    return _devices.DEVICES[code] if code else None


def asarray(obj, *, dtype=None, device=None, copy: bool | None = None):
    """obj as a tensor, sharing memory where that is possible and copy is not True.

    >>> td.asarray([1.0, 2.0])
    tensor([1., 2.])
    """
    if device is not None:
        if _devices.code_of(device) != (_runtime.device_index(obj) if isinstance(obj, _runtime.Tensor) else 0):
            if copy is False:
                raise DeviceError(
                    "asarray", f"the data cannot be on {device} without a copy", fix="leave out copy=False"
                )
            return on_device(asarray(obj, dtype=dtype, copy=copy), device)
    dtype = _dtype(dtype)
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
    return _finish(
        _runtime.empty(wanted, _dtype(dtype) or dtypes.default_float(), _devices.code_of(device)), requires_grad
    )


def zeros(shape=None, *more, size=None, dtype=None, device=None, requires_grad: bool = False):
    """A tensor of zeros.

    >>> td.zeros(2)
    tensor([0., 0.])
    """
    return _filled("zeros", 0, _shape(shape, more, size), dtype or dtypes.default_float(), device, requires_grad)


def _filled(name: str, value: int, shape: tuple, dtype, device, requires_grad: bool):
    try:
        if device is None and not requires_grad:
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
