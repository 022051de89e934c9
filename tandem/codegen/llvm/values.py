"""Values and memory in LLVM IR: each expression is computed in the outermost loop it is constant in, once."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.expr import PHILOX_FACTORS, PHILOX_ROUNDS, PHILOX_STEPS, Expr
from tandem.codegen.llvm.ops import MEMORY, TYPE, Ops, alignment, constant, vector
from tandem.codegen.loops import Kernel, Store
from tandem.codegen.render import Renderer


class Scope:
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


class Values(Renderer, Ops):
    def __init__(self, kernel: Kernel, vector_bytes: int, features: frozenset[str]):
        Renderer.__init__(self, kernel.linear)
        Ops.__init__(self, features)
        self.kernel = kernel
        self.vector_bytes = vector_bytes
        self.narrow_masks = "avx512bw" in features
        self.scopes: list[Scope] = []
        self.acc_value: dict[int, str] = {}
        self.acc_depth: dict[int, int] = {}
        self.acc_parts: dict[int, dict] = {}  # stack slots of accumulators
        self.strides: dict = {}
        self.scalar_accs: set[int] = set()
        self.labels = 0
        self.long_body = False  # of the vector loop that is being rendered
        self.past_caches = ""  # whether its stores go past the caches: "" never, "true" always, or the i1 that decides
        self.lanes = 0

    def accumulator_depth(self, number: int) -> int:
        return self.acc_depth[number]

    # -- values

    def operands(self, e: Expr, scope: Scope) -> tuple[Expr, ...]:
        if scope.lanes > 1 and e.op in ("load", "load_if"):  # addresses of a vector are computed with it
            return ()
        return e.args[:2] if e.op == "rarely" else e.args

    def compute(self, e: Expr, scope: Scope) -> str:
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
        if op == "rarely":
            return self.rarely(e, scope)
        if op == "load_if":
            return self.load_if(e, scope)
        if op == "philox":
            return self.philox(e, scope)
        names = [self.operand(a, scope) for a in e.args]
        return self.operation(e, names, scope)

    def philox(self, e: Expr, scope: Scope) -> str:
        """Random bits. In a long body in a loop over the rounds: written out, they are most of what it takes to compile, and hardly
        quicker there. Words are held as in ScalarBuilder.philox; the four of a block are made together."""
        seed, counter = map(self.chase, e.args)
        if not self.long_body:
            return self.operand(e.b.philox(seed, counter, e.attr), scope)
        key = ("philox", seed.id, counter.id)
        words = scope.values.get(key)
        t, narrow = (vector(i, scope.lanes) for i in ("i64", "i32"))
        if words is None:
            words = scope.values[key] = self._philox_rounds(seed, counter, t, scope)
        return self.line(scope, f"trunc {t} {words[e.attr]} to {narrow}")

    def _philox_rounds(self, seed: Expr, counter: Expr, t: str, scope: Scope) -> list[str]:
        def line(text: str) -> str:
            return self.line(scope, text)

        def number(value: int) -> str:
            return self.number(scope, value, dtypes.uint64)

        key, count = self.operand(seed, scope), self.operand(counter, scope)
        half, low = number(32), number(0xFFFFFFFF)
        zero = "0" if scope.lanes == 1 else "zeroinitializer"
        starts = [count, line(f"lshr {t} {count}, {half}"), zero, zero, key, line(f"lshr {t} {key}, {half}")]
        before, head, after = self.label(), self.label(), self.label()
        scope.lines += [f"  br label %{before}", f"{before}:", f"  br label %{head}", f"{head}:"]
        c0, c1, c2, c3, k0, k1 = held = [f"%{head}w{i}" for i in range(6)]
        at = len(scope.lines)  # where the phis go, once it is known what they take in
        p0 = line(f"mul {t} {line(f'and {t} {c0}, {low}')}, {number(PHILOX_FACTORS[0])}")
        p1 = line(f"mul {t} {line(f'and {t} {c2}, {low}')}, {number(PHILOX_FACTORS[1])}")
        n0 = line(f"xor {t} {line(f'xor {t} {c1}, {k0}')}, {line(f'lshr {t} {p1}, {half}')}")
        n2 = line(f"xor {t} {line(f'xor {t} {c3}, {k1}')}, {line(f'lshr {t} {p0}, {half}')}")
        keys = [line(f"add {t} {v}, {number(by)}") for v, by in zip((k0, k1), PHILOX_STEPS, strict=True)]
        ends = [n0, p1, n2, p0, *keys]
        phis = [
            f"  {name} = phi {t} [ {start}, %{before} ], [ {end}, %{head} ]"
            for name, start, end in zip(held, starts, ends, strict=True)
        ]
        scope.lines[at:at] = [*phis, f"  %{head}i = phi i32 [ 0, %{before} ], [ %{head}n, %{head} ]"]
        scope.lines += [
            f"  %{head}n = add nsw i32 %{head}i, 1",
            f"  %{head}c = icmp slt i32 %{head}n, {PHILOX_ROUNDS}",
            f"  br i1 %{head}c, label %{head}, label %{after}",
            f"{after}:",
        ]
        scope.label = after
        return ends[:4]

    def rarely(self, e: Expr, scope: Scope) -> str:
        """The second operand, or where the first holds in some lane, the third one there."""
        condition, usual, slow = e.args
        t = TYPE[e.dtype] if scope.lanes == 1 else f"<{scope.lanes} x {TYPE[e.dtype]}>"
        where, fast = self.operand(condition, scope), self.operand(usual, scope)

        def take_care():
            # What is computed in the branch is not there after it.
            values, lane_values, mask = dict(scope.values), dict(scope.lane_values), scope.mask
            special = self.operand(slow, scope)
            scope.values, scope.lane_values, scope.mask = values, lane_values, mask
            bits = "i1" if scope.lanes == 1 else f"<{scope.lanes} x i1>"
            return self.line(scope, f"select {bits} {where}, {t} {special}, {t} {fast}")

        return self.branch_rarely(scope, where, t, fast, take_care)

    def operand(self, a: Expr, scope: Scope) -> str:
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

    def load(self, e: Expr, scope: Scope) -> str:
        slot, offset = e.attr, self.chase(e.args[0])
        memory, size = MEMORY[e.dtype], alignment(e.dtype)
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

    def load_if(self, e: Expr, scope: Scope) -> str:
        slot, (condition, offset) = e.attr, map(self.chase, e.args)
        memory, size = MEMORY[e.dtype], alignment(e.dtype)
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
        shared = isinstance(stride, int) and stride == 0
        if shared and e.dtype.kind != "complex":
            return self.from_memory(scope, self.shared_load(scope, slot, offset, inside), e.dtype)
        pointers = [self.address(slot, offset)] * lanes if shared else self.lane_pointers(scope, slot, offset, stride)
        chosen = []
        for lane, pointer in enumerate(pointers):
            bit = self.line(scope, f"extractelement <{lanes} x i1> {inside}, i64 {lane}")
            chosen.append(self.line(scope, f"select i1 {bit}, ptr {pointer}, ptr {self.dummy()}"))
        return self.from_memory(scope, self.collect(scope, chosen, memory, size), e.dtype)

    def shared_load(self, scope: Scope, slot: int, offset: Expr, inside: str) -> str:
        """One element for all lanes inside, zero for the others; it is there if any lane is inside."""
        dtype, lanes = self.kernel.slot_dtype(slot), scope.lanes
        memory, bits, on = MEMORY[dtype], f"<{lanes} x i1>", self.mask(scope)
        wanted = self.line(scope, f"and {bits} {inside}, {on}") if on else inside
        some = f"llvm.vector.reduce.or.v{lanes}i1"
        self.declarations.add(f"declare i1 @{some}({bits})")
        pointer = self.line(scope, f"call i1 @{some}({bits} {wanted})")
        pointer = self.line(scope, f"select i1 {pointer}, ptr {self.address(slot, offset)}, ptr {self.dummy()}")
        x = self.line(scope, f"load {memory}, ptr {pointer}, align {alignment(dtype)}")
        t = vector(memory, lanes)
        return self.line(
            scope, f"select {bits} {inside}, {t} {self.splat(scope, x, memory, lanes)}, {t} zeroinitializer"
        )

    def lane_pointers(self, scope: Scope, slot: int, offset: Expr, stride) -> list[str]:
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
        memory, size = MEMORY[dtype], alignment(dtype)
        lanes = scope.lanes
        value = self.to_memory(scope, self.operand(s.value, scope), dtype)
        if lanes == 1:
            scope.lines.append(f"  store {memory} {value}, ptr {self.address(s.slot, s.offset)}, align {size}")
            return
        stride = self.stride(s.offset)
        if isinstance(stride, int) and stride == 1:
            address = self.address(s.slot, s.offset)
            if self.past_caches == "true" and not scope.mask:
                self.stream(scope, value, address, memory, size)
                return
            if not scope.whole or s.slot < 0:
                self.vector_store(scope, value, address, memory, size, scope.mask if s.slot >= 0 else "")
                return

            def whole():
                keep = lambda: self.vector_store(scope, value, address, memory, size, "")
                if self.past_caches:
                    stream = lambda: self.stream(scope, value, address, memory, size)
                    self.one_or_other(scope, self.past_caches, stream, keep)
                else:
                    keep()

            self.whole_or_part(
                scope,
                whole,
                lambda mask: self.vector_store(scope, value, address, memory, size, mask),
            )
            return
        for lane, pointer in enumerate(self.lane_pointers(scope, s.slot, s.offset, stride)):
            element = self.lane(scope, value, memory, lane)
            if scope.mask and lane:
                bit = self.line(scope, f"extractelement <{lanes} x i1> {scope.mask}, i64 {lane}")
                pointer = self.line(scope, f"select i1 {bit}, ptr {pointer}, ptr {self.dummy()}")
            scope.lines.append(f"  store {memory} {element}, ptr {pointer}, align {size}")

    def dummy(self) -> str:
        """Sixteen bytes of zeros, read and written in place of memory that must not be touched."""
        if not self.has_dummy:
            self.has_dummy = True
            self.allocas += [
                "  %nowhere = alloca <2 x i64>, align 16",
                "  store <2 x i64> zeroinitializer, ptr %nowhere, align 16",
            ]
        return "%nowhere"
