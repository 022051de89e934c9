"""Products of a row or a few with a matrix whose columns lie in memory, as a layer's weight does: most of a step of one token.

Such a product reads the matrix once and computes little. A warp takes one column of the result: its lanes read neighbouring pieces
of that column, and the few rows stay in the cache. Libraries are made for tiles, most of which would be empty.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.buffer import Buffer, is_one
from tandem.codegen.cuda.text import Text, read, write
from tandem.graph.symbolic import ceildiv

ROWS = 4  # at most: with more, tiles pay
_WARPS = 8  # of a block
_TYPES = (dtypes.bfloat16, dtypes.float16, dtypes.float32)


def suits(a: Buffer, b: Buffer, out: Buffer) -> bool:
    """Whether a (rows, k) times b (k, columns) is such a product."""
    if any(x.dtype is not out.dtype or len(x.shape) != 2 for x in (a, b, out)) or out.dtype not in _TYPES:
        return False
    rows = a.shape[0]
    return type(rows) is int and 0 < rows <= ROWS and is_one(a.strides[1]) and is_one(b.strides[0])


def few_rows(step) -> list:
    a, b, *bias = step.inputs
    out = step.outputs[0]
    rows, columns = out.shape
    t = Text("matmul_few_rows", step.node, (32 * _WARPS, 1))
    piece = 16 // out.dtype.itemsize
    pa, pb = t.pointer(a), t.pointer(b)
    length, step_a, step_b = t.dim(a.shape[1]), t.dim(a.strides[0]), t.dim(b.strides[1])
    start = read(out.dtype, t.at(bias[0], ["column"])) if bias else "0.f"
    every = lambda load: (
        f"""#pragma unroll 4
  for (; k + {piece} <= {length}; k += {32 * piece}) {{
    alignas(16) T w[{piece}], x[{piece}];
    {load}<{piece}>(w, row + k);
#pragma unroll
    for (int r = 0; r < {rows}; ++r) {{
      {load}<{piece}>(x, {pa} + r * {step_a} + k);
#pragma unroll
      for (int q = 0; q < {piece}; ++q) s[r] += widened(w[q]) * widened(x[q]);
    }}
  }}"""
    )
    body = f"""const int lane = threadIdx.x & 31;
const i64 column = (i64)blockIdx.x * {_WARPS} + (threadIdx.x >> 5);
if (column >= {t.dim(columns)}) return;
const T* row = {pb} + column * {step_b};
float s[{rows}] = {{}};
i64 k = (i64)lane * {piece};
bool whole = ((u64)row & 15) == 0;
for (int r = 0; r < {rows}; ++r) whole = whole && ((u64)({pa} + r * {step_a}) & 15) == 0;
if (whole) {{
{every("load_all")}
}} else {{
{every("load_each")}
}}
for (; k < {length}; ++k)  // the last piece, if it is shorter, is one lane's
  for (int r = 0; r < {rows}; ++r) s[r] += widened(row[k]) * widened({pa}[r * {step_a} + k]);
#pragma unroll
for (int r = 0; r < {rows}; ++r)
#pragma unroll
  for (int mask = 16; mask; mask >>= 1) s[r] += __shfl_xor_sync(~0u, s[r], mask);
if (lane == 0) for (int r = 0; r < {rows}; ++r) {{
  const float made = s[r] + {start};
  {t.at(out, ["r", "column"], True)} = {write(out.dtype, "made")};
}}"""
    return [t.step(body, ceildiv(columns, _WARPS), _helpers(out.dtype))]


def _helpers(dtype) -> str:
    kind = {dtypes.bfloat16: "bf16", dtypes.float16: "f16", dtypes.float32: "float"}[dtype]
    widened = "x" if dtype is dtypes.float32 else "widen(x)"
    return f"""typedef {kind} T;
DEVICE float widened(T x) {{ return {widened}; }}
template <int n> DEVICE void load_each(T* to, const T* from) {{ for (int k = 0; k < n; ++k) to[k] = from[k]; }}
"""


__all__ = ["few_rows", "suits"]
