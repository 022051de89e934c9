"""Attention on CUDA devices in 16-bit types: tiles of keys stream by, nothing of size T x S is ever in memory.

Note [Tiles of attention]
A block of four warps owns 64 rows (queries forward and for dQ, keys for dK and dV), 16 per warp, and streams tiles of 64 of the
other side through shared memory, the next one on its way while one is worked on. Products are m16n8k16 tensor-core
instructions; the softmax runs in float32 in the registers that hold the scores, rescaled as larger maxima turn up (Milakov and
Gimelshein, 2018; Dao et al., 2022). Backward computes the scores again, once for dQ and once for dK and dV, so that every sum
has one owner and a fixed order.
"""

from __future__ import annotations

import math

from tandem import dtypes
from tandem.codegen import buffer as memory
from tandem.codegen.buffer import Buffer, allocate
from tandem.codegen.cuda import attention_wgmma as wgmma
from tandem.codegen.cuda.ops import C_TYPE
from tandem.codegen.cuda.text import Text, read
from tandem.graph.symbolic import Dim, ceildiv, product
from tandem.switches import WGMMA

ROWS = 64  # of a tile
# (kernel, size of heads) -> groups of warps in a block, blocks on a multiprocessor, places in the ring; a fourth 1 stands for
# scores that are begun a tile ahead. The fastest ones of `benchmarks/gpu_attention.py --tune` on an H200.
GROUPS = {
    ("forward", 64): (2, 2, 4), ("queries", 64): (2, 1, 4), ("keys", 64): (2, 1, 5, 1),
    ("forward", 128): (3, 1, 4), ("queries", 128): (2, 1, 4, 1), ("keys", 128): (2, 1, 4),
}  # fmt: skip
_SUFFIX = {dtypes.bfloat16: "bf16", dtypes.float16: "f16"}

_HELPERS = """\
typedef TYPE T;
#define PITCH (D + 8)
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void ldsm(u32 (&r)[4], const T* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}
DEVICE void ldsm_t(u32 (&r)[4], const T* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}
DEVICE void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.SUFFIX.SUFFIX.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE u32 pack(float low, float high) {
  u32 y; asm("cvt.rn.SUFFIXx2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}
DEVICE float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
// Rows [row0, row0 + 64) of a matrix with D columns into shared memory; rows from `rows` on are zeros.
DEVICE void fetch(T* to, const T* from, i64 stride, i64 row0, i64 rows) {
  for (int c = threadIdx.x; c < 64 * (D / 8); c += 128) {
    const int r = c / (D / 8), k = c % (D / 8) * 8;
    const bool on = row0 + r < rows;
    const T* p = from + (on ? (row0 + r) * stride + k : 0);
    if ((u64)from & 15) {  // a view that starts at an odd element
      for (int e = 0; e < 8; ++e) to[r * PITCH + k + e] = on ? p[e] : zero_of<T>();
      continue;
    }
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to + r * PITCH + k)), "l"(p), "r"(on ? 16 : 0));
  }
}
DEVICE void commit() { asm volatile("cp.async.commit_group;"); }
template <int n> DEVICE void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(n)); }
// The warp's 16 rows as left operands.
DEVICE void take(u32 (&f)[D / 16][4], const T* tile) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int k = 0; k < D / 16; ++k)
    ldsm(f[k], tile + (warp * 16 + (lane & 15)) * PITCH + k * 16 + (lane >> 4) * 8);
}
// c (16 x 64) += a (16 x D) b^T, b a tile of 64 rows.
DEVICE void times_transposed(float (&c)[8][4], const u32 (&a)[D / 16][4], const T* b) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      u32 f[4];
      ldsm(f, b + (n * 16 + (lane & 7) + (lane >> 4) * 8) * PITCH + k * 16 + (lane >> 3 & 1) * 8);
      mma(c[2 * n], a[k], f[0], f[1]);
      mma(c[2 * n + 1], a[k], f[2], f[3]);
    }
}
// c (16 x D) += p (16 x 64, as scores lie in registers) b, b a tile of 64 rows.
DEVICE void times(float (&c)[D / 8][4], const float (&p)[8][4], const T* b) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const u32 a[4] = {pack(p[2 * k][0], p[2 * k][1]), pack(p[2 * k][2], p[2 * k][3]),
                      pack(p[2 * k + 1][0], p[2 * k + 1][1]), pack(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      u32 f[4];
      ldsm_t(f, b + (k * 16 + (lane & 15)) * PITCH + n * 16 + (lane >> 4) * 8);
      mma(c[2 * n], a, f[0], f[1]);
      mma(c[2 * n + 1], a, f[2], f[3]);
    }
  }
}
// The warp's 16 rows of a result, each times a factor.
DEVICE void put(T* to, i64 stride, i64 row0, i64 rows, const float (&c)[D / 8][4], float f0, float f1) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const i64 r = row0 + warp * 16 + (lane >> 2);
  for (int n = 0; n < D / 8; ++n) {
    const int k = n * 8 + (lane & 3) * 2;
    if (r < rows) *(u32*)(to + r * stride + k) = pack(c[n][0] * f0, c[n][1] * f0);
    if (r + 8 < rows) *(u32*)(to + (r + 8) * stride + k) = pack(c[n][2] * f1, c[n][3] * f1);
  }
}
"""

