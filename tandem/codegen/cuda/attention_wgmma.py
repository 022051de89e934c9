"""Sources of attention for devices of compute capability 9.0, whose tensor cores work for groups of four warps.

Note [Attention by groups of warps]
A block of GROUPS groups of four warps owns 64 rows per group (queries forward and for dQ, keys for dK and dV), which stay in
shared memory, and streams tiles of 64 of the other side through a ring of STAGES places. Products are wgmma instructions of
64 x 64 x 16: scores take both operands from shared memory; what follows takes probabilities from the registers in which the
scores came, and tiles as they lie or transposed, by the same descriptor.

Groups of one block are never in step: while one computes exponentials, another multiplies. So there is no barrier for the whole
block in the loop; each place of the ring has two counters in shared memory (mbarrier): `full`, when what all threads copied has
arrived, and `empty`, when all warps are done with it. A group starts the scores of the next tile together with the products of
this one, and waits for both together. A place is filled again when all are done with the tile before the last, so that a group may
be a tile ahead.

Every sum has one owner and a fixed order: backward computes the scores twice, once for dQ and once for dK and dV, and results do
not change from run to run. Probabilities are powers of two; the factor log2(e) is folded into the scale.

Tiles have rows of 64 elements, 128 bytes, in panels of 64 rows; 16-byte pieces of row r are permuted by r % 8 (the swizzle of
128 bytes that wgmma undoes), so that neither copies nor products meet conflicts. Heads whose size is no multiple of 64 are
filled up with zeros.
"""

from __future__ import annotations

_REGISTERS = ",".join(f"%{i}" for i in range(32))
_SUMS = ", ".join(f'"+f"(c[{i}])' for i in range(32))

# What only the device has: memory in other spaces, counters, tensor cores. SUFFIX is bf16 or f16.
PRIMITIVES = (
    (
        """\
DEVICE u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return ((u32)__cvta_generic_to_shared(memory) + 1023u) & ~1023u;
}
DEVICE void copy16(u32 to, const void* from, bool on) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(on ? 16 : 0) : "memory");
}
DEVICE void copy4(u32 to, const void* from, bool on) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(from), "r"(on ? 4 : 0) : "memory");
}
DEVICE void store16(u32 to, const u32 (&w)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" :: "r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
DEVICE void store4(u32 to, float x) { asm volatile("st.shared.f32 [%0], %1;" :: "r"(to), "f"(x) : "memory"); }
DEVICE float2 load8(u32 from) {
  float2 y; asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(y.x), "=f"(y.y) : "r"(from) : "memory"); return y;
}
DEVICE void counter_init(u32 at, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at), "r"(count) : "memory");
}
DEVICE void arrive(u32 at) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at) : "memory"); }
DEVICE void arrive_after_copies(u32 at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at) : "memory");
}
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
DEVICE void wait_for(u32 at, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(at), "r"(parity) : "memory");
}
// What was written to shared memory becomes visible to tensor cores.
DEVICE void fence_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void group_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
DEVICE void group_wait_but_one() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }
DEVICE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
// Values that a product just finished are not looked at before it has.
DEVICE void settle(float (&c)[32]) { asm volatile("" : SUMS :: "memory"); }
// Rows of 128 bytes, permuted; groups of 8 rows lie 1024 bytes apart, in either direction.
DEVICE u64 describe(u32 at) { return 0x4000004000400000ull | (at & 0x3ffffu) >> 4; }
// c (64 x 64) = or += a b^T of 16 columns
DEVICE void multiply(float (&c)[32], u32 a, u32 b, int add) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.SUFFIX.SUFFIX "
               "{REGISTERS}, %32, %33, p, 1, 1, 0, 0; }"
               : SUMS : "l"(describe(a)), "l"(describe(b)), "r"(add));
}
// c (64 x 64) += p b of 16 rows of b
DEVICE void multiply_rows(float (&c)[32], const u32 (&p)[4], u32 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.SUFFIX.SUFFIX {REGISTERS}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
               : SUMS : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(describe(b)));
}
DEVICE u32 pack(float low, float high) {
  u32 y; asm("cvt.rn.SUFFIXx2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y;
}
DEVICE float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
"""
    )
    .replace("REGISTERS", _REGISTERS)
    .replace("SUMS", _SUMS)
)

