"""Renders a kernel as CUDA C.

Loops say how they spread over threads (mode):

    flat      over the whole grid: the outer `digits` and pieces of `unroll` neighbouring elements of the innermost loop
    items     one item per block; with Kernel.threads = (32, k), one per warp
    vector    over threadIdx.x, `unroll` neighbouring elements at a time
    lanes     threadIdx.x again, but for 32 * unroll elements at most: no loop; accumulators have one part per element
    team      over threadIdx.y
    rows      over threadIdx.y too, whose warps each have a row to themselves
    serial    every thread runs all of it

Expressions are computed in the outermost loop they are constant in. Neighbouring elements are read and written as words of
up to 16 bytes where addresses allow it, which is found out when the loop starts.
"""

from __future__ import annotations

import re

from tandem.codegen.cuda.kernel import CudaKernel, TextKernel, arguments, signature
from tandem.codegen.cuda.loops import Loops
from tandem.codegen.cuda.ops import C_TYPE, PRELUDE, STREAMED, functor, identity
from tandem.codegen.cuda.values import Scope
from tandem.codegen.loops import Accumulate, Loop, Repeat, Store, Transpose

TEAM_BYTES = 1 << 14  # of shared memory in which a team adds up
MOST_LINES = 160  # of a flat loop, in all its versions, for which 32 registers are enough
_ITEM_SIZES = {name: dtype.itemsize for dtype, name in C_TYPE.items()}


def render(kernel: CudaKernel) -> str:
    """The source of a kernel, complete but for PRELUDE."""
    return _Renderer(kernel).render()


def source(kernel: CudaKernel | TextKernel) -> str:
    text = kernel.text if isinstance(kernel, TextKernel) else render(kernel)
    before, _, function = text.rpartition('extern "C"')
    head, _, body = function.partition("{")
    begin = "BEGIN"
    if kernel.guarded:
        before, flag = _with_flag(before)
        begin += f" const bool failed = __ldg((const u32*){flag});"
        if isinstance(kernel, TextKernel) and not kernel.skips:
            begin += " if (__syncthreads_or(failed)) return;"
    return f'{PRELUDE}{before}extern "C"{head}{{ {begin}{body}'


def _with_flag(text: str) -> tuple[str, str]:
    """Declarations with the address of the device's flag behind all other arguments, and how the kernel names it."""
    name, variable = ("Launches", "all") if "struct Launches {" in text else ("Arguments", "a")
    start = text.index(f"struct {name} {{")
    end = text.index("};", start)
    return f"{text[:end]}u64 failed; {text[end:]}", f"{variable}.failed"


def _bytes_held(lines: list[str]) -> int:
    """Of memory that is read and written in pieces, by one thread at a time."""
    found = set(re.findall(r"^alignas\(16\) (\w+) (\w+)\[(\d+)\];", "\n".join(lines), re.M))
    return sum(_ITEM_SIZES[t] * int(count) for t, _, count in found)


def rest_of(accumulator: str) -> str:
    """What its additions have lost (Note [Sums on devices] in nests.py)."""
    return accumulator + "r"


