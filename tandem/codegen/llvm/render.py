"""Renders a kernel as LLVM IR text with explicit vectors.

Every expression is computed in the outermost loop it is constant in, once. In a vector loop, expressions that vary are computed
`lanes` at a time; what is left over at the end runs under a mask, or one element at a time where the memory types are too narrow
for cheap masks. Accumulators live in stack slots that LLVM's first pass turns into registers.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.llvm.fold import DOUBLE_LANES, RowFold
from tandem.codegen.llvm.loops import Loops
from tandem.codegen.llvm.ops import MEMORY, TYPE, alignment, vector
from tandem.codegen.llvm.values import Scope
from tandem.codegen.loops import Accumulate, Accumulator, FinishRows, Kernel

# Instructions from which on a kernel without reductions is compiled the quick way: instruction selection without its own
# optimisations, a third of the time. The code is long and straight, and runs 3 to 9 % slower.
LONG_KERNEL = 240


def render(kernel: Kernel, vector_bytes: int, features: frozenset[str]) -> str:
    return _Renderer(kernel, vector_bytes, features).render()


class _Renderer(Loops):
    def render(self) -> str:
        top = Scope("entry")
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
        quick = (
            "optnone noinline " if self.names > LONG_KERNEL and not self.acc_parts and not self.kernel.locals else ""
        )
        head = "define void @kernel(ptr noundef %pointers, ptr noundef %ints, i64 %begin, i64 %end) #0 {"
        return "\n".join([
            *sorted(self.declarations), head, "entry:", *self.allocas, *top.lines, "}",
            f'attributes #0 = {{ {quick}nounwind "no-builtins" "no-jump-tables"="true"{width} }}', "!0 = !{}",
            '!1 = !{!"branch_weights", i32 1, i32 100000}', "!2 = !{i32 1}", "",
        ])  # fmt: skip

    # -- reductions

    def declare(self, acc):
        scope = self.scopes[-1]
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
            # Whether an extremum's operand is NaN is asked of the value, so that one step need not wait for the other.
            pair = (value, old) if acc.kind in ("max", "min") else (old, value)
            new = self.combine(scope, acc.kind, acc.dtype, *pair, lanes)
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

    def merged(self, acc) -> dict[int, tuple[str, str]]:
        """(value, position) of what an accumulator's slots hold, merged into one for each number of lanes."""
        scope = self.scopes[-1]
        element = TYPE[acc.dtype]
        by_lanes: dict[int, list] = {}
        for key, slots in self.acc_parts[acc.id].items():
            if type(key) is str:
                continue
            (lanes, _), (slot, position_slot) = key, slots
            type_ = element if lanes == 1 else f"<{lanes} x {element}>"
            index = "i64" if lanes == 1 else f"<{lanes} x i64>"
            value = self.line(scope, f"load {type_}, ptr {slot}")
            where = self.line(scope, f"load {index}, ptr {position_slot}") if position_slot else ""
            by_lanes.setdefault(lanes, []).append((value, where))
        for lanes, found in by_lanes.items():
            while len(found) > 1:
                pairs = [self.merge(scope, acc, a, b, lanes) for a, b in zip(found[::2], found[1::2])]
                found = pairs + found[len(pairs) * 2 :]
            by_lanes[lanes] = found[0]
        return by_lanes

    def flush(self, acc):
        scope, parts = self.scopes[-1], self.acc_parts[acc.id]
        totals = parts.setdefault("totals", {})
        for lanes, value in self.in_total(acc).items():
            type_ = vector(TYPE[acc.result], lanes)
            name = totals.get(lanes)
            if name is None:
                name = totals[lanes] = f"%a{acc.id}_{lanes}_total"
                if f"  {name} = alloca {type_}" not in self.allocas:
                    self.allocas.append(f"  {name} = alloca {type_}")
                parts["scope"].lines.append(f"  store {type_} zeroinitializer, ptr {name}")
            old = self.line(scope, f"load {type_}, ptr {name}")
            new = self.line(scope, f"{'fadd' if acc.dtype.kind == 'float' else 'add'} {type_} {old}, {value}")
            scope.lines.append(f"  store {type_} {new}, ptr {name}")
        for key, slots in parts.items():
            if type(key) is not str:
                zero = self.identity(acc, key[0])
                scope.lines.append(f"  store {vector(TYPE[acc.dtype], key[0])} {zero}, ptr {slots[0]}")

    def totals(self, acc) -> dict[int, str]:
        """What the blocks of a sum have added up to, by the number of lanes."""
        return {
            n: self.line(self.scopes[-1], f"load {vector(TYPE[acc.result], n)}, ptr {x}")
            for n, x in self.acc_parts[acc.id]["totals"].items()
        }

    def in_total(self, acc) -> dict[int, str]:
        """What a sum's slots hold in the type of its total, by the number of lanes, of which few are left: the rest is added in
        its own type."""
        scope, element, found = self.scopes[-1], TYPE[acc.dtype], {}
        for lanes, (value, _) in self.merged(acc).items():
            while lanes > DOUBLE_LANES:
                lanes //= 2
                value = self.combine(scope, acc.kind, acc.dtype, *self.halves(scope, value, element, lanes), lanes)
            if acc.dtype is not acc.result:
                wider = "fpext" if acc.dtype.kind == "float" else "sext"
                value = self.line(
                    scope, f"{wider} {vector(element, lanes)} {value} to {vector(TYPE[acc.result], lanes)}"
                )
            found[lanes] = value
        return found

    def finish(self, acc):
        scope, parts = self.scopes[-1], self.acc_parts[acc.id]
        if "totals" in parts:
            found = {n: (x, "") for n, x in self.totals(acc).items()}
        elif acc.blocked:
            found = {lanes: (x, "") for lanes, x in self.in_total(acc).items()}
        else:
            found = self.merged(acc)
        if acc.blocked:
            acc = Accumulator(acc.id, acc.kind, acc.result)
        element = TYPE[acc.dtype]
        results = []
        for lanes, best in found.items():
            if lanes > 1 and acc.kind in ("max", "min") and acc.dtype.kind == "float":
                results.append((self.extremum_of(scope, acc, best[0], lanes), ""))
                continue
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

    def finish_rows(self, s: FinishRows):
        scope, first, rows = self.scopes[-1], s.accs[0], len(s.accs)
        flushed = "totals" in self.acc_parts[first.id]
        held = [self.totals(a) if flushed else {n: x for n, (x, _) in self.merged(a).items()} for a in s.accs]
        dtype, done = first.result if flushed else first.dtype, []
        for lanes in held[0]:
            fold = RowFold(self, scope, first.kind, dtype, [found[lanes] for found in held], lanes)
            done.append(fold.results(first.result))
        result = done[0]
        for other in done[1:]:
            result = self.combine(scope, first.kind, first.result, result, other, rows)
        element = TYPE[first.result]
        for k, acc in enumerate(s.accs):
            self.acc_value[acc.id] = self.line(scope, f"extractelement <{rows} x {element}> {result}, i64 {k}")
            self.acc_depth[acc.id] = len(self.scopes) - 1
        if first.result is dtypes.bool_:
            result, element = self.line(scope, f"zext <{rows} x i1> {result} to <{rows} x i8>"), "i8"
        scope.lines.append(
            f"  store <{rows} x {element}> {result}, ptr {self.pointer(s.local)}, align {alignment(first.result)}"
        )

    def extremum_of(self, scope, acc, value: str, lanes: int) -> str:
        """The largest or smallest lane; whether one is NaN is asked of all at once."""
        element = TYPE[acc.dtype]
        unordered = self.line(scope, f"fcmp uno {vector(element, lanes)} {value}, {value}")
        bits = self.line(scope, f"bitcast <{lanes} x i1> {unordered} to i{lanes}")
        some = self.line(scope, f"icmp ne i{lanes} {bits}, 0")
        relation = "ogt" if acc.kind == "max" else "olt"
        while lanes > 1:
            lanes //= 2
            low, high = self.halves(scope, value, element, lanes)
            t, wins = vector(element, lanes), "i1" if lanes == 1 else f"<{lanes} x i1>"
            first = self.line(scope, f"fcmp {relation} {t} {low}, {high}")
            value = self.line(scope, f"select {wins} {first}, {t} {low}, {t} {high}")
        nan = self.number(1, float("nan"), acc.dtype)
        return self.line(scope, f"select i1 {some}, {element} {nan}, {element} {value}")