HELPERS = """\
#define PANELS (DP / 64)
#define THREADS (128 * GROUPS)
#define BYTES (128 * DP)  /* of a tile of 64 rows */
#define PANEL 8192u
#define NONE __int_as_float(0xff800000)
#define LOG2E 1.4426950408889634f
// Probabilities are exp2(POWER * x - ...), where x is a score as it came, or scaled and masked before.
#if BEFORE
#define POWER LOG2E
#else
#define POWER (SCALE * LOG2E)
#endif
// Rows [row0, row0 + 64) of a matrix with D columns into a tile; what is outside is zeros.
DEVICE void fetch(u32 to, const T* from, i64 stride, i64 row0, i64 rows, bool odd) {
#pragma unroll
  for (int first = 0; first < 8 * DP; first += THREADS) {
    const int c = first + threadIdx.x;
    if (8 * DP % THREADS != 0 && c >= 8 * DP) break;
    const int r = c / (DP / 8), k = c % (DP / 8);
    const bool on = row0 + r < rows && (D == DP || k * 8 < D);
    const T* p = on ? from + (row0 + r) * stride + k * 8 : from;
    const u32 place = to + (k >> 3) * PANEL + r * 128 + ((k ^ r) & 7) * 16;
    if (odd) {
      u32 w[4];
      for (int e = 0; e < 4; ++e) w[e] = on ? (u32)p[2 * e].bits | (u32)p[2 * e + 1].bits << 16 : 0u;
      store16(place, w);
    } else {
      copy16(place, p, on);
    }
  }
}
DEVICE void fetched(u32 counter, bool odd) {
  if (STEPWISE) { wait_for_copies(); fence_writes(); arrive(counter); return; }
  if (odd) arrive(counter); else arrive_after_copies(counter);
}
// s = a b^T, both tiles
DEVICE void scores(float (&s)[32], u32 a, u32 b) {
#pragma unroll
  for (int k = 0; k < DP / 16; ++k) {
    const u32 at = (k >> 2) * PANEL + (k & 3) * 32;
    multiply(s, a + at, b + at, k > 0);
  }
}
// c += p b
DEVICE void weigh(float (&c)[PANELS][32], const u32 (&p)[4][4], u32 b) {
#pragma unroll
  for (int panel = 0; panel < PANELS; ++panel)
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_rows(c[panel], p[k], b + panel * PANEL + k * 2048);
}
// As a product leaves 64 x 64 values is how the next takes them, 16 columns at a time.
DEVICE void pack_all(u32 (&p)[4][4], const float (&s)[32]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) p[k][e] = pack(s[8 * k + 2 * e], s[8 * k + 2 * e + 1]);
}
// The group's 64 rows of a result, each times a factor.
DEVICE void put(T* to, i64 stride, i64 row0, i64 rows, const float (&c)[PANELS][32], float f0, float f1) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const i64 r = row0 + (warp & 3) * 16 + (lane >> 2);
#pragma unroll
  for (int panel = 0; panel < PANELS; ++panel)
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int k = panel * 64 + n * 8 + (lane & 3) * 2;
      if (D != DP && k >= D) continue;
      const float* x = c[panel] + 4 * n;
      if (r < rows) *(u32*)(to + r * stride + k) = pack(x[0] * f0, x[1] * f0);
      if (r + 8 < rows) *(u32*)(to + (r + 8) * stride + k) = pack(x[2] * f1, x[3] * f1);
    }
}
// A score, scaled and masked where that is not done with the power.
DEVICE float before(float x, const MASK* mask, i64 query, i64 key, i64 query_step, i64 key_step, i64 queries, i64 keys) {
  if (BEFORE) x *= SCALE;
  if (MASKED && query < queries && key < keys) {
    const MASK m = mask[query * query_step + key * key_step];
    x = MASKED == 1 ? (allows(m) ? x : NONE) : x + number(m);
  }
  return x;
}
"""

