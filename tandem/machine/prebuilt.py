"""Kernels that were compiled when the package was built: one file beside the extension for each level of processors.

tools/prebuild.py writes it. find(key) looks a kernel up by the key that cache.py has; whatever is wrong with the file (missing,
of another format, cut short, damaged) only means that kernels are not found. It is read in pieces rather than mapped: a file that
somebody cuts short while we run must not end the process. A look takes two reads, of one bucket of the index and of one kernel.

The file: a head (MAGIC, version of the renderer, number of kernels, length of the dictionary, and for each first byte of a name how
many names lie below), a dictionary for zlib, the index, the kernels. An entry of the index is a name, a checksum, and where the
kernel lies.
"""

from __future__ import annotations

import contextlib
import os
import struct
from _blake2 import blake2b  # without hashlib, which loads OpenSSL

from tandem import _runtime
from tandem.machine.preload import prebuilt_path
from tandem.switches import PREBUILT

MAGIC = b"tandem prebuilt 1\n".ljust(24, b"\0")  # change the number when what is in a file changes its meaning
HEAD = struct.Struct("<24s8sII256I")
ENTRY = struct.Struct("<16s8sII")
NAME_SIZE = 16


def name_of(key: str, level: str) -> bytes:
    return blake2b(f"{level} {key}".encode(), digest_size=NAME_SIZE).digest()


def checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).digest()


def pack(kernels: dict[str, bytes], level: str, dictionary: bytes, rendered: str = "") -> bytes:
    """The content of a file with these kernels, by key."""
    import zlib
    from bisect import bisect_left

    named = sorted((name_of(key, level), code) for key, code in kernels.items())
    below = [bisect_left(named, (bytes([first]),)) for first in range(256)]
    entries, packed = [], []
    offset = HEAD.size + len(dictionary) + ENTRY.size * len(named)
    for name, code in named:
        writer = zlib.compressobj(9, zdict=dictionary)
        content = writer.compress(code) + writer.flush()
        entries.append(ENTRY.pack(name, checksum(content), offset, len(content)))
        packed.append(content)
        offset += len(content)
    head = HEAD.pack(MAGIC, rendered.encode(), len(named), len(dictionary), *below)
    return b"".join((head, dictionary, *entries, *packed))


class File:
    """One file, open."""

    def __init__(self, path: str, level: str):
        """Raises OSError or ValueError where it cannot be used."""
        self.level = level
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        head = self._read(0, HEAD.size)
        magic, rendered, self.count, length, *below = HEAD.unpack(head)
        if magic != MAGIC:
            raise ValueError(f"{path} is of another format")
        self.rendered = rendered.rstrip(b"\0")  # the RENDERED of codegen/loops.py that it was made with
        self.below = [*below, self.count]
        self.dictionary = self._read(HEAD.size, length)
        self.index = HEAD.size + length

    def _read(self, offset: int, size: int) -> bytes:
        content = os.pread(self.descriptor, size, offset)
        if len(content) != size:
            raise ValueError("the file is too short")
        return content

    def _entry(self, key: str) -> tuple[bytes, int, int] | None:
        """(checksum, offset, size) of a kernel."""
        name = name_of(key, self.level)
        first, last = self.below[name[0]], self.below[name[0] + 1]
        if not 0 <= first < last <= self.count:
            return None
        bucket = self._read(self.index + first * ENTRY.size, (last - first) * ENTRY.size)
        at = bucket.find(name)
        while at % ENTRY.size and at > 0:  # the same bytes across two fields
            at = bucket.find(name, at + 1)
        return None if at < 0 else ENTRY.unpack_from(bucket, at)[1:]

    def holds(self, key: str) -> bool:
        try:
            return self._entry(key) is not None
        except (OSError, ValueError):
            return False

    def find(self, key: str) -> bytes | None:
        """The object code of a kernel, or None."""
        try:
            entry = self._entry(key)
            if entry is None:
                return None
            check, offset, size = entry
            content = self._read(offset, size)
        except (OSError, ValueError):
            return None
        if checksum(content) != check:
            return None
        import zlib  # when needed: it is a library of its own

        try:
            return zlib.decompressobj(zdict=self.dictionary).decompress(content)
        except zlib.error:
            return None

    def __del__(self):
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


_files: dict[str, File | None] = {}  # by folder


def file() -> File | None:
    """The file for this processor, or None."""
    folder = PREBUILT.value
    if folder in _files:
        return _files[folder]
    found = None
    path = prebuilt_path()
    if path:
        with contextlib.suppress(OSError, ValueError):
            found = File(path, _runtime.cpu_level())
    _files[folder] = found
    return found


def call_key(function, spec: list) -> str:
    """What stands in the file, among the kernels, for a call whose kernels are all there: what a plan depends on."""
    parts = [function.__name__]
    for item in spec:
        if item.kind == "tensor":
            ones = "".join("1" if n == 1 else "n" if s else "0" for n, s in zip(item.shape, item.strides, strict=True))
            parts.append(f"{item.dtype} {ones} {item.layout} {item.order} {[item.requires_grad, item.device]}")
        else:
            parts.append(f"{item.kind} {item.value!r}" if item.kind == "static" else item.kind)
    return "call " + "; ".join(parts)


def find(key: str) -> bytes | None:
    """The object code of a kernel that came with the package, or None."""
    opened = file()
    return opened and opened.find(key)


def holds(key: str) -> bool:
    opened = file()
    return opened is not None and opened.holds(key)
