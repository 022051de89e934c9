"""CUDA C for single expressions, and the helpers that every kernel's source starts with.

Semantics are those of the CPU's renderer, bit by bit where arithmetic is concerned: no contraction, IEEE division and roots,
NaN through minima and maxima, wrapping integers.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.expr import Expr
from tandem.dtypes import DType

C_TYPE = {
    dtypes.bool_: "bool", dtypes.int8: "i8", dtypes.int16: "i16", dtypes.int32: "i32", dtypes.int64: "i64",
    dtypes.uint8: "u8", dtypes.uint16: "u16", dtypes.uint32: "u32", dtypes.uint64: "u64",
    dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.float32: "float", dtypes.float64: "double",
    dtypes.complex64: "c64", dtypes.complex128: "c128",
}  # fmt: skip
_UNSIGNED = {"i8": "u8", "i16": "u16", "i32": "u32", "i64": "u64"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX = {"add": "+", "sub": "-", "mul": "*"}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_FUNCTIONS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "abs": "fabs"}

PRELUDE = """\
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct alignas(8) c64 { float re, im; };
struct alignas(16) c128 { double re, im; };
#define DEVICE __device__ __forceinline__
#if __CUDA_ARCH__ >= 900
#define BEGIN asm volatile("griddepcontrol.wait;" ::: "memory");  // Note [Early launches] in src/device/cuda/launches.h
#else
#define BEGIN
#endif
template <class To, class From> DEVICE To bitcast(From x) { union { From a; To b; } u; u.a = x; return u.b; }
DEVICE float widen(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
DEVICE float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
template <class T> DEVICE T narrow(float x);
template <> DEVICE f16 narrow<f16>(float x) { f16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y; }
template <> DEVICE bf16 narrow<bf16>(float x) {
  bf16 y;
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  u32 b = __float_as_uint(x);
  y.bits = (u16)((x != x ? b | 0x400000u : b + 0x7fffu + (b >> 16 & 1u)) >> 16);
#endif
  return y;
}
// As Note [Argument reduction] in llvm/angle.py wants it: CUDA's own functions reduce with all the bits they need.
DEVICE double near_angle(double x) { return fabs(x) < 281474976710656.0 ? x : atan2(sin(x), cos(x)); }
DEVICE float power_of_two(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
template <class T> DEVICE T smaller(T x, T y) { return x != x ? x : x < y ? x : y; }
template <class T> DEVICE T larger(T x, T y) { return x != x ? x : x > y ? x : y; }
#if __CUDA_ARCH__ >= 800
template <> DEVICE float smaller(float x, float y) { float z; asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
template <> DEVICE float larger(float x, float y) { float z; asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
#endif
DEVICE i64 udiv(i64 x, i64 y) { return (u64)(x | y) >> 32 ? (i64)((u64)x / (u64)y) : (i64)((u32)x / (u32)y); }
DEVICE i64 umod(i64 x, i64 y) { return (u64)(x | y) >> 32 ? (i64)((u64)x % (u64)y) : (i64)((u32)x % (u32)y); }
template <class T> DEVICE T udiv(T x, T y) { return x / y; }
template <class T> DEVICE T umod(T x, T y) { return x % y; }
// x / y for x < 2^31, with what sizes.inverse gives for y.
DEVICE u32 over(u32 x, u64 inverse) { return (__umulhi(x, (u32)inverse) + x) >> (u32)(inverse >> 32); }
template <class T> DEVICE T floordiv_u(T x, T y) { return y == 0 ? T(0) : T(x / y); }
template <class T> DEVICE T mod_u(T x, T y) { return y == 0 ? T(0) : T(x % y); }
template <class T, class U> DEVICE T floordiv_s(T x, T y) {
  if (y == 0) return 0;
  if (y == T(-1)) return (T)(U(0) - (U)x);
  T q = x / y, r = x % y;
  return r != 0 && (r ^ y) < 0 ? T(q - 1) : q;
}
template <class T> DEVICE T mod_s(T x, T y) {
  if (y == 0 || y == T(-1)) return 0;
  T r = x % y;
  return r != 0 && (r ^ y) < 0 ? T(r + y) : r;
}
struct Sum { template <class T> static DEVICE T of(T a, T b) { return a + b; } };
// A sum that keeps what is rounded away: x goes to `sum`, what that loses to `rest`, which is added at the end.
DEVICE void add_exactly(float& sum, float& rest, float x) {
  const float total = sum + x, part = total - sum;
  rest += (sum - (total - part)) + (x - part);
  sum = total;
}
DEVICE float with_rest(float sum, float rest) { return sum - sum == 0.0f ? sum + rest : sum; }  // infinity has none
struct Prod { template <class T> static DEVICE T of(T a, T b) { return a * b; } };
struct Max { template <class T> static DEVICE T of(T a, T b) { return larger(a, b); } };
struct Min { template <class T> static DEVICE T of(T a, T b) { return smaller(a, b); } };
struct Any { template <class T> static DEVICE T of(T a, T b) { return a | b; } };
struct All { template <class T> static DEVICE T of(T a, T b) { return a & b; } };
template <class T> struct Placed { T value; i64 place; };
template <bool largest, class T> DEVICE bool better(T x, T y) {
  return (largest ? x > y : x < y) || (x != x && y == y);
}
template <bool largest> struct Arg {
  template <class T> static DEVICE Placed<T> of(Placed<T> a, Placed<T> b) {
    bool take = better<largest>(b.value, a.value) || (!better<largest>(a.value, b.value) && b.place < a.place);
    return take ? b : a;
  }
};
template <class T> DEVICE T from_lane(T x, int mask) {  // any type of 1 to 16 bytes, in words
  union { T value; u32 words[(sizeof(T) + 3) / 4]; } u;
  for (int k = 0; k < (int)(sizeof(T) + 3) / 4; ++k) u.words[k] = 0;
  u.value = x;
  for (int k = 0; k < (int)(sizeof(T) + 3) / 4; ++k) u.words[k] = __shfl_xor_sync(0xffffffffu, u.words[k], mask);
  return u.value;
}
template <class F, class T> DEVICE T over_warp(T x) {
  for (int mask = 16; mask; mask >>= 1) x = F::of(x, from_lane(x, mask));
  return x;
}
// Over blockDim.x threads, all of which get the result; `shared` has room for one T per warp.
template <class F, class T> DEVICE T over_block(T x, T* shared) {
  x = over_warp<F>(x);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = x;
  __syncthreads();
  T result = shared[0];
  for (int k = 1; k < (int)blockDim.x >> 5; ++k) result = F::of(result, shared[k]);
  return result;
}
// Over threadIdx.y, for every threadIdx.x by itself, n numbers at a time; `shared` has room for n of them per thread. The rows
// of threads are a power of two; they are added pairwise, in the same order every time.
template <class F, int n, class T> DEVICE void over_team(T* x, T* shared) {
  const int threads = blockDim.x * blockDim.y, me = threadIdx.y * blockDim.x + threadIdx.x;
  __syncthreads();
  for (int k = 0; k < n; ++k) shared[k * threads + me] = x[k];
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if ((int)threadIdx.y < half)
      for (int k = 0; k < n; ++k)
        shared[k * threads + me] = x[k] = F::of(x[k], shared[k * threads + me + half * blockDim.x]);
  }
  __syncthreads();
  for (int k = 0; k < n; ++k) x[k] = shared[k * threads + threadIdx.x];
}
template <class F, class T> DEVICE T over_team(T x, T* shared) { over_team<F, 1>(&x, shared); return x; }
template <int bytes> struct Words;
template <> struct Words<1> { typedef u8 type; };
template <> struct Words<2> { typedef u16 type; };
template <> struct Words<4> { typedef u32 type; };
template <> struct Words<8> { typedef uint2 type; };
template <> struct Words<16> { typedef uint4 type; };
template <int n, class T> DEVICE void load_all(T* to, const T* from) {
  typedef typename Words<(n * sizeof(T) > 16 ? 16 : n * sizeof(T))>::type W;
  for (int k = 0; k < (int)(n * sizeof(T) / sizeof(W)); ++k) ((W*)to)[k] = ((const W*)from)[k];
}
template <int n, class T> DEVICE void store_all(T* to, const T* from) {
  typedef typename Words<(n * sizeof(T) > 16 ? 16 : n * sizeof(T))>::type W;
  for (int k = 0; k < (int)(n * sizeof(T) / sizeof(W)); ++k) ((W*)to)[k] = ((const W*)from)[k];
}
template <class T> DEVICE T zero_of() { T x; for (int k = 0; k < (int)sizeof(T); ++k) ((u8*)&x)[k] = 0; return x; }
"""

# For loops over rows that are unrolled and write. What is read there stays as it is, so that later rows are asked for before
# earlier ones are written; and words of 16 bytes are written as such, where NVRTC takes them apart (four stores of 4 bytes each).
STREAMED = """\
template <int n, class T> DEVICE void load_early(T* to, const T* from) {
  typedef typename Words<(n * sizeof(T) > 16 ? 16 : n * sizeof(T))>::type W;
  for (int k = 0; k < (int)(n * sizeof(T) / sizeof(W)); ++k) ((W*)to)[k] = __ldg((const W*)from + k);
}
template <class W> DEVICE void write_word(W* to, W w) { *to = w; }
DEVICE void write_word(uint4* to, uint4 w) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(to), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w) : "memory");
}
template <int n, class T> DEVICE void store_whole(T* to, const T* from) {
  typedef typename Words<(n * sizeof(T) > 16 ? 16 : n * sizeof(T))>::type W;
  for (int k = 0; k < (int)(n * sizeof(T) / sizeof(W)); ++k) write_word((W*)to + k, ((const W*)from)[k]);
}
"""


def constant(dtype: DType, bits: int) -> str:
    if dtype is dtypes.float32:
        return f"__uint_as_float(0x{bits:08x}u)"
    if dtype is dtypes.float64:
        return f"__longlong_as_double((i64)0x{bits:016x}ull)"
    if dtype is dtypes.bool_:
        return "true" if bits else "false"
    if dtype is dtypes.int64:
        return f"(i64)0x{bits & (1 << 64) - 1:x}ull" if bits < 0 else f"{bits}ll"
    if dtype is dtypes.uint64:
        return f"{bits}ull"
    return f"({C_TYPE[dtype]}){bits}{'u' if dtype is dtypes.uint32 else ''}"


def identity(kind: str, dtype: DType) -> str:
    """What a reduction starts from."""
    if kind in ("sum", "any"):
        return f"({C_TYPE[dtype]})0"
    if kind in ("prod", "all"):
        return f"({C_TYPE[dtype]})1"
    largest = kind in ("min", "argmin")
    if dtype is dtypes.float32:
        return constant(dtype, 0x7F800000 if largest else 0xFF800000)
    if dtype is dtypes.float64:
        return constant(dtype, 0x7FF0000000000000 if largest else 0xFFF0000000000000)
    if dtype.kind == "bool":
        return "true" if largest else "false"
    bits = dtype.itemsize * 8
    low, high = (0, (1 << bits) - 1) if dtype.kind == "uint" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return constant(dtype, high if largest else low)


def functor(kind: str, dtype: DType) -> str:
    if dtype.kind == "bool":
        kind = {"sum": "any", "max": "any", "prod": "all", "min": "all"}.get(kind, kind)
    if kind in ("argmax", "argmin"):
        return f"Arg<{'true' if kind == 'argmax' else 'false'}>"
    return kind.capitalize()


def operation(e: Expr, names: list[str]) -> str:
    """e as C, given its arguments'."""
    op = e.op
    if op == "cast":
        return cast(names[0], e.args[0].dtype, e.dtype)
    if op == "where":
        return f"{names[0]} ? {names[1]} : {names[2]}"
    if op == "rarely":
        return f"{names[0]} ? {names[2]} : {names[1]}"
    dtype = e.args[0].dtype
    if op == "complex":
        return f"{C_TYPE[e.dtype]}{{{names[0]}, {names[1]}}}"
    if op in ("real", "imag"):
        return f"{names[0]}.{op[:2]}"
    if op == "bitcast":
        return f"bitcast<{C_TYPE[e.dtype]}>({names[0]})"
    if op in _COMPARE:
        return f"{names[0]} {_COMPARE[op]} {names[1]}"
    if dtype.kind == "float":
        return _float_operation(op, names, dtype)
    return _integer_operation(op, names, dtype)