# Where things lie in shared memory: own tiles, the ring, rows of numbers, counters.
SETUP = """\
const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = threadIdx.x >> 7;
const u32 own = shared_base(), ring = own + OWN * GROUPS * BYTES, numbers = ring + STAGES * 2 * BYTES;
const u32 full = numbers + NUMBERS * STAGES * 512, empty = full + STAGES * 8, ready = empty + STAGES * 8;
const i64 row0 = block * (64 * GROUPS), group_row0 = row0 + group * 64;
if (threadIdx.x == 0) {
  for (int s = 0; s < STAGES; ++s) { counter_init(full + s * 8, THREADS); counter_init(empty + s * 8, THREADS); }
  counter_init(ready, THREADS);
}
__syncthreads();
"""

# One turn of the loop begins with these: the products begun in the last are done, so is the tile before, and one that is two
# ahead is sent for.
TURN = """\
  group_wait();
  if (n > 0) arrive(empty + (n - 1) % STAGES * 8);
  if (n + STAGES - 2 < count) {
    const int next = n + STAGES - 2;
    if (next >= STAGES) wait_for(empty + next % STAGES * 8, (next / STAGES - 1) & 1);
    load(next);
  }
"""

START = """\
for (int n = 0; n < STAGES - 2 && n < count; ++n) load(n);
wait_for(ready, 0);
if (count > 0) wait_for(full, 0);
fence_writes();
"""

_FORWARD_START = """\
for (int g = 0; g < GROUPS; ++g) fetch(own + g * BYTES, q, q_step, row0 + g * 64, queries, (u64)q & 15);
fetched(ready, (u64)q & 15);
i64 tiles = (keys + 63) / 64;
if (CAUSAL && row0 / 64 + GROUPS < tiles) tiles = row0 / 64 + GROUPS;
const int count = (int)tiles;
const bool odd = ((u64)k | (u64)v) & 15;
auto load = [&](int n) {
  const u32 at = ring + n % STAGES * 2 * BYTES;
  fetch(at, k, k_step, n * 64ll, keys, odd); fetch(at + BYTES, v, v_step, n * 64ll, keys, odd);
  fetched(full + n % STAGES * 8, odd);
};
START
const u32 mine = own + group * BYTES;
float o[PANELS][32], s[32];
for (int x = 0; x < PANELS; ++x) for (int e = 0; e < 32; ++e) o[x][e] = 0;
float m0 = NONE, m1 = NONE, l0 = 0, l1 = 0;
for (int x = 0; x < PANELS; ++x) settle(o[x]);
"""

# Scores of a tile as they came: masked where they must be, and the largest of each row so far.
_LARGEST = """\
  const i64 key0 = n * 64ll, r = group_row0 + (warp & 3) * 16 + (lane >> 2);
  if (BEFORE || key0 + 64 > keys || (CAUSAL && key0 + 63 > group_row0)) {
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const i64 key = key0 + (e >> 2) * 8 + (lane & 3) * 2 + (e & 1), query = r + (e >> 1 & 1) * 8;
      s[e] = before(s[e], mask, query, key, mask_query_step, mask_key_step, queries, keys);
      if (key >= keys || (CAUSAL && key > query)) s[e] = NONE;
    }
  }
  float x0 = m0, x1 = m1;
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    x0 = fmaxf(x0, fmaxf(s[e], s[e + 1])); x1 = fmaxf(x1, fmaxf(s[e + 2], s[e + 3]));
  }
  x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 1)); x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 1));
  x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 2)); x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 2));
"""

