"""The safetensors format: length of a JSON header, the header, the tensors' bytes without gaps.

Note [Checksums]
Files of ours have a CRC-32C of each tensor, and one of the header itself, in the header's metadata. They are hexadecimal of fixed
width, so the header's length is known before the tensors are written; it is written last. The header's own is computed with zeros
in its place. Files of other programs have none; for them only sizes can be checked.
"""

from __future__ import annotations

import contextlib
import json
import re
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
_MOST_AXES = 32  # that tensors have here


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
    save: str | None = None  # id of the save that a shard is of


class Layout:
    """Where the tensors of a new file go, and the header that says so once their checksums are known.

    save: for a shard, the id of its save; the structure is in the index then
    """

    def __init__(self, tensors: dict, structure=None, save: str | None = None):
        # Wide elements first: then all are aligned, whatever the sizes.
        self.names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
        self.structure, self.save = structure, save
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
        if self.save is None:
            ours["structure"] = self.structure
        else:
            ours["save"] = self.save
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


def damaged(path, what: str, fix: str = "restore the file from a copy, or load an older checkpoint"):
    return CheckpointError("load", f"{path} is damaged: {what}", fix=fix)


@contextlib.contextmanager
def untrusted(path, what: str):
    """A file may say anything: whatever goes wrong while its words are taken is damage of it."""
    try:
        yield
    except CheckpointError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        text = str(error) or repr(error)
        raise damaged(path, f"{what} ({text if len(text) < 200 else text[:200] + '…'})") from None


def json_of(text: bytes):
    """What JSON says, in UTF-8, without the words for numbers that JSON does not have."""
    return json.loads(text.decode(), parse_constant=_no_constant)


def _no_constant(text: str):
    raise ValueError(f"{text} is no number of JSON")


def parse(path, size: int, read) -> Header:
    """The header of a file of `size` bytes; read(begin, count) gives bytes of it."""
    if size < 8:
        raise damaged(path, f"it has {size} bytes, fewer than the shortest file")
    length = int.from_bytes(read(0, 8), "little")
    if length > _LARGEST:
        raise damaged(path, f"a header of {length} bytes; it is no safetensors file", fix="check the path")
    if 8 + length > size:
        raise damaged(path, f"it is cut off in its header, at byte {size} of at least {8 + length}")
    text = bytes(read(8, length))
    with untrusted(path, "its header cannot be read"):
        described = json_of(text)
        metadata = described.pop("__metadata__", None) or {}
        if not all(isinstance(entry, str) for entry in metadata.values()):
            raise TypeError("its metadata is not all text")
        ours = json_of(metadata["tandem"].encode()) if "tandem" in metadata else {}
        _check_seal(path, text, metadata)
    with untrusted(path, "its header says what makes no sense"):
        check_version(path, ours)
        entries = _entries(path, described, ours, 8 + length, size)
    return Header(entries, metadata, ours.get("structure"), "structure" in ours, ours.get("save"))


def _check_seal(path, text: bytes, metadata: dict):
    own = metadata.get("tandem.crc32c")
    if (own is None) != ("tandem" not in metadata):
        raise damaged(path, "its header has lost its checksum")
    if own is not None and f"{_runtime.crc32c(text.replace(_field(own), _field(_ZEROS), 1)):08x}" != own:
        raise damaged(path, "the checksum of its header does not match")


def check_version(path, ours: dict):
    version = ours.get("version", VERSION)
    if type(version) is not int:
        raise TypeError(f"version {version!r}")
    if version > VERSION:
        raise CheckpointError(
            "load", f"{path} has version {version}; this tandem reads up to {VERSION}", fix="update tandem"
        )


def _entries(path, described: dict, ours: dict, start: int, size: int) -> dict[str, Entry]:
    entries, checksums, wide = {}, ours.get("crc32c", {}), ours.get("dtypes", {})
    end = start
    for name, entry in sorted(described.items(), key=lambda item: [_count(n) for n in item[1]["data_offsets"]]):
        dtype, shape = _type(path, name, entry, wide.get(name))
        begin, stop = (start + offset for offset in entry["data_offsets"])
        count = dtype.itemsize
        for n in shape:
            count *= n
        if begin != end or stop - begin != count:
            raise damaged(path, f"{name} of {dtype} {shape} needs {count} bytes and has bytes {begin} to {stop}")
        end = stop
        entries[name] = Entry(name, dtype, shape, begin, count, _checksum(checksums.get(name)))
    if size < end:
        raise damaged(path, f"it is cut off at byte {size} of {end}")
    if size > end:
        raise damaged(path, f"{size - end} bytes follow the last tensor")
    return entries


def _type(path, name: str, entry: dict, wide: str | None) -> tuple[dtypes.DType, tuple[int, ...]]:
    """The dtype and shape of an entry. wide: what it is by our own word, where the format has no name for it."""
    code, shape = entry["dtype"], entry["shape"]
    if not isinstance(shape, list):
        raise TypeError(f"{name} has the shape {shape!r}")
    if len(shape) > _MOST_AXES:
        raise CheckpointError("load", f"{path}: {name} has {len(shape)} axes; at most {_MOST_AXES} are supported")
    room = 1
    for n in shape:
        room *= max(_count(n), 1)
    if room >= 2**63 // 16:
        raise ValueError(f"{name} has axes of {shape}, more than there can be")
    if wide is not None:
        if (wide, code, shape[-1:]) != ("complex128", "F64", [2]):
            raise ValueError(f"{name} is {wide!r} of {code} {shape}")
        return dtypes.complex128, tuple(shape[:-1])
    if not isinstance(code, str) or code not in _NAMES:
        raise CheckpointError("load", f"{path}: {name} is of type {code!r}, which is not supported")
    return dtypes.by_name(_NAMES[code]), tuple(shape)


def _count(n) -> int:
    """n, an integer as sizes and places in a file are."""
    if type(n) is not int or not 0 <= n < 2**63:
        raise ValueError(f"{str(n)[:40]!r} where a number of elements or bytes belongs")
    return n


def _checksum(crc: str | None) -> int | None:
    if crc is not None and not re.fullmatch("[0-9a-f]{8}", crc):
        raise ValueError(f"{crc!r} is no checksum")
    return None if crc is None else int(crc, 16)


def check(path, entries: list[Entry], checksums: list[int]):
    """Compares checksums of what was read with those of the header."""
    for entry, crc in zip(entries, checksums, strict=True):
        if entry.crc is not None and entry.crc != crc:
            raise damaged(path, f"the checksum of {entry.name} is {crc:08x} where {entry.crc:08x} was saved")
