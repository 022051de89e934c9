"""Scalar expressions of the loop IR, and the builder that operator bodies write them with.

An Expr is one scalar value inside a kernel: an operation, its arguments and a dtype. Expressions are hash-consed per builder, so
common subexpressions are one object and every renderer computes them once. Nothing here knows a target; math functions that no
target has as an instruction (`b.exp`, `b.tanh`, ...) are written out in these primitives by tandem/codegen/mathlib.py.

16-bit floats are storage types: `cast` to them rounds, and arithmetic on them happens in float32. Complex numbers are pairs of
floats: what is computed with them is written out for their parts by tandem/codegen/pairs.py.
"""

from __future__ import annotations

import struct

from tandem import dtypes
from tandem.codegen import pairs
from tandem.dtypes import DType

_NARROW_FLOATS = (dtypes.float16, dtypes.bfloat16)
# Philox4x32-10 (Salmon et al., 2011)
PHILOX_ROUNDS, PHILOX_FACTORS, PHILOX_STEPS = 10, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# Rough cost of one element in a vectorised loop, in units of one cheap instruction; what is not listed costs 1.
COST = {
    "exp_near": 10, "exp2_near": 4, "div_near": 4,
    "div": 6, "sqrt": 8, "floordiv": 30, "mod": 30, "idiv": 30, "imod": 30, "const": 0, "var": 0, "int": 0, "scalar": 0,
    "philox": 150,
}  # fmt: skip


def compute_dtype(dtype: DType) -> DType:
    """The type that values of `dtype` have inside a kernel."""
    return dtypes.float32 if dtype in _NARROW_FLOATS else dtype


class Expr:
    """One scalar value. Made by a ScalarBuilder only; compare with `is`, because `==` builds a comparison."""

    __slots__ = ("op", "args", "dtype", "attr", "b", "id")

    def __init__(self, op: str, args: tuple[Expr, ...], dtype: DType, attr, b: ScalarBuilder, id: int):
        self.op = op
        self.args = args
        self.dtype = dtype
        self.attr = attr
        self.b = b
        self.id = id

    def __add__(self, other):
        return self.b.binary("add", self, other)

    def __radd__(self, other):
        return self.b.binary("add", other, self)

    def __sub__(self, other):
        return self.b.binary("sub", self, other)

    def __rsub__(self, other):
        return self.b.binary("sub", other, self)

    def __mul__(self, other):
        return self.b.binary("mul", self, other)

    def __rmul__(self, other):
        return self.b.binary("mul", other, self)

    def __truediv__(self, other):
        return self.b.binary("div", self, other)

    def __rtruediv__(self, other):
        return self.b.binary("div", other, self)

    def __floordiv__(self, other):
        return self.b.floordiv(self, other)

    def __rfloordiv__(self, other):
        return self.b.floordiv(other, self)

    def __mod__(self, other):
        return self.b.mod(self, other)

    def __rmod__(self, other):
        return self.b.mod(other, self)

    def __and__(self, other):
        return self.b.binary("and", self, other)

    def __rand__(self, other):
        return self.b.binary("and", other, self)

    def __or__(self, other):
        return self.b.binary("or", self, other)

    def __ror__(self, other):
        return self.b.binary("or", other, self)

    def __xor__(self, other):
        return self.b.binary("xor", self, other)

    def __rxor__(self, other):
        return self.b.binary("xor", other, self)

    def __lshift__(self, other):
        return self.b.shift("shl", self, other)

    def __rlshift__(self, other):
        return self.b.shift("shl", other, self)

    def __rshift__(self, other):
        return self.b.shift("shr", self, other)

    def __rrshift__(self, other):
        return self.b.shift("shr", other, self)

    def __invert__(self):
        return self.b.unary("not", self)

    def __neg__(self):
        return self.b.unary("neg", self)

    def __pos__(self):
        return self

    def __abs__(self):
        return self.b.abs(self)

    def __eq__(self, other):
        return self.b.binary("eq", self, other)

    def __ne__(self, other):
        return self.b.binary("ne", self, other)

    def __lt__(self, other):
        return self.b.binary("lt", self, other)

    def __le__(self, other):
        return self.b.binary("le", self, other)

    def __gt__(self, other):
        return self.b.binary("gt", self, other)

    def __ge__(self, other):
        return self.b.binary("ge", self, other)

    def __hash__(self):
        return id(self)

    def __bool__(self):
        raise TypeError(f"the truth of the scalar expression {self!r} is not known while generating code; use b.where")

    def __repr__(self):
        inner = [repr(a) for a in self.args] if len(self.args) < 4 else ["..."]
        if self.attr is not None:
            inner.append(str(self.attr))
        return f"{self.op}.{self.dtype.short}({', '.join(inner)})"


