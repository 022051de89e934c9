"""Renders a kernel as LLVM IR text with explicit vectors.

Every expression is computed in the outermost loop it is constant in, once. In a vector loop, expressions that vary are computed
`lanes` at a time; what is left over at the end runs under a mask, or one element at a time where the memory types are too narrow
for cheap masks. Accumulators live in stack slots that LLVM's first pass turns into registers.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.expr import Expr
from tandem.codegen.llvm_ops import MEMORY, TYPE, Ops, constant
from tandem.codegen.loops import Accumulate, Declare, Finish, Kernel, Loop, Store, Transpose

LONG_BODY = 24  # expressions from which on a vector loop's body is not rendered a second time for the tail


def render(kernel: Kernel, vector_bytes: int, features: frozenset[str]) -> str:
    return _Renderer(kernel, vector_bytes, features).render()


class _Scope:
    """The body of one open loop: its lines so far, the values known in it, and the label of its last block."""

    __slots__ = ("copy", "counter", "label", "lanes", "lane_values", "left", "lines", "mask", "values", "var", "whole")

    def __init__(self, label: str, lanes: int = 1, var=None, counter: str = "", mask: str = "", copy: int = 0):
        self.lines: list[str] = []
        self.values: dict = {}
        self.lane_values: dict = {}
        self.label = label
        self.lanes = lanes
        self.var = var
        self.counter = counter
        self.mask = mask
        self.copy = copy
        self.whole = ""  # in loops rendered once: whether all lanes are on,
        self.left = ""  # and how many elements are left


class _Survey:
    """What a vector loop's body needs to know before it is rendered."""

    __slots__ = ("count", "lanes", "loads", "masked", "regular")

    def __init__(self):
        self.lanes = 1  # elements per vector
        self.masked = True  # whether memory can be read and written under a mask
        self.count = 0  # expressions
        self.loads: list[Expr] = []  # loads that vary, without a condition
        self.regular = True  # all of them and all stores are of neighbouring elements


