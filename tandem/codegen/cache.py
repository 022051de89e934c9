"""Compiled kernels, kept in the process and on disk: load(key, compile, entry) gives a function's address.

What came with the package (prebuilt.py) is found before what is on disk: that is as quick, and most kernels need no file then.

A file (tandem/machine/disk_cache.py) holds one object, named after the hash of its key, the CPU and the format of this file.
Where the directory cannot be used, kernels live in the process only. LLVM is not needed to load.
"""

from __future__ import annotations

import os
import threading
from _blake2 import blake2b  # without hashlib, which loads OpenSSL
from collections.abc import Callable

from tandem import _runtime
from tandem.machine import prebuilt
from tandem.machine.disk_cache import read, write
from tandem.switches import cache_dir

FORMAT = b"tandem kernel 2\n"  # change the number when what is in a file changes its meaning

ready: dict[str, bytes] = {}  # object code that workers made (workers.py), by key, until it is loaded
_loaded: dict[tuple[str, str], int] = {}
_busy: dict[tuple[str, str], threading.Lock] = {}  # one thread compiles a kernel, the others wait for it
os.register_at_fork(after_in_child=_busy.clear)


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