class ScalarBuilder:
    """Makes Exprs. Operator bodies receive it as `b`; names it does not have itself come from mathlib."""

    approximates = False  # whether the target has instructions for 2^x and quotients that are good to a few last bits
    as_written = True  # whether sums are computed as they are written, and numbers may be put together from bits

    def __init__(self):
        self._seen: dict[tuple, Expr] = {}

    def make(self, op: str, args: tuple[Expr, ...], dtype: DType, attr=None) -> Expr:
        key = (op, dtype, attr, *[a.id for a in args])
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = Expr(op, args, dtype, attr, self, len(self._seen))
        return found

    # -- leaves and conversions

    def const(self, value, dtype: DType) -> Expr:
        if dtype.is_complex:
            value, part = complex(value), dtypes.REAL_PART[dtype]
            return self.complex(self.const(value.real, part), self.const(value.imag, part))
        if dtype.kind == "float":
            if dtype in _NARROW_FLOATS:
                return self.cast(self.const(value, dtypes.float32), dtype)
            # keyed by bits: 0.0 is not -0.0, and NaN is itself
            if dtype is dtypes.float32:
                return self.make("const", (), dtype, _float32_bits(float(value)))
            return self.make("const", (), dtype, struct.unpack("<Q", struct.pack("<d", float(value)))[0])
        if dtype.kind == "bool":
            return self.make("const", (), dtype, int(bool(value)))
        bits = dtype.itemsize * 8
        value = int(value) & ((1 << bits) - 1)
        if dtype.kind == "int" and value >> (bits - 1):
            value -= 1 << bits
        return self.make("const", (), dtype, value)

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """Converts the value; float to integer drops the fraction, anything to bool is x != 0."""
        source = x.dtype
        if source is dtype:
            return x
        if source.is_complex or dtype.is_complex:
            return pairs.cast(self, x, dtype)
        if x.op == "const" and source.kind != "float" and dtype not in _NARROW_FLOATS:
            return self.const(x.attr, dtype)
        if dtype in _NARROW_FLOATS:
            if x.op == "cast" and x.args[0].dtype is dtype:  # widened and not touched since
                return x.args[0]
            if source is not dtypes.float32:
                x = self.cast(x, dtypes.float32)
            return self.make("cast", (x,), dtype)
        if source in _NARROW_FLOATS and dtype is not dtypes.float32:
            x = self.make("cast", (x,), dtypes.float32)
            source = dtypes.float32
        if dtype.kind == "bool":
            return self.binary("ne", x, 0)
        return self.make("cast", (x,), dtype)

    def bitcast(self, x: Expr, dtype: DType) -> Expr:
        """The same bits read as another type of the same size."""
        if x.dtype is dtype:
            return x
        if x.dtype.itemsize != dtype.itemsize:
            raise TypeError(f"bitcast from {x.dtype} to {dtype}: sizes differ")
        return self.make("bitcast", (x,), dtype)

    def complex(self, re: Expr, im: Expr) -> Expr:
        re, im = self.widen(re), self.widen(im)
        if re.op == "real" and im.op == "imag" and re.args[0] is im.args[0]:  # taken apart and not touched since
            return re.args[0]
        return self.make("complex", (re, im), dtypes.COMPLEX_OF[re.dtype])

    def real(self, x: Expr) -> Expr:
        if not x.dtype.is_complex:
            return x
        return x.args[0] if x.op == "complex" else self.make("real", (x,), dtypes.REAL_PART[x.dtype])

    def imag(self, x: Expr) -> Expr:
        if not x.dtype.is_complex:
            return self.const(0, self.widen(x).dtype)
        return x.args[1] if x.op == "complex" else self.make("imag", (x,), dtypes.REAL_PART[x.dtype])

    def widen(self, x: Expr) -> Expr:
        """x as arithmetic sees it: 16-bit floats become float32."""
        return self.make("cast", (x,), dtypes.float32) if x.dtype in _NARROW_FLOATS else x

    def _operands(self, x, y, op: str) -> tuple[Expr, Expr]:
        if not isinstance(x, Expr):
            y = self.widen(y)
            x = self.const(x, y.dtype)
        elif not isinstance(y, Expr):
            x = self.widen(x)
            y = self.const(y, x.dtype)
        else:
            x, y = self.widen(x), self.widen(y)
        if x.dtype is not y.dtype:
            raise TypeError(f"{op} of {x.dtype} and {y.dtype}: cast one of them with b.cast")
        return x, y

    # -- arithmetic

    def binary(self, op: str, x, y) -> Expr:
        x, y = self._operands(x, y, op)
        dtype = x.dtype
        if dtype.is_complex:
            return pairs.binary(self, op, x, y)
        if dtype.kind == "bool":
            op = {"add": "or", "mul": "and", "max": "or", "min": "and", "sub": "xor"}.get(op, op)
        elif dtype.kind in ("int", "uint"):
            folded = self._fold_integer(op, x, y)
            if folded is not None:
                return folded
        return self.make(op, (x, y), dtypes.bool_ if op in COMPARISONS else dtype)

    def _fold_integer(self, op: str, x: Expr, y: Expr) -> Expr | None:
        a = x.attr if x.op == "const" else None
        c = y.attr if y.op == "const" else None
        if a is not None and c is not None:
            fold = _FOLD.get(op)
            return self.const(fold(a, c), x.dtype) if fold else None
        if op == "add":
            return y if a == 0 else x if c == 0 else None
        if op == "sub":
            return x if c == 0 else None
        if op == "mul":
            if a == 0 or c == 0:
                return self.const(0, x.dtype)
            return y if a == 1 else x if c == 1 else None
        return None

    def unary(self, op: str, x: Expr) -> Expr:
        x = self.widen(x)
        return pairs.unary(self, op, x) if x.dtype.is_complex else self.make(op, (x,), x.dtype)

    def floordiv(self, x, y) -> Expr:
        """Rounded toward minus infinity. Integers: x // 0 is 0."""
        x, y = self._operands(x, y, "floordiv")
        if x.dtype.kind == "float":
            return self.__getattr__("floordiv_float")(x, y)
        return self.make("floordiv", (x, y), x.dtype)

    def mod(self, x, y) -> Expr:
        """The remainder with the sign of y. Integers: x % 0 is 0."""
        x, y = self._operands(x, y, "mod")
        if x.dtype.kind == "float":
            return self.__getattr__("mod_float")(x, y)
        return self.make("mod", (x, y), x.dtype)

    def idiv(self, x, y) -> Expr:
        """Quotient of integers known to be x >= 0, y > 0."""
        x, y = self._operands(x, y, "idiv")
        if y.op == "const" and y.attr == 1:
            return x
        return self.make("idiv", (x, y), x.dtype)

    def imod(self, x, y) -> Expr:
        """Remainder of integers known to be x >= 0, y > 0."""
        x, y = self._operands(x, y, "imod")
        if y.op == "const" and y.attr == 1:
            return self.const(0, x.dtype)
        return self.make("imod", (x, y), x.dtype)

    def shift(self, op: str, x, y) -> Expr:
        """Shift; right shifts of signed types keep the sign. Amounts of all bits or more shift everything out."""
        x, y = self._operands(x, y, op)
        bits = x.dtype.itemsize * 8
        if y.op == "const" and 0 <= y.attr < bits:
            return self.make(op, (x, y), x.dtype)
        inside = (y < bits) & (y >= 0)
        shifted = self.make(op, (x, self.where(inside, y, 0)), x.dtype)
        gone = (
            self.make("shr", (x, self.const(bits - 1, x.dtype)), x.dtype)
            if op == "shr" and x.dtype.kind == "int"
            else 0
        )
        return self.where(inside, shifted, gone)

    def where(self, condition: Expr, x, y) -> Expr:
        if condition.op == "const":
            chosen, other = (x, y) if condition.attr else (y, x)
            return chosen if isinstance(chosen, Expr) else self.const(chosen, other.dtype)
        if isinstance(x, Expr) and isinstance(y, Expr) and x is y:
            return x
        x, y = self._operands(x, y, "where")
        if x.dtype.is_complex:
            return pairs.where(self, condition, x, y)
        return self.make("where", (condition, x, y), x.dtype)

    def rarely(self, condition: Expr, slow: Expr, x: Expr) -> Expr:
        """where(condition, slow, x), with slow computed in a branch of its own that is hardly ever taken."""
        return self.make("rarely", (condition, x, slow), x.dtype)

    def min(self, x, y) -> Expr:
        """The smaller; NaN if either is NaN."""
        return self.binary("min", x, y)

    def max(self, x, y) -> Expr:
        """The larger; NaN if either is NaN."""
        return self.binary("max", x, y)

    def fma(self, x: Expr, y, z) -> Expr:
        """x * y + z, rounded once."""
        x = self.widen(x)
        y = self.widen(y) if isinstance(y, Expr) else self.const(y, x.dtype)
        z = self.widen(z) if isinstance(z, Expr) else self.const(z, x.dtype)
        return x * y + z if x.dtype.is_complex else self.make("fma", (x, y, z), x.dtype)

    def abs(self, x: Expr) -> Expr:
        return x if x.dtype.kind in ("bool", "uint") else self.unary("abs", x)

    def sqrt(self, x: Expr) -> Expr:
        return self.unary("sqrt", x)

    def floor(self, x: Expr) -> Expr:
        return self.unary("floor", x) if x.dtype.kind == "float" else x

    def ceil(self, x: Expr) -> Expr:
        return self.unary("ceil", x) if x.dtype.kind == "float" else x

    def trunc(self, x: Expr) -> Expr:
        return self.unary("trunc", x) if x.dtype.kind == "float" else x

    def round(self, x: Expr) -> Expr:
        """To the nearest integer, halves to the even one."""
        return self.unary("round", x) if x.dtype.is_inexact else x

    def near_angle(self, x: Expr) -> Expr:
        """x of float64; where |x| is 2^48 or more, the same angle within half a turn (Note [Argument reduction], llvm/angle.py)."""
        return self.make("near_angle", (x,), x.dtype)

    def exp_near(self, x: Expr) -> Expr:
        """e^x of float32 within 2 units in the last place, where the target approximates."""
        return self.make("exp_near", (x,), x.dtype)

    def exp2_near(self, x: Expr) -> Expr:
        """2^x of float32 within 2 units in the last place, where the target approximates; x > -126."""
        return self.make("exp2_near", (x,), x.dtype)

    def div_near(self, x: Expr, y: Expr) -> Expr:
        """x / y of float32 within 2 units in the last place for |y| < 2^126, where the target approximates; else exactly."""
        return self.make("div_near", (x, y), x.dtype) if self.approximates and x.dtype is dtypes.float32 else x / y

    def copysign(self, x: Expr, y) -> Expr:
        x, y = self._operands(x, y, "copysign")
        return self.make("copysign", (x, y), x.dtype)

    def isnan(self, x: Expr) -> Expr:
        if x.dtype.is_complex:
            return self.isnan(self.real(x)) | self.isnan(self.imag(x))
        if x.dtype.kind != "float":
            return self.const(False, dtypes.bool_)
        x = self.widen(x)
        return self.make("isnan", (x,), dtypes.bool_)

    # -- random bits

    def philox(self, seed: Expr, counter: Expr, lane: int) -> Expr:
        """Lane 0..3 of Philox4x32-10 for a 64-bit counter and a 64-bit seed; uint32."""
        u64 = dtypes.uint64
        seed, counter = self.cast(seed, u64), self.cast(counter, u64)
        # The 32-bit words travel in the low halves of 64-bit ones. What stands in the high halves is never looked at, so that a
        # round is two widening multiplications, two shifts and four exclusive ors, without packing and unpacking vectors.
        k0, k1 = seed, seed >> 32
        c0, c1 = counter, counter >> 32
        c2 = c3 = self.const(0, u64)
        low = 0xFFFFFFFF
        for step in range(PHILOX_ROUNDS):
            p0, p1 = (c0 & low) * PHILOX_FACTORS[0], (c2 & low) * PHILOX_FACTORS[1]
            c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1, (p0 >> 32) ^ c3 ^ k1, p0
            if step < PHILOX_ROUNDS - 1:
                k0, k1 = k0 + PHILOX_STEPS[0], k1 + PHILOX_STEPS[1]
        return self.cast((c0, c1, c2, c3)[lane], dtypes.uint32)

    # -- everything else is written in mathlib

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        from tandem.codegen import mathlib

        function = getattr(mathlib, name, None)
        if function is None:
            raise AttributeError(f"the scalar builder has no function {name!r}")

        def call(*args):
            args = [self.widen(a) if isinstance(a, Expr) else a for a in args]
            if any(isinstance(a, Expr) and a.dtype.is_complex for a in args):
                return pairs.function(name)(self, *args)
            return function(self, *args)

        object.__setattr__(self, name, call)
        return call


