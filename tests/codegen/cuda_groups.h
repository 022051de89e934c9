// Runs kernels for groups of warps on the CPU, for tests: tensor cores are loops that read
// shared memory by their descriptors, as the PTX manual has them; copies arrive at once. bfloat16 only.
#include <cmath>
#include <cstdint>
#include <cstring>
#include "cuda_fibers.h"
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct float2 {
  float x, y;
};
#define DEVICE static inline
static int __any_sync(unsigned, bool b) {
  float x = b;
  for (int m = 1; m < 32; m <<= 1) {
    float y = __shfl_xor_sync(~0u, x, m);
    x = x > y ? x : y;
  }
  return x != 0;
}
static float __int_as_float(u32 x) {
  float y;
  memcpy(&y, &x, 4);
  return y;
}
static float widen(bf16 x) {
  return __int_as_float((u32)x.bits << 16);
}
static u16 round_bf16(float x) {
  u32 b;
  memcpy(&b, &x, 4);
  if (x != x) return (b | 0x400000) >> 16;
  return (b + 0x7fffu + (b >> 16 & 1)) >> 16;
}
static i64 udiv(i64 x, i64 y) {
  return x / y;
}
alignas(1024) static unsigned char smem[1 << 18];
static u32 shared_base() {
  return 0;
}
static void copy16(u32 to, const void* from, bool on) {
  if (on)
    memcpy(smem + to, from, 16);
  else
    memset(smem + to, 0, 16);
}
static void copy4(u32 to, const void* from, bool on) {
  if (on)
    memcpy(smem + to, from, 4);
  else
    memset(smem + to, 0, 4);
}
static void store16(u32 to, const u32 (&w)[4]) {
  memcpy(smem + to, w, 16);
}
static void store4(u32 to, float x) {
  memcpy(smem + to, &x, 4);
}
static float2 load8(u32 from) {
  float2 y;
  memcpy(&y, smem + from, 8);
  return y;
}
struct Counter {
  int expected, pending;
  u32 phase;
};
static void counter_init(u32 at, int count) {
  u16 w[4] = {(u16)count, (u16)count, 0, 0};
  memcpy(smem + at, w, 8);
}
static void arrive(u32 at) {
  u16 w[4];
  memcpy(w, smem + at, 8);
  if (--w[1] == 0) {
    w[1] = w[0];
    w[2] ^= 1;
  }
  memcpy(smem + at, w, 8);
}
static void arrive_after_copies(u32 at) {
  arrive(at);
}
static void wait_for_copies() {}
static void wait_for(u32 at, u32 parity) {
  for (;;) {
    u16 w[4];
    memcpy(w, smem + at, 8);
    if (w[2] != parity) return;
    yield();
  }
}
static void fence_writes() {}
static void group_begin() {}
static void group_end() {}
static void group_wait_but_one() {
  group_barrier[current / 128].sync(128);
}
static void group_wait() {
  group_barrier[current / 128].sync(128);
}
static void settle(float (&)[32]) {}
static u64 describe(u32 at) {
  return 0x4000004000400000ull | (at & 0x3ffffu) >> 4;
}
// ---- wgmma by descriptors, as the PTX manual has them
static float element(u64 desc, bool transposed, int row, int k) {  // row along M/N (64), k along K (16)
  u32 start = (u32)(desc & 0x3fff) << 4, lbo = (u32)(desc >> 16 & 0x3fff) << 4, sbo = (u32)(desc >> 32 & 0x3fff) << 4;
  u32 a;
  if (!transposed)
    a = start + (row / 8) * sbo + (row % 8) * 128 + k * 2;  // K-major
  else
    a = start + (k / 8) * sbo + (k % 8) * 128 + (row / 64) * lbo + (row % 64) * 2;  // MN-major
  a ^= (a >> 7 & 7) << 4;  // swizzle of 128 bytes, on addresses
  bf16 x;
  memcpy(&x, smem + a, 2);
  return widen(x);
}
static float* accs[1024];
static const u32* frags[1024];
static u64 descs[1024][2];
static void run_group(int g, bool from_registers, bool trans, bool add) {
  static float A[64][16], B[64][16];
  for (int r = 0; r < 64; ++r)
    for (int k = 0; k < 16; ++k) {
      if (!from_registers)
        A[r][k] = element(descs[g * 128][0], false, r, k);
      else {
        int warp = r / 16, rr = r % 16, lane = (rr % 8) * 4 + (k % 8) / 2, reg = (rr / 8) + (k / 8) * 2;
        u32 w = frags[g * 128 + warp * 32 + lane][reg];
        bf16 x{(u16)(k & 1 ? w >> 16 : w)};
        A[r][k] = widen(x);
      }
      B[r][k] = element(descs[g * 128][1], trans, r, k);
    }
  for (int r = 0; r < 64; ++r)
    for (int c = 0; c < 64; ++c) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += A[r][k] * B[c][k];
      int warp = r / 16, rr = r % 16, lane = (rr % 8) * 4 + (c % 8) / 2, reg = (c / 8) * 4 + (rr / 8) * 2 + (c & 1);
      float& d = accs[g * 128 + warp * 32 + lane][reg];
      d = add ? d + sum : sum;
    }
}
static void multiply(float (&c)[32], u32 a, u32 b, int add) {
  int me = current, g = me / 128;
  accs[me] = c;
  descs[me][0] = describe(a);
  descs[me][1] = describe(b);
  group_barrier[g].sync(128);
  if (me % 128 == 0) run_group(g, false, false, add);
  group_barrier[g].sync(128);
}
static void multiply_rows(float (&c)[32], const u32 (&p)[4], u32 b) {
  int me = current, g = me / 128;
  accs[me] = c;
  frags[me] = p;
  descs[me][1] = describe(b);
  group_barrier[g].sync(128);
  if (me % 128 == 0) run_group(g, true, true, true);
  group_barrier[g].sync(128);
}
static u32 pack(float low, float high) {
  return round_bf16(low) | (u32)round_bf16(high) << 16;
}
static float exp2_fast(float x) {
  return exp2f(x);
}
struct uint4 {
  u32 x, y, z, w;
};