_FORWARD = """\
__shared__ alignas(16) T ks[STAGES][64 * PITCH];
__shared__ alignas(16) T vs[STAGES][64 * PITCH];
const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
const i64 row0 = block * 64;
u32 qf[D / 16][4];
fetch(ks[0], q, q_step, row0, queries); commit(); wait<0>(); __syncthreads();
take(qf, ks[0]);
__syncthreads();
float o[D / 8][4] = {};
float m0 = -INFINITY_, m1 = -INFINITY_, l0 = 0, l1 = 0;
i64 tiles = (keys + 63) / 64;
if (CAUSAL && row0 / 64 + 1 < tiles) tiles = row0 / 64 + 1;
fetch(ks[0], k, k_step, 0, keys); fetch(vs[0], v, v_step, 0, keys); commit();
for (i64 j = 0; j < tiles; ++j) {
  const int stage = STAGES == 2 ? j & 1 : 0;
  if (STAGES == 2 && j + 1 < tiles) {
    fetch(ks[stage ^ 1], k, k_step, (j + 1) * 64, keys); fetch(vs[stage ^ 1], v, v_step, (j + 1) * 64, keys); commit();
    wait<1>();
  } else wait<0>();
  __syncthreads();
  float s[8][4] = {};
  times_transposed(s, qf, ks[stage]);
  const bool edge = (j + 1) * 64 > keys || (CAUSAL && (j + 1) * 64 > row0);
  float x0 = m0, x1 = m1;
  for (int n = 0; n < 8; ++n) for (int e = 0; e < 4; ++e) {
    s[n][e] *= SCALE * 1.4426950408889634f;
    if (edge) {
      const i64 key = j * 64 + n * 8 + (lane & 3) * 2 + (e & 1), row = row0 + warp * 16 + (lane >> 2) + (e >> 1) * 8;
      if (key >= keys || (CAUSAL && key > row)) s[n][e] = -INFINITY_;
    }
    if (e < 2) x0 = fmaxf(x0, s[n][e]); else x1 = fmaxf(x1, s[n][e]);
  }
  x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 1)); x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 2));
  x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 1)); x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 2));
  const float c0 = x0 == -INFINITY_ ? 1.0f : exp2_fast(m0 - x0), c1 = x1 == -INFINITY_ ? 1.0f : exp2_fast(m1 - x1);
  const float z0 = x0 == -INFINITY_ ? 0.0f : x0, z1 = x1 == -INFINITY_ ? 0.0f : x1;
  m0 = x0; m1 = x1; l0 *= c0; l1 *= c1;
  for (int n = 0; n < D / 8; ++n) { o[n][0] *= c0; o[n][1] *= c0; o[n][2] *= c1; o[n][3] *= c1; }
  for (int n = 0; n < 8; ++n) {
    s[n][0] = exp2_fast(s[n][0] - z0); s[n][1] = exp2_fast(s[n][1] - z0);
    s[n][2] = exp2_fast(s[n][2] - z1); s[n][3] = exp2_fast(s[n][3] - z1);
    l0 += s[n][0] + s[n][1]; l1 += s[n][2] + s[n][3];
  }
  times(o, s, vs[stage]);
  __syncthreads();
  if (STAGES == 1 && j + 1 < tiles) {
    fetch(ks[0], k, k_step, (j + 1) * 64, keys); fetch(vs[0], v, v_step, (j + 1) * 64, keys); commit();
  }
}
l0 += __shfl_xor_sync(~0u, l0, 1); l0 += __shfl_xor_sync(~0u, l0, 2);
l1 += __shfl_xor_sync(~0u, l1, 1); l1 += __shfl_xor_sync(~0u, l1, 2);
put(out, o_step, row0, queries, o, l0 > 0 ? 1 / l0 : 0, l1 > 0 ? 1 / l1 : 0);
if ((lane & 3) == 0) {
  const i64 r = row0 + warp * 16 + (lane >> 2);
  if (r < queries) sums[r] = l0 > 0 ? (m0 + log2f(l0)) * 0.6931471805599453f : -INFINITY_;
  if (r + 8 < queries) sums[r + 8] = l1 > 0 ? (m1 + log2f(l1)) * 0.6931471805599453f : -INFINITY_;
}
"""

