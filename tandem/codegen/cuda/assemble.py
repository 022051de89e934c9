"""From CUDA C to machine code, by NVRTC. Also a program of its own, which does this for another process (codegen/cuda/workers.py).

    python assemble.py CAPABILITY PATH_OF_NVRTC...

opens the first library that is there, compiles something small, and from then on forks: for every socket that comes through
the one at stdin a process that has all of that, for which it would have needed a tenth of a second. Such a process writes its
number, reads requests and writes machine code, each with its length in four bytes before it; no bytes say that something failed. It
imports nothing of Tandem, so that it starts quickly.
"""

from __future__ import annotations

import ctypes
import os
import sys

SMALL = 'extern "C" __global__ void small(float* x) { x[threadIdx.x] = 1; }'


class NvrtcError(Exception):
    """A call of NVRTC failed."""


class DoesNotCompile(Exception):
    """NVRTC did not accept a source; its log."""


def version(library) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, "nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def architectures(library) -> tuple[int, ...]:
    """Compute capabilities, such as 90, that code can be made for."""
    count = ctypes.c_int()
    _check(library, "nvrtcGetNumSupportedArchs", ctypes.byref(count))
    values = (ctypes.c_int * count.value)()
    _check(library, "nvrtcGetSupportedArchs", values)
    return tuple(values)


def options(library, capability: int, exact: bool) -> list[str]:
    given = [
        f"--gpu-architecture=sm_{capability}{'a' if exact else ''}",
        "--std=c++17",
        "--fmad=false",
        "--disable-warnings",
    ]
    if version(library) >= (12, 4):  # without textures and launches from devices: a sixth less time, for the same code
        given.append("--minimal")
    return given


def machine_code(library, source: str, capability: int, name: str, exact: bool) -> bytes:
    """The cubin of a source. Raises DoesNotCompile or NvrtcError."""
    program = ctypes.c_void_p()
    place = ctypes.byref(program)
    _check(library, "nvrtcCreateProgram", place, source.encode(), f"{name}.cu".encode(), 0, None, None)
    try:
        given = options(library, capability, exact)
        array = (ctypes.c_char_p * len(given))(*[o.encode() for o in given])
        if library.nvrtcCompileProgram(program, len(given), array):
            raise DoesNotCompile(_log(library, program))
        size = ctypes.c_size_t()
        _check(library, "nvrtcGetCUBINSize", program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        _check(library, "nvrtcGetCUBIN", program, image)
        return image.raw
    finally:
        library.nvrtcDestroyProgram(place)


def _check(library, function: str, *arguments):
    status = getattr(library, function)(*arguments)
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise NvrtcError(f"{function}: {library.nvrtcGetErrorString(status).decode()}")


def _log(library, program) -> str:
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace")


# -- the program


def request(source: str, capability: int, name: str, exact: bool) -> bytes:
    text = f"{capability} {int(exact)} {name}\n{source}".encode()
    return len(text).to_bytes(4, "little") + text


def _answer(library, text: str) -> bytes:
    line, _, source = text.partition("\n")
    capability, exact, name = line.split(" ", 2)
    try:
        return machine_code(library, source, int(capability), name, exact == "1")
    except Exception:  # the other process tries it itself, and tells
        return b""


def _open(paths: list[str]):
    for path in paths:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _end_with_parent():
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: even in the middle of a kernel


def _serve(library, line: int):
    """In a process of its own, until nobody asks any more."""
    parent = os.getppid()
    _end_with_parent()
    if os.getppid() != parent:  # it has ended meanwhile
        return
    with open(line, "rb") as requests, open(line, "wb", closefd=False) as images:
        made = os.getpid().to_bytes(4, "little")
        while True:
            images.write(len(made).to_bytes(4, "little") + made)
            images.flush()
            header = requests.read(4)
            if len(header) < 4:
                return
            made = _answer(library, requests.read(int.from_bytes(header, "little")).decode())


def send_line(socket, line: int):
    """Has a process serve this one, which is the number of a socket."""
    import _socket

    socket.sendmsg([b"+"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, line.to_bytes(4, sys.byteorder))])


def receive_line(socket) -> int | None:
    import _socket

    said, sent, *_ = socket.recvmsg(1, _socket.CMSG_SPACE(4))
    rights = sent[0][2] if said and sent else b""
    return int.from_bytes(rights[:4], sys.byteorder) if len(rights) >= 4 else None


def _multiply(capability: str, paths: list[str]):
    import _socket  # what `socket` adds takes longer to import than it is worth here
    import signal

    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    library = _open(paths)
    if library is None:
        return
    _answer(library, f"{capability} 0 small\n{SMALL}")  # which brings in most of what the first kernel needs
    socket = _socket.socket(fileno=0)
    while (line := receive_line(socket)) is not None:
        try:
            child = os.fork()
        except OSError:  # no more processes: those that there are go on
            child = -1
        if child == 0:
            os.close(0)
            _serve(library, line)
            return
        os.close(line)


if __name__ == "__main__":
    try:
        _multiply(sys.argv[1], sys.argv[2:])
    finally:  # whatever happened, most likely that nobody reads any more
        os._exit(0)
