"""Compiles functions of a scalar builder to kernels over whole arrays, for tests of what is in a kernel."""

import ctypes

import numpy as np

from tandem import dtypes
from tandem.codegen.compile import assembly
from tandem.codegen.expr import ScalarBuilder
from tandem.codegen.loops import Kernel, Loop, Store


def kernel_of(function, *types) -> Kernel:
    """A kernel that applies function(b, *scalars) to arrays element by element."""
    b = ScalarBuilder()
    i = b.make("var", (), dtypes.int64, 0)
    begin, end = b.make("begin", (), dtypes.int64), b.make("end", (), dtypes.int64)
    result = function(b, *[b.make("load", (i,), t, slot) for slot, t in enumerate(types)])
    body = [Store(len(types), i, result)]
    return Kernel("test", [*types, result.dtype], [], [], [Loop(0, begin, end, body, mode="vector")])


def run_kernel(kernel: Kernel, *arrays) -> np.ndarray:
    arrays = [np.ascontiguousarray(a) for a in arrays]
    out = np.empty(arrays[0].shape, kernel.pointers[-1].numpy)
    pointers = (ctypes.c_void_p * (len(arrays) + 1))(*[a.ctypes.data for a in [*arrays, out]])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.address())
    call(ctypes.addressof(pointers), None, 0, out.size)
    return out


def instructions(kernel: Kernel) -> list[str]:
    """The machine instructions of the kernel's main loop, the one that needs no masks."""
    lines = [line.split("#")[0].strip() for line in assembly(kernel).splitlines()]
    lines = [line for line in lines if line and (line.endswith(":") or not line.startswith("."))]
    places = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    loops = []
    for i, line in enumerate(lines):
        words = line.replace(",", " ").split()
        start = places.get(words[-1], i)
        if start < i and words[0][0] in "jbct":  # jl and its kin; b.lt, cbnz, tbnz
            loops.append([line for line in lines[start : i + 1] if not line.endswith(":")])
    unmasked = [loop for loop in loops if not any("mask" in line for line in loop)]
    return max(unmasked or loops, key=len)