# dQ: rows are queries; keys and values stream by.
_QUERIES = """\
__shared__ alignas(16) T ks[2][64 * PITCH];
__shared__ alignas(16) T vs[2][64 * PITCH];
const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
const i64 row0 = block * 64;
u32 qf[D / 16][4], gf[D / 16][4];
fetch(ks[0], q, q_step, row0, queries); fetch(vs[0], g, g_step, row0, queries); commit(); wait<0>(); __syncthreads();
take(qf, ks[0]); take(gf, vs[0]);
__syncthreads();
const i64 r = row0 + warp * 16 + (lane >> 2);
const float s0 = r < queries ? sums[r] : -INFINITY_, s1 = r + 8 < queries ? sums[r + 8] : -INFINITY_;
const float d0 = r < queries ? inner[r] : 0, d1 = r + 8 < queries ? inner[r + 8] : 0;
float dq[D / 8][4] = {};
i64 tiles = (keys + 63) / 64;
if (CAUSAL && row0 / 64 + 1 < tiles) tiles = row0 / 64 + 1;
fetch(ks[0], k, k_step, 0, keys); fetch(vs[0], v, v_step, 0, keys); commit();
for (i64 j = 0; j < tiles; ++j) {
  const int stage = j & 1;
  if (j + 1 < tiles) {
    fetch(ks[stage ^ 1], k, k_step, (j + 1) * 64, keys); fetch(vs[stage ^ 1], v, v_step, (j + 1) * 64, keys); commit();
    wait<1>();
  } else wait<0>();
  __syncthreads();
  float s[8][4] = {}, p[8][4] = {};
  times_transposed(s, qf, ks[stage]);
  times_transposed(p, gf, vs[stage]);
  for (int n = 0; n < 8; ++n) for (int e = 0; e < 4; ++e) {
    const i64 key = j * 64 + n * 8 + (lane & 3) * 2 + (e & 1), row = r + (e >> 1) * 8;
    const float sum = e < 2 ? s0 : s1;
    const bool on = key < keys && sum != -INFINITY_ && !(CAUSAL && key > row);
    const float w = on ? exp2_fast((s[n][e] * SCALE - sum) * 1.4426950408889634f) : 0.0f;
    s[n][e] = w * (p[n][e] - (e < 2 ? d0 : d1)) * SCALE;
  }
  times(dq, s, ks[stage]);
  __syncthreads();
}
put(out, o_step, row0, queries, dq, 1, 1);
"""

