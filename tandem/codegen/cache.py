"""Compiled kernels, kept in the process and on disk: load(key, compile, entry) gives a function's address; and files like theirs.

What came with the package (prebuilt.py) is found before what is on disk: that is as quick, and most kernels need no file then.

A file holds one object, named after the hash of its key, the CPU and the format of this file. It is written beside its
place and renamed into it, so processes may share the directory, and starts with a checksum of its name and of what it holds, so one
that is damaged, or came under another's name, is compiled again. Where the directory cannot be used, kernels live in the process
only. LLVM is not needed to load.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from _blake2 import blake2b  # without hashlib, which loads OpenSSL
from collections.abc import Callable

from tandem import _runtime, prebuilt
from tandem.switches import CACHE_MB, cache_dir

FORMAT = b"tandem kernel 2\n"  # change the number when what is in a file changes its meaning
CHECKSUM_SIZE = 16
DAY = 24 * 3600.0

_loaded: dict[tuple[str, str], int] = {}
_busy: dict[tuple[str, str], threading.Lock] = {}  # one thread compiles a kernel, the others wait for it
os.register_at_fork(after_in_child=_busy.clear)
_stored = 0  # bytes written since the directory was last looked over
_trimmed_here: set[str] = set()


def load(key: str, compile: Callable[[], bytes], entry: str) -> int:
    """Address of function `entry` of the object that `compile` makes. `key` must tell apart all that differ."""
    address = _loaded.get((key, entry))
    if address is not None:
        return address
    with _busy.setdefault((key, entry), threading.Lock()):
        address = _loaded.get((key, entry))
        if address is None:
            address = _load(prebuilt.find(key), entry) or _load(_from_disk(key), entry)
            address = _loaded[key, entry] = address or _compile(key, compile, entry)
        _busy.pop((key, entry), None)
    return address


def is_stored(key: str) -> bool:
    """Whether load() will find it without compiling, as far as a look can tell."""
    if prebuilt.holds(key):
        return True
    path = _path(key)
    return path is not None and os.path.exists(path)


def _from_disk(key: str) -> bytes | None:
    path = _path(key)
    return read(path, FORMAT) if path else None


def _load(object_code: bytes | None, entry: str) -> int | None:
    if not object_code:
        return None
    try:
        return _address(object_code, entry)
    except (ValueError, RuntimeError):  # well kept, but not what this version expects
        return None


def _compile(key: str, compile: Callable[[], bytes], entry: str) -> int:
    object_code = compile()
    address = _address(object_code, entry)  # first: what cannot be loaded must not be kept
    path = _path(key)
    if path:
        write(path, FORMAT, object_code)
    return address


def _path(key: str) -> str | None:
    directory = cache_dir()
    if not directory:
        return None
    name = blake2b(FORMAT, digest_size=20)
    for part in (_runtime.cpu_id(), key):
        name.update(len(part).to_bytes(8, "little") + part.encode())
    return os.path.join(directory, "kernels", name.hexdigest() + ".o")


def _checksum(path: str, content: bytes) -> bytes:
    """Of a file's name too: names say what a file is for, and machine code for something else would be called in its place."""
    checksum = blake2b(os.path.basename(path).encode(errors="surrogateescape") + b"\n", digest_size=CHECKSUM_SIZE)
    checksum.update(content)
    return checksum.digest()


def read(path: str, format: bytes) -> bytes | None:
    """What a whole and undamaged file of this format holds, or None. One that was written under another name is damaged."""
    try:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
            age = time.time() - os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    start = len(format) + CHECKSUM_SIZE
    held = content[start:]
    if content[:start] != format + _checksum(path, held):
        return None
    if age > DAY:  # the time of last use, for trimming; not on every use, and access times are often switched off
        with contextlib.suppress(OSError):
            os.utime(path)
    return held


def write(path: str, format: bytes, content: bytes) -> None:
    """Writes a file in one go, and removes old ones beside it if together they are too large. A full disk is no error."""
    global _stored
    directory = os.path.dirname(path)
    with contextlib.suppress(OSError):
        os.makedirs(directory, exist_ok=True)
        temporary = f"{path}.{os.getpid()}-{threading.get_ident()}.tmp"
        handle = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(format + _checksum(path, content) + content)
            os.replace(temporary, path)
        except OSError:  # such as a full disk
            os.unlink(temporary)
            return
        _stored += len(content)
        # Looking at thousands of files takes a while: once per process, and after every 5% of the limit.
        if directory not in _trimmed_here or _stored > CACHE_MB.value * 2**20 // 20:
            _trimmed_here.add(directory)
            _stored = 0
            trim(directory, CACHE_MB.value * 2**20)


def trim(directory: str, limit: int) -> None:
    """Remove what was not used for longest until nine tenths of `limit` bytes remain, and leftovers of dead writers."""
    entries = []
    with os.scandir(directory) as files:
        for file in files:
            with contextlib.suppress(OSError):  # another process may be trimming too
                status = file.stat()
                if file.name.endswith((".o", ".p")):
                    entries.append((max(status.st_mtime, status.st_atime), status.st_size, file.path))
                elif file.name.endswith(".tmp") and time.time() - status.st_mtime > DAY:
                    os.unlink(file.path)
    total = sum(size for _, size, _ in entries)
    if total <= limit:
        return
    for _, size, path in sorted(entries):
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= limit * 9 // 10:
            return


_engines = []  # own the code that LLVM loaded


def _address(object_code: bytes, entry: str) -> int:
    if object_code.startswith(b"\x7fELF"):
        return _runtime.load_object(object_code, entry)
    # Mach-O and others: LLVM's own loader.
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    for name, address in _runtime.own_symbols().items():
        llvm.add_symbol(name, address)
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(object_code))
    engine.finalize_object()
    address = engine.get_function_address(entry)
    if not address:
        raise ValueError(f"object code cannot be loaded: it has no function '{entry}'")
    _engines.append(engine)
    return address