# Probabilities, to be multiplied.
_PROBABILITIES = """\
#pragma unroll
  for (int x = 0; x < PANELS; ++x) settle(o[x]);
  // What was summed is brought to a larger maximum only where powers would exceed 2^8: the ratios are what counts.
  if (__any_sync(~0u, (x0 - m0) * POWER > 8.0f || (x1 - m1) * POWER > 8.0f)) {
    const float c0 = x0 == NONE ? 1.0f : exp2_fast((m0 - x0) * POWER), c1 = x1 == NONE ? 1.0f : exp2_fast((m1 - x1) * POWER);
    m0 = x0; m1 = x1; l0 *= c0; l1 *= c1;
#pragma unroll
    for (int x = 0; x < PANELS; ++x)
#pragma unroll
      for (int e = 0; e < 32; e += 4) { o[x][e] *= c0; o[x][e + 1] *= c0; o[x][e + 2] *= c1; o[x][e + 3] *= c1; }
  }
  const float z0 = m0 == NONE ? 0.0f : m0 * POWER, z1 = m1 == NONE ? 0.0f : m1 * POWER;
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    s[e] = exp2_fast(fmaf(s[e], POWER, -z0)); s[e + 1] = exp2_fast(fmaf(s[e + 1], POWER, -z0));
    s[e + 2] = exp2_fast(fmaf(s[e + 2], POWER, -z1)); s[e + 3] = exp2_fast(fmaf(s[e + 3], POWER, -z1));
    l0 += s[e] + s[e + 1]; l1 += s[e + 2] + s[e + 3];
  }
  u32 p[4][4];
  pack_all(p, s);
"""

_FORWARD_END = """\
for (int x = 0; x < PANELS; ++x) settle(o[x]);
l0 += __shfl_xor_sync(~0u, l0, 1); l0 += __shfl_xor_sync(~0u, l0, 2);
l1 += __shfl_xor_sync(~0u, l1, 1); l1 += __shfl_xor_sync(~0u, l1, 2);
put(out, o_step, group_row0, queries, o, l0 == 0 ? 0 : 1 / l0, l1 == 0 ? 0 : 1 / l1);
if ((lane & 3) == 0) {
  const i64 r = group_row0 + (warp & 3) * 16 + (lane >> 2);
  const float u = BEFORE ? 1.0f : SCALE;
  if (r < queries) sums[r] = l0 == 0 ? NONE : m0 * u + log2f(l0) * 0.6931471805599453f;
  if (r + 8 < queries) sums[r + 8] = l1 == 0 ? NONE : m1 * u + log2f(l1) * 0.6931471805599453f;
}
"""

FORWARD = (
    _FORWARD_START
    + """\
FIRST group_begin(); scores(s, mine, ring); group_end();
TURN
  settle(s);
"""
    + _LARGEST
    + _PROBABILITIES
    + """\
  const u32 here = ring + n % STAGES * 2 * BYTES, there = ring + (n + 1) % STAGES * 2 * BYTES;
  if (!LAST) { wait_for(full + (n + 1) % STAGES * 8, (n + 1) / STAGES & 1); fence_writes(); }
  group_begin();
  weigh(o, p, here + BYTES);
  if (!LAST) scores(s, mine, there);
  group_end();
  if (LAST) group_wait();
END
"""
    + _FORWARD_END
)

# The same with two sets of scores: those of the next tile are begun before the exponentials of this one, which they hide behind.
_AHEAD = """\
{
  const int n = AT;
  const u32 here = ring + n % STAGES * 2 * BYTES, there = ring + (n + 1) % STAGES * 2 * BYTES;
  if (!LAST) {
    wait_for(full + (n + 1) % STAGES * 8, (n + 1) / STAGES & 1);
    fence_writes();
    group_begin();
    scores(NEXT, mine, there);
    group_end();
  }
LARGEST
  if (LAST) group_wait(); else group_wait_but_one();
  if (n > 0) arrive(empty + (n - 1) % STAGES * 8);
  if (n + STAGES - 2 < count) {
    const int next = n + STAGES - 2;
    if (next >= STAGES) wait_for(empty + next % STAGES * 8, (next / STAGES - 1) & 1);
    load(next);
  }
PROBABILITIES
  group_begin();
  weigh(o, p, here + BYTES);
  group_end();
  if (LAST) group_wait(); else { group_wait_but_one(); settle(NEXT); }
}
"""


