"""A whole object as bytes, with its tensors and arrays left out of them: those are put into shared memory and referred to.

message, places = pack(obj, space)          # space.place(tensor) -> (key of the memory, offset, strides)
obj = unpack(message, places, memories)     # memories[key] -> SharedMemory
"""

from __future__ import annotations

import io
import pickle

from tandem import _runtime, dtypes
from tandem.multiprocessing.shared import copy_into

Tensor = _runtime.Tensor
_SMALL = 1 << 14  # arrays below this many bytes stay in the message


class _Packer(pickle.Pickler):
    def __init__(self, stream, space):
        buffers: list[tuple] = []

        # Not a method: a packer that refers to itself would live until that is collected, and with it, in its memo, the batch,
        # whose memory is waited for.
        def take(buffer):
            view = buffer.raw()
            if view.nbytes < _SMALL or view.readonly:
                return True  # in the message
            buffers.append((*space.place_bytes(view), view.nbytes))
            return False

        super().__init__(stream, protocol=5, buffer_callback=take)
        self.space, self.buffers = space, buffers
        self._placed: dict[int, tuple] = {}
        self._kept: list = []  # so that an id means one tensor while this lasts

    def persistent_id(self, obj):
        if not isinstance(obj, Tensor):
            return None
        if id(obj) not in self._placed:
            self._placed[id(obj)] = self._describe(obj)
            self._kept.append(obj)
        return self._placed[id(obj)]

    def _describe(self, t):
        key, offset, strides = self.space.place(t)
        if type(t) is Tensor and not t.requires_grad:
            return (key, offset, t.dtype.name, tuple(t.shape), strides)
        return (
            key,
            offset,
            t.dtype.name,
            tuple(t.shape),
            strides,
            len(self._placed),
            type(t),
            t.requires_grad,
            dict(vars(t)),
        )


class _Unpacker(pickle.Unpickler):
    def __init__(self, stream, memories, buffers):
        super().__init__(stream, buffers=buffers)
        self.memories = memories
        self._made: dict[tuple, Tensor] = {}

    def persistent_load(self, description):
        key, offset, dtype, shape, strides, *rest = description
        if not rest:
            return self.memories[key].tensor(dtypes.by_name(dtype), shape, strides, offset)
        number, cls, requires_grad, attributes = rest
        if number not in self._made:
            made = self.memories[key].tensor(dtypes.by_name(dtype), shape, strides, offset)
            if cls is not Tensor:
                made = _runtime.make_subclass(cls, made)
            made.requires_grad = requires_grad
            for name, value in attributes.items():
                setattr(made, name, value)
            self._made[number] = made
        return self._made[number]


def pack(obj, space) -> tuple[bytes, list]:
    """(message, places of large arrays)"""
    stream = io.BytesIO()
    packer = _Packer(stream, space)
    packer.dump(obj)
    return stream.getvalue(), packer.buffers


def unpack(message, buffers: list, memories):
    views = [memoryview(memories[key].tensor(dtypes.uint8, (count,), None, offset)) for key, offset, count in buffers]
    return _Unpacker(io.BytesIO(message), memories, views).load()


def write(memory, offset: int, t):
    """Copies a tensor to an offset of shared memory."""
    if t.numel():
        copy_into(memory.tensor(t.dtype, tuple(t.shape), None, offset), t)


def write_bytes(memory, offset: int, view):
    memoryview(memory.tensor(dtypes.uint8, (view.nbytes,), None, offset))[:] = view
