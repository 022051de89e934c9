"""Loops of a CUDA kernel: how they spread over blocks and threads, and how neighbouring elements are moved as wide words."""

from __future__ import annotations

import re

from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.values import Scope, Values
from tandem.codegen.expr import Expr
from tandem.codegen.loops import Loop, Store

UNROLLED_LINES = 16  # loops over pieces with less code than this have four of them on their way at a time


def _writes(body: list) -> bool:
    """Whether statements write memory."""
    return any(s.slot >= 0 if type(s) is Store else type(s) is Loop and _writes(s.body) for s in body)


class Loops(Values):
    def open(self, scope: Scope, *variables):
        for v, name in variables:
            self.var_depth[v] = len(self.scopes)
            self.var_name[v] = name
        self.scopes.append(scope)

    def close(self) -> Scope:
        depth = len(self.scopes) - 1
        self.forget_depths(depth)
        return self.scopes.pop()

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def nested(self, head: str, scope: Scope):
        self.line(head + " {")
        self.scopes[-1].lines += [*scope.lines, "}"]

    def loop_serial(self, s: Loop):
        start, end, var = self.value(s.start), self.value(s.end), self.fresh("s")
        condition = self.whole_lanes(s)
        self.open(Scope(s, condition=self.scopes[-1].condition), (s.var, var))
        self.body(s.body)
        self.versions(condition, f"for (i64 {var} = {start}; {var} < {end}; {var} += {s.step})", self.close())

    def loop_team(self, s: Loop):
        start, end, var = self.value(s.start), self.value(s.end), self.fresh("t")
        condition = self.whole_lanes(s)
        self.streams = not self.kernel.locals and _writes(s.body)
        self.streamed = self.streamed or self.streams
        self.open(Scope(s), (s.var, var))
        self.body(s.body)
        inside = self.close()
        self.streams = False
        rows = self.kernel.threads[1]
        head = f"for (i64 {var} = {start} + threadIdx.y; {var} < {end}; {var} += {rows})"
        if not self.kernel.locals:  # several loads on their way at a time, as far as registers go
            head = f"#pragma unroll {4 if len(inside.lines) < UNROLLED_LINES else 2}\n{head}"
        self.versions(condition, head, inside)

    def whole_lanes(self, s: Loop) -> str | None:
        """Whether the pieces that this thread takes inside of s are whole in every turn of s; None where that is asked already, or
        of no use. The code inside is then written for that case (`only`), or for both (`sure`)."""
        loops, inner = [s], s.body
        while len(inner) == 1 and type(inner[0]) is Loop and inner[0].mode in ("serial", "team"):
            loops.append(inner[0])
            inner = inner[0].body
        if (
            self.sure
            or self.only
            or len(inner) != 1
            or type(inner[0]) is not Loop
            or inner[0].mode != "lanes"
            or inner[0].unroll == 1
        ):
            return None
        lanes = inner[0]
        first, limit = self.value(lanes.start), self.value(lanes.end)
        wide = self.wide_check(lanes, loops)
        self.only = wide == "true" and self.even(lanes)
        self.sure = not self.only
        if self.only:
            return f"{first} + (i64)threadIdx.x * {lanes.unroll} < {limit}"
        return f"{wide} && {first} + ((i64)threadIdx.x + 1) * {lanes.unroll} <= {limit}"

    def even(self, s: Loop) -> bool:
        """Whether s is known to consist of whole pieces."""
        return self.divides(s.unroll, s.start) and self.divides(s.unroll, s.end)

    def loop_rows(self, s: Loop):
        start, end, var = self.value(s.start), self.value(s.end), self.fresh("t")
        self.open(Scope(s), (s.var, var))
        for v, name in self.digits(var, s.digits):
            self.var_depth[v] = len(self.scopes) - 1
            self.var_name[v] = name
        self.body(s.body)
        rows = self.kernel.threads[1]
        self.nested(f"for (i64 {var} = {start} + threadIdx.y; {var} < {end}; {var} += {rows})", self.close())

    def loop_items(self, s: Loop):
        if self.warp and self.kernel.items is not None:
            per_block = self.kernel.threads[1]
            count = self.kernel.items
            self.line(f"const i64 item = (i64)blockIdx.x * {per_block} + threadIdx.y;")
            self.line(f"if (item >= {self.value(count)}) return;")
        else:
            self.line("const i64 item = blockIdx.x;")
        digits = self.digits("item", s.digits)
        self.open(Scope(s), (s.var, "item"), *digits)
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
                found.append((v, name))
                continue
            after, size = self.fresh("r"), self.chase(size)
            by = self.kernel.inverses.get(size.attr) if size.op == "int" else None
            if by is not None:
                self.line(f"const u32 {after} = over((u32){rest}, a.n[{by}]);")
                self.line(f"const i64 {name} = (u32){rest} - {after} * {self.known(size.attr)};")
            else:
                n = self.value(size)
                self.line(f"const i64 {after} = udiv({rest}, {n}), {name} = {rest} - {after} * {n};")
            rest = after
            found.append((v, name))
        return found

    def loop_flat(self, s: Loop):
        """Whole pieces, as wide words; where memory does not allow that, and what is left over, element by element."""
        self.i0, self.limit = "i0", "limit"
        piece, flat, threads = s.unroll, self.kernel.flat, self.kernel.threads[0]
        self.line(f"const i64 limit = {self.value(s.end)};")
        wide, even = self.wide_check(s), self.even(s)
        if flat:
            counter, first, stride = "u32", f"blockIdx.x * {threads}u + threadIdx.x", f"gridDim.x * {threads}u"
            row, inverse, total = flat
            count = self.known(total)
            row, by_row = self.known(row) if s.digits else "", f"over(c, a.n[{inverse}])"
            length, by_element = "(u32)limit", "c / (u32)limit"
        else:
            counter, first, stride = (
                "i64", f"(i64)blockIdx.x * {threads} + threadIdx.x", f"(i64)gridDim.x * {threads}",
            )  # fmt: skip
            self.line(f"const i64 pieces = {f'(limit + {piece - 1})' if s.digits else 'limit'} / {piece};")
            count = " * ".join([self.value(n) for _, n in s.digits] + ["pieces"])
            row, by_row, length, by_element = "pieces", "udiv(c, pieces)", "limit", "udiv(c, limit)"

        def places(piece: int, row: str, quotient: str) -> list[str]:
            if not s.digits:
                return [f"const i64 i0 = (i64)c * {piece};"]
            return [f"const {counter} row = {quotient};", f"const i64 i0 = (i64)(c - row * {row}) * {piece};"]

        head = f"for ({counter} c = {first}; c < {count}; c += {stride}) {{"
        if s.digits and not even and (flat or self.chase(s.end).op == "const"):
            # the last piece of every row is never whole, but all the others are
            self.sure = True
            lines, at = self.flat_pieces(s, places(piece, row, by_row), wide)
            self.sure = False
            self.scopes[-1].lines += [
                head, *lines[:at],
                f"if ({wide} && i0 + {piece} <= limit) {{ constexpr bool sure = true;", *lines[at:],
                "} else { constexpr bool sure = false;", *lines[at:], "} }",
            ]  # fmt: skip
            return
        self.only = True
        pieces, _ = self.flat_pieces(s, places(piece, row, by_row), wide)
        left = wide != "true" or not even
        if left:
            single = Loop(s.var, s.start, s.end, s.body, s.mode, 1, s.digits)
            elements, _ = self.flat_pieces(single, places(1, length, by_element), "true")
            conditions = [wide] + ([f"limit % {piece} == 0"] if s.digits and not even else [])
            self.line(f"const {counter} wholes = {' && '.join(conditions)} ? {count} : 0;")
            count = "wholes"
        self.only = False
        head = f"for ({counter} c = {first}; c < {count}; c += {stride}) {{"
        if self.kernel.once:
            head = f"if (const {counter} c = {first}; c < {count}) {{"
        self.scopes[-1].lines += [head, *pieces, "}"]
        if left:
            every = " * ".join([self.value(n) for _, n in s.digits] + ["limit"])
            self.line(f"const {counter} every = {every};\n#pragma unroll 1")
            head = f"for ({counter} c = wholes * {piece} + {first}; c < every; c += {stride}) {{"
            self.scopes[-1].lines += [head, *elements, "}"]

    def flat_pieces(self, s: Loop, places: list[str], wide: str) -> tuple[list[str], int]:
        """Lines that compute piece c, and how many of them say where it is."""
        self.open(Scope(s))
        self.scopes[-1].lines += places
        if s.digits:
            for v, name in self.digits("row", s.digits):
                self.var_depth[v] = len(self.scopes) - 1
                self.var_name[v] = name
        at = len(self.scopes[-1].lines)
        self.elements(s, wide)
        return self.close().lines, at

    def versions(self, condition: str | None, head: str, inside: Scope, tail: str = ""):
        """A loop, under the condition that its pieces are whole if they are known to be (`only`); twice if they may not be
        (`sure`): where the condition holds they are read without asking, several at a time."""
        loop = [head + " {", *inside.lines, "}", tail]
        if condition is None:
            self.scopes[-1].lines += loop
        elif self.only:
            self.only = False
            self.scopes[-1].lines += [f"if ({condition}) {{", *loop, "}"]
        else:
            self.sure = False
            self.line(f"if ({condition}) {{ constexpr bool sure = true;")
            careful = [
                re.sub("#pragma unroll [24]", "#pragma unroll 1", loop[0]),
                *loop[1:],
            ]  # registers are for the other
            self.scopes[-1].lines += [*loop, "} else { constexpr bool sure = false;", *careful, "}"]

    def loop_vector(self, s: Loop):
        piece, start, end = s.unroll, self.value(s.start), self.value(s.end)
        threads = self.kernel.threads[0]
        i0, first, limit, aligned = (self.fresh(x) for x in ("j", "first", "limit", "aligned"))
        self.i0, self.first, self.limit = i0, first, limit
        self.line(f"const i64 {first} = {start}, {limit} = {end};")
        if not self.kernel.kept and piece > 1 and self.even(s) and all(type(x) is Store for x in s.body):
            self.row_of_stores(s, i0, aligned)
            return
        self.only = self.even(s) and not self.wide_parts(s)
        self.apart = [] if self.kernel.kept and not self.only else None
        self.sure = not self.only and self.apart is None
        self.open(Scope(s))
        self.elements(s, aligned)
        inner = self.close()
        if (
            not self.only
        ):  # whether rows start at addresses that allow wide words shows only now that the loads are known
            self.line(f"const bool {aligned} = {self.alignment(s)};")
        if self.kernel.kept:
            start = f"const i64 {i0} = {first} + ((i64)e * {threads} + threadIdx.x) * {piece};"
            head = f"#pragma unroll\nfor (int e = 0; e < {self.kernel.kept}; ++e) {{ {start} if ({i0} < {limit})"
            if self.apart is not None:
                self.line(f"const bool even{aligned} = {aligned} && ({limit} - {first}) % {piece} == 0;")
            if self.apart:  # read as the rows allow it, all of it before anything is computed
                whole, part = (" ".join(lines) for lines in zip(*self.apart))
                part = f"for (int k = 0; k < {piece}; ++k) {{ {part} }}"
                self.line(f"if (even{aligned}) {{\n{head} {{ {whole} }} }}\n}} else {{\n{head} {{ {part} }} }}\n}}")
            self.only, self.apart = False, None
            self.versions(None, head, inner, "}")
            return
        step, begin = f"{i0} += {threads * piece}", f"{first} + (i64)threadIdx.x * {piece}"
        if self.only:
            self.only = False
            if piece > 1:
                self.line(f"#pragma unroll {4 if len(inner.lines) < UNROLLED_LINES else 1}")
            self.nested(f"for (i64 {i0} = {begin}; {i0} < {limit}; {step})", inner)
            return
        # whole pieces first, which are read without asking, several at a time, and then what is left of the row
        self.sure = False
        self.line(f"{{ i64 {i0} = {begin}; const i64 even = {aligned} ? {limit} : {first};")
        self.line(f"#pragma unroll {4 if len(inner.lines) < UNROLLED_LINES else 1}")
        self.line(f"for (; {i0} + {piece} <= even; {step}) {{ constexpr bool sure = true;")
        self.scopes[-1].lines += [*inner.lines, "}", "#pragma unroll 1"]
        self.line(f"for (; {i0} < {limit}; {step}) {{ constexpr bool sure = false;")
        self.scopes[-1].lines += [*inner.lines, "} }"]

    def row_of_stores(self, s: Loop, i0: str, aligned: str):
        """A row of whole pieces, as wide words; where memory does not allow that, element by element."""
        threads, wide = self.kernel.threads[0], not self.wide_parts(s)
        versions = []
        self.only = True
        for piece in (s.unroll,) if wide else (s.unroll, 1):
            self.open(Scope(s))
            self.elements(Loop(s.var, s.start, s.end, s.body, s.mode, piece), aligned)
            lines = self.close().lines
            if piece > 1 and not wide:
                self.line(f"const bool {aligned} = {self.alignment(s)};")
            head = f"for (i64 {i0} = {self.first} + (i64)threadIdx.x * {piece}; {i0} < {self.limit}; {i0} += {threads * piece}) {{"
            several = 4 if piece > 1 and len(lines) < UNROLLED_LINES else 1
            versions.append([f"#pragma unroll {several}", head, *lines, "}"])
        self.only = False
        if wide:
            self.scopes[-1].lines += versions[0]
        else:
            self.scopes[-1].lines += [f"if ({aligned}) {{", *versions[0], "} else {", *versions[1], "}"]

    def loop_lanes(self, s: Loop):
        piece, start, end = s.unroll, self.value(s.start), self.value(s.end)
        i0, first, limit, aligned = (self.fresh(x) for x in ("j", "first", "limit", "aligned"))
        self.i0, self.first, self.limit = i0, first, limit
        self.line(f"const i64 {first} = {start}, {limit} = {end}, {i0} = {first} + (i64)threadIdx.x * {piece};")
        alone = not (self.sure or self.only) and piece > 1 and self.even(s) and not self.wide_parts(s)
        self.only = self.only or alone
        self.open(Scope(s))
        self.elements(s, aligned)
        inner = self.close()
        if not self.only:
            self.line(f"const bool {aligned} = {self.alignment(s)};")
        self.scopes[-1].lines += [f"if ({i0} < {limit}) {{" if alone else "{", *inner.lines, "}"]
        self.only = self.only and not alone

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
        self.piece = piece = s.unroll
        outer = self.scopes[-1]
        scope = Scope(s, element=True, condition="on")
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
            early = self.streams and slot in self.kernel.constant
            read = f"load_{'early' if early else 'all'}<{piece}>({array}, {address});"
            careful = f"{array}[k] = {self.i0} + k < {self.limit} ? {address}[k] : zero_of<{t}>();"
            if keeps and self.apart is not None:
                self.apart.append((read, careful))
            else:
                whole.append(read)
                part.append(careful)
            loads[slot, offset.id] = array
            scope.values[load.id] = f"{array}[k]"
            self.depths[load.id] = len(self.scopes) - 1
        if self.only:
            outer.lines += [" ".join(whole)] if whole else []
        elif self.apart is not None:
            outer.lines.append(f"const bool whole = even{wide};")
        elif piece > 1 or whole:
            sure = "sure || " if self.sure else ""
            outer.lines.append(f"const bool whole = {sure}({wide} && {self.i0} + {piece} <= {self.limit});")
        if whole and not self.only:
            fill = f"for (int k = 0; k < {piece}; ++k) {{ {' '.join(part)} }}"
            outer.lines.append(f"if (whole) {{ {' '.join(whole)} }} else {fill}")
        self.body(s.body)
        done = self.close()
        on = (
            "true"
            if self.only or (self.apart is not None and self.even(s))
            else f"{'sure || ' if self.sure else ''}i < {self.limit}"
        )
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
        self.open(Scope(s))
        inner = Scope(s, element=True)
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
        parts = self.wide_parts(s, outer)
        if not parts:
            return "true"
        name = self.fresh("w")
        self.line(f"const bool {name} = ({' | '.join(parts)}) == 0;")
        return name

    def wide_parts(self, s: Loop, outer: list[Loop] = ()) -> list[str]:
        """What must be 0 for it, where that is not known."""
        if s.unroll == 1:
            return []
        self.open(Scope(s), *[(v, "0") for v, _ in s.digits], *[(x.var, "0") for x in outer])
        self.open(Scope(s, element=True), (s.var, "i"))
        parts = []
        for slot, offset, _ in self.neighbours(s):
            item = self.kernel.slot_dtype(slot).itemsize
            size = min(item * s.unroll, 16)
            if slot not in self.kernel.aligned:
                parts.append(f"((u64){self.pointer(slot)} & {size - 1})")
            for term in self.outer_terms(offset, s.var):
                if type(term) is not int:
                    parts.append(f"((u64)({term}) * {item} & {size - 1})")
                elif term * item % size:
                    parts.append("1")
        self.close()
        self.close()
        self.depths = {k: d for k, d in self.depths.items() if d < len(self.scopes)}
        return list(dict.fromkeys(parts))

    def outer_terms(self, e: Expr, var) -> list[str | int]:
        """Coefficients and constants of an offset, besides the element's own: what all have in common must keep alignment. Of a
        known size, the power of two that divides it."""
        e = self.chase(e)
        if e.op in ("add", "sub"):
            return self.outer_terms(e.args[0], var) + self.outer_terms(e.args[1], var)
        if e.op == "var":
            return [] if e.attr == var else [1]
        if e.op == "const":
            return [e.attr] if e.attr else []
        if e.op == "int":
            return [self.kernel.known[e.attr] if e.attr in self.kernel.known else self.value(e)]
        if e.op == "mul":
            x, y = map(self.chase, e.args)
            for p, q in ((x, y), (y, x)):
                if p.op == "const":
                    return [] if q.op == "var" and q.attr == var and p.attr == 1 else [p.attr]
                if p.op == "int" and (q.op == "var" or p.attr in self.kernel.known):
                    return self.outer_terms(p, var)
        return [1]