def _ahead(at: str, last: bool, here: str, there: str) -> str:
    text = _AHEAD.replace("LARGEST\n", _LARGEST).replace("PROBABILITIES\n", _PROBABILITIES)
    text = text.replace("AT;", at + ";").replace("LAST", str(int(last))).replace("NEXT", there)
    return text if here == "s" else text.replace("s[e", f"{here}[e").replace("pack_all(p, s)", f"pack_all(p, {here})")


FORWARD_AHEAD = f"""\
{_FORWARD_START}float t[32];
if (count > 0) {{
  group_begin(); scores(s, mine, ring); group_end(); group_wait(); settle(s);
  int i = 0;
  for (; i + 2 < count; i += 2) {{
{_ahead("i", False, "s", "t")}{_ahead("i + 1", False, "t", "s")}
  }}
  if (i + 1 == count) {_ahead("i", True, "s", "t")}
  else {{
{_ahead("i", False, "s", "t")}{_ahead("i + 1", True, "t", "s")}
  }}
}}
{_FORWARD_END}"""

# dQ: rows are queries; keys and values stream by. `sums` and `inner` are as `rows` made them.
QUERIES = """\
const bool odd_own = ((u64)q | (u64)g) & 15, odd = ((u64)k | (u64)v) & 15;
for (int i = 0; i < GROUPS; ++i) {
  fetch(own + i * BYTES, q, q_step, row0 + i * 64, queries, odd_own);
  fetch(own + (GROUPS + i) * BYTES, g, g_step, row0 + i * 64, queries, odd_own);
}
fetched(ready, odd_own);
i64 tiles = (keys + 63) / 64;
if (CAUSAL && row0 / 64 + GROUPS < tiles) tiles = row0 / 64 + GROUPS;
const int count = (int)tiles;
auto load = [&](int n) {
  const u32 at = ring + n % STAGES * 2 * BYTES;
  fetch(at, k, k_step, n * 64ll, keys, odd); fetch(at + BYTES, v, v_step, n * 64ll, keys, odd);
  fetched(full + n % STAGES * 8, odd);
};
START
const i64 r = group_row0 + (warp & 3) * 16 + (lane >> 2);
const float a0 = r < queries ? sums[r] : 0, a1 = r + 8 < queries ? sums[r + 8] : 0;
const float d0 = r < queries ? inner[r] : 0, d1 = r + 8 < queries ? inner[r + 8] : 0;
const u32 mine = own + group * BYTES, mine_g = own + (GROUPS + group) * BYTES;
float dq[PANELS][32], s[32], t[32];
for (int x = 0; x < PANELS; ++x) for (int e = 0; e < 32; ++e) dq[x][e] = 0;
for (int x = 0; x < PANELS; ++x) settle(dq[x]);
FIRST group_begin(); scores(s, mine, ring); scores(t, mine_g, ring + BYTES); group_end();
TURN
  settle(s); settle(t);
  const i64 key0 = n * 64ll;
  if (BEFORE || key0 + 64 > keys || (CAUSAL && key0 + 63 > group_row0)) {
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const i64 key = key0 + (e >> 2) * 8 + (lane & 3) * 2 + (e & 1), query = r + (e >> 1 & 1) * 8;
      s[e] = before(s[e], mask, query, key, mask_query_step, mask_key_step, queries, keys);
      if (key >= keys || (CAUSAL && key > query)) s[e] = NONE;
    }
  }
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    t[e] = exp2_fast(fmaf(s[e], POWER, -a0)) * (t[e] - d0); t[e + 1] = exp2_fast(fmaf(s[e + 1], POWER, -a0)) * (t[e + 1] - d0);
    t[e + 2] = exp2_fast(fmaf(s[e + 2], POWER, -a1)) * (t[e + 2] - d1);
    t[e + 3] = exp2_fast(fmaf(s[e + 3], POWER, -a1)) * (t[e + 3] - d1);
  }
  u32 p[4][4];
  pack_all(p, t);
  const u32 here = ring + n % STAGES * 2 * BYTES, there = ring + (n + 1) % STAGES * 2 * BYTES;
  if (!LAST) { wait_for(full + (n + 1) % STAGES * 8, (n + 1) / STAGES & 1); fence_writes(); }
  group_begin();
  weigh(dq, p, here);
  if (!LAST) { scores(s, mine, there); scores(t, mine_g, there + BYTES); }
  group_end();
  if (LAST) group_wait();
END
for (int x = 0; x < PANELS; ++x) settle(dq[x]);
put(out, o_step, group_row0, queries, dq, SCALE, SCALE);
"""