# dK, dV: rows are keys; queries and incoming gradients stream by.
_KEYS = """\
__shared__ alignas(16) T qs[2][64 * PITCH];
__shared__ alignas(16) T gs[2][64 * PITCH];
__shared__ float row_sums[2][64], row_inner[2][64];
const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
const i64 row0 = block * 64;
u32 kf[D / 16][4], vf[D / 16][4];
fetch(qs[0], k, k_step, row0, keys); fetch(gs[0], v, v_step, row0, keys); commit(); wait<0>(); __syncthreads();
take(kf, qs[0]); take(vf, gs[0]);
__syncthreads();
float dk[D / 8][4] = {}, dv[D / 8][4] = {};
const i64 tiles = (queries + 63) / 64, first = CAUSAL ? row0 / 64 : 0;
auto next = [&](int stage, i64 i) {
  fetch(qs[stage], q, q_step, i * 64, queries); fetch(gs[stage], g, g_step, i * 64, queries); commit();
  if (threadIdx.x < 64) {
    const i64 at = i * 64 + threadIdx.x;
    row_sums[stage][threadIdx.x] = at < queries ? sums[at] : -INFINITY_;
    row_inner[stage][threadIdx.x] = at < queries ? inner[at] : 0;
  }
};
if (first < tiles) next(0, first);
for (i64 i = first; i < tiles; ++i) {
  const int stage = (i - first) & 1;
  if (i + 1 < tiles) { next(stage ^ 1, i + 1); wait<1>(); } else wait<0>();
  __syncthreads();
  float s[8][4] = {}, p[8][4] = {};
  times_transposed(s, kf, qs[stage]);
  times_transposed(p, vf, gs[stage]);
  for (int n = 0; n < 8; ++n) for (int e = 0; e < 4; ++e) {
    const int at = n * 8 + (lane & 3) * 2 + (e & 1);
    const i64 query = i * 64 + at, key = row0 + warp * 16 + (lane >> 2) + (e >> 1) * 8;
    const float sum = row_sums[stage][at];
    const bool on = key < keys && sum != -INFINITY_ && !(CAUSAL && key > query);
    const float w = on ? exp2_fast((s[n][e] * SCALE - sum) * 1.4426950408889634f) : 0.0f;
    s[n][e] = w;
    p[n][e] = w * (p[n][e] - row_inner[stage][at]) * SCALE;
  }
  times(dv, s, gs[stage]);
  times(dk, p, qs[stage]);
  __syncthreads();
}
put(out, o_step, row0, keys, dk, 1, 1);
put(out2, o2_step, row0, keys, dv, 1, 1);
"""


SIZES = range(8, 129, 8)  # of heads; earlier devices take multiples of 16


def uses_wgmma(capability: int) -> bool:
    return capability == 90 and bool(WGMMA)


def fits(op, types, backward: bool, capability: int) -> bool:
    """Whether these kernels serve an attention of these operand types: 16-bit, heads of a size that registers hold; masks only
    where tensor cores work for groups of warps."""
    q, k, v = types[:3]
    d = q.shape[-1]
    if q.dtype not in _SUFFIX or k.dtype is not q.dtype or v.dtype is not q.dtype or not math.isfinite(op.scale):
        return False
    if type(d) is not int:
        d = next((n for n in SIZES if d == n), 0)  # a symbolic size leaves a guard
    if uses_wgmma(capability):
        return d in SIZES and v.shape[-1] == d
    return not op.masked and 0 < d <= (64 if backward else 128) and d % 16 == 0 and v.shape[-1] == d


