"""Files that torch.save wrote: tensors in containers.

Their pickles are read by an unpickler that knows containers, numbers, text and tensors, and refuses every other name; so nothing in
a file is run. A whole module, which torch.save can pickle too, is refused with the name of its class.
"""

from __future__ import annotations

import collections
import io
import math
import os
import pickle
import zipfile
import zlib
from typing import NamedTuple

import ml_dtypes
import numpy as np

from tandem import dtypes
from tandem.errors import CheckpointError
from tandem.tensors.constructors import from_numpy

LEGACY_MAGIC = bytes.fromhex("6cfc9c46f9206aa85019")  # as the first pickle of files before PyTorch 1.6 holds it
_STORAGES = {
    "DoubleStorage": dtypes.float64, "FloatStorage": dtypes.float32, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8, "BoolStorage": dtypes.bool_,
    "ComplexFloatStorage": dtypes.complex64, "ComplexDoubleStorage": dtypes.complex128, "UInt16Storage": dtypes.uint16,
    "UInt32Storage": dtypes.uint32, "UInt64Storage": dtypes.uint64,
}  # fmt: skip
_DTYPES = {
    "float64": dtypes.float64, "float32": dtypes.float32, "float16": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "int64": dtypes.int64, "int32": dtypes.int32, "int16": dtypes.int16, "int8": dtypes.int8, "uint8": dtypes.uint8,
    "bool": dtypes.bool_, "complex64": dtypes.complex64, "complex128": dtypes.complex128, "double": dtypes.float64,
    "float": dtypes.float32, "half": dtypes.float16, "long": dtypes.int64, "int": dtypes.int32, "short": dtypes.int16,
    "uint16": dtypes.uint16, "uint32": dtypes.uint32, "uint64": dtypes.uint64,
}  # fmt: skip


class _Eight(NamedTuple):
    """Floats of 8 bits, which become float32: no tensor here has them."""

    numpy: np.dtype
    itemsize: int = 1


_EIGHTS = {
    name: _Eight(np.dtype(getattr(ml_dtypes, name)))
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
}


class _Storage:
    """Elements of one type; filled once the file's order of them is known."""

    def __init__(self, dtype: dtypes.DType, data: bytes | None = None):
        self.dtype = dtype
        self.data = data


class _Tensor:
    """A tensor that is made when all storages are there."""

    def __init__(self, storage: _Storage, offset: int, shape, strides, dtype: dtypes.DType | _Eight | None = None):
        self.storage, self.offset, self.shape, self.strides = storage, offset, tuple(shape), tuple(strides)
        self.dtype = dtype or storage.dtype


def _rebuild_tensor(storage, offset, shape, strides, *rest):
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    return _Tensor(storage, offset, shape, strides)


def _rebuild_typed(storage, offset, shape, strides, requires_grad, hooks, dtype, *rest):
    """Of an element type for which PyTorch has no storages: of bytes."""
    if not isinstance(storage, _Storage) or not isinstance(dtype, (dtypes.DType, _Eight)):
        raise pickle.UnpicklingError("a tensor without a storage or a type")
    return _Tensor(storage, offset, shape, strides, dtype)


def _rebuild_parameter(tensor, *rest):
    return tensor


_ALLOWED = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_typed,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch", "Size"): tuple,
    ("torch.serialization", "_get_layout"): str,
    ("builtins", "set"): set,
    ("builtins", "dict"): dict,
    ("builtins", "complex"): complex,
    ("builtins", "slice"): slice,
    ("__builtin__", "set"): set,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, storage_of):
        super().__init__(file, encoding="utf-8")
        self._storage_of = storage_of

    def find_class(self, module: str, name: str):
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        if module in ("torch", "torch.cuda") and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if module == "torch" and name in _EIGHTS:
            return _EIGHTS[name]
        if (module, name) == ("torch.storage", "UntypedStorage"):
            return dtypes.uint8
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is neither a tensor nor a container")

    def persistent_load(self, key):
        return self._storage_of(*key)


