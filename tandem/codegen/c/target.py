"""Portable C99 as what kernels are made for: the loop nests of the CPU, as text that any C compiler takes.

Library calls stay those of the CPU's library. Nothing runs kernels of this target by itself: tests compile them with the system's
compiler, and exported programs come with them.
"""

from __future__ import annotations

from tandem.codegen.c.render import render
from tandem.codegen.cpu.target import CpuTarget


class CTarget(CpuTarget):
    joins_products = False  # blocks of products are handed to machine code of this host

    def rows_at_once(self, group) -> int:
        return 1  # a compiler of C decides by itself what it makes vectors of

    def source_of(self, kernel) -> str:
        return render(kernel)

    def begin(self, steps: list, alone: bool = False):
        pass


C99 = CTarget()
