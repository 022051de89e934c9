"""Where expressions of a CUDA kernel are computed: in the outermost loop they are constant in, each once."""

from __future__ import annotations

from tandem.codegen.cuda.kernel import CudaKernel
from tandem.codegen.cuda.ops import C_TYPE, constant, operation
from tandem.codegen.expr import Expr
from tandem.codegen.loops import Loop, Store
from tandem.codegen.render import Renderer

BLOCK_INDEX = 1000  # the loop variable that counts items (nest.ITEM)


class Scope:
    __slots__ = ("condition", "element", "lines", "lines_after", "loop", "values")

    def __init__(self, loop: Loop | None = None, element: bool = False, condition: str = ""):
        self.lines: list[str] = []
        self.lines_after: list[str] = []  # after the elements of a piece
        self.values: dict[int, str] = {}
        self.loop = loop
        self.element = element  # inside the loop over the elements of a piece
        self.condition = condition  # under which memory may be touched


def _statements(body: list):
    for s in body:
        yield s
        if type(s) is Loop:
            yield from _statements(s.body)


class Values(Renderer):
    def __init__(self, kernel: CudaKernel):
        super().__init__(kernel.linear)
        self.kernel = kernel
        self.scopes: list[Scope] = []
        self.var_depth[BLOCK_INDEX] = 0
        self.var_name: dict = {BLOCK_INDEX: "(i64)blockIdx.x"}
        self.acc_name: dict[int, tuple] = {}  # id -> (name, depth, per element)
        self.names = 0
        self.ints = 0
        self.shared: list[str] = []
        self.scratch = 0
        self.warp = kernel.threads[0] == 32 and kernel.threads[1] > 1 and not kernel.team
        self.near: list = []  # what the innermost loop reads and writes side by side
        self.rows: dict[tuple, str] = {}  # (slot, offset) -> array that keeps it
        self.stored = {s.slot for s in _statements(kernel.body) if type(s) is Store}
        self.piece = 1  # elements of the piece being computed
        self.i0 = self.first = self.limit = ""  # names of its piece's first element, its start and its end
        self.sure = False  # whether the code being written is one of two versions, see `versions`
        self.only = False  # whether all pieces of the loop being written are known to be whole
        self.streams = self.streamed = False  # whether the loop being written, or any, needs STREAMED of ops.py
        self.apart: list | None = None  # reads of a row that is kept, which come before the loop being written
        self.narrow: set[int] = set()  # integers that are read as 32 bits

    def line(self, text: str):
        self.scopes[-1].lines.append(text)

    def name(self, scope: Scope, dtype, text: str) -> str:
        self.names += 1
        scope.lines.append(f"const {C_TYPE[dtype]} v{self.names} = {text};")
        return f"v{self.names}"

    def accumulator_depth(self, number: int) -> int:
        _, depth, per_element = self.acc_name[number]
        return len(self.scopes) - 1 if per_element else depth

    def compute(self, e: Expr, scope: Scope) -> str:
        op = e.op
        if op == "const":
            return constant(e.dtype, e.attr)
        if op == "var":
            return self.var_name[e.attr]
        if op == "scalar":
            name, _, per_element = self.acc_name[e.attr]
            return self.element_of(name) if per_element else name
        if op == "int":
            self.ints = max(self.ints, e.attr + 1)
            return f"(i64){self.known(e.attr)}" if e.attr in self.kernel.known else f"a.n[{e.attr}]"
        if op in ("load", "load_if"):
            if e.attr in self.kernel.by_value:
                return f"c{e.attr}"
            offset = self.value(e.args[-1])
            conditions = [scope.condition] if scope.condition else []
            if op == "load_if":
                conditions.append(self.value(e.args[0]))
            read = f"{self.pointer(e.attr)}[{offset}]"
            if conditions:
                read = f"{' && '.join(conditions)} ? {read} : zero_of<{C_TYPE[e.dtype]}>()"
            return self.name(scope, e.dtype, read)
        return self.name(scope, e.dtype, operation(e, [self.value(x) for x in e.args]))

    def element_of(self, accumulator: str) -> str:
        """The part of an accumulator that belongs to the element being computed."""
        return f"{accumulator}[e * {self.piece} + k]" if self.warp else f"{accumulator}[k]"

    def known(self, number: int) -> str:
        """An integer that is known to fit in 32 bits."""
        self.narrow.add(number)
        return f"n{number}"

    def divides(self, n: int, e: Expr) -> bool:
        """Whether e is known to be a multiple of n, a power of two."""
        e = self.chase(e)
        if e.op == "const":
            return e.attr % n == 0
        if e.op == "int":
            return self.kernel.known.get(e.attr, 1) % n == 0
        if e.op == "mul":
            return any(self.divides(n, x) for x in e.args)
        return e.op in ("add", "sub", "min", "max") and all(self.divides(n, x) for x in e.args)

    def pointer(self, slot: int) -> str:
        return f"p{slot}" if slot >= 0 else f"l{-slot}"

    def stride(self, e: Expr, depth: int):
        """What e grows by along the loop whose elements live at `depth`: an int, or None where that is not known."""
        e = self.chase(e)
        if self.depth(e) < depth:
            return 0
        if e.op == "var":
            return 1
        if e.op == "mul":
            for x, y in (e.args, e.args[::-1]):
                x = self.chase(x)
                if x.op == "const":
                    s = self.stride(y, depth)
                    return None if s is None else s * x.attr
            return None
        if e.op in ("add", "sub"):
            x, y = self.stride(e.args[0], depth), self.stride(e.args[1], depth)
            if x is None or y is None:
                return None
            return x + y if e.op == "add" else x - y
        return None
