"""Routines of the kernel library for CUDA devices, as kernels: ROUTINES[name](fusion, step) -> steps, or None to decline."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen import buffer as memory
from tandem.codegen.buffer import Buffer
from tandem.codegen.cuda import few_rows
from tandem.codegen.cuda.attention import attention, attention_backward, attention_backward_packed
from tandem.codegen.cuda.counting import COUNTING
from tandem.codegen.cuda.depthwise import conv_backward_data, conv_backward_weight, conv_forward
from tandem.codegen.cuda.edges import EDGES
from tandem.codegen.cuda.kernel import TextKernel
from tandem.codegen.cuda.lstm import lstm_sequence, lstm_sequence_backward
from tandem.codegen.cuda.nests import copy
from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.pool import POOLING
from tandem.codegen.cuda.pool_taps import pool_max_taps, pool_max_taps_backward
from tandem.codegen.cuda.sort import scatter, sort, topk
from tandem.codegen.cuda.text import Text, count_of, names_of, read, wide_type, write
from tandem.codegen.schedule import LibraryStep
from tandem.graph.symbolic import product
from tandem.switches import CUSOLVER

WEIGHTS_BOUND, DIVISOR_BOUND = -1, -2  # see src/fault_codes.h
REPORT = """\
struct Report { u64 claimed, number; i64 value, bound, axis; u64 written, failed; };
DEVICE void complain(u64 report, u64 number, i64 value, i64 bound, i64 axis) {
  Report* r = (Report*)report;
  *(volatile u32*)r->failed = 1;
  if (atomicCAS(&r->claimed, 0ull, 1ull) != 0ull) return;
  r->number = number; r->value = value; r->bound = bound; r->axis = axis;
  __threadfence_system();
  *(volatile u64*)&r->written = 1;
}"""


def check_index(fusion, step) -> list:
    index = step.inputs[0]
    bound, negative, axis = step.ints
    t = Text("check_index", step.node, reports=True)
    names = names_of("d", len(index.shape))
    body = t.digits("i", index.shape, names)
    n = t.dim(bound)
    low = f"-(i64){n}" if negative else "0"
    body += f"\nconst i64 v = (i64){t.at(index, names)};"
    body += f"\nif (v < {low} || v >= {n}) complain(a.report, a.number, v, {n}, {axis});"
    return [t.flat(count_of(index), body, REPORT)]


def check_weights(fusion, step) -> list:
    codes = step.inputs[0]
    t = Text("check_weights", step.node, reports=True)
    names = names_of("d", len(codes.shape))
    body = t.digits("i", codes.shape, names)
    body += f"\nconst i64 v = {t.at(codes, names)};\nif (v) complain(a.report, a.number, v, {WEIGHTS_BOUND}, 0);"
    return [t.flat(count_of(codes), body, REPORT)]


def check_divisor(fusion, step) -> list:
    divisor = step.inputs[0]
    t = Text("check_divisor", step.node, reports=True)
    names = names_of("d", len(divisor.shape))
    body = t.digits("i", divisor.shape, names)
    body += f"\nif ({t.at(divisor, names)} == 0) complain(a.report, a.number, 0, {DIVISOR_BOUND}, 0);"
    return [t.flat(count_of(divisor), body, REPORT)]


def copy_step(fusion, step) -> list:
    return [copy(fusion, step.inputs[0], step.outputs[0], step.node)]


def concat(fusion, step) -> list:
    out, axis, start, steps = step.outputs[0], step.node.op.axis, 0, []
    for x in step.inputs:
        starts = [start if a == axis else 0 for a in range(len(out.shape))]
        part = memory.slice_(out, starts, [1] * len(out.shape), x.shape)
        if not (x.kind == "view" and x.base is out):  # else it is there already: codegen/concat.py
            steps.append(copy(fusion, x, part, step.node))
            steps[-1].writes = [out]
        start = start + x.shape[axis]
    return steps


def _lines(t: Text, x: Buffer, axis: int) -> tuple[str, list[str], object]:
    """(statements that find line i, names of the indices with the axis' one set to k, number of lines)"""
    outer = [n for a, n in enumerate(x.shape) if a != axis]
    names = names_of("d", len(outer))
    everything = [*names[:axis], "k", *names[axis:]]
    return t.digits("i", outer, names) if outer else "", everything, product(outer)


def cumulative(fusion, step) -> list:
    """One thread per line where lines lie side by side in memory; along memory, one warp per line."""
    x, out = step.inputs[0], step.outputs[0]
    if not x.shape:
        return copy_step(fusion, step)
    axis, kind, reverse = step.ints
    if x.dtype.is_complex:
        return _cumulative_complex(step)
    t = Text("cumulative", step.node)
    setup, names, lines = _lines(t, x, axis)
    wide = wide_type(x.dtype)
    if x.dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16):
        wide = "float" if kind in (2, 3) else "double"
    combine = ("s = s + v", "s = s * v", "s = larger(s, v)", "s = smaller(s, v)", _LOG_ADD)[kind]
    if x.dtype is dtypes.bool_:
        combine = ("s = s | v", "s = s & v", "s = s | v", "s = s & v")[kind]
    n = t.dim(x.shape[axis])
    k = f"{n} - 1 - j" if reverse else "j"
    body = f"""{setup}
{wide} s = 0;
for (i64 j = 0; j < {n}; ++j) {{
  const i64 k = {k};
  const {wide} v = ({wide}){read(x.dtype, t.at(x, names))};
  if (j == 0) s = v; else {combine};
  {t.at(out, names, True)} = {write(out.dtype, f"({wide_type(out.dtype)})s")};
}}"""
    return [t.flat(lines, body)]


