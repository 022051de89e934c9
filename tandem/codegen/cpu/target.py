"""The CPU as what steps are made for."""

from __future__ import annotations

from tandem.codegen.columns import columns
from tandem.codegen.compile import text_of
from tandem.codegen.costs import few_reads
from tandem.codegen.cpu.compose import RULES
from tandem.codegen.elementwise import copy, elementwise
from tandem.codegen.repeat import repeat_part
from tandem.codegen.rows import rows
from tandem.codegen.schedule import kernels_in
from tandem.codegen.target import Target
from tandem.codegen.workers import note
from tandem.graph.ir import Value

_NESTS = {"elementwise": elementwise, "rows": rows, "columns": columns, "copy": copy}


class CpuTarget(Target):
    kind = "cpu"
    rules = RULES
    renders_philox = True
    joins_products = True
    joins_concats = True
    fails_first = True
    overwriting = "columns"
    keeps_derivatives = True
    recomputes = True

    def is_cheap(self, kept, value: Value, reads: int) -> bool:
        return few_reads(kept, value, reads)

    def nests(self) -> dict:
        return _NESTS

    def repeat_part(self, op, layouts, resolve):
        return repeat_part(op, layouts, resolve)

    def source_of(self, kernel) -> str:
        return text_of(kernel)

    def begin(self, steps: list, alone: bool = False):
        for step in steps:
            for kernel in kernels_in(step):
                note(kernel)


CPU = CpuTarget()