class _Tensors:
    """Operands of a kernel, per (batch, head): pointers `name` and steps between rows `name_step`."""

    def __init__(self, t: Text, heads: Dim):
        self.t, self.heads = t, heads
        self.lines: list[str] = []

    def matrix(self, name: str, buffer: Buffer, writes: bool = False, step: str | None = None):
        t = self.t
        b, h, row = (t.dim(s) for s in buffer.strides[:3])
        kind = C_TYPE[buffer.dtype]
        self.lines.append(f"{kind}* {name} = {t.pointer(buffer, writes)} + batch * {b} + head * {h};")
        self.lines.append(f"const i64 {step or name + '_step'} = {row};")

    def rows(self, name: str, buffer: Buffer, writes: bool = False):
        t = self.t
        b, h = (t.dim(s) for s in buffer.strides[:2])
        self.lines.append(f"float* {name} = {t.pointer(buffer, writes)} + batch * {b} + head * {h};")


def _kernel(name: str, node, op, q: Buffer, k: Buffer, head_size: int, rows: Dim, body: str, operands) -> object:
    t = Text(name, node, (128, 1))
    batch, heads = q.shape[:2]
    tensors = _Tensors(t, heads)
    operands(tensors)
    blocks = ceildiv(rows, ROWS)
    n, h = t.dim(blocks), t.dim(heads)
    # The last rows have the most keys to look at: they go first, so that the short ones fill the gaps.
    setup = f"""const i64 pair = udiv((i64)blockIdx.x, (i64){n}), block = {n} - 1 - (blockIdx.x - pair * {n});
const i64 batch = udiv(pair, (i64){h}), head = pair - batch * {h};
const i64 queries = {t.dim(q.shape[2])}, keys = {t.dim(k.shape[2])};
"""
    defines = f"#define D {head_size}\n#define CAUSAL {int(op.causal)}\n#define SCALE {float(op.scale)!r}f\n"
    defines += f"#define INFINITY_ __int_as_float(0x7f800000)\n#define STAGES {2 if head_size <= 64 else 1}\n"
    helpers = _HELPERS.replace("TYPE", C_TYPE[q.dtype], 1).replace("SUFFIX", _SUFFIX[q.dtype])
    return t.step(setup + "\n".join(tensors.lines) + "\n" + body, product((batch, heads, blocks)), defines + helpers)


def _group_kernel(name, kind, node, q: Buffer, k: Buffer, mask: Buffer | None, d: int, rows: Dim, operands):
    """See Note [Attention by groups of warps]."""
    op = node.op
    padded = 64 if d <= 64 else 128
    groups, resident, stages, *ahead = GROUPS[kind, padded]
    own, numbers = int(kind != "forward") + 1, int(kind == "keys")
    t = Text(name, node, (128 * groups, 1))
    t.resident, t.exact = resident, True
    tile = 128 * padded
    t.shared = 1024 + (own * groups + 2 * stages) * tile + numbers * stages * 512 + (2 * stages + 1) * 8
    batch, heads = q.shape[:2]
    tensors = _Tensors(t, heads)
    operands(tensors)
    blocks, pairs = ceildiv(rows, 64 * groups), batch * heads
    n, h = t.dim(blocks), t.dim(heads)
    # The longest rows go first, so that the short ones fill the gaps; 64 heads at a time, whose tiles stay in the cache.
    setup = f"""const i64 blocks = {n}, part = udiv((i64)blockIdx.x, 64 * blocks) * 64, left = {t.dim(pairs)} - part;
const i64 width = left < 64 ? left : 64, rest = blockIdx.x - part * blocks, turn = udiv(rest, width);
const i64 pair = part + rest - turn * width, block = {"turn" if kind == "keys" else "blocks - 1 - turn"};
const i64 batch = udiv(pair, (i64){h}), head = pair - batch * {h};
const i64 queries = {t.dim(q.shape[2])}, keys = {t.dim(k.shape[2])};
"""
    kind_of_mask, element = 0, "u8"
    masking = "const MASK* mask = nullptr; const i64 mask_query_step = 0, mask_key_step = 0;\n"
    if mask is not None:
        kind_of_mask, element = 1 if mask.dtype is dtypes.bool_ else 2, C_TYPE[mask.dtype]
        b, o, i, j = (t.dim(x) for x in mask.strides)
        masking = f"const MASK* mask = {t.pointer(mask)} + batch * {b} + head * {o};\n"
        masking += f"const i64 mask_query_step = {i}, mask_key_step = {j};\n"
    before = int(mask is not None or op.scale <= 0)
    defines = {
        "D": d, "DP": padded, "GROUPS": groups, "STAGES": stages, "OWN": own, "NUMBERS": numbers, "CAUSAL": int(op.causal),
        "SCALE": f"{float(op.scale)!r}f", "BEFORE": before, "MASKED": kind_of_mask, "MASK": element,
        "STEPWISE": int(WGMMA.value == 2),
    }  # fmt: skip
    text = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    text += f"typedef {C_TYPE[q.dtype]} T;\n"
    text += f"DEVICE bool allows(MASK m) {{ return {'m != 0' if kind_of_mask == 1 else 'true'}; }}\n"
    text += f"DEVICE float number(MASK m) {{ return (float){read(mask.dtype, 'm') if kind_of_mask == 2 else '0'}; }}\n"
    text += wgmma.PRIMITIVES.replace("SUFFIX", _SUFFIX[q.dtype]) + wgmma.HELPERS
    body = setup + "\n".join(tensors.lines) + "\n" + masking + wgmma.BODIES[f"{kind} ahead" if any(ahead) else kind]
    return t.step(body, product((batch, heads, blocks)), text)