# log(exp(s) + exp(v)), which must not overflow
_LOG_ADD = (
    "{ const double high = s > v ? s : v, low = s > v ? v : s; "
    "s = s != s || v != v ? s + v : isinf(high) || isinf(low) ? high : high + log1p(exp(low - high)); }"
)


def _cumulative_complex(step) -> list:
    x, out = step.inputs[0], step.outputs[0]
    axis, kind, reverse = step.ints
    t = Text("cumulative", step.node)
    setup, names, lines = _lines(t, x, axis)
    n = t.dim(x.shape[axis])
    k = f"{n} - 1 - j" if reverse else "j"
    part = "float" if x.dtype is dtypes.complex64 else "double"
    combine = ("re = re + v.re; im = im + v.im;",
               "const double was = re; re = was * v.re - im * v.im; im = was * v.im + im * v.re;")[kind]  # fmt: skip
    body = f"""{setup}
double re = 0, im = 0;
for (i64 j = 0; j < {n}; ++j) {{
  const i64 k = {k};
  const {C_TYPE[x.dtype]} v = {t.at(x, names)};
  if (j == 0) {{ re = v.re; im = v.im; }} else {{ {combine} }}
  {t.at(out, names, True)} = {C_TYPE[out.dtype]}{{({part})re, ({part})im}};
}}"""
    return [t.flat(lines, body)]


def linear_scan(fusion, step) -> list:
    x, y, out = *step.inputs, step.outputs[0]
    if not y.shape:
        return [copy(fusion, y, out, step.node)]
    axis, reverse = step.ints
    t = Text("linear_scan", step.node)
    setup, names, lines = _lines(t, x, axis)
    n = t.dim(x.shape[axis])
    k = f"{n} - 1 - j" if reverse else "j"
    if x.dtype.is_complex:
        made, part = C_TYPE[out.dtype], "float" if out.dtype is dtypes.complex64 else "double"
        body = f"""{setup}
double re = 0, im = 0;
for (i64 j = 0; j < {n}; ++j) {{
  const i64 k = {k};
  const {C_TYPE[x.dtype]} f = {t.at(x, names)}; const {C_TYPE[y.dtype]} b = {t.at(y, names)};
  const double was = re;
  re = (j == 0 ? 0.0 : f.re * was - f.im * im) + b.re; im = (j == 0 ? 0.0 : f.re * im + f.im * was) + b.im;
  {t.at(out, names, True)} = {made}{{({part})re, ({part})im}};
}}"""
        return [t.flat(lines, body)]
    body = f"""{setup}
double s = 0;
for (i64 j = 0; j < {n}; ++j) {{
  const i64 k = {k};
  const double b = {read(y.dtype, t.at(y, names))};
  s = j == 0 ? b : (double){read(x.dtype, t.at(x, names))} * s + b;
  {t.at(out, names, True)} = {write(out.dtype, "(" + wide_type(out.dtype) + ")s")};
}}"""
    return [t.flat(lines, body)]


