"""Renders a kernel as CUDA C.

Loops say how they spread over threads (mode):

    flat      over the whole grid: the outer `digits` and pieces of `unroll` neighbouring elements of the innermost loop
    items     one item per block; with Kernel.threads = (32, k), one per warp
    vector    over threadIdx.x, `unroll` neighbouring elements at a time
    lanes     threadIdx.x again, but for 32 * unroll elements at most: no loop; accumulators have one part per element
    team      over threadIdx.y
    serial    every thread runs all of it

Expressions are computed in the outermost loop they are constant in. Neighbouring elements are read and written as words of
up to 16 bytes where addresses allow it, which is found out when the loop starts.
"""

from __future__ import annotations

from tandem.codegen.cuda_ops import C_TYPE, PRELUDE, constant, functor, identity, operation
from tandem.codegen.expr import Expr
from tandem.codegen.loops import Accumulate, Declare, Finish, Kernel, Loop, Repeat, Store, Transpose
from tandem.dtypes import DType

TEAM_BYTES = 1 << 14  # of shared memory in which a team adds up
BLOCK_INDEX = 1000  # the loop variable that counts items (nest.ITEM)


class CudaKernel(Kernel):
    """A kernel with what a launch needs to know.

    threads    (x, y) of a block
    team       threadIdx.y runs through what is reduced (or through a tile), not through items
    by_value   slots of single elements on the host, whose values come with the launch
    items      number of items, where one block serves several
    kept       pieces of a row that each thread keeps in registers from the first pass to the last; 0: rows are read in every pass
    constant   slots of memory that nothing writes while the kernel runs
    """

    reports = False
    num_ints = 0  # that a launch passes, used or not

    def __init__(self, name: str, pointers: list[DType], locals: list, linear: list[Expr], body: list,
                 threads: tuple[int, int], team: bool, by_value: frozenset[int], items: Expr | None, kept: int,
                 constant: frozenset[int] = frozenset()):  # fmt: skip
        super().__init__(name, pointers, locals, linear, body)
        self.threads = threads
        self.team = team
        self.by_value = by_value
        self.items = items
        self.kept = kept
        self.constant = constant


class TextKernel:
    """A kernel written by hand: `text` follows PRELUDE and defines Arguments and `kernel`.

    shared: bytes of shared memory that launches ask for; exact: uses instructions of one compute capability only.
    """

    def __init__(
        self,
        name: str,
        text: str,
        threads: tuple[int, int] = (256, 1),
        reports: bool = False,
        shared: int = 0,
        exact=False,
    ):
        self.name = name
        self.text = text
        self.threads = threads
        self.reports = reports
        self.shared = shared
        self.exact = exact


class _Scope:
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


def render(kernel: CudaKernel) -> str:
    """The source of a kernel, complete but for PRELUDE."""
    return _Renderer(kernel).render()


def source(kernel: CudaKernel | TextKernel) -> str:
    return PRELUDE + (kernel.text if isinstance(kernel, TextKernel) else render(kernel))


def entry(name: str) -> str:
    """The name of a kernel's function, as profilers show it."""
    return "td_" + "".join(c if c.isalnum() else "_" for c in name)[:80]


def signature(name: str, threads: tuple[int, int], blocks: int = 0) -> str:
    """`blocks`: how many of them shall have room on a multiprocessor."""
    bounds = f"__launch_bounds__({threads[0] * threads[1]}{f', {blocks}' if blocks else ''})"
    return f'extern "C" __global__ void {bounds} {entry(name)}(const __grid_constant__ Arguments a)'


def arguments(pointers: int, ints: int, reports: bool = False) -> str:
    fields = [f"u64 p[{max(pointers, 1)}];" if pointers else "", f"i64 n[{ints}];" if ints else ""]
    return f"struct Arguments {{ {' '.join(f for f in fields if f)} {'u64 report, number; ' if reports else ''}}};"


