"""Generated kernels as C functions of typed pointers, for sizes that are known."""

from __future__ import annotations

import operator

from tandem.codegen.c.ops import TYPE, Ops
from tandem.codegen.c.render import CRenderer, indented
from tandem.codegen.expr import Expr
from tandem.codegen.loops import Kernel

_KNOWN = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max,
    "idiv": operator.floordiv, "imod": operator.mod,
}  # fmt: skip


class KernelText(CRenderer):
    index = "int"

    def __init__(self, kernel: Kernel, ints: tuple, extent: int, ops: Ops):
        super().__init__(kernel)
        self.used = ops.used  # helpers of the whole program
        self.ints, self.extent = ints, extent

    def compute(self, e: Expr, scope) -> str:
        if e.op == "int":
            return str(self.ints[e.attr])
        if e.op in ("begin", "end"):
            return "0" if e.op == "begin" else str(self.extent)
        if e.op in _KNOWN and self.is_index(e):
            names = [self.value(x) for x in e.args]
            if all(n.lstrip("-").isdigit() for n in names):
                return str(_KNOWN[e.op](*map(int, names)))
        return super().compute(e, scope)

    def operation(self, e: Expr, names: list[str]) -> str:
        if e.op in ("idiv", "imod") and self.is_index(e):  # neither is negative
            return f"{names[0]} {'/' if e.op == 'idiv' else '%'} {names[1]}"
        return super().operation(e, names)

    def lines(self) -> list[str]:
        return indented(self.statements())

    def parameters(self, written: set[int], restrict: bool) -> list[str]:
        made = []
        for slot, dtype in enumerate(self.kernel.pointers):
            self.type(dtype)  # has its definition among the helpers
            const, sole = "" if slot in written else "const ", " restrict" if restrict else ""
            made.append(f"{const}{TYPE[dtype]}*{sole} p{slot}")
        return made