def nonzero(fusion, step) -> list:
    """One block: every thread counts its share, then writes where those before it end."""
    x, out = step.inputs[0], step.outputs[0]
    t = Text("nonzero", step.node, (1024, 1))
    names = names_of("d", len(x.shape))
    total = t.dim(count_of(x))
    zero = f"{read(x.dtype, t.at(x, names))} != 0"
    digits = t.digits("i", x.shape, names) if names else ""
    stores = " ".join(f"{t.at(out, ['place', str(k)], True)} = {name};" for k, name in enumerate(names))
    body = f"""__shared__ i64 counts[1024];
const i64 share = ((i64){total} + 1023) / 1024, first = threadIdx.x * share;
const i64 last = first + share < {total} ? first + share : {total};
i64 count = 0;
for (i64 i = first; i < last; ++i) {{ {digits} if ({zero}) ++count; }}
counts[threadIdx.x] = count;
__syncthreads();
i64 place = 0;
for (int k = 0; k < (int)threadIdx.x; ++k) place += counts[k];
for (i64 i = first; i < last; ++i) {{ {digits} if ({zero}) {{ {stores} ++place; }} }}"""
    return [t.step(body, 1)]


def matmul(fusion, step) -> list | None:
    """Products of types that the library does not have: one thread per element; and those of a few rows."""
    a, b, *bias = step.inputs
    out = step.outputs[0]
    if few_rows.suits(a, b, out):
        return few_rows.few_rows(step)
    if out.dtype.kind == "float":
        return None
    t = Text("matmul", step.node)
    names = names_of("d", len(out.shape))
    wide = "u64" if out.dtype.kind in ("int", "uint") else wide_type(out.dtype)
    row, column = [*names[:-1], "k"], [*names[:-2], "k", names[-1]]
    start = t.at(bias[0], [names[-1]]) if bias else "0"
    combine = "s = s | (x & y)" if out.dtype is dtypes.bool_ else "s += x * y"
    body = f"""{t.digits("i", out.shape, names)}
{wide} s = ({wide}){start};
for (i64 k = 0; k < {t.dim(a.shape[-1])}; ++k) {{
  const {wide} x = ({wide}){t.at(a, row)}, y = ({wide}){t.at(b, column)};
  {combine};
}}
{t.at(out, names, True)} = {write(out.dtype, "s")};"""
    return [t.flat(count_of(out), body)]


def copy_kernel(size: int) -> TextKernel:
    """Elements of `size` bytes from one strided place to another; called by the runtime (src/tensor/device_copy.cc)."""
    t = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "ulonglong2"}[size]
    axes = 32  # kMaxDims of src/tensor/view.h
    text = f"""struct Arguments {{
  const {t}* from; {t}* to; i64 count, ndim; i64 shape[{axes}], from_strides[{axes}], to_strides[{axes}];
}};
extern "C" __global__ void td_copy(const __grid_constant__ Arguments a) {{
  if (a.ndim == 2 && a.from_strides[1] == 1 && a.to_strides[1] == 1) {{  // rows; a block for each
    for (i64 r = blockIdx.x; r < a.shape[0]; r += gridDim.x) {{
      const {t}* from = a.from + r * a.from_strides[0]; {t}* to = a.to + r * a.to_strides[0];
      const bool wide = ((u64)to & 15) == 0;
      for (i64 j = (i64)threadIdx.x * {16 // size}; j < a.shape[1]; j += 256 * {16 // size}) {{
        alignas(16) {t} e[{16 // size}];
        const bool whole = wide && j + {16 // size} <= a.shape[1];
        for (int k = 0; k < {16 // size}; ++k) if (whole || j + k < a.shape[1]) e[k] = from[j + k];
        if (whole) store_all<{16 // size}>(to + j, e);
        else for (int k = 0; k < {16 // size}; ++k) if (j + k < a.shape[1]) to[j + k] = e[k];
      }}
    }}
    return;
  }}
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < a.count; i += (i64)gridDim.x * 256) {{
    i64 rest = i, from = 0, to = 0;
    for (int d = (int)a.ndim - 1; d >= 0; --d) {{
      const i64 next = udiv(rest, a.shape[d]), k = rest - next * a.shape[d];
      from += k * a.from_strides[d]; to += k * a.to_strides[d]; rest = next;
    }}
    a.to[to] = a.from[from];
  }}
}}
"""
    return TextKernel("copy", text)