class _Renderer:
    def __init__(self, kernel: CudaKernel):
        self.kernel = kernel
        self.linear = kernel.linear
        self.scopes: list[_Scope] = []
        self.depths: dict[int, int] = {}
        self.var_depth: dict = {BLOCK_INDEX: 0}
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
        self.i0 = self.first = self.limit = ""  # names of its piece's first element, its start and its end
        self.sure = False  # whether the code being written is one of two versions, see `versions`

    def render(self) -> str:
        self.scopes.append(_Scope())
        self.body(self.kernel.body)
        top = self.scopes.pop()
        self.shared += [f"__shared__ u64 scratch[{self.scratch}];"] if self.scratch else []
        lines = [
            arguments(len(self.kernel.pointers), max(self.ints, self.kernel.num_ints)),
            signature(self.kernel.name, self.kernel.threads) + " {",
            *self.shared, *self.pointers(), *top.lines, "}", "",
        ]  # fmt: skip
        return "\n".join(lines)

    def pointers(self) -> list[str]:
        lines = []
        for slot, dtype in enumerate(self.kernel.pointers):
            t = C_TYPE[dtype]
            if slot in self.kernel.by_value:
                lines.append(f"const {t} c{slot} = *(const {t}*)&a.p[{slot}];")
            elif slot in self.kernel.constant:
                lines.append(f"const {t}* __restrict__ p{slot} = (const {t}*)a.p[{slot}];")
            else:
                lines.append(f"{t}* p{slot} = ({t}*)a.p[{slot}];")
        return lines

    def line(self, text: str):
        self.scopes[-1].lines.append(text)

    def name(self, scope: _Scope, dtype, text: str) -> str:
        self.names += 1
        scope.lines.append(f"const {C_TYPE[dtype]} v{self.names} = {text};")
        return f"v{self.names}"

    # -- where values live

    def depth(self, root: Expr) -> int:
        depths = self.depths
        stack = [root]
        while stack:
            e = stack[-1]
            if e.id in depths:
                stack.pop()
                continue
            args = e.args if e.op != "linear" else (self.linear[e.attr],)
            missing = [x for x in args if x.id not in depths]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if e.op == "var":
                d = self.var_depth[e.attr]
            elif e.op == "scalar":
                _, d, per_element = self.acc_name[e.attr]
                d = len(self.scopes) - 1 if per_element else d
            else:
                d = max([depths[x.id] for x in args], default=0)
            depths[e.id] = d
        return depths[root.id]

    def chase(self, e: Expr) -> Expr:
        while e.op == "linear":
            e = self.linear[e.attr]
        return e

    def value(self, root: Expr) -> str:
        root = self.chase(root)
        stack = [root]
        while stack:
            e = stack[-1]
            scope = self.scopes[self.depth(e)]
            if e.id in scope.values:
                stack.pop()
                continue
            missing = [x for x in map(self.chase, e.args) if x.id not in self.scopes[self.depth(x)].values]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            scope.values[e.id] = self.compute(e, scope)
        return self.scopes[self.depth(root)].values[root.id]

    def compute(self, e: Expr, scope: _Scope) -> str:
        op = e.op
        if op == "const":
            return constant(e.dtype, e.attr)
        if op == "var":
            return self.var_name[e.attr]
        if op == "scalar":
            name, _, per_element = self.acc_name[e.attr]
            return f"{name}[k]" if per_element else name
        if op == "int":
            self.ints = max(self.ints, e.attr + 1)
            return f"a.n[{e.attr}]"
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

    # -- statements

    def body(self, statements: list):
        if all(type(s) in (Store, Accumulate) for s in statements):
            for s in statements:
                if type(s) is Store:  # values before any store: a store may overwrite what another value reads
                    self.value(s.value)
                    self.value(s.offset)
        for s in statements:
            if type(s) is Store:
                self.store(s)
            elif type(s) is Loop:
                getattr(self, "loop_" + s.mode)(s)
            elif type(s) is Accumulate:
                self.accumulate(s)
            elif type(s) is Declare:
                self.declare(s.acc)
            elif type(s) is Finish:
                self.finish(s.acc)
            elif type(s) is Transpose:
                self.transpose(s)
            elif type(s) is Repeat:
                self.repeat(s)

    def leader(self) -> str:
        """Whether this thread is the one that writes results of its item."""
        if self.warp:
            return "threadIdx.x == 0"
        if self.kernel.threads[1] > 1:
            return "threadIdx.x == 0 && threadIdx.y == 0"
        return "threadIdx.x == 0"

    def store(self, s: Store):
        scope = self.scopes[-1]
        dtype = C_TYPE[self.kernel.slot_dtype(s.slot)]
        value = self.value(s.value)
        if scope.element:
            piece = scope.loop
            if s.slot >= 0 and piece.unroll > 1 and self.stride(s.offset, len(self.scopes) - 1) == 1:
                # collected, and written behind the loop over elements
                self.names += 1
                array = f"y{self.names}"
                outer = self.scopes[-2]
                outer.lines.append(f"alignas(16) {dtype} {array}[{piece.unroll}];")
                scope.lines.append(f"{array}[k] = {value};")
                address = self.first_address(s.slot, s.offset)
                only = "if (threadIdx.y == 0) { " if self.first_row_only(piece) else "{ "
                scope.lines_after.append(
                    f"{only}if (whole) store_all<{piece.unroll}>({address}, {array}); else "
                    f"for (int k = 0; k < {piece.unroll}; ++k) if ({self.i0} + k < {self.limit}) {address}[k] = {array}[k]; }}"
                )
                return
            condition = "if (on && threadIdx.y == 0) " if self.first_row_only(piece) else "if (on) "
            scope.lines.append(f"{condition}{self.pointer(s.slot)}[{self.value(s.offset)}] = {value};")
            return
        if scope.condition:
            scope.lines.append(f"if ({scope.condition}) {self.pointer(s.slot)}[{self.value(s.offset)}] = {value};")
            return
        scope.lines.append(f"if ({self.leader()}) {self.pointer(s.slot)}[{self.value(s.offset)}] = {value};")

    def first_row_only(self, piece: Loop) -> bool:
        """Whether all threads of a team hold the same: results of reductions."""
        return piece.mode == "lanes" and not any(x.loop is not None and x.loop.mode == "team" for x in self.scopes)

    # -- loops

    def open(self, scope: _Scope, *variables):
        for v, name in variables:
            self.var_depth[v] = len(self.scopes)
            self.var_name[v] = name
        self.scopes.append(scope)

    def close(self) -> _Scope:
        depth = len(self.scopes) - 1
        self.depths = {k: d for k, d in self.depths.items() if d < depth}
        return self.scopes.pop()

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def nested(self, head: str, scope: _Scope):
        self.line(head + " {")
        self.scopes[-1].lines += [*scope.lines, "}"]

    def loop_serial(self, s: Loop):
        start, end, var = self.value(s.start), self.value(s.end), self.fresh("s")
        condition = self.whole_lanes(s)
        self.sure = self.sure or condition is not None
        self.open(_Scope(s, condition=self.scopes[-1].condition), (s.var, var))
        self.body(s.body)
        head = f"for (i64 {var} = {start}; {var} < {end}; {var} += {s.step})"
        if condition is not None:
            self.versions(condition, head, self.close())
        else:
            self.nested(head, self.close())

    def loop_team(self, s: Loop):
        start, end, var = self.value(s.start), self.value(s.end), self.fresh("t")
        condition = self.whole_lanes(s)
        self.sure = self.sure or condition is not None
        self.open(_Scope(s), (s.var, var))
        self.body(s.body)
        inside = self.close()
        rows = self.kernel.threads[1]
        head = f"for (i64 {var} = {start} + threadIdx.y; {var} < {end}; {var} += {rows})"
        if not self.kernel.locals:
            head = "#pragma unroll 4\n" + head  # several loads on their way at a time
        if condition is not None:
            self.versions(condition, head, inside)
        else:
            self.nested(head, inside)

    def whole_lanes(self, s: Loop) -> str | None:
        """Whether the pieces that this thread takes inside of s are whole in every turn of s; None where that is asked already, or
        of no use."""
        loops, inner = [s], s.body
        while len(inner) == 1 and type(inner[0]) is Loop and inner[0].mode in ("serial", "team"):
            loops.append(inner[0])
            inner = inner[0].body
        if (
            self.sure
            or len(inner) != 1
            or type(inner[0]) is not Loop
            or inner[0].mode != "lanes"
            or inner[0].unroll == 1
        ):
            return None
        lanes = inner[0]
        first, limit = self.value(lanes.start), self.value(lanes.end)
        return f"{self.wide_check(lanes, loops)} && {first} + ((i64)threadIdx.x + 1) * {lanes.unroll} <= {limit}"

    def loop_items(self, s: Loop):
        if self.warp:
            per_block = self.kernel.threads[1]
            count = self.kernel.items
            self.line(f"const i64 item = (i64)blockIdx.x * {per_block} + threadIdx.y;")
            self.line(f"if (item >= {self.value(count)}) return;")
        else:
            self.line("const i64 item = blockIdx.x;")
        digits = self.digits("item", s.digits)
        self.open(_Scope(s), (s.var, "item"), *digits)
        self.body(s.body)
        inside = self.close()
        self.scopes[-1].lines += inside.lines

    def digits(self, counter: str, digits) -> list[tuple]:
        """Splits a counter into its digits, the last one fastest; (variable, name) of each."""
        found, rest = [], counter
        for number, (v, size) in reversed(list(enumerate(digits))):
            name = self.fresh("d")
            if number == 0:
                self.line(f"const i64 {name} = {rest};")
            else:
                n, after = self.value(size), self.fresh("r")
                self.line(f"const i64 {after} = udiv({rest}, {n}), {name} = {rest} - {after} * {n};")
                rest = after
            found.append((v, name))
        return found

    def loop_flat(self, s: Loop):
        piece, end = s.unroll, self.value(s.end)
        threads = self.kernel.threads[0]
        self.i0, self.limit = "i0", "limit"
        self.line(f"const i64 limit = {end}, pieces = (limit + {piece - 1}) / {piece};")
        outer = " * ".join([self.value(n) for _, n in s.digits] + ["pieces"])
        self.line(f"const i64 total = {outer};")
        wide = self.wide_check(s)
        self.sure = piece > 1
        self.open(_Scope(s))
        if s.digits:
            self.line(f"const i64 row = udiv(c, pieces), i0 = (c - row * pieces) * {piece};")
            digits = self.digits("row", s.digits)
            for v, name in digits:
                self.var_depth[v] = len(self.scopes) - 1
                self.var_name[v] = name
        else:
            self.line(f"const i64 i0 = c * {piece};")
        self.elements(s, wide)
        stride = f"(i64)gridDim.x * {threads}"
        head = f"for (i64 c = (i64)blockIdx.x * {threads} + threadIdx.x; c < total; c += {stride})"
        self.versions(f"{wide} && limit % {piece} == 0", head, self.close())

    def versions(self, condition: str, head: str, inside: _Scope, tail: str = ""):
        """A loop, twice if its pieces may not be whole: where `condition` holds they all are, and are read without asking, several
        at a time."""
        loop = [head + " {", *inside.lines, "}", tail]
        if not self.sure:
            self.scopes[-1].lines += loop
            return
        self.sure = False
        self.line(f"if ({condition}) {{ constexpr bool sure = true;")
        self.scopes[-1].lines += [*loop, "} else { constexpr bool sure = false;", *loop, "}"]

    def loop_vector(self, s: Loop):
        piece, start, end = s.unroll, self.value(s.start), self.value(s.end)
        threads = self.kernel.threads[0]
        i0, first, limit, aligned = (self.fresh(x) for x in ("i", "first", "limit", "aligned"))
        self.i0, self.first, self.limit = i0, first, limit
        self.line(f"const i64 {first} = {start}, {limit} = {end};")
        self.sure = piece > 1
        self.open(_Scope(s))
        self.elements(s, aligned)
        inner = self.close()
        # whether rows start at addresses that allow wide words shows only now that the loads are known
        self.line(f"const bool {aligned} = {self.alignment(s)};")
        if self.kernel.kept:
            start = f"const i64 {i0} = {first} + ((i64)e * {threads} + threadIdx.x) * {piece};"
            head = f"#pragma unroll\nfor (int e = 0; e < {self.kernel.kept}; ++e) {{ {start} if ({i0} < {limit})"
            self.versions(f"{aligned} && ({limit} - {first}) % {piece} == 0", head, inner, "}")
            return
        head = f"for (i64 {i0} = {first} + (i64)threadIdx.x * {piece}; {i0} < {limit}; {i0} += {threads * piece})"
        self.versions(f"{aligned} && ({limit} - {first}) % {piece} == 0", head, inner)

    def loop_lanes(self, s: Loop):
        piece, start, end = s.unroll, self.value(s.start), self.value(s.end)
        i0, first, limit, aligned = (self.fresh(x) for x in ("i", "first", "limit", "aligned"))
        self.i0, self.first, self.limit = i0, first, limit
        self.line(f"const i64 {first} = {start}, {limit} = {end}, {i0} = {first} + (i64)threadIdx.x * {piece};")
        self.open(_Scope(s))
        self.elements(s, aligned)
        inner = self.close()
        self.line(f"const bool {aligned} = {self.alignment(s)};")
        self.scopes[-1].lines += ["{", *inner.lines, "}"]

    def neighbours(self, s: Loop) -> list[tuple[int, Expr]]:
        """(slot, offset) of all loads and stores of s's body that lie side by side along it. Call inside the element scope."""
        found, seen = [], set()
        depth = len(self.scopes) - 1
        stack: list[Expr] = []
        for inner in s.body:
            stack.append(inner.value)
            if type(inner) is Store:
                stack.append(inner.offset)
                if inner.slot >= 0 and self.stride(inner.offset, depth) == 1:
                    found.append((inner.slot, inner.offset, None))
            elif inner.position is not None:
                stack.append(inner.position)
        while stack:
            e = self.chase(stack.pop())
            if e.id in seen or self.depth(e) < depth:
                continue
            seen.add(e.id)
            if e.op == "load" and e.attr >= 0 and e.attr not in self.kernel.by_value:
                if self.stride(e.args[0], depth) == 1:
                    found.append((e.attr, e.args[0], e))
                    continue
            stack.extend(e.args)
        return found

    def elements(self, s: Loop, wide: str):
        """The elements i0 .. i0 + unroll - 1 of a piece: read together, computed one by one, written together."""
        piece = s.unroll
        outer = self.scopes[-1]
        scope = _Scope(s, element=True, condition="on")
        self.open(scope, (s.var, "i"))
        near = self.neighbours(s) if piece > 1 or self.kernel.kept else []
        self.near = near
        loads: dict[tuple, str] = {}
        whole, part = [], []
        for slot, offset, load in near:
            if load is None:
                continue
            t = C_TYPE[load.dtype]
            keeps = s.mode == "vector" and self.kernel.kept and slot not in self.stored
            array = self.rows.get((slot, self.chase(offset).id)) if keeps else None
            if array is not None:
                scope.values[load.id] = f"{array}[e][k]"
                self.depths[load.id] = len(self.scopes) - 1
                continue
            array = self.fresh("x")
            address = self.first_address(slot, offset)
            if keeps:
                self.scopes[-3].lines.append(f"alignas(16) {t} {array}[{self.kernel.kept}][{piece}];")
                self.rows[slot, self.chase(offset).id] = array
                array += "[e]"
            else:
                outer.lines.append(f"alignas(16) {t} {array}[{piece}];")
            whole.append(f"load_all<{piece}>({array}, {address});")
            part.append(f"{array}[k] = {self.i0} + k < {self.limit} ? {address}[k] : zero_of<{t}>();")
            loads[slot, offset.id] = array
            scope.values[load.id] = f"{array}[k]"
            self.depths[load.id] = len(self.scopes) - 1
        if piece > 1 or whole:
            sure = "sure || " if self.sure else ""
            outer.lines.append(f"const bool whole = {sure}({wide} && {self.i0} + {piece} <= {self.limit});")
            if whole:
                fill = f"for (int k = 0; k < {piece}; ++k) {{ {' '.join(part)} }}"
                outer.lines.append(f"if (whole) {{ {' '.join(whole)} }} else {fill}")
        self.body(s.body)
        done = self.close()
        on = f"{'sure || ' if self.sure else ''}i < {self.limit}"
        head = f"for (int k = 0; k < {piece}; ++k) {{ const i64 i = {self.i0} + k; const bool on = {on};"
        outer.lines += ["#pragma unroll", head, *done.lines, "}", *done.lines_after]

    def first_address(self, slot: int, offset: Expr) -> str:
        """Address of the piece's first element, computed in the scope of the piece."""
        return f"({self.pointer(slot)} + {self.at_first(offset, self.i0)})"

    def at_first(self, e: Expr, counter: str) -> str:
        """e, which is linear in the element's variable, with `counter` in its place."""
        e = self.chase(e)
        depth = len(self.scopes) - 1  # of the element scope
        if self.depth(e) < depth:
            return self.value(e)
        if e.op == "var":
            return counter
        x, y = self.at_first(e.args[0], counter), self.at_first(e.args[1], counter)
        return f"({x} {'+' if e.op == 'add' else '-' if e.op == 'sub' else '*'} {y})"

    def alignment(self, s: Loop) -> str:
        """Whether the first element of every row of neighbours lies at a multiple of the word's size."""
        if s.unroll == 1 or not self.near:
            return "true"
        self.open(_Scope(s))
        inner = _Scope(s, element=True)
        self.open(inner, (s.var, "i"))
        parts = []
        for slot, offset, _ in self.near:
            size = min(self.kernel.slot_dtype(slot).itemsize * s.unroll, 16)
            address = f"({self.pointer(slot)} + {self.at_first(offset, self.first)})"
            text = f"((u64){address} & {size - 1})"
            if text not in parts:
                parts.append(text)
        self.close()
        hoisted = self.close()
        self.scopes[-1].lines += hoisted.lines
        return "(" + " | ".join(parts) + ") == 0"

    def wide_check(self, s: Loop, outer: list[Loop] = ()) -> str:
        """The same for all turns of the loops outside of s: base addresses, and strides of those loops, must be multiples."""
        if s.unroll == 1:
            return "true"
        self.open(_Scope(s), *[(v, "0") for v, _ in s.digits], *[(x.var, "0") for x in outer])
        self.open(_Scope(s, element=True), (s.var, "i"))
        near = self.neighbours(s)
        parts = []
        for slot, offset, _ in near:
            size = min(self.kernel.slot_dtype(slot).itemsize * s.unroll, 16)
            item = self.kernel.slot_dtype(slot).itemsize
            parts.append(f"((u64){self.pointer(slot)} & {size - 1})")
            for term in self.outer_terms(offset, s.var):
                parts.append(f"((u64)({term}) * {item} & {size - 1})")
        self.close()
        hoisted = self.close()
        self.depths = {k: d for k, d in self.depths.items() if d < len(self.scopes)}
        del hoisted
        if not parts:
            return "true"
        name = self.fresh("w")
        self.line(f"const bool {name} = ({' | '.join(dict.fromkeys(parts))}) == 0;")
        return name

    def outer_terms(self, e: Expr, var) -> list[str]:
        """Coefficients and constants of an offset, besides the element's own: what all have in common must keep alignment."""
        e = self.chase(e)
        if e.op in ("add", "sub"):
            return self.outer_terms(e.args[0], var) + self.outer_terms(e.args[1], var)
        if e.op == "var":
            return [] if e.attr == var else ["1"]
        if e.op == "const":
            return [str(e.attr)] if e.attr else []
        if e.op == "mul":
            x, y = map(self.chase, e.args)
            for p, q in ((x, y), (y, x)):
                if p.op == "const" and q.op == "var":
                    return [] if q.attr == var and p.attr == 1 else [str(p.attr)]
                if p.op == "int" and q.op == "var":
                    return [self.value(p)]
        if e.op == "int":
            return [self.value(e)]
        return ["1"]

    # -- reductions

    def declare(self, acc):
        name = f"acc{acc.id}"
        per_element = isinstance(acc.lanes, int) and not isinstance(acc.lanes, bool)
        t = C_TYPE[acc.dtype]
        start = identity(acc.kind, acc.dtype)
        if acc.kind in ("argmax", "argmin"):
            t, start = f"Placed<{t}>", f"{{{start}, 0}}"
        if per_element:
            self.line(f"{t} {name}[{acc.lanes}];")
            self.line(
                f"for (int k = 0; k < {acc.lanes}; ++k) {name}[k] = {t}{start if start[0] == '{' else f'({start})'};"
            )
        else:
            self.line(f"{t} {name} = {start};")
        self.acc_name[acc.id] = (name, len(self.scopes) - 1, per_element)

    def accumulate(self, s: Accumulate):
        name, _, per_element = self.acc_name[s.acc.id]
        target = f"{name}[k]" if per_element else name
        value = self.value(s.value)
        if s.position is not None:
            value = f"Placed<{C_TYPE[s.acc.dtype]}>{{{value}, {self.value(s.position)}}}"
        guard = "if (on) " if self.scopes[-1].condition else ""
        self.line(f"{guard}{target} = {functor(s.acc.kind, s.acc.dtype)}::of({target}, {value});")

    def finish(self, acc):
        name, _, per_element = self.acc_name[acc.id]
        f = functor(acc.kind, acc.dtype)
        size = acc.dtype.itemsize if acc.kind not in ("argmax", "argmin") else 16
        t = C_TYPE[acc.dtype] if size != 16 or acc.dtype.itemsize == 16 else f"Placed<{C_TYPE[acc.dtype]}>"
        x, y = self.kernel.threads
        if self.kernel.team:
            at_once = 1
            while per_element and at_once < acc.lanes and 2 * at_once * x * y * size <= TEAM_BYTES:
                at_once *= 2
            self.scratch = max(self.scratch, (x * y * at_once * size + 7) // 8)
            for k in range(0, acc.lanes if per_element else 1, at_once):
                address = f"{name} + {k}" if per_element else f"&{name}"
                self.line(f"over_team<{f}, {at_once}>({address}, ({t}*)scratch);")
        elif self.warp:
            self.line(f"{name} = over_warp<{f}>({name});")
        elif x == 1:
            pass
        else:
            self.scratch = max(self.scratch, 2 * 32)
            self.line(f"{name} = over_block<{f}>({name}, ({t}*)scratch);")
        if acc.kind in ("argmax", "argmin"):
            if per_element:
                self.line(f"i64 {name}p[{acc.lanes}];")
                self.line(f"for (int k = 0; k < {acc.lanes}; ++k) {name}p[k] = {name}[k].place;")
            else:
                self.line(f"const i64 {name}p = {name}.place;")
            self.acc_name[acc.id] = (name + "p", len(self.scopes) - 1, per_element)
        else:
            self.acc_name[acc.id] = (name, len(self.scopes) - 1, per_element)

    # -- loops over single elements

    def repeat(self, s: Repeat):
        starts = [self.value(e) for e in (*s.starts, s.start)]
        limit = self.value(s.limit)
        names = [self.fresh("r") for _ in starts]
        for i, (name, e, start) in enumerate(zip(names, (*s.starts, s.start), starts)):
            self.line(f"{C_TYPE[e.dtype]} {name} = {start};")
            self.acc_name[i] = (name, len(self.scopes), False)
        last = self.fresh("r")
        self.line(f"bool {last};")
        self.open(_Scope())
        self.line(f"{last} = {self.value(s.condition)};")
        self.line(f"if (!{last} || {names[-1]} >= {limit}) break;")
        updates = [self.value(e) for e in s.updates]  # all before any variable changes
        after = [self.fresh("r") for _ in updates]
        self.line(" ".join(f"const {C_TYPE[e.dtype]} {n} = {u};" for n, e, u in zip(after, s.updates, updates)))
        self.line(" ".join(f"{name} = {n};" for name, n in zip(names, after)) + f" ++{names[-1]};")
        self.nested("for (;;)", self.close())
        for i, name in enumerate([*names, last]):
            self.acc_name[i] = (name, len(self.scopes) - 1, False)

    # -- tiles

    def transpose(self, s: Transpose):
        """A tile into shared memory: read along the pointer's unit axis by threadIdx.x, to be read along the other."""
        t = C_TYPE[self.kernel.slot_dtype(s.slot)]
        local = self.pointer(s.local)
        self.shared.append(f"__shared__ {t} {local}[{s.width * (s.width + 1)}];")
        offset, stride = self.value(s.offset), self.value(s.stride)
        rows, columns = self.value(s.rows), self.value(s.columns)
        x, y = self.kernel.threads
        source = self.pointer(s.slot)
        self.line("__syncthreads();")
        self.line(f"for (int j = threadIdx.y; j < {columns}; j += {y}) for (int i = threadIdx.x; i < {rows}; i += {x})")
        self.line(f"  {local}[i * {s.width + 1} + j] = {source}[{offset} + i + j * {stride}];")
        self.line("__syncthreads();")
