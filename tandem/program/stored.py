"""Programs on disk: a second process finds what the first one compiled, without tracing, passes or code generation.

A program is kept as the calls of PlanBuilder that wrote it down, with kernels by their keys. It is found by what went into it: of
captured calls, which plans were called with which operands, the fixed sizes of the inputs, what comes out; of a graph, the graph.
Lines of the user's program are no part: an instruction refers to the number of the call that it comes from, or of the place where a
node of the graph comes from, so that errors name today's line.
"""

from __future__ import annotations

import functools
import marshal
import os
import sys
from _blake2 import blake2b  # without hashlib, which loads OpenSSL

from tandem import _runtime
from tandem.codegen.compile import stored_address
from tandem.codegen.loops import RENDERED, Kernel
from tandem.graph.ir import Origin
from tandem.machine import disk_cache, tune
from tandem.program.request import Request
from tandem.switches import CUSOLVER, DEBUG, PRINT, SKIP, WGMMA, cache_dir

FORMAT = b"tandem program 5\n"  # change the number when what is in a file changes its meaning


# -- what went into a program


@functools.cache
def fingerprint() -> str:
    """What this installation's compiler is: every file that can change a program."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parts = [sys.version, _runtime.cpu_id(), RENDERED, str(os.stat(_runtime.__file__).st_mtime_ns)]
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(files):
            if name.endswith((".py", ".so")):
                status = os.stat(os.path.join(folder, name))
                parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _arch(device: int) -> tuple[int, int, int]:
    """What kernels are compiled for: the compute capability, and the number of multiprocessors."""
    _, major, minor, multiprocessors, _ = _runtime.cuda_properties(device)
    return major, minor, multiprocessors


def key_of(devices: tuple[int, ...], described) -> str:
    """The key of a program that is made from what is described. "": it is not kept."""
    if not cache_dir() or DEBUG >= 2 or PRINT:
        return ""
    targets = [(device, _arch(device - 1), WGMMA.value, CUSOLVER.value) if device else None for device in devices]
    return blake2b(repr((fingerprint(), SKIP.value, targets, described)).encode(), digest_size=20).hexdigest()


# -- writing and reading


class Recorder:
    """A PlanBuilder that also notes its calls down."""

    def __init__(self, number=None):
        self.builder = _runtime.PlanBuilder()
        self.number = number  # of an Origin; None: this process alone knows of it
        self.calls: list | None = []  # None once something came that cannot be kept

    def origin(self, origin: Origin):
        write_origin(self.builder, origin)
        number = self.number and self.number(origin)
        self._note(*(("no_origin", ()) if number is None else ("origin", (number,))))

    def _note(self, name: str, args: tuple):
        if self.calls is None:
            return
        try:
            self.calls.append((name, tuple(_pack(a) for a in args)))
        except TypeError:
            self.calls = None

    def __getattr__(self, name: str):
        method = getattr(self.builder, name)

        def call(*args):
            result = method(*(a.builder if type(a) is Recorder else a for a in args))
            self._note(name, args)
            return result

        self.__dict__[name] = call
        return call


_PLAIN = frozenset((int, float, str, bool, type(None)))
_NUMBERS = frozenset((int, float))


def _pack(a):
    kind = type(a)
    if kind in _PLAIN or (kind is list and _NUMBERS.issuperset(map(type, a))):
        return a
    if kind is Kernel:
        return ("kernel", a.key, a.name)
    if kind.__module__.startswith("tandem.codegen.cuda"):
        from tandem.codegen.cuda.compile import describe_kernel

        return ("cuda", *describe_kernel(a))
    if kind is Recorder and a.calls is not None:
        return ("plan", a.calls)
    raise TypeError(f"{type(a).__name__} cannot be kept")


class StoredKernel:
    """A kernel of which only the object code is left."""

    def __init__(self, key: str, name: str):
        self.key = key
        self.name = name

    def address(self) -> int:
        return stored_address(self.key)


# What a Recorder notes of the writing of a program, and nothing else, is done again. First arguments that are no plain values:
_CALLS = frozenset((
    "slot", "bind", "int_op", "guard", "value", "no_origin", "begin_writes", "kernel", "library", "epilogue", "factors", "update",
    "part", "region", "block_kernels", "free", "output", "on_host", "parts", "writes", "set_program", "lay_out", "set_device",
    "set_name", "set_returns_tuple", "set_rng_advance", "set_over_devices", "place", "transfer", "run_part",
))  # fmt: skip
_SPECIAL = {"kernel": ("kernel", "cuda"), "epilogue": ("kernel", "cuda"), "update": ("kernel",), "part": ("plan",)}


def _replay(packed, request: Request):
    """A PlanBuilder with these calls made. Raises LookupError where the code of a kernel is gone, ValueError for other calls."""
    builder = _runtime.PlanBuilder()
    device = 0
    for name, args in packed:
        if name == "set_device":
            (device,) = args
        if name == "origin":
            origin = request.origin(args[0])
            if origin is not None:
                write_origin(builder, origin)
            continue
        if name not in _CALLS:
            raise ValueError(f"a program does not call {name!r}")
        if name in _SPECIAL:
            first, *args = args
            if type(first) is not tuple or first[0] not in _SPECIAL[name]:
                raise ValueError(f"{name} of {first!r}")
            getattr(builder, name)(_unpack(first, request, device), *args)
        else:
            getattr(builder, name)(*args)
    return builder


def _unpack(a: tuple, request: Request, device: int):
    if a[0] == "plan":
        return _replay(a[1], request)
    if a[0] == "cuda":
        from tandem.codegen.cuda.compile import StoredCudaKernel

        return StoredCudaKernel(device - 1, *a[1:])
    kernel = StoredKernel(a[1], a[2])
    kernel.address()
    return kernel


def write_origin(builder, origin: Origin):
    source = origin.source
    call = -1 if origin.call is None else origin.call
    builder.origin(origin.op, source.file, source.function, source.line, call, origin.place)


def save(request: Request, recorder: Recorder, written, facts: dict) -> None:
    """Keeps a program, with what its writer gave and facts about it: numbers and text."""
    if request.key and recorder.calls is not None:
        disk_cache.write(_path(request.key), FORMAT, marshal.dumps((facts, written, recorder.calls)))


def load(request: Request):
    """(builder, what the writer gave, facts) of a program that was kept and accepts these arguments, or None."""
    content = request.key and disk_cache.read(_path(request.key), FORMAT)
    if not content:
        return None
    try:
        facts, written, packed = marshal.loads(content)
        tune.open_choices()
        builder = _replay(packed, request)
        return (builder, written, facts) if isinstance(facts, dict) and builder.accepts(request.spec) else None
    except (LookupError, ValueError, EOFError, TypeError, AttributeError, OverflowError, RuntimeError):
        return None  # kernels gone, or not what this version expects


def _path(key: str) -> str:
    return os.path.join(cache_dir(), "programs", key + ".p")