# dK, dV: rows are keys; queries and incoming gradients stream by, and with them a number of each row of both kinds.
KEYS = """\
const bool odd_own = ((u64)k | (u64)v) & 15, odd = ((u64)q | (u64)g) & 15;
for (int i = 0; i < GROUPS; ++i) {
  fetch(own + i * BYTES, k, k_step, row0 + i * 64, keys, odd_own);
  fetch(own + (GROUPS + i) * BYTES, v, v_step, row0 + i * 64, keys, odd_own);
}
fetched(ready, odd_own);
const i64 tiles = (queries + 63) / 64, first = CAUSAL ? row0 / 64 : 0;
const int count = tiles > first ? (int)(tiles - first) : 0;
auto load = [&](int n) {
  const u32 at = ring + n % STAGES * 2 * BYTES;
  const i64 from = (first + n) * 64;
  fetch(at, q, q_step, from, queries, odd); fetch(at + BYTES, g, g_step, from, queries, odd);
  if (threadIdx.x < 128) {
    const i64 row = from + (threadIdx.x & 63);
    const float* p = (threadIdx.x < 64 ? sums : inner) + (row < queries ? row : 0);
    const u32 to = numbers + n % STAGES * 512 + threadIdx.x * 4;
    if (odd) store4(to, row < queries ? *p : 0.0f); else copy4(to, p, row < queries);
  }
  fetched(full + n % STAGES * 8, odd);
};
START
const i64 r = group_row0 + (warp & 3) * 16 + (lane >> 2);
const u32 mine = own + group * BYTES, mine_v = own + (GROUPS + group) * BYTES;
float dk[PANELS][32], dv[PANELS][32], s[32], t[32];
for (int x = 0; x < PANELS; ++x) for (int e = 0; e < 32; ++e) dk[x][e] = dv[x][e] = 0;
for (int x = 0; x < PANELS; ++x) { settle(dk[x]); settle(dv[x]); }
FIRST group_begin(); scores(s, mine, ring); scores(t, mine_v, ring + BYTES); group_end();
TURN
  settle(s); settle(t);
  const i64 query0 = (first + n) * 64;
  if (BEFORE || (CAUSAL && query0 < group_row0 + 63)) {
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const i64 query = query0 + (e >> 2) * 8 + (lane & 3) * 2 + (e & 1), key = r + (e >> 1 & 1) * 8;
      s[e] = before(s[e], mask, query, key, mask_query_step, mask_key_step, queries, keys);
      if (CAUSAL && key > query) s[e] = NONE;
    }
  }
  u32 p[4][4], w[4][4];
  const u32 row_at = numbers + n % STAGES * 512 + (lane & 3) * 8;
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    const float2 a = load8(row_at + e * 8), d = load8(row_at + e * 8 + 256);
    s[e] = exp2_fast(fmaf(s[e], POWER, -a.x)); s[e + 1] = exp2_fast(fmaf(s[e + 1], POWER, -a.y));
    s[e + 2] = exp2_fast(fmaf(s[e + 2], POWER, -a.x)); s[e + 3] = exp2_fast(fmaf(s[e + 3], POWER, -a.y));
    t[e] = s[e] * (t[e] - d.x); t[e + 1] = s[e + 1] * (t[e + 1] - d.y);
    t[e + 2] = s[e + 2] * (t[e + 2] - d.x); t[e + 3] = s[e + 3] * (t[e + 3] - d.y);
  }
  pack_all(p, s);
  pack_all(w, t);
  const u32 here = ring + n % STAGES * 2 * BYTES, there = ring + (n + 1) % STAGES * 2 * BYTES;
  if (!LAST) { wait_for(full + (n + 1) % STAGES * 8, (n + 1) / STAGES & 1); fence_writes(); }
  group_begin();
  weigh(dv, p, here + BYTES);
  weigh(dk, w, here);
  if (!LAST) { scores(s, mine, there); scores(t, mine_v, there + BYTES); }
  group_end();
  if (LAST) group_wait();
END
for (int x = 0; x < PANELS; ++x) { settle(dk[x]); settle(dv[x]); }
put(out, o_step, group_row0, keys, dk, SCALE, SCALE);
put(out2, o2_step, group_row0, keys, dv, 1, 1);
"""

