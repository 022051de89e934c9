"""Programs as files that run without Python: the compiled plan of a function, its machine code and its weights.

Note [Plan files] in src/plan/plan_file.h has the format; `PlanFile` there loads and runs one, in a process that links the runtime's
core and nothing of Python.
"""

from __future__ import annotations

import struct

from tandem import _runtime, files
from tandem.codegen.compile import compile_object
from tandem.codegen.loops import Kernel
from tandem.codegen.schedule import kernels_of
from tandem.errors import UnsupportedError
from tandem.export.trace import Exported, to_numpy, trace
from tandem.graph.ir import Value
from tandem.program.driver import make
from tandem.program.request import Options, Request, Source
from tandem.program.stored import Recorder
from tandem.program.write import ProgramWriter

FORMAT = b"tandem plan 1\n"  # src/plan/plan_file.cc reads it


def save_program(fn, args, path, *, dynamic=True):
    """Writes a function or module, compiled for this kind of processor, to a file that runs without Python.

    fn, args, dynamic: as of `td.export.save`. Tensors that a call brings must be dense and in row-major order.

    >>> td.export.save_program(td.nn.Linear(3, 2), td.ones(1, 3), "/tmp/linear.plan")
    """
    args = args if isinstance(args, (tuple, list)) else (args,)
    exported = trace(fn, tuple(args), dynamic)
    calls, kernels = _compile(exported)
    numbers = {key: i for i, key in enumerate(kernels)}
    content = [FORMAT, _u32(len(kernels))]
    for kernel in kernels.values():
        code = compile_object(kernel)
        content += [struct.pack("<Q", len(code)), code]
    content.append(_u32(len(exported.weights)))
    content += [_constant(t) for t in exported.weights.values()]
    arguments = exported.graph.inputs[: len(exported.arguments)]
    content += [_u32(len(arguments)), *(_input(v) for v in arguments), _calls(calls, numbers)]
    files.write(path, b"".join(content))


def _compile(exported: Exported) -> tuple[list, dict[str, Kernel]]:
    """The calls that write the plan down, and its kernels by their keys."""
    graph = exported.graph

    def build() -> Source:
        return Source(graph, [None] * len(graph.inputs), range(len(graph.inputs)))

    def write(source: Source, schedule, builder):
        ProgramWriter(request, source, schedule, builder).write()

    request = Request("program", build, 0, write, [], Options(whole=True, own_results=0, fresh=True))
    source, schedule = make(request, None, {}, {})
    recorder = Recorder()
    request.write(source, schedule, recorder)
    if recorder.calls is None:
        raise UnsupportedError("export", "the program has something inside that no file can hold")
    return recorder.calls, {kernel.key: kernel for kernel in kernels_of(schedule)}


def _u32(n: int) -> bytes:
    return struct.pack("<I", n)


def _constant(t: _runtime.Tensor) -> bytes:
    array = to_numpy(t)
    return struct.pack(f"<BB{array.ndim}q", t.dtype.code, array.ndim, *array.shape) + array.tobytes()


def _input(v: Value) -> bytes:
    return struct.pack(f"<BB{v.ndim}q", v.dtype.code, v.ndim, *(n if isinstance(n, int) else -1 for n in v.shape))


def _calls(calls: list, kernels: dict[str, int]) -> bytes:
    made = [_u32(len(calls))]
    for name, args in calls:
        made.append(struct.pack("<B", len(name)) + name.encode() + struct.pack("<B", len(args)))
        made += [_argument(a, kernels) for a in args]
    return b"".join(made)


def _argument(a, kernels: dict[str, int]) -> bytes:
    if isinstance(a, (bool, int)):
        return b"i" + struct.pack("<q", a)
    if isinstance(a, float):
        return b"d" + struct.pack("<d", a)
    if isinstance(a, str):
        return b"s" + _u32(len(a.encode())) + a.encode()
    if isinstance(a, list):
        kind, letter = (b"D", "d") if any(isinstance(x, float) for x in a) else (b"I", "q")
        return kind + _u32(len(a)) + struct.pack(f"<{len(a)}{letter}", *a)
    tag, *rest = a
    if tag == "kernel":
        return b"K" + _u32(kernels[rest[0]])
    return b"P" + _calls(rest[0], kernels)
