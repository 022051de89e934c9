"""The safetensors format: length of a JSON header, the header, the tensors' bytes without gaps.

Note [Checksums]
Files of ours have a CRC-32C of each tensor, and one of the header itself, in the header's metadata. They are hexadecimal of fixed
width, so the header's length is known before the tensors are written; it is written last. The header's own is computed with zeros
in its place. Files of other programs have none; for them only sizes can be checked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tandem import _runtime, dtypes
from tandem.checkpoint.structure import VERSION
from tandem.errors import CheckpointError

CODES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32",
    "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_NAMES = {code: name for name, code in CODES.items()}
_ALIGNMENT = 64
_LARGEST = 1 << 30  # a header larger than this is a damaged length
_ZEROS = "00000000"


@dataclass
class Entry:
    """One tensor of a file."""

    name: str
    dtype: dtypes.DType
    shape: tuple[int, ...]
    begin: int  # in the file
    bytes: int
    crc: int | None = None


@dataclass
class Header:
    entries: dict[str, Entry]
    metadata: dict[str, str] = field(default_factory=dict)
    structure: object = None
    has_structure: bool = False
    size: int = 0  # of the whole file


class Layout:
    """Where the tensors of a new file go, and the header that says so once their checksums are known."""

    def __init__(self, tensors: dict, structure=None, has_structure: bool = True):
        # Wide elements first: then all are aligned, whatever the sizes.
        self.names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
        self.structure, self.has_structure = structure, has_structure
        self._described = {}
        self._wide = {}  # complex128, which the format lacks, as pairs of float64
        begin = 0
        self.relative = []
        for name in self.names:
            t = tensors[name]
            shape, code = list(t.shape), CODES.get(t.dtype.name)
            if t.dtype.name == "complex128":
                shape, code = [*shape, 2], "F64"
                self._wide[name] = t.dtype.name
            bytes = t.numel() * t.dtype.itemsize
            self._described[name] = {"dtype": code, "shape": shape, "data_offsets": [begin, begin + bytes]}
            self.relative.append(begin)
            begin += bytes
        self.start = len(self.header([0] * len(self.names)))
        self.size = self.start + begin

    @property
    def offsets(self) -> list[int]:
        return [self.start + offset for offset in self.relative]

    def header(self, checksums: list[int]) -> bytes:
        ours = {
            "version": VERSION,
            "crc32c": {name: f"{crc:08x}" for name, crc in zip(self.names, checksums, strict=True)},
        }
        if self.has_structure:
            ours["structure"] = self.structure
        if self._wide:
            ours["dtypes"] = self._wide
        # "pt" tells other loaders that names and layouts are PyTorch's.
        metadata = {"format": "pt", "tandem.crc32c": _ZEROS, "tandem": json.dumps(ours, separators=(",", ":"))}
        text = json.dumps({"__metadata__": metadata, **self._described}, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % _ALIGNMENT)
        return len(text).to_bytes(8, "little") + _sealed(text)


def _sealed(text: bytes) -> bytes:
    own = f"{_runtime.crc32c(text):08x}"
    return text.replace(_field(_ZEROS), _field(own), 1)


def _field(crc: str) -> bytes:
    return f'"tandem.crc32c":"{crc}"'.encode()


def _damaged(path, what: str, fix: str = "restore the file from a copy, or load an older checkpoint"):
    return CheckpointError("load", f"{path} is damaged: {what}", fix=fix)


def parse(path, size: int, read) -> Header:
    """The header of a file of `size` bytes; read(begin, count) gives bytes of it."""
    if size < 8:
        raise _damaged(path, f"it has {size} bytes, fewer than the shortest file")
    length = int.from_bytes(read(0, 8), "little")
    if length > _LARGEST:
        raise _damaged(path, f"a header of {length} bytes; it is no safetensors file", fix="check the path")
    if 8 + length > size:
        raise _damaged(path, f"it is cut off in its header, at byte {size} of at least {8 + length}")
    text = bytes(read(8, length))
    try:
        described = json.loads(text)
        metadata = described.pop("__metadata__", {})
        own = metadata.get("tandem.crc32c")
        ours = json.loads(metadata["tandem"]) if "tandem" in metadata else {}
    except (ValueError, AttributeError, TypeError) as error:
        raise _damaged(path, f"its header cannot be read ({error})") from None
    if (own is None) != ("tandem" not in metadata):
        raise _damaged(path, "its header has lost its checksum")
    if own is not None and f"{_runtime.crc32c(text.replace(_field(own), _field(_ZEROS), 1)):08x}" != own:
        raise _damaged(path, "the checksum of its header does not match")
    if ours.get("version", VERSION) > VERSION:
        raise CheckpointError(
            "load", f"{path} has version {ours['version']}; this tandem reads up to {VERSION}", fix="update tandem"
        )
    try:
        entries = _entries(path, described, ours, 8 + length, size)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise _damaged(path, f"its header has an entry that makes no sense ({error!r})") from None
    return Header(entries, metadata, ours.get("structure"), "structure" in ours, size)


def _entries(path, described: dict, ours: dict, start: int, size: int) -> dict[str, Entry]:
    entries, checksums, wide = {}, ours.get("crc32c", {}), ours.get("dtypes", {})
    end = start
    for name, entry in sorted(described.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        dtype_name = wide.get(name) or _NAMES.get(entry["dtype"])
        if dtype_name is None or not dtypes.is_name(dtype_name):
            raise CheckpointError("load", f"{path}: {name} is of type {entry['dtype']}, which is not supported")
        if not isinstance(entry["shape"], list):
            raise TypeError(entry["shape"])
        shape = tuple(int(n) for n in (entry["shape"][:-1] if name in wide else entry["shape"]))
        begin, stop = (start + int(offset) for offset in entry["data_offsets"])
        dtype = dtypes.by_name(dtype_name)
        count = dtype.itemsize
        for n in shape:
            if n < 0:
                raise ValueError(shape)
            count *= n
        if begin != end or stop - begin != count:
            raise _damaged(path, f"{name} of {dtype} {shape} needs {count} bytes and has bytes {begin} to {stop}")
        end = stop
        crc = checksums.get(name)
        entries[name] = Entry(name, dtype, shape, begin, count, None if crc is None else int(crc, 16))
    if size < end:
        raise _damaged(path, f"it is cut off at byte {size} of {end}")
    if size > end:
        raise _damaged(path, f"{size - end} bytes follow the last tensor")
    return entries


def check(path, entries: list[Entry], checksums: list[int]):
    """Compares checksums of what was read with those of the header."""
    for entry, crc in zip(entries, checksums, strict=True):
        if entry.crc is not None and entry.crc != crc:
            raise _damaged(path, f"the checksum of {entry.name} is {crc:08x} where {entry.crc:08x} was saved")