class _Renderer(Loops):
    def render(self) -> str:
        self.scopes.append(Scope())
        self.body(self.kernel.body)
        top = self.scopes.pop()
        self.shared += [f"__shared__ u64 scratch[{self.scratch}];"] if self.scratch else []
        lines = [
            arguments(len(self.kernel.pointers), max(self.ints, self.kernel.num_ints)),
            *([STREAMED] if self.streamed else []),
            signature(self.kernel.name, self.kernel.threads, self.resident(top.lines)) + " {",
            *self.shared, *self.pointers(), *top.lines, "}", "",
        ]  # fmt: skip
        return "\n".join(lines)

    def resident(self, lines: list[str]) -> int:
        """Blocks that shall have room on a multiprocessor: where columns or long rows are reduced, which waits for memory, 1024
        threads; where each thread of a flat loop reads one word and writes one, as many as there are: fewer ask for too little."""
        x, y = self.kernel.threads
        waits = (self.kernel.team and not self.kernel.locals) or (y == 1 and x > 256)
        if self.kernel.flat is not None and _bytes_held(lines) == 32 and len(lines) < MOST_LINES:
            return 2048 // (x * y)
        return 1024 // (x * y) if waits and x * y <= 512 else 0

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
        return lines + [f"const u32 n{number} = (u32)a.n[{number}];" for number in sorted(self.narrow)]

    # -- statements

    def before_stores(self, s: Store):
        self.value(s.value)
        self.value(s.offset)

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
        allowed = "if (!failed) " if self.kernel.guarded else ""
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
                store = "store_whole" if self.streams else "store_all"
                if self.only:
                    scope.lines_after.append(f"{allowed}{only}{store}<{piece.unroll}>({address}, {array}); }}")
                    return
                scope.lines_after.append(
                    f"{allowed}{only}if (whole) {store}<{piece.unroll}>({address}, {array}); else "
                    f"for (int k = 0; k < {piece.unroll}; ++k) if ({self.i0} + k < {self.limit}) {address}[k] = {array}[k]; }}"
                )
                return
            condition = "if (on && threadIdx.y == 0) " if self.first_row_only(piece) else "if (on) "
            scope.lines.append(f"{allowed}{condition}{self.pointer(s.slot)}[{self.value(s.offset)}] = {value};")
            return
        if scope.condition:
            scope.lines.append(
                f"{allowed}if ({scope.condition}) {self.pointer(s.slot)}[{self.value(s.offset)}] = {value};"
            )
            return
        scope.lines.append(f"{allowed}if ({self.leader()}) {self.pointer(s.slot)}[{self.value(s.offset)}] = {value};")

    def first_row_only(self, piece: Loop) -> bool:
        """Whether all threads of a team hold the same: results of reductions."""
        if self.warp and self.kernel.items is not None:
            return False
        shared = piece.mode == "lanes" or self.warp
        return shared and not any(x.loop is not None and x.loop.mode in ("team", "rows") for x in self.scopes)

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
        if acc.compensated:
            self.line(f"float {rest_of(name)}[{acc.lanes}] = {{}};" if per_element else f"float {rest_of(name)} = 0;")
        self.acc_name[acc.id] = (name, len(self.scopes) - 1, per_element)

    def accumulate(self, s: Accumulate):
        name, _, per_element = self.acc_name[s.acc.id]
        target = self.element_of(name) if per_element else name
        value = self.value(s.value)
        if s.position is not None:
            value = f"Placed<{C_TYPE[s.acc.dtype]}>{{{value}, {self.value(s.position)}}}"
        guard = "if (on) " if self.scopes[-1].condition else ""
        if not s.acc.compensated:
            self.line(f"{guard}{target} = {functor(s.acc.kind, s.acc.dtype)}::of({target}, {value});")
        elif per_element or not self.scopes[-1].element or self.scopes[-1].loop.unroll == 1:
            rest = self.element_of(rest_of(name)) if per_element else rest_of(name)
            self.line(f"{guard}add_exactly({target}, {rest}, {value});")
        else:  # the elements of a piece are few: what they add up to is added exactly
            part = self.fresh("q")
            self.scopes[-2].lines.append(f"float {part} = 0;")
            self.line(f"{guard}{part} += {value};")
            self.scopes[-1].lines_after.append(f"add_exactly({target}, {rest_of(name)}, {part});")

    def finish(self, acc):
        name, _, per_element = self.acc_name[acc.id]
        f = functor(acc.kind, acc.dtype)
        size = acc.dtype.itemsize if acc.kind not in ("argmax", "argmin") else 16
        t = C_TYPE[acc.dtype] if size != 16 or acc.dtype.itemsize == 16 else f"Placed<{C_TYPE[acc.dtype]}>"
        x, y = self.kernel.threads
        if acc.compensated:
            rest = rest_of(name)
            if per_element:
                self.line(f"for (int k = 0; k < {acc.lanes}; ++k) {name}[k] = with_rest({name}[k], {rest}[k]);")
            else:
                self.line(f"{name} = with_rest({name}, {rest});")
        if self.kernel.team or per_element:
            at_once = 1
            while per_element and acc.lanes % (2 * at_once) == 0 and 2 * at_once * x * y * size <= TEAM_BYTES:
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
        self.open(Scope())
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