class _Renderer(Ops):
    def __init__(self, kernel: Kernel, vector_bytes: int, features: frozenset[str]):
        super().__init__(features)
        self.kernel = kernel
        self.linear = kernel.linear
        self.vector_bytes = vector_bytes
        self.narrow_masks = "avx512bw" in features
        self.scopes: list[_Scope] = []
        self.depths: dict[int, int] = {}
        self.var_depth: dict = {}
        self.acc_value: dict[int, str] = {}
        self.acc_depth: dict[int, int] = {}
        self.strides: dict = {}
        self.allocas: list[str] = []
        self.scalar_accs: set[int] = set()
        self.labels = 0
        self.lanes = 0

    def render(self) -> str:
        top = _Scope("entry")
        self.scopes.append(top)
        for slot in range(len(self.kernel.pointers)):
            top.lines.append(f"  %pp{slot} = getelementptr ptr, ptr %pointers, i64 {slot}")
            top.lines.append(f"  %p{slot} = load ptr, ptr %pp{slot}, align 8")
        for i, (dtype, size) in enumerate(self.kernel.locals):
            self.allocas.append(f"  %l{i + 1} = alloca [{size} x {MEMORY[dtype]}], align 64")
        top.lines.append("  %some = icmp slt i64 %begin, %end")
        top.lines.append("  br i1 %some, label %start, label %done")
        top.lines.append("start:")
        top.label = "start"
        self.body(self.kernel.body)
        top.lines.append("  br label %done")
        top.lines.append("done:")
        top.lines.append("  ret void")
        width = ' "prefer-vector-width"="512"' if self.vector_bytes == 64 else ""
        head = "define void @kernel(ptr noundef %pointers, ptr noundef %ints, i64 %begin, i64 %end) #0 {"
        return "\n".join([
            *sorted(self.declarations), head, "entry:", *self.allocas, *top.lines, "}",
            f'attributes #0 = {{ nounwind "no-builtins" "no-jump-tables"="true"{width} }}', "!0 = !{}", "",
        ])  # fmt: skip

    # -- where values live

    def depth(self, root: Expr) -> int:
        depths = self.depths
        found = depths.get(root.id)
        if found is not None:
            return found
        stack = [root]
        while stack:
            e = stack[-1]
            if e.id in depths:
                stack.pop()
                continue
            args = e.args if e.op != "linear" else (self.linear[e.attr],)
            missing = [a for a in args if a.id not in depths]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if e.op == "var":
                d = self.var_depth[e.attr]
            elif e.op == "scalar":
                d = self.acc_depth[e.attr]
            else:
                d = max([depths[a.id] for a in args], default=0)
            depths[e.id] = d
        return depths[root.id]

    def forget_depths(self, depth: int):
        """A loop at `depth` closes: its variables may be used again elsewhere."""
        self.depths = {k: d for k, d in self.depths.items() if d < depth}

    def chase(self, e: Expr) -> Expr:
        while e.op == "linear":
            e = self.linear[e.attr]
        return e

    # -- values

    def value(self, root: Expr) -> str:
        """The name of root's value: a vector in a vector loop it varies in, a scalar otherwise."""
        root = self.chase(root)
        stack = [root]
        while stack:
            e = stack[-1]
            scope = self.scopes[self.depth(e)]
            if e.id in scope.values:
                stack.pop()
                continue
            vector = scope.lanes > 1
            if not (vector and e.op in ("load", "load_if")):
                missing = [a for a in map(self.chase, e.args) if a.id not in self.scopes[self.depth(a)].values]
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
            if e.attr in self.digit_names:
                return self.digit_names[e.attr]
            return self.index_vector(scope) if scope.lanes > 1 else scope.counter
        if op == "scalar":
            return self.acc_value[e.attr]
        if op == "int":
            pointer = self.line(scope, f"getelementptr i64, ptr %ints, i64 {e.attr}")
            return self.line(scope, f"load i64, ptr {pointer}, align 8, !invariant.load !0")
        if op == "begin":
            return "%begin"
        if op == "end":
            return "%end"
        if op == "load":
            return self.load(e, scope)
        if op == "load_if":
            return self.load_if(e, scope)
        names = [self.operand(a, scope) for a in e.args]
        return self.operation(e, names, scope)

    def operand(self, a: Expr, scope: _Scope) -> str:
        """a as code in `scope` needs it: a scalar meeting vectors is repeated in every lane."""
        a = self.chase(a)
        lanes = scope.lanes
        if lanes == 1:
            return self.value(a)
        if a.op == "const":
            return self.splat_constant(a.dtype, a.attr, lanes)
        home = self.scopes[self.depth(a)]
        if home is scope:
            return self.value(a)
        key = ("splat", a.id, lanes)
        found = home.values.get(key)
        if found is None:
            found = home.values[key] = self.splat(home, self.value(a), TYPE[a.dtype], lanes)
        return found

    def scalar(self, e: Expr) -> str:
        """e in the first lane of the open vector loop (or simply e where it does not vary). e is an index expression."""
        e = self.chase(e)
        scope = self.scopes[-1]
        if scope.lanes == 1 or self.scopes[self.depth(e)] is not scope:
            return self.value(e)
        found = scope.lane_values.get(e.id)
        if found is None:
            if e.op == "var":
                found = scope.counter
            elif e.op in ("add", "sub", "mul"):
                x, y = self.scalar(e.args[0]), self.scalar(e.args[1])
                found = self.line(scope, f"{e.op} nsw i64 {x}, {y}")
            else:
                found = self.line(scope, f"extractelement <{scope.lanes} x i64> {self.value(e)}, i64 0")
            scope.lane_values[e.id] = found
        return found

    def stride(self, e: Expr):
        """What e grows by from lane to lane: an int, a loop-invariant Expr, or None where it is not linear."""
        e = self.chase(e)
        scope = self.scopes[-1]
        if self.scopes[self.depth(e)] is not scope:
            return 0
        if e.op == "var":
            return 1
        if e.op == "mul":
            for x, y in (e.args, e.args[::-1]):
                if self.scopes[self.depth(x)] is not scope:
                    s = self.stride(y)
                    x = self.chase(x)
                    if s is None:
                        return None
                    return x.attr * s if x.op == "const" and isinstance(s, int) else x * s
            return None
        if e.op in ("add", "sub"):
            x, y = self.stride(e.args[0]), self.stride(e.args[1])
            if x is None or y is None:
                return None
            if isinstance(y, int) and y == 0:
                return x
            if e.op == "add" and isinstance(x, int) and x == 0:
                return y
            return x + y if e.op == "add" else x - y
        return None

    # -- memory

    def pointer(self, slot: int) -> str:
        return f"%p{slot}" if slot >= 0 else f"%l{-slot}"

    def address(self, slot: int, offset: Expr) -> str:
        """Pointer to the element at offset (in the first lane); the part that does not change in the innermost loop is hoisted."""
        scope = self.scopes[-1]
        memory = MEMORY[self.kernel.slot_dtype(slot)]
        offset = self.chase(offset)
        home = self.scopes[self.depth(offset)]
        if offset.op == "add" and home is scope and len(self.scopes) > 1:
            x, y = map(self.chase, offset.args)
            if self.scopes[self.depth(x)] is scope:
                x, y = y, x
            if self.scopes[self.depth(x)] is not scope:
                outer = self.scopes[self.depth(x)]
                key = ("address", slot, x.id)
                base = outer.values.get(key)
                if base is None:
                    start = self.value(x)
                    base = self.line(outer, f"getelementptr {memory}, ptr {self.pointer(slot)}, i64 {start}")
                    outer.values[key] = base
                return self.line(scope, f"getelementptr {memory}, ptr {base}, i64 {self.scalar(y)}")
        if home is not scope:
            key = ("address", slot, offset.id)
            found = home.values.get(key)
            if found is None:
                start = self.value(offset)
                found = self.line(home, f"getelementptr {memory}, ptr {self.pointer(slot)}, i64 {start}")
                home.values[key] = found
            return found
        return self.line(scope, f"getelementptr {memory}, ptr {self.pointer(slot)}, i64 {self.scalar(offset)}")

    def load(self, e: Expr, scope: _Scope) -> str:
        slot, offset = e.attr, self.chase(e.args[0])
        memory, size = MEMORY[e.dtype], e.dtype.itemsize
        if scope.lanes == 1:
            if scope is self.scopes[-1]:
                pointer = self.address(slot, offset)
            else:
                start = self.value(offset)
                pointer = self.line(scope, f"getelementptr {memory}, ptr {self.pointer(slot)}, i64 {start}")
            return self.from_memory(scope, self.line(scope, f"load {memory}, ptr {pointer}, align {size}"), e.dtype)
        stride = self.stride(offset)
        if isinstance(stride, int) and stride == 1:
            pointer = self.address(slot, offset)
            mask = self.mask(scope) if slot >= 0 else ""  # local arrays have room for whole vectors
            return self.from_memory(scope, self.vector_load(scope, pointer, memory, size, mask), e.dtype)
        pointers = self.lane_pointers(scope, slot, offset, stride)
        return self.from_memory(scope, self.collect(scope, pointers, memory, size), e.dtype)

    def load_if(self, e: Expr, scope: _Scope) -> str:
        slot, (condition, offset) = e.attr, map(self.chase, e.args)
        memory, size = MEMORY[e.dtype], e.dtype.itemsize
        lanes = scope.lanes
        if lanes == 1:
            start = self.value(offset)
            pointer = self.line(scope, f"getelementptr {memory}, ptr {self.pointer(slot)}, i64 {start}")
            pointer = self.line(scope, f"select i1 {self.value(condition)}, ptr {pointer}, ptr {self.dummy()}")
            return self.from_memory(scope, self.line(scope, f"load {memory}, ptr {pointer}, align {size}"), e.dtype)
        inside = self.operand(condition, scope)
        stride = self.stride(offset)
        if isinstance(stride, int) and stride == 1:
            on = self.mask(scope)
            mask = self.line(scope, f"and <{lanes} x i1> {inside}, {on}") if on else inside
            return self.from_memory(
                scope, self.vector_load(scope, self.address(slot, offset), memory, size, mask), e.dtype
            )
        if isinstance(stride, int) and stride == 0:  # the condition varies, the element does not
            pointers = [self.address(slot, offset)] * lanes
        else:
            pointers = self.lane_pointers(scope, slot, offset, stride)
        chosen = []
        for lane, pointer in enumerate(pointers):
            bit = self.line(scope, f"extractelement <{lanes} x i1> {inside}, i64 {lane}")
            chosen.append(self.line(scope, f"select i1 {bit}, ptr {pointer}, ptr {self.dummy()}"))
        return self.from_memory(scope, self.collect(scope, chosen, memory, size), e.dtype)

    def lane_pointers(self, scope: _Scope, slot: int, offset: Expr, stride) -> list[str]:
        """One pointer per lane. Lanes that the mask turns off point to what the first lane reads."""
        lanes, memory = scope.lanes, MEMORY[self.kernel.slot_dtype(slot)]
        self.mask(scope)
        if stride is None:
            offsets = self.value(offset)
            if scope.mask:
                first = self.line(scope, f"extractelement <{lanes} x i64> {offsets}, i64 0")
                first = self.splat(scope, first, "i64", lanes)
                offsets = self.line(
                    scope, f"select <{lanes} x i1> {scope.mask}, <{lanes} x i64> {offsets}, <{lanes} x i64> {first}"
                )
            pointers = []
            for lane in range(lanes):
                start = self.line(scope, f"extractelement <{lanes} x i64> {offsets}, i64 {lane}")
                pointers.append(self.line(scope, f"getelementptr {memory}, ptr {self.pointer(slot)}, i64 {start}"))
            return pointers
        pointers = [self.address(slot, offset)]
        step = str(stride) if isinstance(stride, int) else self.value(stride)
        for lane in range(1, lanes):
            if scope.mask:
                jump = self.line(scope, f"mul i64 {step}, {lane}")
                bit = self.line(scope, f"extractelement <{lanes} x i1> {scope.mask}, i64 {lane}")
                jump = self.line(scope, f"select i1 {bit}, i64 {jump}, i64 0")
            elif isinstance(stride, int):
                jump = str(stride * lane)
            else:
                home = self.scopes[self.depth(self.chase(stride))]
                key = ("jump", stride.id, lane)
                jump = home.values.get(key)
                if jump is None:
                    jump = home.values[key] = self.line(home, f"mul i64 {step}, {lane}")
            pointers.append(self.line(scope, f"getelementptr {memory}, ptr {pointers[0]}, i64 {jump}"))
        return pointers

    def store(self, s: Store):
        scope = self.scopes[-1]
        dtype = self.kernel.slot_dtype(s.slot)
        memory, size = MEMORY[dtype], dtype.itemsize
        lanes = scope.lanes
        value = self.to_memory(scope, self.operand(s.value, scope), dtype)
        if lanes == 1:
            scope.lines.append(f"  store {memory} {value}, ptr {self.address(s.slot, s.offset)}, align {size}")
            return
        stride = self.stride(s.offset)
        if isinstance(stride, int) and stride == 1:
            address = self.address(s.slot, s.offset)
            if not scope.whole or s.slot < 0:
                self.vector_store(scope, value, address, memory, size, scope.mask if s.slot >= 0 else "")
                return
            self.whole_or_part(
                scope,
                lambda: self.vector_store(scope, value, address, memory, size, ""),
                lambda mask: self.vector_store(scope, value, address, memory, size, mask),
            )
            return
        for lane, pointer in enumerate(self.lane_pointers(scope, s.slot, s.offset, stride)):
            element = self.line(scope, f"extractelement <{lanes} x {memory}> {value}, i64 {lane}")
            if scope.mask and lane:
                bit = self.line(scope, f"extractelement <{lanes} x i1> {scope.mask}, i64 {lane}")
                pointer = self.line(scope, f"select i1 {bit}, ptr {pointer}, ptr {self.dummy()}")
            scope.lines.append(f"  store {memory} {element}, ptr {pointer}, align {size}")

    def dummy(self) -> str:
        """Eight bytes of zeros, read and written in place of memory that must not be touched."""
        if not self.has_dummy:
            self.has_dummy = True
            self.allocas += ["  %nowhere = alloca i64, align 8", "  store i64 0, ptr %nowhere, align 8"]
        return "%nowhere"

    # -- statements

    def body(self, statements: list):
        simple = all(type(s) in (Store, Accumulate) for s in statements)
        for s in statements if simple else ():
            if type(s) is Store:  # values before any store: a store may overwrite what another value reads
                self.operand(s.value, self.scopes[-1])
        for s in statements:
            if type(s) is Store:
                self.store(s)
            elif type(s) is Loop:
                if s.mode == "vector":
                    self.vector_loop(s)
                elif s.mode == "items":
                    self.items_loop(s)
                else:
                    self.serial_loop(s)
            elif type(s) is Accumulate:
                self.accumulate(s)
            elif type(s) is Declare:
                self.declare(s.acc)
            elif type(s) is Finish:
                self.finish(s.acc)
            elif type(s) is Transpose:
                self.transpose(s)

    def label(self) -> str:
        self.labels += 1
        return f"b{self.labels}"

    def open(self, scope: _Scope, *variables):
        for v in variables:
            self.var_depth[v] = len(self.scopes)
        self.scopes.append(scope)

    def close(self) -> _Scope:
        self.forget_depths(len(self.scopes) - 1)
        return self.scopes.pop()

    def counted(self, start: str, end: str, step: int, fill, var=None):
        """A loop from start to end; fill(counter) renders its body."""
        parent = self.scopes[-1]
        head, leave = self.label(), self.label()
        self.open(_Scope(head, var=var, counter=f"%i{head}"), var)
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

    def serial_loop(self, s: Loop):
        self.counted(self.value(s.start), self.value(s.end), s.step, lambda _: self.body(s.body), s.var)

    def transpose(self, s: Transpose):
        """Square blocks go through registers; what is left at the edges goes one element at a time."""
        dtype = self.kernel.slot_dtype(s.slot)
        memory, size = MEMORY[dtype], dtype.itemsize
        block = 4 if size == 8 else 8
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

    def items_loop(self, s: Loop):
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
        scope = _Scope(head, var=s.var, counter=f"%i{head}")
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

    def survey(self, s: Loop) -> _Survey:
        """Looks through a vector loop's body before it is rendered."""
        self.var_depth[s.var] = len(self.scopes)
        self.scopes.append(_Scope("", lanes=0))  # only so that depths of this loop's values can be asked for
        found = _Survey()
        sizes, memory_sizes = set(), set()
        stack: list[Expr] = []
        for inner in s.body:
            if type(inner) is Store:
                stack.append(inner.value)
                size = self.kernel.slot_dtype(inner.slot).itemsize
                sizes.add(size)
                if inner.slot >= 0:
                    memory_sizes.add(size)
                found.regular &= self.is_unit(inner.offset)
            elif type(inner) is Accumulate:
                stack.append(inner.value)
                sizes.add(inner.acc.dtype.itemsize)
        seen = set()
        while stack:
            e = stack.pop()
            if e.id in seen or self.scopes[self.depth(e)].lanes:  # not of this loop
                continue
            seen.add(e.id)
            if e.op in ("load", "load_if"):
                sizes.add(e.dtype.itemsize)
                if e.attr >= 0:
                    memory_sizes.add(e.dtype.itemsize)
                    if e.op == "load":
                        found.loads.append(e)
                        found.regular &= self.is_unit(e.args[0])
                stack.extend(e.args[:-1])  # not the offset
                continue
            if e.op == "linear":
                continue
            if e.dtype.kind != "bool" and e.op != "const":
                sizes.add(4 if e.dtype in (dtypes.float16, dtypes.bfloat16) else e.dtype.itemsize)
            stack.extend(e.args)
        size = 4 if 4 in sizes else max(sizes - {1, 2}, default=max(sizes, default=4))
        found.lanes = self.vector_bytes // size
        found.masked = self.narrow_masks or min(memory_sizes, default=4) >= 4
        found.count = len(seen)
        self.close()
        return found

    def is_unit(self, offset: Expr) -> bool:
        stride = self.stride(offset)
        return isinstance(stride, int) and stride == 1

    def vector_loop(self, s: Loop):
        parent = self.scopes[-1]
        start, end = self.value(s.start), self.value(s.end)
        survey = self.survey(s)
        lanes, masked = survey.lanes, survey.masked
        if masked and survey.regular and s.unroll == 1 and (s.compact or survey.count >= LONG_BODY):
            self.single_loop(s, start, end, survey)
            return
        step = lanes * s.unroll
        main, tail, between, leave = self.label(), self.label(), self.label(), self.label()

        body: list[str] = []
        label = main
        for copy in range(s.unroll):
            counter = f"%i{main}" if not copy else f"%i{main}_{copy}"
            if copy:
                body.append(f"  {counter} = add nsw i64 %i{main}, {copy * lanes}")
            self.open(_Scope(label, lanes=lanes, var=s.var, counter=counter, copy=copy), s.var)
            self.body(s.body)
            scope = self.close()
            body += scope.lines
            label = scope.label

        rest = _Scope(tail, lanes=lanes if masked else 1, var=s.var, counter=f"%i{tail}")
        if masked:
            rest.mask = self.mask_of(rest, self.line(rest, f"sub i64 {end}, {rest.counter}"))
        self.open(rest, s.var)
        self.body(s.body)
        self.close()

        count = self.line(parent, f"sub i64 {end}, {start}")
        whole = self.line(parent, f"and i64 {count}, {-step}")
        middle = self.line(parent, f"add i64 {start}, {whole}")
        check = self.line(parent, f"icmp slt i64 {start}, {middle}")
        parent.lines += [
            f"  br i1 {check}, label %{main}, label %{between}",
            f"{main}:",
            f"  %i{main} = phi i64 [ {start}, %{parent.label} ], [ %n{main}, %{label} ]",
            *body,
            f"  %n{main} = add nsw i64 %i{main}, {step}",
            f"  %c{main} = icmp slt i64 %n{main}, {middle}",
            f"  br i1 %c{main}, label %{main}, label %{between}",
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

    def mask_of(self, scope: _Scope, left: str) -> str:
        """A mask for the first `left` lanes."""
        lanes = scope.lanes
        near = self.line(scope, f"call i64 @llvm.umin.i64(i64 {left}, i64 {lanes})")
        self.declarations.add("declare i64 @llvm.umin.i64(i64, i64)")
        near = self.splat(scope, self.line(scope, f"trunc i64 {near} to i32"), "i32", lanes)
        ramp = ", ".join(f"i32 {k}" for k in range(lanes))
        return self.line(scope, f"icmp ugt <{lanes} x i32> {near}, <{ramp}>")

    def mask(self, scope: _Scope) -> str:
        """The mask under which a scope runs, or ""."""
        if scope.whole and not scope.mask:
            scope.mask = self.mask_of(scope, scope.left)
        return scope.mask

    def whole_or_part(self, scope: _Scope, whole, part):
        """Runs whole() in rounds with all lanes, part(mask) in the last one. Masked instructions are slow, hence the branch."""
        yes, no, after = self.label(), self.label(), self.label()
        scope.lines += [f"  br i1 {scope.whole}, label %{yes}, label %{no}", f"{yes}:"]
        first = whole()
        scope.lines += [f"  br label %{after}", f"{no}:"]
        second = part(self.mask_of(scope, scope.left))
        scope.lines += [f"  br label %{after}", f"{after}:"]
        scope.label = after
        return yes, first, no, second

    def single_loop(self, s: Loop, start: str, end: str, survey: _Survey):
        """A long body is rendered only once: where memory is touched, the last round takes another way."""
        parent = self.scopes[-1]
        head, leave = self.label(), self.label()
        lanes = survey.lanes
        scope = _Scope(head, lanes=lanes, var=s.var, counter=f"%i{head}")
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

    def load_all(self, scope: _Scope, loads: list[Expr]):
        """All plain loads of a body behind one branch."""
        if not loads:
            return
        places = [(self.address(e.attr, e.args[0]), MEMORY[e.dtype], e.dtype.itemsize) for e in loads]
        yes, whole, no, part = self.whole_or_part(
            scope,
            lambda: [self.vector_load(scope, *place, "") for place in places],
            lambda mask: [self.vector_load(scope, *place, mask) for place in places],
        )
        merged = [
            self.line(scope, f"phi <{scope.lanes} x {memory}> [ {x}, %{yes} ], [ {y}, %{no} ]")
            for x, y, (_, memory, _) in zip(whole, part, places)
        ]
        for e, name in zip(loads, merged):
            scope.values[e.id] = self.from_memory(scope, name, e.dtype)

    # -- reductions

    def declare(self, acc):
        scope = self.scopes[-1]
        self.acc_parts = getattr(self, "acc_parts", {})
        parts = self.acc_parts[acc.id] = {}
        # Which slots are needed shows while the loops are rendered; each is set to the identity here, where scope still ends.
        parts["scope"] = scope

    def acc_slot(self, acc, lanes: int, copy: int) -> tuple[str, str]:
        """Stack slots (value, position) of one part of an accumulator, made when first used."""
        parts = self.acc_parts[acc.id]
        key = (lanes, copy)
        found = parts.get(key)
        if found is None:
            scope = parts["scope"]
            name = f"%a{acc.id}_{lanes}_{copy}"
            type_ = TYPE[acc.dtype] if lanes == 1 else f"<{lanes} x {TYPE[acc.dtype]}>"
            if f"  {name} = alloca {type_}" not in self.allocas:
                self.allocas.append(f"  {name} = alloca {type_}")
            scope.lines.append(f"  store {type_} {self.identity(acc, lanes)}, ptr {name}")
            position = ""
            if acc.kind in ("argmax", "argmin"):
                position = name + "p"
                index = "i64" if lanes == 1 else f"<{lanes} x i64>"
                if f"  {position} = alloca {index}" not in self.allocas:
                    self.allocas.append(f"  {position} = alloca {index}")
                scope.lines.append(f"  store {index} {'0' if lanes == 1 else 'zeroinitializer'}, ptr {position}")
            found = parts[key] = (name, position)
        return found

    def accumulate(self, s: Accumulate):
        scope = self.scopes[-1]
        acc, lanes = s.acc, scope.lanes
        value = self.operand(s.value, scope)
        slot, position_slot = self.acc_slot(acc, lanes, scope.copy)
        type_ = TYPE[acc.dtype] if lanes == 1 else f"<{lanes} x {TYPE[acc.dtype]}>"
        old = self.line(scope, f"load {type_}, ptr {slot}")
        if not position_slot:
            new = self.combine(scope, acc.kind, acc.dtype, old, value, lanes)
            if scope.whole:

                def keep(mask):
                    kept = self.line(scope, f"select <{lanes} x i1> {mask}, {type_} {new}, {type_} {old}")
                    scope.lines.append(f"  store {type_} {kept}, ptr {slot}")

                self.whole_or_part(scope, lambda: scope.lines.append(f"  store {type_} {new}, ptr {slot}"), keep)
                return
            if scope.mask:
                new = self.line(scope, f"select <{lanes} x i1> {scope.mask}, {type_} {new}, {type_} {old}")
            scope.lines.append(f"  store {type_} {new}, ptr {slot}")
            return
        index = "i64" if lanes == 1 else f"<{lanes} x i64>"
        bits = "i1" if lanes == 1 else f"<{lanes} x i1>"
        better = self.better(scope, acc.kind, acc.dtype, value, old, lanes)
        if self.mask(scope):
            better = self.line(scope, f"and {bits} {better}, {scope.mask}")
        where = self.operand(s.position, scope)
        old_where = self.line(scope, f"load {index}, ptr {position_slot}")
        new = self.line(scope, f"select {bits} {better}, {type_} {value}, {type_} {old}")
        new_where = self.line(scope, f"select {bits} {better}, {index} {where}, {index} {old_where}")
        scope.lines.append(f"  store {type_} {new}, ptr {slot}")
        scope.lines.append(f"  store {index} {new_where}, ptr {position_slot}")

    def finish(self, acc):
        scope = self.scopes[-1]
        parts = [(key, slots) for key, slots in self.acc_parts[acc.id].items() if key != "scope"]
        element = TYPE[acc.dtype]
        results = []
        by_lanes: dict[int, list] = {}
        for (lanes, _), (slot, position_slot) in parts:
            type_ = element if lanes == 1 else f"<{lanes} x {element}>"
            index = "i64" if lanes == 1 else f"<{lanes} x i64>"
            value = self.line(scope, f"load {type_}, ptr {slot}")
            where = self.line(scope, f"load {index}, ptr {position_slot}") if position_slot else ""
            by_lanes.setdefault(lanes, []).append((value, where))
        for lanes, found in by_lanes.items():
            while len(found) > 1:
                pairs = [self.merge(scope, acc, a, b, lanes) for a, b in zip(found[::2], found[1::2])]
                found = pairs + found[len(pairs) * 2 :]
            best = found[0]
            while lanes > 1:
                lanes //= 2
                low, high = self.halves(scope, best[0], element, lanes)
                if best[1]:
                    low_where, high_where = self.halves(scope, best[1], "i64", lanes)
                    best = self.merge(scope, acc, (low, low_where), (high, high_where), lanes)
                else:
                    best = self.merge(scope, acc, (low, ""), (high, ""), lanes)
            results.append(best)
        best = results[0] if results else (self.identity(acc, 1), "0")
        for other in results[1:]:
            best = self.merge(scope, acc, best, other, 1)
        self.acc_value[acc.id] = best[1] if acc.kind in ("argmax", "argmin") else best[0]
        self.acc_depth[acc.id] = len(self.scopes) - 1
