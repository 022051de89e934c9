"""NVRTC: CUDA C to machine code, in this process. Needs no device."""

from __future__ import annotations

import ctypes
import functools
import threading

from tandem.cuda.libraries import open_library
from tandem.errors import DeviceError, InternalError

_lock = threading.Lock()
_opened: ctypes.CDLL | None = None


def _library() -> ctypes.CDLL:
    global _opened
    if _opened is None:
        with _lock:
            if _opened is None:
                _opened = open_library("nvrtc", "nvidia-cuda-nvrtc")
    return _opened


@functools.cache
def version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


@functools.cache
def architectures() -> tuple[int, ...]:
    """Compute capabilities, such as 90, that code can be made for."""
    count = ctypes.c_int()
    _check(_library().nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    values = (ctypes.c_int * count.value)()
    _check(_library().nvrtcGetSupportedArchs(values), "nvrtcGetSupportedArchs")
    return tuple(values)


def _check(status: int, what: str):
    if status:
        _library().nvrtcGetErrorString.restype = ctypes.c_char_p
        raise DeviceError(None, f"{what}: {_library().nvrtcGetErrorString(status).decode()}")


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
    library = _library()
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None),
        "nvrtcCreateProgram",
    )
    try:
        options = [
            f"--gpu-architecture=sm_{capability}{'a' if exact else ''}",
            "--std=c++17",
            "--fmad=false",
            "--disable-warnings",
        ]
        array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        status = library.nvrtcCompileProgram(program, len(options), array)
        if status:
            raise InternalError(name, f"a generated kernel does not compile:\n{_log(program)}\n{_numbered(source)}")
        size = ctypes.c_size_t()
        _check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
        image = ctypes.create_string_buffer(size.value)
        _check(library.nvrtcGetCUBIN(program, image), "nvrtcGetCUBIN")
        return image.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _log(program) -> str:
    size = ctypes.c_size_t()
    _library().nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    _library().nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace")


def _numbered(source: str) -> str:
    start = source.find("struct Arguments")
    first = source[:start].count("\n") + 1
    return "\n".join(f"{first + i:4} {line}" for i, line in enumerate(source[start:].splitlines()))
