"""From a kernel to the address of machine code for this host."""

from __future__ import annotations

import contextlib
import functools
import os
import time

from tandem import forks
from tandem.codegen import cache
from tandem.codegen.cache import ready
from tandem.codegen.loops import RENDERED
from tandem.forks import compiling
from tandem.llvm import assemble
from tandem.machine.preload import load_compiler
from tandem.switches import DEBUG

_addresses: dict[str, int] = {}
_lock = forks.lock()


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Feature flags of this host's CPU as the system names them. Of an emulated one, what all of its kind have."""
    x86 = os.uname().machine in ("x86_64", "i686")
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as f:  # of the real processor, where this one is emulated
        for line in f:
            name, _, value = line.partition(":")
            if name.strip() == ("flags" if x86 else "Features"):
                return frozenset(value.split())
    return frozenset() if x86 else frozenset({"fp", "asimd"})


@functools.cache
def vector_bytes() -> int:
    flags = cpu_flags()
    return 64 if "avx512bw" in flags else 32 if "avx2" in flags else 16


def address(kernel) -> int:
    found = _addresses.get(kernel.key)
    if found is None:
        with compiling(), _lock:
            found = _addresses.get(kernel.key)
            if found is None:
                key = f"{kernel.key}-{RENDERED}"  # the cache adds the CPU
                made = []
                found = cache.load(key, lambda: made.append(kernel) or compile_object(kernel), "kernel")
                _addresses[kernel.key] = found
                if DEBUG >= 4 and not made:
                    print(f"tandem: kernel {kernel.name}: compiled before, and found in the cache; it is made of this")
                    text_of(kernel)
    return found


def stored_address(key: str) -> int:
    """Address of a kernel that was compiled before, by its key alone. LookupError if its code is gone."""

    def gone():
        raise LookupError(key)

    found = _addresses.get(key)
    if found is None:
        with compiling(), _lock:
            found = _addresses[key] = cache.load(f"{key}-{RENDERED}", gone, "kernel")
    return found


def text_of(kernel, level=None) -> str:
    """The kernel as LLVM IR, for this host or for a Level (levels.py)."""
    from tandem.codegen.llvm.render import render

    if level is None:
        text = render(kernel, vector_bytes(), cpu_flags())
    else:
        text = render(kernel, level.vector_bytes, level.flags)
    if DEBUG >= 4:
        print(f"tandem: kernel {kernel.name}\n{kernel}\n{text}")
    return text


def object_of(text: str, level=None) -> bytes:
    return assemble.object_code(text, assemble.keeps_lsr(), level.cpu if level else "")


def is_known(kernel) -> bool:
    """Whether the kernel is compiled already: loaded, or on disk."""
    if kernel.key in _addresses:
        return True
    return cache.is_stored(f"{kernel.key}-{RENDERED}")


def compile_object(kernel) -> bytes:
    """Position-independent object code; the function's symbol is `kernel`."""
    started = time.perf_counter()
    made = ready.pop(kernel.key, None)
    beside = made is not None
    if not beside:
        load_compiler()  # beside rendering, if that has not begun
    code = made if beside else object_of(text_of(kernel))
    if DEBUG >= 2:
        how = "beside" if beside else f"in {(time.perf_counter() - started) * 1e3:.1f} ms"
        print(f"tandem: kernel {kernel.name}: {len(code)} bytes, compiled {how}")
    return code


def assembly(kernel) -> str:
    """What the kernel compiles to, for people."""
    return assemble.assembly(text_of(kernel), assemble.keeps_lsr())