def _float_operation(op: str, names: list[str], dtype: DType) -> str:
    suffix = "f" if dtype is dtypes.float32 else ""
    if op in _INFIX:
        return f"{names[0]} {_INFIX[op]} {names[1]}"
    if op == "div":
        return f"{names[0]} / {names[1]}"
    if op == "neg":
        return f"-{names[0]}"
    if op in ("min", "max"):
        return f"{'smaller' if op == 'min' else 'larger'}({names[0]}, {names[1]})"
    if op == "isnan":
        return f"{names[0]} != {names[0]}"
    if op == "fma":
        return f"fma{suffix}({', '.join(names)})"
    if op == "near_angle":
        return f"near_angle({names[0]})"
    if op == "exp_near":
        return f"expf({names[0]})"
    if op == "exp2_near":
        return f"power_of_two({names[0]})"
    if op == "div_near":
        return f"__fdividef({names[0]}, {names[1]})"
    if op == "copysign":
        return f"copysign{suffix}({', '.join(names)})"
    return f"{_FUNCTIONS[op]}{suffix}({names[0]})"


def _integer_operation(op: str, names: list[str], dtype: DType) -> str:
    t = C_TYPE[dtype]
    if op in _BITS:
        return f"({t})({names[0]} {_BITS[op]} {names[1]})"
    if op == "not":
        return f"!{names[0]}" if dtype is dtypes.bool_ else f"({t})~{names[0]}"
    if op in ("min", "max"):
        return f"{names[0]} {'<' if op == 'min' else '>'} {names[1]} ? {names[0]} : {names[1]}"
    u = _UNSIGNED.get(t, t)
    wide = u if dtype.itemsize >= 4 else "u32"  # so that nothing overflows where C would promote to int
    if op in _INFIX:
        return f"({t})(({wide}){names[0]} {_INFIX[op]} ({wide}){names[1]})"
    if op == "shl":
        return f"({t})(({wide}){names[0]} << {names[1]})"
    if op == "shr":
        return f"({t})({names[0]} >> {names[1]})"
    if op == "neg":
        return f"({t})(({wide})0 - ({wide}){names[0]})"
    if op == "abs":
        return f"{names[0]} < 0 ? ({t})(({wide})0 - ({wide}){names[0]}) : {names[0]}"
    if op in ("idiv", "imod"):
        return f"u{op[1:]}({names[0]}, {names[1]})"
    if dtype.kind == "int":
        kinds = f"<{t}, {u}>" if op == "floordiv" else f"<{t}>"
        return f"{op}_s{kinds}({names[0]}, {names[1]})"
    return f"{op}_u<{t}>({names[0]}, {names[1]})"


def cast(x: str, source: DType, target: DType) -> str:
    t = C_TYPE[target]
    if target in (dtypes.float16, dtypes.bfloat16):
        return f"narrow<{t}>({x})"
    if source in (dtypes.float16, dtypes.bfloat16):
        return f"widen({x})"
    if source.kind == "float" and target.kind in ("int", "uint") and target is not dtypes.uint64:
        # through a wider signed type, so that what does not fit wraps as in NumPy
        wide = "i32" if target.itemsize < 4 or target is dtypes.int32 else "i64"
        return f"({t})({wide}){x}" if wide != t else f"({t}){x}"
    return f"({t}){x}"