def _rows(node, g: Buffer, out: Buffer, sums: Buffer, inner: Buffer, powers: Buffer, d: int):
    """inner = sum of g * out along each row; powers = log of the row's sum, to base 2: infinite where a row sees nothing, so that
    exp2(x - powers) is 0 there. 16 lanes per row, 16 bytes per lane."""
    t = Text("attention_rows", node)
    rows = product(inner.shape)
    pg, po, pi, ps, pp = t.pointer(g), t.pointer(out), t.pointer(inner, True), t.pointer(sums), t.pointer(powers, True)
    names = ["b", "h", "r"]
    lanes = 8 if d <= 64 else 16
    c_type = C_TYPE[g.dtype]
    body = f"""const i64 row = (i64)blockIdx.x * {256 // lanes} + threadIdx.x / {lanes};
const bool on = row < {t.dim(rows)};
const int k = threadIdx.x % {lanes} * 8;
float s = 0;
i64 place = 0;
if (on) {{
  {t.digits("row", inner.shape, names)}
  place = {t.offset(sums, names)};
  const {c_type} *x = {pg} + ({t.offset(g, names)}) + k, *y = {po} + ({t.offset(out, names)}) + k;
  if (k < {d}) {{
    if (((u64)x | (u64)y) & 15) {{
      for (int e = 0; e < 8; ++e) s += widen(x[e]) * widen(y[e]);
    }} else {{
      union Piece {{ uint4 all; {c_type} each[8]; }};
      Piece u, w;
      u.all = *(const uint4*)x; w.all = *(const uint4*)y;
      for (int e = 0; e < 8; ++e) s += widen(u.each[e]) * widen(w.each[e]);
    }}
  }}
}}
for (int mask = {lanes // 2}; mask; mask >>= 1) s += __shfl_xor_sync(~0u, s, mask);
if (on && k == 0) {{
  const float total = {ps}[place];
  {pi}[row] = s;
  {pp}[row] = total == __int_as_float(0xff800000) ? -total : total * 1.4426950408889634f;
}}"""
    return t.step(body, ceildiv(rows, 256 // lanes))


def _size(buffer: Buffer) -> int:
    d = buffer.shape[-1]
    return d if type(d) is int else next(n for n in SIZES if d == n)


def _aligned(*buffers: Buffer) -> bool:
    """Whether rows lie without gaps and begin at multiples of 16 bytes; symbolic strides leave guards."""
    for b in buffers:
        if b.strides[3] != 1 or any(s % 8 != 0 for s in b.strides[:3]):
            return False
        if b.kind == "view" and b.offset % 8 != 0:
            return False
    return True


def attention(fusion, step, contiguous) -> list:
    steps, (q, k, v) = _readable(step.inputs[:3], contiguous)
    out, sums = step.outputs
    op, d = step.node.op, _size(q)
    mask = step.inputs[3] if op.masked else None
    grouped = uses_wgmma(fusion.target.capability)

    def operands(x):
        x.matrix("q", q)
        x.matrix("k", k)
        x.matrix("v", v)
        x.matrix("out", out, True, "o_step")
        x.rows("sums", sums, True)

    if grouped:
        return [*steps, _group_kernel("attention", "forward", step.node, q, k, mask, d, q.shape[2], operands)]
    return [*steps, _kernel("attention", step.node, op, q, k, d, q.shape[2], _FORWARD, operands)]


def attention_backward(fusion, step, contiguous) -> list:
    steps, (g, q, k, v, out) = _readable(step.inputs[:5], contiguous)
    sums = step.inputs[5]
    gq, gk, gv = step.outputs
    op, d, node = step.node.op, _size(q), step.node
    mask = step.inputs[6] if op.masked else None
    grouped = uses_wgmma(fusion.target.capability)
    inner = allocate(dtypes.float32, q.shape[:3])
    if grouped:
        powers = allocate(dtypes.float32, q.shape[:3])
        steps.append(_rows(node, g, out, sums, inner, powers, d))
        sums = powers
    else:
        steps.append(_inner(node, g, out, inner, d))

    def common(x):
        x.matrix("q", q)
        x.matrix("k", k)
        x.matrix("v", v)
        x.matrix("g", g)
        x.rows("sums", sums)
        x.rows("inner", inner)

    def queries(x):
        common(x)
        x.matrix("out", gq, True, "o_step")

    def keys(x):
        common(x)
        x.matrix("out", gk, True, "o_step")
        x.matrix("out2", gv, True, "o2_step")

    if grouped:
        steps.append(_group_kernel("attention_backward_q", "queries", node, q, k, mask, d, q.shape[2], queries))
        steps.append(_group_kernel("attention_backward_kv", "keys", node, q, k, mask, d, k.shape[2], keys))
        return steps
    steps.append(_kernel("attention_backward_q", node, op, q, k, d, q.shape[2], _QUERIES, queries))
    steps.append(_kernel("attention_backward_kv", node, op, q, k, d, k.shape[2], _KEYS, keys))
    return steps


def attention_backward_packed(fusion, step, contiguous) -> list:
    """All three gradients into one matrix (B, T, 3, H, D)."""
    (out,) = step.outputs
    b, t, _, h, d = out.shape
    by_b, by_t, by_part, by_h, by_d = out.strides
    step.outputs = [memory.view(out, (b, h, t, d), (by_b, by_h, by_t, by_d), by_part * part) for part in range(3)]
    return attention_backward(fusion, step, contiguous)


def _inner(node, g: Buffer, out: Buffer, inner: Buffer, d: int):
    """inner[row] = sum of g * out along the row; a warp per row."""
    t = Text("attention_inner", node, (32, 8))
    rows = product(inner.shape)
    pg, po, pi = t.pointer(g), t.pointer(out), t.pointer(inner, True)
    names = ["b", "h", "r"]
    body = f"""const i64 row = (i64)blockIdx.x * 8 + threadIdx.y;
if (row >= {t.dim(rows)}) return;
{t.digits("row", inner.shape, names)}
const i64 at = {t.offset(g, names)}, to = {t.offset(out, names)};
float s = 0;
for (int k = threadIdx.x; k < {d}; k += 32) s += widen({pg}[at + k]) * widen({po}[to + k]);
s = over_warp<Sum>(s);
if (threadIdx.x == 0) {pi}[row] = s;"""
    return t.step(body, ceildiv(rows, 8))


def _readable(buffers: list[Buffer], contiguous) -> tuple[list, list[Buffer]]:
    """Operands with rows that can be fetched 16 bytes at a time: themselves, or copies."""
    steps, made = [], []
    for b in buffers:
        if not _aligned(b):
            dense = allocate(b.dtype, b.shape)
            steps.append(contiguous(b, dense))
            b = dense
        made.append(b)
    return steps, made
