"""GGUF, the format of llama.cpp: metadata and tensors, many of them quantised in blocks, which become float32."""

from __future__ import annotations

import os
import struct

import numpy as np

from tandem.errors import CheckpointError, UnsupportedError
from tandem.tensors.constructors import from_numpy

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST = 2**31  # entries of a list; more is damage


def read_gguf(path) -> tuple[dict, dict]:
    """(tensors by name, metadata) of a GGUF file. Quantised tensors are float32."""
    with open(path, "rb") as file:
        data = np.memmap(file, np.uint8, "r")
    try:
        reader = _Reader(data)
        count, entries = reader.header()
        metadata = {}
        for _ in range(entries):
            key = reader.text()
            metadata[key] = reader.value(reader.number("<I"))
        infos = [reader.tensor_info() for _ in range(count)]
        align = int(metadata.get("general.alignment", 32))
        begin = -(-reader.at // align) * align
        return {name: _tensor(data, begin + offset, shape, kind, name) for name, shape, kind, offset in infos}, metadata
    except UnsupportedError:
        raise
    except (
        struct.error,
        ValueError,
        UnicodeDecodeError,
        OverflowError,
        KeyError,
        ZeroDivisionError,
        MemoryError,
    ) as error:
        raise CheckpointError("load", f"{os.fspath(path)} is a damaged GGUF file: {error}") from None


class _Reader:
    def __init__(self, data: np.ndarray):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > self.data.size:
            raise ValueError("it ends too early")
        self.at += count
        return self.data[self.at - count : self.at].tobytes()

    def number(self, form: str):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def header(self) -> tuple[int, int]:
        if self.take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = self.number("<I")
        if version not in (2, 3):
            raise ValueError(f"version {version} is not known")
        return self.number("<Q"), self.number("<Q")

    def text(self) -> str:
        return self.take(self.number("<Q")).decode()

    def value(self, kind: int, depth: int = 0):
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            inner, count = self.number("<I"), self.number("<Q")
            if depth > 8 or count > _MOST:
                raise ValueError("a list that is too long or too deep")
            if inner in _SCALARS and inner != 7:
                dtype = np.dtype(_SCALARS[inner].replace("q", "i8").replace("Q", "u8").replace("d", "f8"))
                return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
            return [self.value(inner, depth + 1) for _ in range(count)]
        return self.number(_SCALARS[kind])

    def tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        ndim = self.number("<I")
        if ndim > 8:
            raise ValueError(f"the tensor {name!r} has {ndim} axes")
        shape = tuple(self.number("<Q") for _ in range(ndim))[::-1]
        return name, shape, self.number("<I"), self.number("<Q")


def _tensor(data: np.ndarray, begin: int, shape, kind: int, name: str):
    if kind not in FORMATS:
        raise UnsupportedError("load", f"the tensor {name!r} has GGUF's type {kind}, which is not offered")
    form = FORMATS[kind]
    count = 1
    for n in shape:
        count *= n
    if count % form.elements:
        raise ValueError(f"{name!r} has {count} elements, and its blocks {form.elements}")
    size = count // form.elements * form.bytes
    if begin + size > data.size:
        raise ValueError(f"{name!r} reaches beyond the end")
    blocks = np.array(data[begin : begin + size]).reshape(-1, form.bytes)
    return from_numpy(np.ascontiguousarray(form.decode(blocks).reshape(shape)))


class Format:
    """Blocks of so many elements in so many bytes, and what makes numbers of them."""

    def __init__(self, elements: int, bytes: int, decode):
        self.elements, self.bytes, self.decode = elements, bytes, decode


def _plain(dtype) -> Format:
    dtype = np.dtype(dtype)
    return Format(1, dtype.itemsize, lambda b: b.view(dtype))


def _bfloat16(b):
    import ml_dtypes

    return b.view(ml_dtypes.bfloat16)


def _half(b) -> np.ndarray:
    """Two bytes of each block as a float16, (blocks, 1)."""
    return b.view(np.float16).astype(np.float32)


def _nibbles(b) -> np.ndarray:
    """The low halves of the bytes, then the high ones."""
    return np.concatenate([b & 15, b >> 4], axis=-1)


def _fifth_bits(b) -> np.ndarray:
    """(blocks, 4) bytes as 32 bits."""
    return (b.view(np.uint32) >> np.arange(32, dtype=np.uint32)) & 1


def _q4_0(b):
    return _half(b[:, :2].copy()) * (_nibbles(b[:, 2:]).astype(np.float32) - 8)


def _q4_1(b):
    return _half(b[:, :2].copy()) * _nibbles(b[:, 4:]).astype(np.float32) + _half(b[:, 2:4].copy())


def _q5_0(b):
    high = _fifth_bits(b[:, 2:6].copy()).astype(np.uint8)
    return _half(b[:, :2].copy()) * ((_nibbles(b[:, 6:]) | high << 4).astype(np.float32) - 16)


def _q5_1(b):
    high = _fifth_bits(b[:, 4:8].copy()).astype(np.uint8)
    return _half(b[:, :2].copy()) * (_nibbles(b[:, 8:]) | high << 4).astype(np.float32) + _half(b[:, 2:4].copy())


def _q8_0(b):
    return _half(b[:, :2].copy()) * b[:, 2:].copy().view(np.int8).astype(np.float32)


def _scales_of_k(s) -> tuple[np.ndarray, np.ndarray]:
    """Twelve bytes as eight scales and eight minima of six bits: (blocks, 8) each."""
    low, middle, high = s[:, :4], s[:, 4:8], s[:, 8:]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=1)
    minima = np.concatenate([middle & 63, high >> 4 | (middle >> 6) << 4], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _q4_k(b):
    d, least = _half(b[:, :2].copy()), _half(b[:, 2:4].copy())
    scales, minima = _scales_of_k(b[:, 4:16])
    q = b[:, 16:].reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1) & 15
    q = q.reshape(-1, 8, 32).astype(np.float32)
    return (d * scales)[..., None] * q - (least * minima)[..., None]