_FOLD = {
    "add": lambda a, c: a + c,
    "sub": lambda a, c: a - c,
    "mul": lambda a, c: a * c,
    "and": lambda a, c: a & c,
    "or": lambda a, c: a | c,
    "xor": lambda a, c: a ^ c,
    "min": min,
    "max": max,
}


def _float32_bits(value: float) -> int:
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:  # finite, but too large for float32
        return 0x7F800000 if value > 0 else 0xFF800000


def topological(roots) -> list[Expr]:
    """All expressions below the roots, arguments first. Iterative, because chains can be long."""
    order: list[Expr] = []
    done: set[int] = set()
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        e, expanded = stack.pop()
        if e.id in done:
            continue
        if expanded or not e.args:
            done.add(e.id)
            order.append(e)
        else:
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(e.args) if a.id not in done)
    return order


def substitute(b: ScalarBuilder, roots: list[Expr], replace: dict[int, Expr]) -> list[Expr]:
    """roots with the expressions whose ids are keys of `replace` exchanged."""
    made: dict[int, Expr] = dict(replace)
    for x in topological(roots):
        if x.id not in made:
            args = tuple([made[a.id] for a in x.args])
            made[x.id] = x if all(p is q for p, q in zip(args, x.args)) else b.make(x.op, args, x.dtype, x.attr)
    return [made[x.id] for x in roots]