ROW_WORDS = 480  # of a table that is an argument: 2 * kRowsByValue of src/tensor/device_rows.h
_ROW_ARGUMENTS = f"""struct Arguments {{ const u64* table; char* to[4]; u64 each, first, count, size; u64 row[{ROW_WORDS}]; }};
DEVICE u64 word(const Arguments& a, u64 i) {{ return a.table ? a.table[i] : a.row[i]; }}"""


def join_rows_kernel(size: int) -> TextKernel:
    """Rows from many places one after the other, in elements of `size` bytes: Note [Rows by one launch] in
    src/tensor/device_rows.h."""
    t = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "ulonglong2"}[size]
    text = f"""{_ROW_ARGUMENTS}
extern "C" __global__ void __launch_bounds__(256) td_join_rows(const __grid_constant__ Arguments a) {{
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < (i64)(a.count * a.size); i += (i64)gridDim.x * 256) {{
    const i64 r = udiv(i, (i64)a.size), k = i - r * (i64)a.size;
    u64 row = a.first + r, block = 0;
    for (; row >= a.each; row -= a.each) ++block;
    (({t}*)a.to[block])[row * a.size + k] = ((const {t}*)word(a, r))[k];
  }}
}}
"""
    return TextKernel("join_rows", text)


def add_rows_kernel(dtype: int) -> TextKernel:
    """Rows added to others, in pairs (to, from): those that go to one place are neighbours, and one thread adds them."""
    kind = next(d for d in C_TYPE if d.code == dtype)
    t = C_TYPE[kind]
    text = f"""{_ROW_ARGUMENTS}
extern "C" __global__ void __launch_bounds__(256) td_add_rows(const __grid_constant__ Arguments a) {{
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < (i64)(a.count * a.size); i += (i64)gridDim.x * 256) {{
    i64 r = udiv(i, (i64)a.size);
    const i64 k = i - r * (i64)a.size;
    const u64 to = word(a, 2 * r);
    if (r > 0 && word(a, 2 * r - 2) == to) continue;
    {wide_type(kind)} sum = {read(kind, f"(({t}*)to)[k]")};
    for (; r < (i64)a.count && word(a, 2 * r) == to; ++r) sum += {read(kind, f"((const {t}*)word(a, 2 * r + 1))[k]")};
    (({t}*)to)[k] = {write(kind, "sum")};
  }}
}}
"""
    return TextKernel("add_rows", text)


def fill_kernel() -> TextKernel:
    """A few elements of 1, 2 or 4 bytes get one value, by one block: Note [Small fills] in src/device/cuda/fills.h."""
    text = """struct Arguments { u64 to, count, value, size; };
extern "C" __global__ void __launch_bounds__(256) td_fill(const __grid_constant__ Arguments a) {
  for (u64 i = threadIdx.x; i < a.count; i += blockDim.x) {
    if (a.size == 4) ((u32*)a.to)[i] = (u32)a.value;
    else if (a.size == 2) ((u16*)a.to)[i] = (u16)a.value;
    else ((u8*)a.to)[i] = (u8)a.value;
  }
}
"""
    return TextKernel("fill", text)


def widen_kernel() -> TextKernel:
    """Pixels of fewer than 8 channels of 2 bytes, with zeros for the others: called by src/library/cuda/conv.cc."""
    text = """struct Arguments { const u16* from; u16* to; i64 pixels, channels; };
extern "C" __global__ void __launch_bounds__(256) td_widen(const __grid_constant__ Arguments a) {
  const i64 pixel = (i64)blockIdx.x * 256 + threadIdx.x;
  if (pixel >= a.pixels) return;
  alignas(16) u16 e[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) e[k] = k < a.channels ? a.from[pixel * a.channels + k] : (u16)0;
  store_all<8>(a.to + pixel * 8, e);
}
"""
    return TextKernel("widen", text)


