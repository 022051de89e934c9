"""C99 for single expressions, and the helpers that they call.

Semantics are those of LLVM's renderer: IEEE arithmetic without contraction (every operation is a statement of its own), NaN
through minima and maxima, wrapping integers, 16-bit floats as their bits. Integers are two's complement, and a shift of a negative
number to the right is arithmetic, as compilers have it.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.expr import PHILOX_FACTORS, PHILOX_ROUNDS, PHILOX_STEPS, Expr
from tandem.dtypes import DType

TYPE = {
    dtypes.bool_: "bool", dtypes.int8: "int8_t", dtypes.int16: "int16_t", dtypes.int32: "int32_t", dtypes.int64: "int64_t",
    dtypes.uint8: "uint8_t", dtypes.uint16: "uint16_t", dtypes.uint32: "uint32_t", dtypes.uint64: "uint64_t",
    dtypes.float16: "float16", dtypes.bfloat16: "bfloat16", dtypes.float32: "float", dtypes.float64: "double",
    dtypes.complex64: "complex64", dtypes.complex128: "complex128",
}  # fmt: skip
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INFIX = {"add": "+", "sub": "-", "mul": "*"}
BITS = {"and": "&", "or": "|", "xor": "^"}
FUNCTIONS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "abs": "fabs"}

HEADER = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"

# Helpers by name: (names of others that it calls, text).
HELPERS: dict[str, tuple[tuple, str]] = {
    "float16": ((), "typedef struct { uint16_t bits; } float16;"),
    "bfloat16": ((), "typedef struct { uint16_t bits; } bfloat16;"),
    "complex64": ((), "typedef struct { float re, im; } complex64;"),
    "complex128": ((), "typedef struct { double re, im; } complex128;"),
    "float_of": ((), "static float float_of(uint32_t x) { union { uint32_t a; float b; } u; u.a = x; return u.b; }"),
    "bits_of": ((), "static uint32_t bits_of(float x) { union { float a; uint32_t b; } u; u.a = x; return u.b; }"),
    "double_of": ((), "static double double_of(uint64_t x) { union { uint64_t a; double b; } u; u.a = x; return u.b; }"),
    "bits_of_double": (
        (), "static uint64_t bits_of_double(double x) { union { double a; uint64_t b; } u; u.a = x; return u.b; }",
    ),
    "widen_float16": (("float16", "float_of"), """\
static float widen_float16(float16 x) {
  uint32_t sign = (uint32_t)(x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13 | ((rest & 0x3ffu) ? 0x400000u : 0u));
  if (rest >= 0x400u) return float_of(sign | ((rest << 13) + 0x38000000u));
  return sign ? -(float)rest * 0x1p-24f : (float)rest * 0x1p-24f;
}"""),
    "narrow_float16": (("float16", "bits_of", "float_of"), """\
static float16 narrow_float16(float x) {
  float16 y;
  uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) rest = 0x7e00u | (rest >> 13 & 0x3ffu);
  else if (rest >= 0x477ff000u) rest = 0x7c00u;  // what rounds to 65536 or more
  else if (rest >= 0x38800000u) rest = (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13;
  else rest = bits_of(float_of(rest) + 0.5f) - 0x3f000000u;  // denormal: the sum rounds at the right bit
  y.bits = (uint16_t)(sign | rest);
  return y;
}"""),
    "widen_bfloat16": (
        ("bfloat16", "float_of"), "static float widen_bfloat16(bfloat16 x) { return float_of((uint32_t)x.bits << 16); }",
    ),
    "narrow_bfloat16": (("bfloat16", "bits_of"), """\
static bfloat16 narrow_bfloat16(float x) {
  bfloat16 y;
  uint32_t b = bits_of(x);
  y.bits = (uint16_t)((x != x ? b | 0x400000u : b + 0x7fffu + (b >> 16 & 1u)) >> 16);
  return y;
}"""),
    "near_angle": ((), """\
static double near_angle(double x) {  // the same angle, small enough to be reduced by multiplication
  return fabs(x) < 281474976710656.0 ? x : atan2(sin(x), cos(x));
}"""),
    "to_int32": ((), """\