# Backward with two sets of scores: those of the next tile are begun before the exponentials of this one, which hide behind them and
# behind the products of the tile before. AT, LAST, SCORES and NEXT as in _AHEAD.
_AHEAD_BACKWARD = """\
{
  const int n = AT;
  const u32 here = ring + n % STAGES * 2 * BYTES, there = ring + (n + 1) % STAGES * 2 * BYTES;
  if (!LAST) {
    wait_for(full + (n + 1) % STAGES * 8, (n + 1) / STAGES & 1);
    fence_writes();
    group_begin();
    scores(NEXT, mine, there);
    group_end();
  }
POWERS
  if (LAST) group_wait(); else group_wait_but_one();
  settle(t);
  if (n > 0) arrive(empty + (n - 1) % STAGES * 8);
  if (n + STAGES - 2 < count) {
    const int next = n + STAGES - 2;
    if (next >= STAGES) wait_for(empty + next % STAGES * 8, (next / STAGES - 1) & 1);
    load(next);
  }
PRODUCTS
  if (!LAST) scores(t, OTHER, there + BYTES);
  group_end();
  if (LAST) group_wait(); else { group_wait_but_one(); settle(NEXT); }
}
"""

_QUERY_POWERS = """\
  const i64 key0 = n * 64ll;
  if (BEFORE || key0 + 64 > keys || (CAUSAL && key0 + 63 > group_row0)) {
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const i64 key = key0 + (e >> 2) * 8 + (lane & 3) * 2 + (e & 1), query = r + (e >> 1 & 1) * 8;
      s[e] = before(s[e], mask, query, key, mask_query_step, mask_key_step, queries, keys);
      if (key >= keys || (CAUSAL && key > query)) s[e] = NONE;
    }
  }
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    s[e] = exp2_fast(fmaf(s[e], POWER, -a0)); s[e + 1] = exp2_fast(fmaf(s[e + 1], POWER, -a0));
    s[e + 2] = exp2_fast(fmaf(s[e + 2], POWER, -a1)); s[e + 3] = exp2_fast(fmaf(s[e + 3], POWER, -a1));
  }
"""
_QUERY_PRODUCTS = """\
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    s[e] *= t[e] - d0; s[e + 1] *= t[e + 1] - d0; s[e + 2] *= t[e + 2] - d1; s[e + 3] *= t[e + 3] - d1;
  }
  u32 p[4][4];
  pack_all(p, s);
  group_begin();
  weigh(dq, p, here);
"""
_KEY_POWERS = """\
  const i64 query0 = (first + n) * 64;
  if (BEFORE || (CAUSAL && query0 < group_row0 + 63)) {
#pragma unroll
    for (int e = 0; e < 32; ++e) {
      const i64 query = query0 + (e >> 2) * 8 + (lane & 3) * 2 + (e & 1), key = r + (e >> 1 & 1) * 8;
      s[e] = before(s[e], mask, query, key, mask_query_step, mask_key_step, queries, keys);
      if (CAUSAL && key > query) s[e] = NONE;
    }
  }
  const u32 row_at = numbers + n % STAGES * 512 + (lane & 3) * 8;
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    const float2 a = load8(row_at + e * 8);
    s[e] = exp2_fast(fmaf(s[e], POWER, -a.x)); s[e + 1] = exp2_fast(fmaf(s[e + 1], POWER, -a.y));
    s[e + 2] = exp2_fast(fmaf(s[e + 2], POWER, -a.x)); s[e + 3] = exp2_fast(fmaf(s[e + 3], POWER, -a.y));
  }
"""
_KEY_PRODUCTS = """\
  u32 p[4][4], w[4][4];
  pack_all(p, s);
#pragma unroll
  for (int e = 0; e < 32; e += 4) {
    const float2 d = load8(row_at + e * 8 + 256);
    s[e] *= t[e] - d.x; s[e + 1] *= t[e + 1] - d.y; s[e + 2] *= t[e + 2] - d.x; s[e + 3] *= t[e + 3] - d.y;
  }
  pack_all(w, s);
  group_begin();
  weigh(dv, p, here + BYTES);
  weigh(dk, w, here);
"""