def small_matmul_kernel(dtype: int) -> TextKernel:
    """c = a b + bias of small matrices, a block for 16 x 16 results; called by the runtime (src/library/cuda/matmul.cc): a launch
    of our own costs the host half of what a call of cuBLASLt does."""
    kind = next(d for d in C_TYPE if d.code == dtype)
    t, wide = C_TYPE[kind], wide_type(kind)
    text = f"""struct Arguments {{
  const {t} *a, *b, *bias; {t}* c; i64 m, n, k, a_row, a_column, b_row, b_column, c_row, bias_step, a_batch, b_batch, c_batch;
}};
extern "C" __global__ void __launch_bounds__(256) td_small_matmul(const __grid_constant__ Arguments a) {{
  __shared__ {wide} as[16][17], bs[16][17];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const i64 across = (a.n + 15) / 16, tiles = across * ((a.m + 15) / 16), batch = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const i64 row = tile / across * 16 + ty, column = tile % across * 16 + tx;
  const {t} *x = a.a + batch * a.a_batch, *y = a.b + batch * a.b_batch;
  {wide} sum = 0;
  for (i64 k = 0; k < a.k; k += 16) {{
    as[ty][tx] = row < a.m && k + tx < a.k ? {read(kind, "x[row * a.a_row + (k + tx) * a.a_column]")} : ({wide})0;
    bs[ty][tx] = column < a.n && k + ty < a.k ? {read(kind, "y[(k + ty) * a.b_row + column * a.b_column]")} : ({wide})0;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 16; ++e) sum += as[ty][e] * bs[e][tx];
    __syncthreads();
  }}
  if (row >= a.m || column >= a.n) return;
  if (a.bias) sum += {read(kind, "a.bias[column * a.bias_step]")};
  a.c[batch * a.c_batch + row * a.c_row + column] = {write(kind, "sum")};
}}
"""
    return TextKernel("small_matmul", text, (16, 16))


def cholesky(fusion, step) -> list | None:
    """By cuSOLVER, which leaves what it read in the other triangle."""
    if not CUSOLVER:
        return None
    factor, info = step.outputs
    whole = memory.allocate(factor.dtype, factor.shape)
    made = LibraryStep("cuda.cholesky", step.inputs, [whole, info], step.ints, step.floats, step.node)
    t = Text("tril", step.node)
    names = names_of("d", len(factor.shape))
    kept = f"{names[-1]} {'>=' if step.ints[0] else '<='} {names[-2]}"
    c = C_TYPE[factor.dtype]
    body = f"""{t.digits("i", factor.shape, names)}
{t.at(factor, names, True)} = {kept} ? {t.at(whole, names)} : zero_of<{c}>();"""
    return [made, t.flat(count_of(factor), body)]


def _attention(make):
    def routine(fusion, step) -> list:
        return make(fusion, step, lambda source, target: copy(fusion, source, target, step.node))

    return routine


ROUTINES = {
    "conv_forward": conv_forward, "conv_backward_data": conv_backward_data, "conv_backward_weight": conv_backward_weight,
    "attention": _attention(attention), "attention_backward": _attention(attention_backward),
    "attention_backward_packed": _attention(attention_backward_packed),
    "lstm_sequence": lstm_sequence, "lstm_sequence_backward": lstm_sequence_backward,
    "check_divisor": check_divisor, "check_index": check_index, "check_weights": check_weights, "cholesky": cholesky,
    "copy": copy_step, "concat": concat, "cumulative": cumulative, "linear_scan": linear_scan,
    **EDGES, "nonzero": nonzero, "matmul": matmul, "scatter": scatter, "sort": sort, "topk": topk, **POOLING, **COUNTING,
    "pool_max_taps": pool_max_taps, "pool_max_taps_backward": pool_max_taps_backward,
}  # fmt: skip
