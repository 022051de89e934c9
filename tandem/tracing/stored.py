"""Programs on disk: a second process finds what the first one compiled, without tracing, passes or code generation.

A program is kept as the calls of PlanBuilder that wrote it down, with kernels by their keys. It is found by what went into it:
which plans were called with which operands, the fixed sizes of the inputs, what comes out. Lines of the user's program are no part:
an instruction refers to the number of the call that it comes from, so that errors name today's line.
"""

from __future__ import annotations

import functools
import marshal
import os
import sys
from _blake2 import blake2b  # without hashlib, which loads OpenSSL

from tandem import _runtime, dtypes
from tandem.codegen import cache
from tandem.codegen.loops import RENDERED, Kernel
from tandem.graph.ir import Origin
from tandem.switches import CUSOLVER, DEBUG, PRINT, SKIP, WGMMA, cache_dir

FORMAT = b"tandem program 3\n"  # change the number when what is in a file changes its meaning


# -- what a plan was made from

_NUMBERS = ("float", "integer", "bool", "seed", "offset")  # inputs of a plan: their values make no difference


def digest_of(function, spec) -> str | None:
    """A text that tells apart all plans; None if we cannot tell what a function does (one that is not ours, or made on the fly)."""
    base = getattr(function, "digest", "")
    if base == "":
        fn = function.__wrapped__.__wrapped__
        ours = fn.__module__.startswith("tandem.") and "<locals>" not in fn.__qualname__
        base = function.digest = f"{fn.__module__}.{fn.__qualname__}/{function.__name__}" if ours else None
    if base is None:
        return None
    text = repr([item[:1] if item[0] in _NUMBERS else item for item in spec])
    text += f" mode {_runtime.default_device()} {_runtime.autocast_mode()} {dtypes.default_float()}"
    if " at 0x" in text:  # an object without a text of its own
        return None
    return blake2b(f"{base} {text}".encode(), digest_size=16).hexdigest()


@functools.cache
def fingerprint() -> str:
    """What this installation's compiler is: every file that can change a program."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parts = [sys.version, _runtime.cpu_id(), RENDERED]
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(files):
            if name.endswith((".py", ".so")):
                status = os.stat(os.path.join(folder, name))
                parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def program_key(calls, leaves, numbers, ints, outputs, writes, budget) -> str | None:
    """`leaves`: per input its dtype, layout and sizes, None for those that the program computes with."""
    if not cache_dir() or DEBUG >= 2 or PRINT:
        return None
    described = []
    for plan, operands, temporaries, *_ in calls:
        digest = getattr(plan, "digest", None)
        if digest is None:
            return None
        described.append((digest, operands, temporaries))
    # Numbers that a program computes with differ from call to call; their kinds do not.
    device = calls[0][0].device
    target = (_runtime.cuda_properties(device - 1)[1:3], WGMMA.value, CUSOLVER.value) if device else None
    whole = (
        fingerprint(), SKIP.value, target, described, leaves, [kind for kind, *_ in numbers],
        ints, outputs, writes, budget,
    )  # fmt: skip
    return blake2b(repr(whole).encode(), digest_size=20).hexdigest()


# -- writing and reading


class Recorder:
    """A PlanBuilder that also notes its calls down."""

    def __init__(self):
        self.builder = _runtime.PlanBuilder()
        self.calls: list | None = []  # None once something came that cannot be kept

    def origin(self, origin: Origin):
        write_origin(self.builder, origin)
        # what comes from the body of a loop knows its line only as long as the body is there
        self._note(*(("no_origin", ()) if origin.call is None else ("origin", (origin.call,))))

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


def _pack(a):
    if type(a) is Kernel:
        return ("kernel", a.key, a.name)
    if type(a).__module__.startswith("tandem.codegen.cuda"):
        from tandem.codegen.cuda.compile import describe_kernel

        return ("cuda", *describe_kernel(a))
    if type(a) is Recorder and a.calls is not None:
        return ("plan", a.calls)
    if a is None or type(a) in (int, float, str, bool) or (type(a) is list and all(type(x) in (int, float) for x in a)):
        return a
    raise TypeError(f"{type(a).__name__} cannot be kept")


class StoredKernel:
    """A kernel of which only the object code is left."""

    def __init__(self, key: str, name: str):
        self.key = key
        self.name = name

    def address(self) -> int:
        from tandem.codegen.compile import stored_address

        return stored_address(self.key)


def _replay(packed, calls):
    """A PlanBuilder with these calls made. Raises LookupError where the code of a kernel is gone."""
    builder = _runtime.PlanBuilder()
    for name, args in packed:
        if name == "origin":
            plan, _, _, code, line, *_ = calls[args[0]]
            if code is not None:
                write_origin(builder, origin_of(args[0], plan, code, line))
            continue
        getattr(builder, name)(*(_unpack(a, calls) if type(a) is tuple else a for a in args))
    return builder


def _unpack(a: tuple, calls):
    if a[0] == "plan":
        return _replay(a[1], calls)
    if a[0] == "cuda":
        from tandem.codegen.cuda.compile import StoredCudaKernel

        return StoredCudaKernel(calls[0][0].device - 1, *a[1:])
    kernel = StoredKernel(a[1], a[2])
    kernel.address()
    return kernel


def origin_of(number: int, plan, code, line: int) -> Origin:
    from tandem.errors import source_at

    return Origin(plan.name, source_at(code, line), number)


def write_origin(builder, origin: Origin):
    source = origin.source
    builder.origin(origin.op, source.file, source.function, source.line, -1 if origin.call is None else origin.call)


def save(key: str | None, recorder: Recorder, facts: dict) -> None:
    """Keeps a program, with facts about it (numbers and text)."""
    if key is not None and recorder.calls is not None:
        cache.write(_path(key), FORMAT, marshal.dumps((facts, recorder.calls)))


def load(key: str | None, calls):
    """(builder, facts) of a program that was kept, or None."""
    content = key and cache.read(_path(key), FORMAT)
    if not content:
        return None
    try:
        facts, packed = marshal.loads(content)
        return _replay(packed, calls), facts
    except (
        LookupError,
        ValueError,
        EOFError,
        TypeError,
        AttributeError,
    ):  # kernels gone, or not what this version expects
        return None


def _path(key: str) -> str:
    return os.path.join(cache_dir(), "programs", key + ".p")
