"""LLVM instructions for single expressions: arithmetic, conversions, vector memory, combining of accumulators."""

from __future__ import annotations

import struct

from tandem import dtypes
from tandem.codegen.expr import COMPARISONS, Expr
from tandem.codegen.llvm import angle as llvm_angle
from tandem.dtypes import DType

TYPE = {
    dtypes.bool_: "i1", dtypes.int8: "i8", dtypes.int16: "i16", dtypes.int32: "i32", dtypes.int64: "i64",
    dtypes.uint8: "i8", dtypes.uint16: "i16", dtypes.uint32: "i32", dtypes.uint64: "i64",
    dtypes.float16: "half", dtypes.bfloat16: "i16", dtypes.float32: "float", dtypes.float64: "double",
    dtypes.complex64: "<2 x float>", dtypes.complex128: "<2 x double>",
}  # fmt: skip
MEMORY = TYPE | {dtypes.bool_: "i8"}
_PAIRED = "<2 x "  # complex numbers; several of them are one vector of twice as many parts, re and im in turns
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FLOAT_INTRINSIC = {
    "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
    "copysign": "copysign", "fma": "fma",
}  # fmt: skip
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INT_COMPARE = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UINT_COMPARE = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}


def constant(dtype: DType, bits: int) -> str:
    if dtype is dtypes.float32:
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if dtype is dtypes.float64:
        return f"0x{bits:016X}"
    if dtype is dtypes.bool_:
        return "true" if bits else "false"
    return str(bits)


def vector(type_: str, lanes: int) -> str:
    """The type of `lanes` values of a type."""
    if lanes == 1:
        return type_
    if type_.startswith(_PAIRED):
        return f"<{2 * lanes} x {type_[len(_PAIRED) : -1]}>"
    return f"<{lanes} x {type_}>"


def alignment(dtype: DType) -> int:
    return dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize


def _picks(numbers) -> str:
    return ", ".join([f"i32 {k}" for k in numbers])