static int32_t to_int32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }"""),
    "to_int64": ((), """\
static int64_t to_int64(double x) {
  return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN;
}"""),
    "to_uint64": (("to_int64",), """\
static uint64_t to_uint64(double x) {
  if (x >= 9223372036854775808.0 && x < 18446744073709551616.0) return (uint64_t)x;
  return (uint64_t)to_int64(x);
}"""),
    "philox": ((), f"""\
static uint32_t philox(uint64_t seed, uint64_t counter, int word) {{  // Philox4x32-{PHILOX_ROUNDS}
  uint32_t c[4] = {{(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}}, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < {PHILOX_ROUNDS}; ++round) {{
    uint64_t p0 = (uint64_t)c[0] * {PHILOX_FACTORS[0]:#x}u, p1 = (uint64_t)c[2] * {PHILOX_FACTORS[1]:#x}u;
    c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
    c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
    c[1] = (uint32_t)p1;
    c[3] = (uint32_t)p0;
    k0 += {PHILOX_STEPS[0]:#x}u;
    k1 += {PHILOX_STEPS[1]:#x}u;
  }}
  return c[word];
}}"""),
}  # fmt: skip

for _t, _u in [(TYPE[d], TYPE[d] if d.kind == "uint" else "u" + TYPE[d]) for d in TYPE if d.kind in ("int", "uint")]:
    if _t == _u:
        HELPERS[f"floordiv_{_t}"] = (
            (),
            f"static {_t} floordiv_{_t}({_t} x, {_t} y) {{ return y == 0 ? 0 : ({_t})(x / y); }}",
        )
        HELPERS[f"mod_{_t}"] = (), f"static {_t} mod_{_t}({_t} x, {_t} y) {{ return y == 0 ? 0 : ({_t})(x % y); }}"
        continue
    HELPERS[f"floordiv_{_t}"] = (
        (),
        f"""\
static {_t} floordiv_{_t}({_t} x, {_t} y) {{
  if (y == 0) return 0;
  if (y == -1) return ({_t})(0 - ({_u})x);
  return ({_t})(x / y - (x % y != 0 && ((x % y) ^ y) < 0));
}}""",
    )
    HELPERS[f"mod_{_t}"] = (
        (),
        f"""\
static {_t} mod_{_t}({_t} x, {_t} y) {{
  if (y == 0 || y == -1) return 0;
  {_t} r = ({_t})(x % y);
  return ({_t})(r != 0 && (r ^ y) < 0 ? r + y : r);
}}""",
    )
for _t in ("float", "double"):
    HELPERS[f"min_{_t}"] = (), f"static {_t} min_{_t}({_t} x, {_t} y) {{ return x != x ? x : x < y ? x : y; }}"
    HELPERS[f"max_{_t}"] = (), f"static {_t} max_{_t}({_t} x, {_t} y) {{ return x != x ? x : x > y ? x : y; }}"


class Ops:
    """Text of operations; `used`: the helpers that it calls."""

    def __init__(self):
        self.used: set[str] = set()

    def is_index(self, e: Expr) -> bool:
        """Whether e is made of loop counters and sizes alone, and so cannot overflow."""
        raise NotImplementedError

    def helper(self, name: str) -> str:
        needs, _ = HELPERS[name]
        for other in needs:
            self.helper(other)
        self.used.add(name)
        return name

    def helpers(self) -> list[str]:
        return [text for name, (_, text) in HELPERS.items() if name in self.used]

    def type(self, dtype: DType) -> str:
        name = TYPE[dtype]
        return self.helper(name) if name in HELPERS else name

    def constant(self, dtype: DType, bits: int) -> str:
        if dtype is dtypes.float32:
            return _float_constant(bits, 8, 23, "f") or f"{self.helper('float_of')}(0x{bits:08x}u)"
        if dtype is dtypes.float64:
            return _float_constant(bits, 11, 52, "") or f"{self.helper('double_of')}(0x{bits:016x}u)"
        if dtype is dtypes.bool_:
            return "true" if bits else "false"
        if dtype is dtypes.int64:
            if bits == -(1 << 63):
                return "INT64_MIN"
            return f"{bits}" if abs(bits) < 1 << 15 else f"INT64_C({bits})"
        if dtype is dtypes.uint64:
            return f"UINT64_C({bits})"
        if dtype is dtypes.int32 and bits == -(1 << 31):
            return "INT32_MIN"
        return f"({TYPE[dtype]}){bits}{'u' if dtype is dtypes.uint32 else ''}"

    def identity(self, kind: str, dtype: DType) -> str:
        """What a reduction starts from."""
        if kind in ("sum", "any", "prod", "all"):
            return "0" if kind in ("sum", "any") else "1"
        largest = kind in ("min", "argmin")
        if dtype.kind == "float":
            return "INFINITY" if largest else "-INFINITY"
        if dtype.kind == "bool":
            return "true" if largest else "false"
        bits = dtype.itemsize * 8
        low, high = (0, (1 << bits) - 1) if dtype.kind == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        return self.constant(dtype, high if largest else low)

    def combine(self, kind: str, dtype: DType, x: str, y: str) -> str:
        """One step of a reduction."""
        if dtype.kind == "bool":
            kind = {"sum": "any", "max": "any", "prod": "all", "min": "all"}.get(kind, kind)
        if kind in ("any", "all"):
            return f"({TYPE[dtype]})({x} {'|' if kind == 'any' else '&'} {y})"
        if kind in ("min", "max"):
            return self._extremum(kind, [x, y], dtype)
        return self._arithmetic("add" if kind == "sum" else "mul", [x, y], dtype)

    def better(self, kind: str, dtype: DType, x: str, y: str) -> str:
        """Whether x takes the place of y in argmax or argmin: NaN is the most extreme."""
        relation = f"{x} {'>' if kind == 'argmax' else '<'} {y}"
        return f"({relation} || ({x} != {x} && {y} == {y}))" if dtype.kind == "float" else f"({relation})"

    def operation(self, e: Expr, names: list[str]) -> str:
        """e as C, given its arguments'."""
        op = e.op
        if op == "cast":
            return self.cast(names[0], e.args[0].dtype, e.dtype)
        if op == "where":
            return f"{names[0]} ? {names[1]} : {names[2]}"
        if op == "rarely":
            return f"{names[0]} ? {names[2]} : {names[1]}"
        if op == "philox":
            return f"{self.helper('philox')}((uint64_t){names[0]}, (uint64_t){names[1]}, {e.attr})"
        dtype = e.args[0].dtype
        if op == "complex":
            return f"({self.type(e.dtype)}){{{names[0]}, {names[1]}}}"
        if op in ("real", "imag"):
            return f"{names[0]}.{op[:2]}"
        if op == "bitcast":
            return self.bitcast(names[0], dtype, e.dtype)
        if op in COMPARE:
            return f"{names[0]} {COMPARE[op]} {names[1]}"
        if op in ("min", "max"):
            return self._extremum(op, names, dtype)
        if op in INFIX:
            return self._arithmetic(op, names, dtype, self.is_index(e))
        return self._of_float(op, names, dtype) if dtype.kind == "float" else self._of_integer(op, names, dtype)

    def _extremum(self, op: str, names: list[str], dtype: DType) -> str:
        if dtype.kind == "float":
            return f"{self.helper(f'{op}_{TYPE[dtype]}')}({names[0]}, {names[1]})"
        return f"{names[0]} {'<' if op == 'min' else '>'} {names[1]} ? {names[0]} : {names[1]}"

    def _arithmetic(self, op: str, names: list[str], dtype: DType, plain: bool = False) -> str:
        if dtype.kind == "float":
            return f"{names[0]} {INFIX[op]} {names[1]}"
        if plain:
            return f"{names[0]} {INFIX[op]} {names[1]}"
        wide = _wide(dtype)
        return f"({TYPE[dtype]})(({wide}){names[0]} {INFIX[op]} ({wide}){names[1]})"

    def _of_float(self, op: str, names: list[str], dtype: DType) -> str:
        suffix = "f" if dtype is dtypes.float32 else ""
        if op == "div":
            return f"{names[0]} / {names[1]}"
        if op == "neg":
            return f"-{names[0]}"
        if op == "isnan":
            return f"{names[0]} != {names[0]}"
        if op in ("fma", "copysign"):
            return f"{op}{suffix}({', '.join(names)})"
        if op == "near_angle":
            return f"{self.helper('near_angle')}({names[0]})"
        return f"{FUNCTIONS[op]}{suffix}({names[0]})"

    def _of_integer(self, op: str, names: list[str], dtype: DType) -> str:
        t, wide = TYPE[dtype], _wide(dtype)
        if op in BITS:
            return f"({t})({names[0]} {BITS[op]} {names[1]})"
        if op == "not":
            return f"!{names[0]}" if dtype is dtypes.bool_ else f"({t})~{names[0]}"
        if op == "shl":
            return f"({t})(({wide}){names[0]} << {names[1]})"
        if op == "shr":
            return f"({t})(({t}){names[0]} >> {names[1]})"  # a loop counter is narrower
        if op == "neg":
            return f"({t})(({wide})0 - ({wide}){names[0]})"
        if op == "abs":
            return f"{names[0]} < 0 ? ({t})(({wide})0 - ({wide}){names[0]}) : {names[0]}"
        if op in ("idiv", "imod"):
            return f"({t})(({wide}){names[0]} {'/' if op == 'idiv' else '%'} ({wide}){names[1]})"
        return f"{self.helper(f'{op}_{t}')}({names[0]}, {names[1]})"

    def bitcast(self, x: str, source: DType, target: DType) -> str:
        if source.kind == "float" and target.kind != "float":
            bits = f"{self.helper('bits_of' if source is dtypes.float32 else 'bits_of_double')}({x})"
            return bits if target.kind == "uint" else f"({TYPE[target]}){bits}"
        if target.kind == "float" and source.kind != "float":
            single = target is dtypes.float32
            bits = x if source.kind == "uint" else f"(uint{32 if single else 64}_t){x}"
            return f"{self.helper('float_of' if single else 'double_of')}({bits})"
        return f"({TYPE[target]}){x}"

    def cast(self, x: str, source: DType, target: DType) -> str:
        t = TYPE[target]
        if t in ("float16", "bfloat16"):
            return f"{self.helper('narrow_' + t)}({x})"
        if TYPE[source] in ("float16", "bfloat16"):
            return f"{self.helper('widen_' + TYPE[source])}({x})"
        if source.kind == "float" and target.kind in ("int", "uint"):
            if target is dtypes.uint64:
                return f"{self.helper('to_uint64')}({x})"
            # through a wider signed type, so that what does not fit wraps as in NumPy
            wide = "int32" if target.itemsize < 4 or target is dtypes.int32 else "int64"
            return f"({t}){self.helper('to_' + wide)}({x})"
        if target is dtypes.bool_:
            return f"{x} != 0"
        return f"({t}){x}"


def _wide(dtype: DType) -> str:
    """The unsigned type in which nothing overflows where C would promote to int."""
    return "uint64_t" if dtype.itemsize == 8 else "uint32_t"


def _float_constant(bits: int, exponent_bits: int, fraction_bits: int, suffix: str) -> str:
    """A float as a literal that is exactly it; "" for infinities and NaN."""
    sign, exponent = bits >> (exponent_bits + fraction_bits), bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction, bias = bits & ((1 << fraction_bits) - 1), (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        return ""
    minus = "-" if sign else ""
    power = max(exponent, 1) - bias
    value = (fraction + ((1 << fraction_bits) if exponent else 0)) * 2.0 ** (power - fraction_bits)
    if value == int(value) and value < 1 << 24:
        return f"{minus}{int(value)}.0{suffix}"
    digits, _, power = value.hex().partition("p")
    return f"{minus}{digits.rstrip('0')}p{power}{suffix}"
