"""Renders a kernel as a C99 function: void f(void** pointers, const int64_t* ints, int64_t begin, int64_t end).

All loops are plain loops; a sum in one that the IR calls a vector loop has LANES parts, which rounds less, and which compilers may
vectorise. The text needs nothing but math.h, stdbool.h and stdint.h, and allocates no memory.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.c.ops import HEADER, TYPE, Ops
from tandem.codegen.expr import Expr
from tandem.codegen.loops import Accumulate, Kernel, Loop, Repeat, Store, Transpose
from tandem.codegen.render import Renderer

LANES = 8


def render(kernel: Kernel, name: str = "kernel") -> str:
    """A complete source with one function of that name."""
    renderer = CRenderer(kernel)
    function = renderer.function(name)
    return "\n".join([HEADER, *renderer.helpers(), "", function])


class _Scope:
    __slots__ = ("counter", "lines", "values")

    def __init__(self, counter: str = ""):
        self.lines: list[str] = []
        self.values: dict[int, str] = {}
        self.counter = counter  # of a vector loop


class CRenderer(Renderer, Ops):
    index = "int64_t"  # the type of counters and offsets

    def __init__(self, kernel: Kernel):
        Renderer.__init__(self, kernel.linear)
        Ops.__init__(self)
        self.kernel = kernel
        self.scopes: list[_Scope] = [_Scope()]
        self.var_name: dict = {}
        self.accumulators: dict[int, tuple] = {}  # id -> (name, depth)
        self.parts: set[int] = set()  # of accumulators that have several parts
        self.indices: dict[int, bool] = {}
        self.names = 0

    def function(self, name: str) -> str:
        lines = []
        for slot, dtype in enumerate(self.kernel.pointers):
            t = self.type(dtype)
            lines.append(f"{t}* p{slot} = ({t}*)pointers[{slot}];")
        lines += ["if (begin >= end) return;", *self.statements()]
        head = f"void {name}(void** pointers, const int64_t* ints, int64_t begin, int64_t end) {{"
        return "\n".join([head, "  (void)ints;", *indented(lines), "}", ""])

    def statements(self) -> list[str]:
        """What is between the braces of the function: local arrays, then the body."""
        self.body(self.kernel.body)
        local = [f"{self.type(dtype)} l{i + 1}[{size}];" for i, (dtype, size) in enumerate(self.kernel.locals)]
        return [*local, *self.scopes[0].lines]

    # -- values

    def line(self, text: str):
        self.scopes[-1].lines.append(text)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def accumulator_depth(self, number: int) -> int:
        return self.accumulators[number][1]

    def compute(self, e: Expr, scope: _Scope) -> str:
        op = e.op
        if op == "const":
            return self.constant(e.dtype, e.attr)
        if op == "var":
            return self.var_name[e.attr]
        if op == "scalar":
            return self.accumulators[e.attr][0]
        if op == "int":
            return f"ints[{e.attr}]"
        if op in ("begin", "end"):
            return op
        if op in ("load", "load_if"):
            text = f"{self.pointer(e.attr)}[{self.value(e.args[-1])}]"
            if op == "load_if":
                zero = f"({self.type(e.dtype)}){{0}}"
                text = f"{self.value(e.args[0])} ? {text} : {zero}"
        else:
            text = self.operation(e, [self.value(x) for x in e.args])
        name = self.fresh("v")
        scope.lines.append(f"const {self.index if self.is_index(e) else self.type(e.dtype)} {name} = {text};")
        return name

    def is_index(self, e: Expr) -> bool:
        found = self.indices.get(e.id)
        if found is None:
            inner = e.op in ("add", "sub", "mul", "min", "max", "idiv", "imod")
            leaf = e.op in ("var", "int", "begin", "end", "const")
            found = leaf or (inner and all(self.is_index(self.chase(x)) for x in e.args))
            self.indices[e.id] = found = found and e.dtype is dtypes.int64
        return found

    def pointer(self, slot: int) -> str:
        return f"p{slot}" if slot >= 0 else f"l{-slot}"

    # -- statements

    def before_stores(self, s: Store):
        self.value(s.value)
        self.value(s.offset)

    def store(self, s: Store):
        value, offset = self.value(s.value), self.value(s.offset)
        self.line(f"{self.pointer(s.slot)}[{offset}] = {value};")

    def transpose(self, s: Transpose):
        offset, stride, rows, columns = (self.value(e) for e in (s.offset, s.stride, s.rows, s.columns))
        target, source = self.pointer(s.local), self.pointer(s.slot)
        self.line(f"for ({self.index} j = 0; j < {columns}; ++j)")
        self.line(f"  for ({self.index} i = 0; i < {rows}; ++i)")
        self.line(f"    {target}[i * {s.width} + j] = {source}[{offset} + i + j * {stride}];")

    # -- loops

    def open(self, scope: _Scope, *variables):
        for v, name in variables:
            self.var_depth[v] = len(self.scopes)
            self.var_name[v] = name
        self.scopes.append(scope)

    def close(self, head: str):
        self.forget_depths(len(self.scopes) - 1)
        inside = self.scopes.pop()
        self.scopes[-1].lines += [head + " {", *indented(inside.lines), "}"]

    def loop_serial(self, s: Loop, vector: bool = False):
        start, end, var = self.value(s.start), self.value(s.end), self.fresh("i")
        self.open(_Scope(var if vector else ""), (s.var, var))
        self.body(s.body)
        step = f"++{var}" if s.step == 1 else f"{var} += {s.step}"
        self.close(f"for ({self.index} {var} = {start}; {var} < {end}; {step})")

    def loop_vector(self, s: Loop):
        self.loop_serial(s, vector=True)

    def loop_items(self, s: Loop):
        """The parallel loop. Its counter is split into digits, the last one fastest."""
        start, end, var = self.value(s.start), self.value(s.end), self.fresh("item")
        sizes = [self.value(n) for _, n in s.digits]
        digits = [(v, self.fresh("d")) for v, _ in s.digits]
        self.open(_Scope(), (s.var, var), *digits)
        rest = var
        for k in reversed(range(len(digits))):
            _, name = digits[k]
            if k == 0:
                self.line(f"const {self.index} {name} = {rest};")
                break
            after = self.fresh("r")
            self.line(f"const {self.index} {after} = {rest} / {sizes[k]}, {name} = {rest} % {sizes[k]};")
            rest = after
        self.body(s.body)
        self.close(f"for ({self.index} {var} = {start}; {var} < {end}; ++{var})")

    def repeat(self, s: Repeat):
        starts = [self.value(e) for e in (*s.starts, s.start)]
        limit = self.value(s.limit)
        names = [self.fresh("x") for _ in starts]
        last = self.fresh("x")
        for i, (name, e, start) in enumerate(zip(names, (*s.starts, s.start), starts, strict=True)):
            self.line(f"{TYPE[e.dtype]} {name} = {start};")
            self.accumulators[i] = (name, len(self.scopes))
        self.line(f"bool {last};")
        self.open(_Scope())
        self.line(f"{last} = {self.value(s.condition)};")
        self.line(f"if (!{last} || {names[-1]} >= {limit}) break;")
        updates = [self.value(e) for e in s.updates]  # all before any variable changes
        after = [self.fresh("x") for _ in updates]
        for new, e, update in zip(after, s.updates, updates, strict=True):
            self.line(f"const {TYPE[e.dtype]} {new} = {update};")
        for name, new in zip(names, after, strict=False):
            self.line(f"{name} = {new};")
        self.line(f"++{names[-1]};")
        self.close("for (;;)")
        for i, name in enumerate([*names, last]):
            self.accumulators[i] = (name, len(self.scopes) - 1)

    # -- reductions

    def declare(self, acc):
        name, t = self.fresh("acc"), TYPE[acc.result if acc.blocked and acc.dtype.kind != "float" else acc.dtype]
        start = self.identity(acc.kind, acc.dtype)
        self.accumulators[acc.id] = (name, len(self.scopes) - 1)
        if acc.lanes and acc.kind in ("sum", "prod") and acc.dtype.kind == "float":
            self.parts.add(acc.id)
            self.line(f"{t} {name}[{LANES}] = {{{', '.join([start] * LANES)}}};")
            if acc.blocked:
                self.line(f"double {name}_total = 0.0;")
            return
        self.parts.discard(acc.id)
        self.line(f"{t} {name} = {start};")
        if acc.kind in ("argmax", "argmin"):
            self.line(f"int64_t {name}_at = 0;")

    def accumulate(self, s: Accumulate):
        acc = s.acc
        name, _ = self.accumulators[acc.id]
        value = self.value(s.value)
        if s.position is not None:
            position = self.value(s.position)
            self.line(f"if ({self.better(acc.kind, acc.dtype, value, name)}) {name} = {value}, {name}_at = {position};")
            return
        if acc.id in self.parts:
            counter = self.scopes[-1].counter  # not negative
            name += f"[{counter} % {LANES}]" if counter else "[0]"
        self.line(f"{name} = {self.combine(acc.kind, acc.dtype, name, value)};")

    def merged(self, acc) -> str:
        name, _ = self.accumulators[acc.id]
        parts = [f"{name}[{k}]" for k in range(LANES)]
        sign = "+" if acc.kind == "sum" else "*"
        while len(parts) > 1:
            parts = [f"({a} {sign} {b})" for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def flush(self, acc):
        if acc.id not in self.parts:
            return  # integers are added to their total at once
        name, _ = self.accumulators[acc.id]
        self.line(f"{name}_total += {self.merged(acc)};")
        self.line(f"for (int k = 0; k < {LANES}; ++k) {name}[k] = 0;")

    def finish(self, acc):
        name, _ = self.accumulators[acc.id]
        if acc.kind in ("argmax", "argmin"):
            name += "_at"
        elif acc.id in self.parts:
            total = f"{name}_total + {self.merged(acc)}" if acc.blocked else self.merged(acc)
            name += "_all"
            self.line(f"const {TYPE[acc.result]} {name} = {total};")
        self.accumulators[acc.id] = (name, len(self.scopes) - 1)


def indented(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]