class Ops:
    def __init__(self, features: frozenset[str]):
        self.features = features
        self.declarations: set[str] = set()
        self.allocas: list[str] = []
        self.names = 0
        self.has_dummy = False
        self.digit_names: dict = {}

    def line(self, scope, text: str) -> str:
        self.names += 1
        scope.lines.append(f"  %v{self.names} = {text}")
        return f"%v{self.names}"

    def call(self, scope, name: str, type_: str, *args: str) -> str:
        self.declarations.add(f"declare {type_} @{name}({', '.join([type_] * len(args))})")
        return self.line(scope, f"call {type_} @{name}({', '.join(f'{type_} {a}' for a in args)})")

    # -- vectors

    def splat_constant(self, dtype: DType, bits: int, lanes: int) -> str:
        text = constant(dtype, bits)
        if text == "0" or text == "0x" + "0" * 16:
            return "zeroinitializer"
        return f"<{', '.join([f'{TYPE[dtype]} {text}'] * lanes)}>"

    def splat(self, scope, name: str, type_: str, lanes: int) -> str:
        if type_.startswith(_PAIRED):
            picks = _picks([0, 1] * lanes)
            return self.line(scope, f"shufflevector {type_} {name}, {type_} poison, <{2 * lanes} x i32> <{picks}>")
        one = self.line(scope, f"insertelement <{lanes} x {type_}> poison, {type_} {name}, i64 0")
        return self.line(
            scope,
            f"shufflevector <{lanes} x {type_}> {one}, <{lanes} x {type_}> poison, <{lanes} x i32> zeroinitializer",
        )

    def index_vector(self, scope) -> str:
        lanes = scope.lanes
        ramp = ", ".join(f"i64 {k}" for k in range(lanes))
        base = self.splat(scope, scope.counter, "i64", lanes)
        return self.line(scope, f"add <{lanes} x i64> {base}, <{ramp}>")

    def halves(self, scope, name: str, type_: str, half: int) -> tuple[str, str]:
        lanes = half * 2
        parts = []
        for first in (0, half):
            if half == 1:
                parts.append(self.line(scope, f"extractelement <2 x {type_}> {name}, i64 {first}"))
                continue
            picks = ", ".join(f"i32 {first + k}" for k in range(half))
            vector = f"<{lanes} x {type_}>"
            parts.append(self.line(scope, f"shufflevector {vector} {name}, {vector} poison, <{half} x i32> <{picks}>"))
        return parts[0], parts[1]

    def transposed(self, scope, rows: list[str], memory: str, n: int) -> list[str]:
        """The n x n matrix of n row vectors with rows and columns exchanged.

        32- and 64-bit elements take shuffles that stay within 128 bits, but for the last stage, as AVX has them.
        """

        def shuffle(a: str, b: str, picks) -> str:
            mask = ", ".join(f"i32 {k}" for k in picks)
            return self.line(scope, f"shufflevector <{n} x {memory}> {a}, <{n} x {memory}> {b}, <{n} x i32> <{mask}>")

        if n == 4:
            low, high = (0, 4, 2, 6), (1, 5, 3, 7)
            t = [shuffle(rows[k], rows[k + 1], m) for k in (0, 2) for m in (low, high)]
            return [shuffle(t[k], t[k + 2], m) for m in ((0, 1, 4, 5), (2, 3, 6, 7)) for k in (0, 1)]
        if memory in ("float", "i32"):
            low, high = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
            t = [shuffle(rows[k], rows[k + 1], m) for k in (0, 2, 4, 6) for m in (low, high)]
            low, high = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
            u = [shuffle(t[k], t[k + 2], m) for k in (0, 1, 4, 5) for m in (low, high)]
            low, high = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)
            return [shuffle(u[k], u[k + 4], m) for m in (low, high) for k in range(4)]
        low, high = (0, 8, 1, 9, 2, 10, 3, 11), (4, 12, 5, 13, 6, 14, 7, 15)
        for _ in range(3):
            rows = [shuffle(rows[k], rows[k + 4], m) for k in range(4) for m in (low, high)]
        return rows

    def collect(self, scope, pointers: list[str], memory: str, size: int) -> str:
        lanes = len(pointers)
        elements = [self.line(scope, f"load {memory}, ptr {pointer}, align {size}") for pointer in pointers]
        if memory.startswith(_PAIRED):
            return self.joined(scope, elements, memory)
        made = "poison"
        for lane, element in enumerate(elements):
            made = self.line(scope, f"insertelement <{lanes} x {memory}> {made}, {memory} {element}, i64 {lane}")
        return made

    def joined(self, scope, parts: list[str], type_: str) -> str:
        """Complex numbers one after the other in one vector; their number is a power of two."""
        size = 1
        while len(parts) > 1:
            t = vector(type_, size)
            picks = _picks(range(4 * size))
            parts = [
                self.line(scope, f"shufflevector {t} {x}, {t} {y}, <{4 * size} x i32> <{picks}>")
                for x, y in zip(parts[::2], parts[1::2])
            ]
            size *= 2
        return parts[0]

    def lane(self, scope, value: str, memory: str, lane: int) -> str:
        """One lane of a vector."""
        if not memory.startswith(_PAIRED):
            return self.line(scope, f"extractelement <{scope.lanes} x {memory}> {value}, i64 {lane}")
        t = vector(memory, scope.lanes)
        return self.line(
            scope, f"shufflevector {t} {value}, {t} poison, <2 x i32> <{_picks((2 * lane, 2 * lane + 1))}>"
        )

    def in_parts(self, lanes: int, memory: str, mask: str) -> tuple[int, str]:
        """(lanes, memory) of vector accesses. Those of complex numbers are of their parts; under a mask, of whole numbers as
        far as there is such a type, because masks of parts are many instructions."""
        if not memory.startswith(_PAIRED):
            return lanes, memory
        if mask and memory == "<2 x float>":
            return lanes, "i64"
        return 2 * lanes, memory[len(_PAIRED) : -1]

    def mask_in_parts(self, scope, lanes: int, mask: str) -> str:
        if lanes == scope.lanes:
            return mask
        t = f"<{scope.lanes} x i1>"
        picks = _picks([k // 2 for k in range(lanes)])
        return self.line(scope, f"shufflevector {t} {mask}, {t} poison, <{lanes} x i32> <{picks}>")

    def vector_load(self, scope, pointer: str, memory: str, size: int, mask: str) -> str:
        lanes, part = self.in_parts(scope.lanes, memory, mask)
        type_ = f"<{lanes} x {part}>"
        if not mask:
            return self.line(scope, f"load {type_}, ptr {pointer}, align {size}")
        mask = self.mask_in_parts(scope, lanes, mask)
        name = f"llvm.masked.load.v{lanes}{_SUFFIX.get(part, part)}.p0"
        self.declarations.add(f"declare {type_} @{name}(ptr, i32, <{lanes} x i1>, {type_})")
        loaded = self.line(
            scope, f"call {type_} @{name}(ptr {pointer}, i32 {size}, <{lanes} x i1> {mask}, {type_} zeroinitializer)"
        )
        wanted = vector(memory, scope.lanes)
        return loaded if wanted == type_ else self.line(scope, f"bitcast {type_} {loaded} to {wanted}")

    def vector_store(self, scope, value: str, pointer: str, memory: str, size: int, mask: str):
        lanes, part = self.in_parts(scope.lanes, memory, mask)
        type_ = f"<{lanes} x {part}>"
        if not mask:
            scope.lines.append(f"  store {type_} {value}, ptr {pointer}, align {size}")
            return
        mask = self.mask_in_parts(scope, lanes, mask)
        given = vector(memory, scope.lanes)
        if given != type_:
            value = self.line(scope, f"bitcast {given} {value} to {type_}")
        name = f"llvm.masked.store.v{lanes}{_SUFFIX.get(part, part)}.p0"
        self.declarations.add(f"declare void @{name}({type_}, ptr, i32, <{lanes} x i1>)")
        scope.lines.append(f"  call void @{name}({type_} {value}, ptr {pointer}, i32 {size}, <{lanes} x i1> {mask})")

    def stream(self, scope, value: str, pointer: str, memory: str, size: int):
        """Stores a whole vector past the caches; it lies at a multiple of its size (or of a register's, if that is less)."""
        aligned = min(scope.lanes * size, self.vector_bytes)
        type_ = vector(memory, scope.lanes)
        scope.lines.append(f"  store {type_} {value}, ptr {pointer}, align {aligned}, !nontemporal !2")

    def _wrap(self, scope, type_: str) -> str:
        return vector(type_, scope.lanes)

    def from_memory(self, scope, name: str, dtype: DType) -> str:
        if dtype is not dtypes.bool_:
            return name
        zero = "0" if scope.lanes == 1 else "zeroinitializer"
        return self.line(scope, f"icmp ne {self._wrap(scope, 'i8')} {name}, {zero}")

    def to_memory(self, scope, name: str, dtype: DType) -> str:
        if dtype is not dtypes.bool_:
            return name
        return self.line(scope, f"zext {self._wrap(scope, 'i1')} {name} to {self._wrap(scope, 'i8')}")

    def number(self, scope, value, dtype: DType) -> str:
        """A literal of dtype in every lane; for floats `value` is a float."""
        if dtype is dtypes.float32:
            value = struct.unpack("<I", struct.pack("<f", value))[0]
        elif dtype is dtypes.float64:
            value = struct.unpack("<Q", struct.pack("<d", value))[0]
        lanes = scope if isinstance(scope, int) else scope.lanes
        return constant(dtype, value) if lanes == 1 else self.splat_constant(dtype, value, lanes)

    # -- one operation

    def operation(self, e: Expr, names: list[str], scope) -> str:
        op = e.op
        if op == "cast":
            return self.cast(scope, names[0], e.args[0].dtype, e.dtype)
        if op == "where":
            t = self._wrap(scope, TYPE[e.dtype])
            return self.line(scope, f"select {self._wrap(scope, 'i1')} {names[0]}, {t} {names[1]}, {t} {names[2]}")
        dtype = e.args[0].dtype
        t = self._wrap(scope, TYPE[dtype])
        if op == "complex":
            return self.pair(scope, names[0], names[1], t)
        if op in ("real", "imag"):
            return self.part(scope, names[0], 0 if op == "real" else 1, t)
        if op == "bitcast":
            return self.line(scope, f"bitcast {t} {names[0]} to {self._wrap(scope, TYPE[e.dtype])}")
        if op in COMPARISONS:
            return self.compare(scope, op, dtype, names[0], names[1])
        if dtype.kind == "float":
            return self.float_operation(op, names, scope, dtype, t)
        return self.integer_operation(op, names, scope, dtype, t)

    def pair(self, scope, re: str, im: str, t: str) -> str:
        lanes = scope.lanes
        if lanes > 1:
            picks = _picks([k // 2 + lanes * (k % 2) for k in range(2 * lanes)])
            return self.line(scope, f"shufflevector {t} {re}, {t} {im}, <{2 * lanes} x i32> <{picks}>")
        both = f"<2 x {t}>"
        first = self.line(scope, f"insertelement {both} poison, {t} {re}, i64 0")
        return self.line(scope, f"insertelement {both} {first}, {t} {im}, i64 1")

    def part(self, scope, name: str, which: int, t: str) -> str:
        lanes = scope.lanes
        if lanes == 1:
            return self.line(scope, f"extractelement {t} {name}, i64 {which}")
        picks = _picks(range(which, 2 * lanes, 2))
        return self.line(scope, f"shufflevector {t} {name}, {t} poison, <{lanes} x i32> <{picks}>")

    def compare(self, scope, op: str, dtype: DType, x: str, y: str) -> str:
        t = self._wrap(scope, TYPE[dtype])
        if dtype.kind == "float":
            return self.line(scope, f"fcmp {_FLOAT_COMPARE[op]} {t} {x}, {y}")
        names = _INT_COMPARE if dtype.kind == "int" else _UINT_COMPARE
        return self.line(scope, f"icmp {names.get(op, op)} {t} {x}, {y}")

    def float_operation(self, op: str, names: list[str], scope, dtype: DType, t: str) -> str:
        if op in _FLOAT_BINARY:
            return self.line(scope, f"{_FLOAT_BINARY[op]} {t} {names[0]}, {names[1]}")
        if op == "neg":
            return self.line(scope, f"fneg {t} {names[0]}")
        if op in ("min", "max"):
            return self.float_extremum(scope, op, t, names[0], names[1])
        if op == "isnan":
            return self.line(scope, f"fcmp uno {t} {names[0]}, {names[0]}")
        if op == "near_angle":
            return self.near_angle(scope, t, names[0])
        if (
            op == "fma" and "sse4_1" in self.features and "fma" not in self.features
        ):  # an x86 without it would call a library
            return self.line(scope, f"fadd {t} {self.line(scope, f'fmul {t} {names[0]}, {names[1]}')}, {names[2]}")
        suffix = _SUFFIX[TYPE[dtype]] if scope.lanes == 1 else f"v{scope.lanes}{_SUFFIX[TYPE[dtype]]}"
        return self.call(scope, f"llvm.{_FLOAT_INTRINSIC[op]}.{suffix}", t, *names)

    def near_angle(self, scope, t: str, x: str) -> str:
        """x; where an element of it is far from zero, the same angle near zero. The way there is slow, and hardly ever taken."""
        lanes = scope.lanes
        size = self.call(scope, "llvm.fabs.f64" if lanes == 1 else f"llvm.fabs.v{lanes}f64", t, x)
        far = self.line(scope, f"fcmp oge {t} {size}, {self.number(scope, llvm_angle.FAR, dtypes.float64)}")

        def reduce_each():
            place = self.angles(lanes)
            self.declarations.add(f"declare void @{llvm_angle.ROUTINE}(ptr, i64) cold")
            scope.lines += [
                f"  store {t} {x}, ptr {place}, align 8", f"  call void @{llvm_angle.ROUTINE}(ptr {place}, i64 {lanes})",
            ]  # fmt: skip
            return self.line(scope, f"load {t}, ptr {place}, align 8")

        return self.branch_rarely(scope, far, t, x, reduce_each)

    def angles(self, lanes: int) -> str:
        """Memory of the kernel's own for as many angles."""
        name = f"%angles{lanes}"
        text = f"  {name} = alloca [{lanes} x double], align 8"
        if text not in self.allocas:
            self.allocas.append(text)
        return name

    def branch_rarely(self, scope, condition: str, t: str, usual: str, slow) -> str:
        """usual, or what slow() computes in a branch that is taken where the condition holds in any lane."""
        if scope.lanes > 1:
            name = f"llvm.vector.reduce.or.v{scope.lanes}i1"
            self.declarations.add(f"declare i1 @{name}(<{scope.lanes} x i1>)")
            condition = self.line(scope, f"call i1 @{name}(<{scope.lanes} x i1> {condition})")
        before, branch, end, after = self.label(), self.label(), self.label(), self.label()
        scope.lines += [
            f"  br label %{before}", f"{before}:", f"  br i1 {condition}, label %{branch}, label %{after}, !prof !1", f"{branch}:",
        ]  # fmt: skip
        scope.label = branch
        result = slow()
        # slow() may have ended in another block than it began in.
        scope.lines += [f"  br label %{end}", f"{end}:", f"  br label %{after}", f"{after}:"]
        scope.label = after
        return self.line(scope, f"phi {t} [ {usual}, %{before} ], [ {result}, %{end} ]")

    def float_extremum(self, scope, op: str, t: str, x: str, y: str) -> str:
        # The first select is the machine's own max (its second operand where either is NaN); the other lets x's NaN through.
        # Arithmetic could not tell which NaN comes out, so neither do we.
        relation = "ogt" if op == "max" else "olt"
        first = self.line(scope, f"fcmp {relation} {t} {x}, {y}")
        bits = "i1" if not t.startswith("<") else t.split(" x ")[0] + " x i1>"
        best = self.line(scope, f"select {bits} {first}, {t} {x}, {t} {y}")
        nan = self.line(scope, f"fcmp uno {t} {x}, {x}")
        return self.line(scope, f"select {bits} {nan}, {t} {x}, {t} {best}")

    def integer_operation(self, op: str, names: list[str], scope, dtype: DType, t: str) -> str:
        signed = dtype.kind == "int"
        if op in ("add", "sub", "mul", "and", "or", "xor", "shl"):
            return self.line(scope, f"{op} {t} {names[0]}, {names[1]}")
        if op == "shr":
            return self.line(scope, f"{'ashr' if signed else 'lshr'} {t} {names[0]}, {names[1]}")
        if op == "neg":
            return self.line(scope, f"sub {t} {self.number(scope, 0, dtypes.int32)}, {names[0]}")
        if op == "not":
            ones = self.number(scope, 1, dtype) if dtype is dtypes.bool_ else self.number(scope, -1, dtype)
            return self.line(scope, f"xor {t} {names[0]}, {ones}")
        if op in ("min", "max"):
            suffix = TYPE[dtype] if scope.lanes == 1 else f"v{scope.lanes}{TYPE[dtype]}"
            return self.call(scope, f"llvm.{'s' if signed else 'u'}{op}.{suffix}", t, *names)
        if op == "abs":
            negative = self.line(scope, f"sub {t} {self.number(scope, 0, dtypes.int32)}, {names[0]}")
            less = self.compare(scope, "lt", dtype, names[0], self.number(scope, 0, dtype))
            return self.line(scope, f"select {self._wrap(scope, 'i1')} {less}, {t} {negative}, {t} {names[0]}")
        if op in ("idiv", "imod"):
            return self.line(scope, f"{'udiv' if op == 'idiv' else 'urem'} {t} {names[0]}, {names[1]}")
        return self.guarded_division(op, names[0], names[1], scope, dtype, t)

    def guarded_division(self, op: str, x: str, y: str, scope, dtype: DType, t: str) -> str:
        """Floor division and remainder that cannot trap: by zero gives 0, by -1 is done by hand."""
        bits = self._wrap(scope, "i1")
        zero, one = self.number(scope, 0, dtype), self.number(scope, 1, dtype)
        by_zero = self.line(scope, f"icmp eq {t} {y}, {zero}")
        if dtype.kind == "uint":
            safe = self.line(scope, f"select {bits} {by_zero}, {t} {one}, {t} {y}")
            result = self.line(scope, f"{'udiv' if op == 'floordiv' else 'urem'} {t} {x}, {safe}")
            return self.line(scope, f"select {bits} {by_zero}, {t} {zero}, {t} {result}")
        by_minus = self.line(scope, f"icmp eq {t} {y}, {self.number(scope, -1, dtype)}")
        special = self.line(scope, f"or {bits} {by_zero}, {by_minus}")
        safe = self.line(scope, f"select {bits} {special}, {t} {one}, {t} {y}")
        remainder = self.line(scope, f"srem {t} {x}, {safe}")
        some = self.line(scope, f"icmp ne {t} {remainder}, {zero}")
        signs = self.line(scope, f"icmp slt {t} {self.line(scope, f'xor {t} {remainder}, {safe}')}, {zero}")
        adjust = self.line(scope, f"and {bits} {some}, {signs}")
        if op == "mod":
            moved = self.line(scope, f"add {t} {remainder}, {safe}")
            result = self.line(scope, f"select {bits} {adjust}, {t} {moved}, {t} {remainder}")
            return self.line(scope, f"select {bits} {special}, {t} {zero}, {t} {result}")
        quotient = self.line(scope, f"sdiv {t} {x}, {safe}")
        lower = self.line(scope, f"sub {t} {quotient}, {one}")
        result = self.line(scope, f"select {bits} {adjust}, {t} {lower}, {t} {quotient}")
        negative = self.line(scope, f"sub {t} {zero}, {x}")
        result = self.line(scope, f"select {bits} {by_minus}, {t} {negative}, {t} {result}")
        return self.line(scope, f"select {bits} {by_zero}, {t} {zero}, {t} {result}")

    # -- conversions

    def cast(self, scope, x: str, source: DType, target: DType) -> str:
        s, t = self._wrap(scope, TYPE[source]), self._wrap(scope, TYPE[target])
        if target is dtypes.bfloat16:
            return self.to_bfloat16(scope, x)
        if source is dtypes.bfloat16:
            i32 = self._wrap(scope, "i32")
            wide = self.line(scope, f"zext {s} {x} to {i32}")
            high = self.line(scope, f"shl {i32} {wide}, {self.number(scope, 16, dtypes.int32)}")
            return self.line(scope, f"bitcast {i32} {high} to {t}")
        if source.kind == "bool":
            if target.kind == "float":
                zero, one = self.number(scope, 0.0, target), self.number(scope, 1.0, target)
                return self.line(scope, f"select {self._wrap(scope, 'i1')} {x}, {t} {one}, {t} {zero}")
            return self.line(scope, f"zext {s} {x} to {t}")
        if source.kind == "float" and target.kind == "float":
            return self.line(scope, f"{'fpext' if source.itemsize < target.itemsize else 'fptrunc'} {s} {x} to {t}")
        if target.kind == "float":
            return self.line(scope, f"{'sitofp' if source.kind == 'int' else 'uitofp'} {s} {x} to {t}")
        if source.kind == "float":
            if target is dtypes.uint64:
                return self.line(scope, f"fptoui {s} {x} to {t}")
            # through a wider signed type, so that what does not fit wraps as in NumPy
            wide = "i32" if target.itemsize < 4 or target is dtypes.int32 else "i64"
            x = self.line(scope, f"fptosi {s} {x} to {self._wrap(scope, wide)}")
            if wide == TYPE[target]:
                return x
            return self.line(scope, f"trunc {self._wrap(scope, wide)} {x} to {t}")
        if source.itemsize == target.itemsize:
            return x
        if source.itemsize > target.itemsize:
            return self.line(scope, f"trunc {s} {x} to {t}")
        return self.line(scope, f"{'sext' if source.kind == 'int' else 'zext'} {s} {x} to {t}")

    def to_bfloat16(self, scope, x: str) -> str:
        """Round to nearest even by integer arithmetic; NaN stays NaN."""
        f, i32 = self._wrap(scope, "float"), self._wrap(scope, "i32")
        n = lambda k: self.number(scope, k, dtypes.int32)
        bits = self.line(scope, f"bitcast {f} {x} to {i32}")
        odd = self.line(scope, f"and {i32} {self.line(scope, f'lshr {i32} {bits}, {n(16)}')}, {n(1)}")
        bias = self.line(scope, f"add {i32} {odd}, {n(0x7FFF)}")
        rounded = self.line(scope, f"add {i32} {bits}, {bias}")
        quiet = self.line(scope, f"or {i32} {bits}, {n(0x400000)}")
        nan = self.line(scope, f"fcmp uno {f} {x}, {x}")
        chosen = self.line(scope, f"select {self._wrap(scope, 'i1')} {nan}, {i32} {quiet}, {i32} {rounded}")
        high = self.line(scope, f"lshr {i32} {chosen}, {n(16)}")
        return self.line(scope, f"trunc {i32} {high} to {self._wrap(scope, 'i16')}")

    # -- accumulators

    def identity(self, acc, lanes: int) -> str:
        dtype, kind = acc.dtype, acc.kind
        if kind in ("sum", "any"):
            value = 0.0 if dtype.kind == "float" else 0
        elif kind in ("prod", "all"):
            value = 1.0 if dtype.kind == "float" else 1
        else:
            largest = kind in ("min", "argmin")
            if dtype.kind == "float":
                value = float("inf") if largest else float("-inf")
            elif dtype.kind == "bool":
                value = int(largest)
            else:
                bits = dtype.itemsize * 8
                low, high = (
                    (0, (1 << bits) - 1) if dtype.kind == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
                )
                value = high if largest else low
        return self.number(lanes, value, dtype)

    def combine(self, scope, kind: str, dtype: DType, x: str, y: str, lanes: int) -> str:
        element = TYPE[dtype]
        t = element if lanes == 1 else f"<{lanes} x {element}>"
        if kind == "any" or (kind in ("sum", "max") and dtype.kind == "bool"):
            return self.line(scope, f"or {t} {x}, {y}")
        if kind == "all" or (kind in ("prod", "min") and dtype.kind == "bool"):
            return self.line(scope, f"and {t} {x}, {y}")
        if dtype.kind == "float":
            if kind in ("max", "min"):
                return self.float_extremum(scope, kind, t, x, y)
            return self.line(scope, f"{'fadd' if kind == 'sum' else 'fmul'} {t} {x}, {y}")
        if kind in ("max", "min"):
            suffix = element if lanes == 1 else f"v{lanes}{element}"
            return self.call(scope, f"llvm.{'s' if dtype.kind == 'int' else 'u'}{kind}.{suffix}", t, x, y)
        return self.line(scope, f"{'add' if kind == 'sum' else 'mul'} {t} {x}, {y}")

    def better(self, scope, kind: str, dtype: DType, x: str, y: str, lanes: int) -> str:
        """Whether x takes the place of y in argmax or argmin; NaN beats everything but an earlier NaN."""
        t = TYPE[dtype] if lanes == 1 else f"<{lanes} x {TYPE[dtype]}>"
        bits = "i1" if lanes == 1 else f"<{lanes} x i1>"
        op = "gt" if kind == "argmax" else "lt"
        if dtype.kind != "float":
            names = _INT_COMPARE if dtype.kind == "int" else _UINT_COMPARE
            return self.line(scope, f"icmp {names[op]} {t} {x}, {y}")
        beats = self.line(scope, f"fcmp {_FLOAT_COMPARE[op]} {t} {x}, {y}")
        nan = self.line(scope, f"fcmp uno {t} {x}, {x}")
        number = self.line(scope, f"fcmp ord {t} {y}, {y}")
        return self.line(scope, f"or {bits} {beats}, {self.line(scope, f'and {bits} {nan}, {number}')}")

    def merge(self, scope, acc, a: tuple[str, str], b: tuple[str, str], lanes: int) -> tuple[str, str]:
        """Two partial results of an accumulator made one; equal extrema keep the earlier position."""
        if not a[1] or acc.kind not in ("argmax", "argmin"):
            return self.combine(scope, acc.kind, acc.dtype, a[0], b[0], lanes), ""
        t = TYPE[acc.dtype] if lanes == 1 else f"<{lanes} x {TYPE[acc.dtype]}>"
        bits = "i1" if lanes == 1 else f"<{lanes} x i1>"
        index = "i64" if lanes == 1 else f"<{lanes} x i64>"
        wins = self.better(scope, acc.kind, acc.dtype, b[0], a[0], lanes)
        loses = self.better(scope, acc.kind, acc.dtype, a[0], b[0], lanes)
        earlier = self.line(scope, f"icmp slt {index} {b[1]}, {a[1]}")
        level = self.line(
            scope, f"select {bits} {loses}, {bits} {'false' if lanes == 1 else 'zeroinitializer'}, {bits} {earlier}"
        )
        take = self.line(scope, f"or {bits} {wins}, {level}")
        return (
            self.line(scope, f"select {bits} {take}, {t} {b[0]}, {t} {a[0]}"),
            self.line(scope, f"select {bits} {take}, {index} {b[1]}, {index} {a[1]}"),
        )
