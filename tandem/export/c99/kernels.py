"""Generated kernels as C functions of typed pointers, for sizes that are known."""

from __future__ import annotations

import operator

from tandem.codegen.c.ops import TYPE, Ops
from tandem.codegen.c.render import CRenderer, indented
from tandem.codegen.expr import Expr
from tandem.codegen.loops import Kernel, Loop

_KNOWN = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max,
    "idiv": operator.floordiv, "imod": operator.mod,
}  # fmt: skip


_LARGEST = (1 << 31) - 1  # of an int


class KernelText(CRenderer):
    """Counters and offsets are ints. Integers that are made of counters may be data (`td.arange(4) * 10**10`), and are narrow only
    where their bounds are."""

    index = "int"

    def __init__(self, kernel: Kernel, ints: tuple, extent: int, ops: Ops):
        super().__init__(kernel)
        self.used = ops.used  # helpers of the whole program
        self.ints, self.extent = ints, extent
        self.range: dict = {}  # of loop variables: the smallest and the largest value
        self.bounds: dict[int, tuple[int, int] | None] = {}

    def is_index(self, e: Expr) -> bool:
        return super().is_index(e) and self.bound(e) is not None

    def bound(self, e: Expr) -> tuple[int, int] | None:
        """The smallest and the largest value of an index; None where it does not fit."""
        e = self.chase(e)
        if e.id not in self.bounds:
            found = self._bound(e)
            self.bounds[e.id] = found if found and -_LARGEST <= found[0] and found[1] <= _LARGEST else None
        return self.bounds[e.id]

    def _bound(self, e: Expr) -> tuple[int, int] | None:
        if e.op in ("const", "int"):
            return (e.attr, e.attr) if e.op == "const" else (self.ints[e.attr], self.ints[e.attr])
        if e.op in ("begin", "end"):
            return (0, 0) if e.op == "begin" else (self.extent, self.extent)
        if e.op == "var":
            return self.range.get(e.attr)
        inner = [self.bound(x) for x in e.args]
        if e.op not in _KNOWN or None in inner:
            return None
        (a, b), (c, d) = inner
        if e.op in ("idiv", "imod"):  # neither is negative
            return (0, b if e.op == "idiv" else min(b, max(d - 1, 0)))
        ends = [_KNOWN[e.op](x, y) for x in (a, b) for y in (c, d)]
        return min(ends), max(ends)

    def loop_serial(self, s: Loop, vector: bool = False):
        start, end = self.bound(s.start), self.bound(s.end)
        self.range[s.var] = (start[0], end[1]) if start and end else None
        super().loop_serial(s, vector)

    def loop_items(self, s: Loop):
        start, end = self.bound(s.start), self.bound(s.end)
        self.range[s.var] = (start[0], end[1]) if start and end else None
        for v, n in s.digits:
            size = self.bound(n)
            self.range[v] = size and (0, size[1])
        super().loop_items(s)

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