def _q5_k(b):
    d, least = _half(b[:, :2].copy()), _half(b[:, 2:4].copy())
    scales, minima = _scales_of_k(b[:, 4:16])
    high = b[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    q = b[:, 48:].reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1) & 15
    q = (q.reshape(-1, 8, 32) | high << 4).astype(np.float32)
    return (d * scales)[..., None] * q - (least * minima)[..., None]


def _q6_k(b):
    low = b[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1) & 15
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    q = (low.reshape(-1, 8, 32) | high.reshape(-1, 8, 32) << 4).astype(np.int8) - 32
    scales = b[:, 192:208].copy().view(np.int8).astype(np.float32)
    return (_half(b[:, 208:].copy()) * scales)[..., None] * q.reshape(-1, 16, 16).astype(np.float32)


def _q3_k(b):
    d, s = _half(b[:, 108:].copy()), b[:, 96:108]
    low = s[:, :8].reshape(-1, 1, 8) >> np.array([0, 4], np.uint8).reshape(1, 2, 1) & 15
    high = s[:, 8:].reshape(-1, 1, 4) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1) & 3
    scales = (low.reshape(-1, 16) | high.reshape(-1, 16) << 4).astype(np.int8) - 32
    q = b[:, 32:96].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    bit = b[:, :32].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    q = q.reshape(-1, 16, 16).astype(np.int8) - ((bit ^ 1) << 2).reshape(-1, 16, 16).astype(np.int8)
    return (d * scales.astype(np.float32))[..., None] * q.astype(np.float32)


def _q2_k(b):
    d, least = _half(b[:, 80:82].copy()), _half(b[:, 82:].copy())
    scales, minima = (b[:, :16] & 15).astype(np.float32), (b[:, :16] >> 4).astype(np.float32)
    q = b[:, 16:80].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    return (d * scales)[..., None] * q.reshape(-1, 16, 16).astype(np.float32) - (least * minima)[..., None]


# By GGUF's number for the type.
FORMATS = {
    0: _plain("<f4"), 1: _plain("<f2"), 2: Format(32, 18, _q4_0), 3: Format(32, 20, _q4_1), 6: Format(32, 22, _q5_0),
    7: Format(32, 24, _q5_1), 8: Format(32, 34, _q8_0), 10: Format(256, 84, _q2_k), 11: Format(256, 110, _q3_k),
    12: Format(256, 144, _q4_k), 13: Format(256, 176, _q5_k), 14: Format(256, 210, _q6_k), 24: _plain("<i1"),
    25: _plain("<i2"), 26: _plain("<i4"), 27: _plain("<i8"), 28: _plain("<f8"), 30: Format(1, 2, _bfloat16),
}  # fmt: skip
