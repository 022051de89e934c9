"""Loops in LLVM IR: the parallel loop, vector loops with their tails, tiles."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.expr import Expr
from tandem.codegen.llvm.ops import MEMORY, TYPE, alignment, vector
from tandem.codegen.llvm.values import Scope, Values
from tandem.codegen.loops import PAST_CACHES, Accumulate, Loop, Repeat, Store, Transpose

LONG_BODY = 24  # expressions from which on a vector loop's body is not rendered a second time for the tail
# Expressions up to which a long body is for two vectors at once: they do not wait for each other.
WIDE_BODY = 64
AHEAD = 2048  # bytes: so far before their turn operands of such a kernel are asked for, where its body is long


class Survey:
    """What a vector loop's body needs to know before it is rendered."""

    __slots__ = ("count", "draws", "lanes", "loads", "masked", "regular", "single")

    def __init__(self):
        self.lanes = 1  # elements per vector
        self.masked = True  # whether memory can be read and written under a mask
        self.count = 0  # expressions
        self.draws = False  # whether random bits are among them, which are long
        self.loads: list[Expr] = []  # loads that vary, without a condition
        self.regular = True  # all of them and all stores are of neighbouring elements
        self.single = False  # whether everything takes four bytes


class Loops(Values):
    def before_stores(self, s: Store):
        self.operand(s.value, self.scopes[-1])

    def label(self) -> str:
        self.labels += 1
        return f"b{self.labels}"

    def open(self, scope: Scope, *variables):
        for v in variables:
            self.var_depth[v] = len(self.scopes)
        self.scopes.append(scope)

    def close(self) -> Scope:
        self.forget_depths(len(self.scopes) - 1)
        return self.scopes.pop()

    def counted(self, start: str, end: str, step: int, fill, var=None):
        """A loop from start to end; fill(counter) renders its body."""
        parent = self.scopes[-1]
        head, leave = self.label(), self.label()
        self.open(Scope(head, var=var, counter=f"%i{head}"), var)
        fill(f"%i{head}")
        scope = self.close()
        check = self.line(parent, f"icmp slt i64 {start}, {end}")
        parent.lines += [
            f"  br i1 {check}, label %{head}, label %{leave}",
            f"{head}:",
            f"  %i{head} = phi i64 [ {start}, %{parent.label} ], [ %n{head}, %{scope.label} ]",
            *scope.lines,
            f"  %n{head} = add nsw i64 %i{head}, {step}",
            f"  %c{head} = icmp slt i64 %n{head}, {end}",
            f"  br i1 %c{head}, label %{head}, label %{leave}",
            f"{leave}:",
        ]
        parent.label = leave

    def loop_serial(self, s: Loop):
        self.counted(self.value(s.start), self.value(s.end), s.step, lambda _: self.body(s.body), s.var)

    def repeat(self, s: Repeat):
        parent = self.scopes[-1]
        starts = [self.value(e) for e in (*s.starts, s.start)]
        limit = self.value(s.limit)
        head, inside, leave = self.label(), self.label(), self.label()
        names = [f"%v{head}_{i}" for i in range(len(starts))]
        scope = Scope(head)
        for i, name in enumerate(names):
            self.acc_value[i], self.acc_depth[i] = name, len(self.scopes)
        self.open(scope)
        condition = self.value(s.condition)
        below = self.line(scope, f"icmp slt i64 {names[-1]}, {limit}")
        scope.lines += [
            f"  br i1 {self.line(scope, f'and i1 {condition}, {below}')}, label %{inside}, label %{leave}",
            f"{inside}:",
        ]
        scope.label = inside
        updates = [self.value(e) for e in s.updates]
        updates.append(self.line(scope, f"add nsw i64 {names[-1]}, 1"))
        self.close()
        kinds = [TYPE[e.dtype] for e in (*s.starts, s.start)]
        parent.lines += [f"  br label %{head}", f"{head}:"]
        for name, kind, first, new in zip(names, kinds, starts, updates, strict=True):
            parent.lines.append(f"  {name} = phi {kind} [ {first}, %{parent.label} ], [ {new}, %{scope.label} ]")
        parent.lines += [*scope.lines, f"  br label %{head}", f"{leave}:"]
        parent.label = leave
        self.acc_value[len(names)] = condition
        for i in range(len(names) + 1):
            self.acc_depth[i] = len(self.scopes) - 1

    def transpose(self, s: Transpose):
        """Square blocks go through registers; what is left at the edges goes one element at a time."""
        dtype = self.kernel.slot_dtype(s.slot)
        memory, size = MEMORY[dtype], alignment(dtype)
        if dtype is dtypes.complex64:
            memory = "i64"  # to be moved only
        block = 4 if dtype.itemsize == 8 else 8
        scope = self.scopes[-1]
        source = self.line(scope, f"getelementptr {memory}, ptr {self.pointer(s.slot)}, i64 {self.value(s.offset)}")
        local, stride = self.pointer(s.local), self.value(s.stride)
        rows, columns = self.value(s.rows), self.value(s.columns)
        whole_rows = self.line(scope, f"and i64 {rows}, {-block}")
        far = self.line(scope, f"mul i64 {stride}, {block}")  # rows of the next block, fetched while this one is turned
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        whole_columns = self.line(scope, f"and i64 {columns}, {-block}")

        def place(i: str, j: str) -> tuple[str, str]:
            now = self.scopes[-1]
            jump = self.line(now, f"mul i64 {j}, {stride}")
            read = self.line(now, f"getelementptr {memory}, ptr {source}, i64 {self.line(now, f'add i64 {jump}, {i}')}")
            row = self.line(now, f"mul i64 {i}, {s.width}")
            return read, self.line(
                now, f"getelementptr {memory}, ptr {local}, i64 {self.line(now, f'add i64 {row}, {j}')}"
            )

        def move_block(i: str, j: str):
            now = self.scopes[-1]
            read, write = place(i, j)
            lines = []
            for k in range(block):
                if k:
                    read = self.line(now, f"getelementptr {memory}, ptr {read}, i64 {stride}")
                lines.append(self.line(now, f"load <{block} x {memory}>, ptr {read}, align {size}"))
                ahead = self.line(now, f"getelementptr {memory}, ptr {read}, i64 {far}")
                now.lines.append(f"  call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
            for k, line in enumerate(self.transposed(now, lines, memory, block)):
                to = self.line(now, f"getelementptr {memory}, ptr {write}, i64 {k * s.width}")
                now.lines.append(f"  store <{block} x {memory}> {line}, ptr {to}, align {size}")

        def move_element(i: str, j: str):
            now = self.scopes[-1]
            read, write = place(i, j)
            now.lines.append(
                f"  store {memory} {self.line(now, f'load {memory}, ptr {read}, align {size}')}, ptr {write}"
            )

        def nest(i_range, j_range, step, move):
            self.counted(*j_range, step, lambda j: self.counted(*i_range, step, lambda i: move(i, j)))

        nest(("0", whole_rows), ("0", whole_columns), block, move_block)
        nest((whole_rows, rows), ("0", columns), 1, move_element)
        nest(("0", whole_rows), (whole_columns, columns), 1, move_element)

    def loop_items(self, s: Loop):
        """The parallel loop. Its counter is split by division once; after that the digits are counted up like an odometer's."""
        parent = self.scopes[-1]
        start, end = self.value(s.start), self.value(s.end)
        sizes = [self.value(n) for _, n in s.digits]
        head, leave = self.label(), self.label()
        firsts, rest = [], start
        for size in reversed(sizes[1:]):
            firsts.append(self.line(parent, f"urem i64 {rest}, {size}"))
            rest = self.line(parent, f"udiv i64 {rest}, {size}")
        if sizes:
            firsts.append(rest)
        firsts.reverse()
        scope = Scope(head, var=s.var, counter=f"%i{head}")
        digits = [f"%d{head}_{k}" for k in range(len(sizes))]
        self.open(scope, s.var, *[v for v, _ in s.digits])
        self.digit_names = {v: name for (v, _), name in zip(s.digits, digits)}
        self.body(s.body)
        scope = self.close()
        parent.lines += [
            f"  br label %{head}",
            f"{head}:",
            f"  %i{head} = phi i64 [ {start}, %{parent.label} ], [ %n{head}, %{scope.label} ]",
        ]
        for k, first in enumerate(firsts):
            parent.lines.append(
                f"  {digits[k]} = phi i64 [ {first}, %{parent.label} ], [ {digits[k]}n, %{scope.label} ]"
            )
        parent.lines += scope.lines
        carry = "1"
        for k in reversed(range(len(sizes))):
            up = self.line(parent, f"add nsw i64 {digits[k]}, {carry}")
            if k:
                full = self.line(parent, f"icmp eq i64 {up}, {sizes[k]}")
                parent.lines.append(f"  {digits[k]}n = select i1 {full}, i64 0, i64 {up}")
                carry = self.line(parent, f"zext i1 {full} to i64")
            else:
                parent.lines.append(f"  {digits[k]}n = add nsw i64 {up}, 0")
        parent.lines += [
            f"  %n{head} = add nsw i64 %i{head}, 1",
            f"  %c{head} = icmp slt i64 %n{head}, {end}",
            f"  br i1 %c{head}, label %{head}, label %{leave}",
            f"{leave}:",
        ]
        parent.label = leave

    def survey(self, s: Loop) -> Survey:
        """Looks through a vector loop's body before it is rendered."""
        self.var_depth[s.var] = len(self.scopes)
        self.scopes.append(Scope("", lanes=0))  # only so that depths of this loop's values can be asked for
        found = Survey()
        sizes, memory_sizes = set(), set()
        stack: list[Expr] = []
        for inner in s.body:
            if type(inner) is Store:
                stack.append(inner.value)
                size = alignment(self.kernel.slot_dtype(inner.slot))
                sizes.add(size)
                if inner.slot >= 0:
                    memory_sizes.add(size)
                found.regular &= self.is_unit(inner.offset)
            elif type(inner) is Accumulate:
                stack.append(inner.value)
                sizes.add(inner.acc.dtype.itemsize)
        seen, draws = set(), False
        while stack:
            e = stack.pop()
            if e.id in seen or self.scopes[self.depth(e)].lanes:  # not of this loop
                continue
            seen.add(e.id)
            draws |= e.op == "philox"
            if e.op in ("load", "load_if"):
                sizes.add(alignment(e.dtype))
                if e.attr >= 0:
                    memory_sizes.add(alignment(e.dtype))
                    if e.op == "load":
                        found.loads.append(e)
                        found.regular &= self.is_unit(e.args[0])
                stack.extend(e.args[:-1])  # not the offset
                continue
            if e.op == "linear":
                continue
            if e.dtype.kind != "bool" and e.op != "const":
                sizes.add(4 if e.dtype in (dtypes.float16, dtypes.bfloat16) else alignment(e.dtype))
            stack.extend(e.args)
        size = 4 if 4 in sizes else max(sizes - {1, 2}, default=max(sizes, default=4))
        found.lanes = self.vector_bytes // size
        found.masked = self.narrow_masks or min(memory_sizes, default=4) >= 4
        found.count, found.draws = len(seen), draws
        found.single = sizes == {4}
        self.close()
        return found

    def is_unit(self, offset: Expr) -> bool:
        stride = self.stride(offset)
        return isinstance(stride, int) and stride == 1

    def loop_lanes(self, s: Loop):
        """A loop that is one vector: its bounds are 0 and a power of two that is known."""
        parent = self.scopes[-1]
        self.open(Scope(parent.label, lanes=s.end.attr, var=s.var, counter="0"), s.var)
        self.body(s.body)
        scope = self.close()
        parent.lines += scope.lines
        parent.label = scope.label

    def loop_vector(self, s: Loop):
        parent = self.scopes[-1]
        start, end = self.value(s.start), self.value(s.end)
        survey = self.survey(s)
        lanes, masked = survey.lanes, survey.masked
        self.long_body = survey.count >= 2 * LONG_BODY
        streams = self.streams(s, survey)
        if masked and survey.regular and s.unroll == 1 and (s.compact or survey.draws or survey.count >= LONG_BODY):
            if s.total is not None and survey.single and survey.count <= WIDE_BODY:
                survey.lanes *= 2
            self.past_caches = streams
            self.single_loop(s, start, end, survey)
            self.past_caches = ""
            self.fence(streams)
            return
        step = lanes * s.unroll
        tail, between, leave = self.label(), self.label(), self.label()
        mains = [self.rounds(s, lanes)]
        if streams:
            self.past_caches = "true"
            mains.append(self.rounds(s, lanes))
            self.past_caches = ""

        rest = Scope(tail, lanes=lanes if masked else 1, var=s.var, counter=f"%i{tail}")
        if masked:
            rest.mask = self.mask_of(rest, self.line(rest, f"sub i64 {end}, {rest.counter}"))
        self.open(rest, s.var)
        self.body(s.body)
        self.close()

        count = self.line(parent, f"sub i64 {end}, {start}")
        whole = self.line(parent, f"and i64 {count}, {-step}")
        middle = self.line(parent, f"add i64 {start}, {whole}")
        check = self.line(parent, f"icmp slt i64 {start}, {middle}")
        before = parent.label
        if streams:
            before = self.label()
            parent.lines += [f"  br i1 {check}, label %{before}, label %{between}", f"{before}:"]
            parent.lines.append(f"  br i1 {streams}, label %{mains[1][0]}, label %{mains[0][0]}")
        else:
            parent.lines.append(f"  br i1 {check}, label %{mains[0][0]}, label %{between}")
        for main, body, last in mains:
            parent.lines += [
                f"{main}:",
                f"  %i{main} = phi i64 [ {start}, %{before} ], [ %n{main}, %{last} ]",
                *body,
                f"  %n{main} = add nsw i64 %i{main}, {step}",
                f"  %c{main} = icmp slt i64 %n{main}, {middle}",
                f"  br i1 %c{main}, label %{main}, label %{between}",
            ]
        parent.lines += [
            f"{between}:",
            f"  %c{between} = icmp slt i64 {middle}, {end}",
            f"  br i1 %c{between}, label %{tail}, label %{leave}",
            f"{tail}:",
            f"  %i{tail} = phi i64 [ {middle}, %{between} ], [ %n{tail}, %{rest.label} ]",
            *rest.lines,
            f"  %n{tail} = add nsw i64 %i{tail}, {lanes if masked else 1}",
            f"  %c{tail} = icmp slt i64 %n{tail}, {end}",
            f"  br i1 %c{tail}, label %{tail}, label %{leave}",
            f"{leave}:",
        ]
        parent.label = leave
        self.fence(streams)

    def rounds(self, s: Loop, lanes: int) -> tuple[str, list[str], str]:
        """(label, lines, last label) of a loop's body with whole vectors, `unroll` of them."""
        main = self.label()
        body: list[str] = []
        label = main
        for copy in range(s.unroll):
            counter = f"%i{main}" if not copy else f"%i{main}_{copy}"
            if copy:
                body.append(f"  {counter} = add nsw i64 %i{main}, {copy * lanes}")
            self.open(Scope(label, lanes=lanes, var=s.var, counter=counter, copy=copy), s.var)
            self.body(s.body)
            scope = self.close()
            body += scope.lines
            label = scope.label
        return main, body, label

    def streams(self, s: Loop, survey: Survey) -> str:
        """An i1: whether what a loop stores goes past the caches. "" if it never does.

        Note [Past the caches]
        A store into a line that no cache has reads that line from memory first. An array that is larger than the caches is not
        found there by whoever reads it next, so its lines are written as a whole and kept out of them: a third less to move
        for one operand and one result. Lines that are read as well are in a cache already, and stay there."""
        if s.total is None or not self.features & {"sse2", "sse4_1"}:
            return ""
        stored = [inner for inner in s.body if type(inner) is Store]
        widest = 1
        for store in stored:
            dtype, offset = self.kernel.slot_dtype(store.slot), self.chase(store.offset)
            if store.slot < 0 or dtype.kind in ("bool", "complex") or offset.op != "var" or offset.attr != s.var:
                return ""
            if survey.lanes * dtype.itemsize < 16:
                return ""
            widest = max(widest, dtype.itemsize)
        if not stored or len(stored) != len(s.body):
            return ""
        parent = self.scopes[-1]
        result = self.line(parent, f"icmp sge i64 {self.value(s.total)}, {PAST_CACHES // widest}")
        slots = {store.slot for store in stored}
        for slot in sorted(slots):
            place = self.line(parent, f"ptrtoint ptr {self.pointer(slot)} to i64")
            low = self.line(parent, f"and i64 {place}, {self.vector_bytes - 1}")
            checks = [self.line(parent, f"icmp eq i64 {low}, 0")]
            for other in sorted({e.attr for e in survey.loads}):
                checks.append(self.line(parent, f"icmp ne ptr {self.pointer(slot)}, {self.pointer(other)}"))
            for check in checks:
                result = self.line(parent, f"and i1 {result}, {check}")
        return result

    def fence(self, streams: str):
        """Stores past the caches are seen in order by other threads only after a fence."""
        if not streams:
            return
        scope = self.scopes[-1]
        self.declarations.add("declare void @llvm.x86.sse.sfence()")
        self.one_or_other(
            scope, streams, lambda: scope.lines.append("  call void @llvm.x86.sse.sfence()"), lambda: None
        )

    def one_or_other(self, scope: Scope, condition: str, first, second):
        yes, no, after = self.label(), self.label(), self.label()
        scope.lines += [f"  br i1 {condition}, label %{yes}, label %{no}", f"{yes}:"]
        first()
        scope.lines += [f"  br label %{after}", f"{no}:"]
        second()
        scope.lines += [f"  br label %{after}", f"{after}:"]
        scope.label = after

    def mask_of(self, scope: Scope, left: str) -> str:
        """A mask for the first `left` lanes."""
        lanes = scope.lanes
        near = self.line(scope, f"call i64 @llvm.umin.i64(i64 {left}, i64 {lanes})")
        self.declarations.add("declare i64 @llvm.umin.i64(i64, i64)")
        near = self.splat(scope, self.line(scope, f"trunc i64 {near} to i32"), "i32", lanes)
        ramp = ", ".join(f"i32 {k}" for k in range(lanes))
        return self.line(scope, f"icmp ugt <{lanes} x i32> {near}, <{ramp}>")

    def mask(self, scope: Scope) -> str:
        """The mask under which a scope runs, or ""."""
        if scope.whole and not scope.mask:
            scope.mask = self.mask_of(scope, scope.left)
        return scope.mask

    def whole_or_part(self, scope: Scope, whole, part):
        """Runs whole() in rounds with all lanes, part(mask) in the last one. Masked instructions are slow, hence the branch."""
        yes, no, after = self.label(), self.label(), self.label()
        scope.lines += [f"  br i1 {scope.whole}, label %{yes}, label %{no}", f"{yes}:"]
        first = whole()
        scope.lines += [f"  br label %{after}", f"{no}:"]
        second = part(self.mask_of(scope, scope.left))
        scope.lines += [f"  br label %{after}", f"{after}:"]
        scope.label = after
        return yes, first, no, second

    def single_loop(self, s: Loop, start: str, end: str, survey: Survey):
        """A long body is rendered only once: where memory is touched, the last round takes another way."""
        parent = self.scopes[-1]
        head, leave = self.label(), self.label()
        lanes = survey.lanes
        scope = Scope(head, lanes=lanes, var=s.var, counter=f"%i{head}")
        scope.left = self.line(scope, f"sub i64 {end}, {scope.counter}")
        scope.whole = self.line(scope, f"icmp uge i64 {scope.left}, {lanes}")
        self.open(scope, s.var)
        self.load_all(scope, survey.loads)
        self.body(s.body)
        self.close()
        check = self.line(parent, f"icmp slt i64 {start}, {end}")
        parent.lines += [
            f"  br i1 {check}, label %{head}, label %{leave}",
            f"{head}:",
            f"  %i{head} = phi i64 [ {start}, %{parent.label} ], [ %n{head}, %{scope.label} ]",
            *scope.lines,
            f"  %n{head} = add nsw i64 %i{head}, {lanes}",
            f"  %c{head} = icmp slt i64 %n{head}, {end}",
            f"  br i1 %c{head}, label %{head}, label %{leave}",
            f"{leave}:",
        ]
        parent.label = leave

    def load_all(self, scope: Scope, loads: list[Expr]):
        """All plain loads of a body behind one branch."""
        if not loads:
            return
        places = [(self.address(e.attr, e.args[0]), MEMORY[e.dtype], alignment(e.dtype)) for e in loads]
        if self.past_caches:  # between stores past the caches the processor does not look ahead far enough by itself
            self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
            for address, _, _ in places:
                ahead = self.line(scope, f"getelementptr i8, ptr {address}, i64 {AHEAD}")
                scope.lines.append(f"  call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
        yes, whole, no, part = self.whole_or_part(
            scope,
            lambda: [self.vector_load(scope, *place, "") for place in places],
            lambda mask: [self.vector_load(scope, *place, mask) for place in places],
        )
        merged = [
            self.line(scope, f"phi {vector(memory, scope.lanes)} [ {x}, %{yes} ], [ {y}, %{no} ]")
            for x, y, (_, memory, _) in zip(whole, part, places)
        ]
        for e, name in zip(loads, merged):
            scope.values[e.id] = self.from_memory(scope, name, e.dtype)