def _refused(path, error) -> CheckpointError:
    return CheckpointError(
        "load", f"{os.fspath(path)} is a PyTorch file that cannot be read: {error}",
        fix="save weights alone: torch.save(model.state_dict(), path)",
    )  # fmt: skip


# What zipfile raises for archives that are none, or use what it does not know; OSError where it is sent beyond the file.
ZIP_DAMAGE = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    EOFError,
    OSError,
    zlib.error,
)
_DAMAGE = (
    pickle.UnpicklingError, KeyError, IndexError, TypeError, AttributeError, ImportError, MemoryError, *ZIP_DAMAGE,
)  # fmt: skip
_LARGE = 1 << 30  # bytes from which on a tensor may not be larger than its storage


def read_zip(path):
    """The state of a file of PyTorch 1.6 or later."""
    try:
        with zipfile.ZipFile(path) as archive:
            (main,) = [n for n in archive.namelist() if n.rpartition("/")[2] == "data.pkl"]
            folder = main[: -len("data.pkl")]
            order = folder + "byteorder"
            if order in archive.namelist() and archive.read(order) != b"little":
                raise ValueError("its numbers are big-endian")
            known: dict[str, _Storage] = {}

            def storage_of(kind, dtype, key, location, count, *rest):
                if kind != "storage" or not isinstance(dtype, dtypes.DType):
                    raise pickle.UnpicklingError("a reference to something that is no storage")
                if key not in known:
                    known[key] = _Storage(dtype, _entry(archive, f"{folder}data/{key}"))
                return _Storage(dtype, known[key].data)

            state = _Unpickler(io.BytesIO(_entry(archive, main)), storage_of).load()
        return _finished(state)
    except _DAMAGE as error:
        raise _refused(path, error) from None


def _entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """A part of the archive; PyTorch compresses none, and a small file that says so could fill the memory."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    return archive.read(name)


def read_legacy(path):
    """The state of a file of PyTorch before 1.6: pickles one after the other, then the storages."""
    try:
        with open(path, "rb") as file:
            known: dict[str, _Storage] = {}

            def storage_of(kind, dtype, key, location, count, view=None):
                if kind != "storage" or not isinstance(dtype, dtypes.DType) or view is not None:
                    raise pickle.UnpicklingError("a reference to something that is no storage")
                return known.setdefault(key, _Storage(dtype))

            for _ in range(3):  # magic number, protocol, sizes of C's types
                _Unpickler(file, storage_of).load()
            state = _Unpickler(file, storage_of).load()
            for key in _Unpickler(file, storage_of).load():
                storage = known[key]
                count = int.from_bytes(file.read(8), "little")
                storage.data = file.read(count * storage.dtype.itemsize)
        return _finished(state)
    except _DAMAGE as error:
        raise _refused(path, error) from None


def _finished(value):
    """The state with tensors in place of what stood for them."""
    if isinstance(value, _Tensor):
        return _made(value)
    if isinstance(value, dict):
        return {key: _finished(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_finished(item) for item in value)
    return value


def _made(t: _Tensor):
    dtype, sizes = t.dtype, (*t.shape, *t.strides, t.offset)
    if len(t.shape) != len(t.strides) or any(type(n) is not int or n < 0 for n in sizes):
        raise ValueError("a tensor whose shape and strides are no sizes")
    data = t.storage.data or b""
    data = np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype.numpy)
    count = math.prod(t.shape)
    last = t.offset + sum((n - 1) * s for n, s in zip(t.shape, t.strides, strict=True)) if count else -1
    if last >= data.size:
        raise ValueError("a tensor that reaches beyond its storage")
    if count > data.size and count * dtype.itemsize > _LARGE:
        raise ValueError(f"a tensor of {count} elements that are {data.size} in its storage")
    strides = tuple(s * dtype.itemsize for s in t.strides)
    view = (
        np.lib.stride_tricks.as_strided(data[t.offset :], t.shape, strides) if count else np.empty(t.shape, dtype.numpy)
    )
    made = np.array(view, order="C")
    return from_numpy(made.astype(np.float32) if isinstance(dtype, _Eight) else made)
