"""Levels of processors that kernels are compiled for ahead of time (tandem/machine/prebuilt.py).

Note [Levels]
A kernel is the same for all processors; its machine code is not. What is compiled when a program runs is for the very processor
that it runs on. What comes with the package is for a level: a set of instructions that all processors from some year on have.
A processor uses the code of one level only, _runtime.cpu_level(): the one that has its vector width and its multiply-add. A lower
level's would run there too, but slower, and its sums would be added up in another order than those of kernels compiled later:
results should not depend on which kernels somebody foresaw. So a processor between two levels uses none.
"""

from __future__ import annotations


class Level:
    """`name` is also LLVM's name of such a processor, but for `cpu`; `flags` are what the renderer asks about."""

    __slots__ = ("cpu", "flags", "name", "vector_bytes")

    def __init__(self, name: str, vector_bytes: int, flags: str, cpu: str | None = None):
        self.name = name
        self.cpu = cpu or name
        self.vector_bytes = vector_bytes
        self.flags = frozenset(flags.split())


_V2 = "pni ssse3 sse4_1 sse4_2 cx16 popcnt lahf_lm"
_V3 = _V2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
_V4 = _V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"

LEVELS = {
    level.name: level
    for level in (
        Level("x86-64-v2", 16, _V2),
        Level("x86-64-v3", 32, _V3),
        Level("x86-64-v4", 64, _V4),
        Level("aarch64", 16, "fp asimd", cpu="generic"),
    )
}
