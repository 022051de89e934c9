"""NVRTC: CUDA C to machine code, in this process. Needs no device."""

from __future__ import annotations

import ctypes
import functools

from tandem import forks
from tandem.codegen.cuda import assemble
from tandem.codegen.cuda.libraries import open_library
from tandem.errors import DeviceError, InternalError

_lock = forks.lock()
_opened: ctypes.CDLL | None = None


def is_open() -> bool:
    return _opened is not None


def _library() -> ctypes.CDLL:
    global _opened
    if _opened is None:
        with _lock:
            if _opened is None:
                _opened = open_library("nvrtc", "nvidia-cuda-nvrtc")
    return _opened


@functools.cache
def version() -> tuple[int, int]:
    return _asked(assemble.version)


@functools.cache
def architectures() -> tuple[int, ...]:
    """Compute capabilities, such as 90, that code can be made for."""
    return _asked(assemble.architectures)


def _asked(function, *arguments):
    try:
        return function(_library(), *arguments)
    except assemble.NvrtcError as error:
        raise DeviceError(None, str(error)) from None


def compile_source(source: str, capability: int, name: str = "kernel", exact: bool = False) -> bytes:
    """Machine code (cubin) of a source for a compute capability, such as 90. Other threads may run meanwhile.

    exact: with the instructions that only devices of this very capability have."""
    supported = architectures()
    if capability not in supported:
        raise DeviceError(
            None,
            f"NVRTC {'.'.join(map(str, version()))} makes no code for compute capability {capability / 10}; "
            f"it knows {', '.join(str(a / 10) for a in supported)}",
            fix="install a version of nvidia-cuda-nvrtc that fits the device",
        )
    try:
        return _asked(assemble.machine_code, source, capability, name, exact)
    except assemble.DoesNotCompile as error:
        raise InternalError(name, f"a generated kernel does not compile:\n{error}\n{_numbered(source)}") from None


def _numbered(source: str) -> str:
    start = source.find("struct Arguments")
    first = source[:start].count("\n") + 1
    return "\n".join(f"{first + i:4} {line}" for i, line in enumerate(source[start:].splitlines()))