def _ahead_backward(text: str, other: str, powers: str, products: str) -> str:
    """The loop of QUERIES or KEYS in this form."""
    start, _, rest = text.partition("FIRST ")
    end = rest.partition("END\n")[2]

    def turn(at: str, last: bool, here: str, there: str) -> str:
        made = _AHEAD_BACKWARD.replace("POWERS\n", powers).replace("PRODUCTS\n", products).replace("OTHER", other)
        made = made.replace("AT;", at + ";").replace("LAST", str(int(last))).replace("NEXT", there)
        return made if here == "s" else made.replace("s[e", f"{here}[e").replace(", s);", f", {here});")

    return f"""\
{start.replace("s[32], t[32];", "s[32], t[32], u[32];")}if (count > 0) {{
  group_begin(); scores(s, mine, ring); group_end(); group_begin(); scores(t, {other}, ring + BYTES); group_end();
  group_wait_but_one(); settle(s);
  int i = 0;
  for (; i + 2 < count; i += 2) {{
{turn("i", False, "s", "u")}{turn("i + 1", False, "u", "s")}
  }}
  if (i + 1 == count) {turn("i", True, "s", "u")}
  else {{
{turn("i", False, "s", "u")}{turn("i + 1", True, "u", "s")}
  }}
}}
{end}"""


def _body(text: str) -> str:
    """With the turn for the last tile, which begins no other scores, written out behind the loop: products whose registers have two
    histories would be made to wait for one another."""
    text = text.replace("START\n", START).replace("TURN\n", TURN)
    before, _, rest = text.partition("FIRST ")
    first, _, rest = rest.partition("\n")
    turn, _, after = rest.partition("END\n")
    loop = f"for (int n = 0; n + 1 < count; ++n) {{\n{turn.replace('LAST', '0')}}}\n"
    last = f"{{ const int n = count - 1;\n{turn.replace('LAST', '1')}}}\n"
    return f"{SETUP}{before}if (count > 0) {{\n{first}\n{loop}{last}}}\n{after}"


BODIES = {
    "forward": _body(FORWARD),
    "forward ahead": SETUP + FORWARD_AHEAD.replace("START\n", START),
    "queries": _body(QUERIES),
    "queries ahead": SETUP
    + _ahead_backward(QUERIES, "mine_g", _QUERY_POWERS, _QUERY_PRODUCTS).replace("START\n", START),
    "keys": _body(KEYS),
    "keys ahead": SETUP + _ahead_backward(KEYS, "mine_v", _KEY_POWERS, _KEY_PRODUCTS).replace("START\n", START),
}
