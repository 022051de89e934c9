"""Accumulators of several rows, one vector each, become one vector of their results.

Two vectors at a time: the halves of every row in them are combined, so that the vector that comes of it has both vectors' rows,
each in half as many lanes. Shuffles stay within 128 bits where a row's lanes do, as they are cheap there.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.llvm.ops import TYPE
from tandem.dtypes import DType

# Lanes in which a sum goes over to float64: fewer would cost a digit, more a conversion for every row.
DOUBLE_LANES = 4
_REGISTER = 16  # bytes within which shuffles are cheap


class RowFold:
    """`vectors`: (name, the rows in it in their order), each row in `width` neighbouring lanes."""

    def __init__(self, ops, scope, kind: str, dtype: DType, values: list[str], lanes: int):
        self.ops, self.scope, self.kind, self.dtype = ops, scope, kind, dtype
        self.rows, self.lanes, self.width = len(values), lanes, lanes
        self.vectors: list[tuple[str, list[int]]] = [(x, [k]) for k, x in enumerate(values)]

    def results(self, total: DType) -> str:
        """The vector of results, a lane for each row; lanes are added up in the type of the total once they are few."""
        if self.lanes == 1:
            return self._gathered(total)
        if self.dtype is dtypes.bool_:
            return self._bits()
        while self.width > (1 if self.dtype is total else DOUBLE_LANES):
            self._halve()
        if self.dtype is not total:
            self._widen(total)
            while self.width > 1:
                self._halve()
        return self._in_order()

    # -- steps

    def _shuffle(self, x: str, y: str, picks: list[int], lanes: int = 0) -> str:
        t = f"<{lanes or self.lanes} x {TYPE[self.dtype]}>"
        picked = ", ".join(f"i32 {k}" for k in picks)
        return self.ops.line(self.scope, f"shufflevector {t} {x}, {t} {y}, <{len(picks)} x i32> <{picked}>")

    def _halve(self):
        """Every row in half as many lanes, in half as many vectors (in one of half the size, where there is but one)."""
        half, lanes, block = self.width // 2, self.lanes, _REGISTER // self.dtype.itemsize
        if self.width > block:
            block = lanes
        alone = len(self.vectors) == 1
        pairs = [(self.vectors[0], ("poison", []))] if alone else zip(self.vectors[::2], self.vectors[1::2])
        if alone:
            self.lanes = lanes // 2
        made = []
        for (x, first), (y, second) in pairs:
            picks, rows = [], []
            for start in range(0, lanes, block):  # what is near in x and in y stays near
                for base, found in ((0, first), (lanes, second)):
                    for place in range(start, min(start + block, lanes), self.width) if found else ():
                        picks += [base + place + k for k in range(half)]
                        rows.append(found[place // self.width])
            low, high = (self._shuffle(x, y, [k + more for k in picks], lanes) for more in (0, half))
            made.append((self.ops.combine(self.scope, self.kind, self.dtype, low, high, self.lanes), rows))
        self.vectors, self.width = made, half

    def _widen(self, total: DType):
        """In the type of the total, in vectors of half as many lanes."""
        made, half = [], max(self.lanes // 2, self.width)
        for x, rows in self.vectors:
            parts = [list(range(k, k + half)) for k in range(0, self.lanes, half)]
            for k, picks in enumerate(parts):
                part = self._shuffle(x, "poison", picks)
                wide = self._wider(part, half, total)
                each = half // self.width
                made.append((wide, rows[k * each : (k + 1) * each]))
        self.vectors, self.lanes, self.dtype = made, half, total

    def _wider(self, name: str, lanes: int, total: DType) -> str:
        convert = "fpext" if self.dtype.kind == "float" else "sext"
        return self.ops.line(
            self.scope, f"{convert} <{lanes} x {TYPE[self.dtype]}> {name} to <{lanes} x {TYPE[total]}>"
        )

    def _in_order(self) -> str:
        while len(self.vectors) > 1:
            joined = []
            for (x, first), (y, second) in zip(self.vectors[::2], self.vectors[1::2]):
                joined.append((self._shuffle(x, y, list(range(2 * self.lanes))), first + second))
            self.vectors, self.lanes = joined, 2 * self.lanes
        ((name, rows),) = self.vectors
        picks = [rows.index(k) for k in range(self.rows)]
        return name if picks == list(range(self.lanes)) else self._shuffle(name, "poison", picks)

    # -- what has no lanes, or single bits in them

    def _gathered(self, total: DType) -> str:
        element, made, line = TYPE[self.dtype], "poison", self.ops.line
        for k, (x, _) in enumerate(self.vectors):
            made = line(self.scope, f"insertelement <{self.rows} x {element}> {made}, {element} {x}, i64 {k}")
        return made if self.dtype is total else self._wider(made, self.rows, total)

    def _bits(self) -> str:
        made, line, none = "poison", self.ops.line, self.kind in ("any", "sum", "max")
        for k, (x, _) in enumerate(self.vectors):
            bits = line(self.scope, f"bitcast <{self.lanes} x i1> {x} to i{self.lanes}")
            found = line(self.scope, f"icmp {'ne' if none else 'eq'} i{self.lanes} {bits}, {0 if none else -1}")
            byte = line(self.scope, f"zext i1 {found} to i8")
            made = line(self.scope, f"insertelement <{self.rows} x i8> {made}, i8 {byte}, i64 {k}")
        return line(self.scope, f"icmp ne <{self.rows} x i8> {made}, zeroinitializer")
