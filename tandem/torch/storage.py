"""torch.storage: the memory of a tensor, for programs that ask how large it is and where."""

from __future__ import annotations

import numpy as np

import tandem as td

__all__ = ["TypedStorage", "UntypedStorage"]


class UntypedStorage:
    """The memory that a tensor looks at. Views that overlap share memory; nbytes counts what this tensor spans."""

    def __init__(self, tensor):
        if not isinstance(tensor, td.Tensor):
            raise td.UnsupportedError("UntypedStorage", "memory is made with tensors", fix="make a tensor, by td.empty")
        self._tensor = tensor

    @classmethod
    def from_file(cls, filename, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file as memory, read when they are used; with shared, what is written goes into the file."""
        if not nbytes:
            return cls(td.empty(0, dtype=td.uint8))
        return cls(td.from_numpy(np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))))

    def __getitem__(self, key):
        """Bytes: a number, or for a slice the same memory."""
        found = self._bytes()[key]
        return _Part(found) if isinstance(key, slice) else found.item()

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._bytes(), dtype=dtype, copy=copy)

    def untyped(self) -> UntypedStorage:
        return self

    def tolist(self) -> list[int]:
        return self._bytes().tolist()

    def _bytes(self):
        tensor = self._tensor
        if tensor.storage_offset() or not tensor.is_contiguous():
            tensor = tensor.as_strided((self.nbytes() // tensor.dtype.itemsize,), (1,), 0)
        return tensor.reshape(-1).view(td.uint8)

    @property
    def device(self):
        return self._tensor.device

    def data_ptr(self) -> int:
        tensor = self._tensor
        return tensor.data_ptr() - tensor.storage_offset() * tensor.dtype.itemsize

    def nbytes(self) -> int:
        tensor = self._tensor
        span = (
            sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            if tensor.numel()
            else 0
        )
        return (span + tensor.storage_offset()) * tensor.dtype.itemsize

    size = __len__ = nbytes

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def is_shared(self) -> bool:
        return self._tensor.is_shared()

    def __repr__(self):
        return f"<UntypedStorage of {self.nbytes()} bytes on {self.device}>"


class _Part(UntypedStorage):
    """A part of some memory: just the bytes of a tensor."""

    def data_ptr(self) -> int:
        return self._tensor.data_ptr()

    def nbytes(self) -> int:
        return self._tensor.numel()

    size = __len__ = nbytes

    def _bytes(self):
        return self._tensor


class TypedStorage(UntypedStorage):
    """The same, counted in elements."""

    @property
    def dtype(self):
        return self._tensor.dtype

    def size(self) -> int:
        return self.nbytes() // self._tensor.dtype.itemsize

    __len__ = size

    def untyped(self) -> UntypedStorage:
        return UntypedStorage(self._tensor)

    def element_size(self) -> int:
        return self._tensor.dtype.itemsize


def _untyped_storage(self) -> UntypedStorage:
    """The memory of this tensor."""
    return UntypedStorage(self)


def _storage(self) -> TypedStorage:
    """The memory of this tensor, in elements."""
    return TypedStorage(self)


td.Tensor.untyped_storage, td.Tensor.storage = _untyped_storage, _storage
