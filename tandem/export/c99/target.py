"""What exported C is lowered for: a target like C99, but with no library behind it and with nothing known of the processor."""

from __future__ import annotations

import functools

from tandem.codegen.c.target import CTarget
from tandem.codegen.costs import CpuCosts
from tandem.codegen.rules import RuleTable


class ExportTarget(CTarget):
    kind = "c"
    rules = RuleTable()  # reductions stay generated loops

    @functools.cached_property
    def costs(self) -> CpuCosts:
        return CpuCosts()

    def library_steps(self, fusion, step) -> list:
        return [step]


TARGET = ExportTarget()
