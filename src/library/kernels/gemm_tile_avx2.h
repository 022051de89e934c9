// The loop of a 6x16 tile of float32 in assembly, for AVX2 with its 16 registers.
//
// Compilers run out of registers where they unroll it, and kept rolled it has a fifth more instructions. Alone on a
// core that costs 1 % (101.2 instead of 100.1 GFLOP/s on Zen 3); beside another thread of the core, which takes part of
// what it can begin in a cycle, 10 to 17 %. The multiplications and their order are the same.
#pragma once
#include "library/kernels/vector.h"

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__) && defined(__x86_64__)
#define TANDEM_TILE_AVX2 1

namespace tandem::library::TANDEM_ISA {

// sum[i][j] = rows of a times columns of b, over 8 * count steps, which a and b are moved on by. `line`, where memory
// is asked for, goes on to `last` in steps.
inline __attribute__((always_inline)) void six_rows(int64_t count, const float*& a, const float*& b,
                                                    VectorOf<float, 8>::type (&sum)[6][2], const char* line,
                                                    const char* last, int64_t step) {
  using Vector = VectorOf<float, 8>::type;
  Vector right0, right1, left;
  const char* next;
#define TANDEM_ROW(I, A)                                                        \
  "vbroadcastss " #A "(%[a]), %[left]\n vfmadd231ps %[left], %[right0], %[s" #I \
  "0]\n vfmadd231ps %[left], "                                                  \
  "%[right1], %[s" #I "1]\n "
#define TANDEM_STEP(B0, B1, A0, A1, A2, A3, A4, A5)                                                            \
  "vmovups " #B0 "(%[b]), %[right0]\n vmovups " #B1 "(%[b]), %[right1]\n " TANDEM_ROW(0, A0) TANDEM_ROW(1, A1) \
      TANDEM_ROW(2, A2) TANDEM_ROW(3, A3) TANDEM_ROW(4, A4) TANDEM_ROW(5, A5)
#define TANDEM_ZERO(I) "vxorps %[s" #I "], %[s" #I "], %[s" #I "]\n "
  asm volatile(TANDEM_ZERO(00) TANDEM_ZERO(01) TANDEM_ZERO(10) TANDEM_ZERO(11) TANDEM_ZERO(20) TANDEM_ZERO(21)
                   TANDEM_ZERO(30) TANDEM_ZERO(31) TANDEM_ZERO(40) TANDEM_ZERO(41) TANDEM_ZERO(50) TANDEM_ZERO(51)
               "test %[count], %[count]\n jz 2f\n .p2align 5\n 1:\n "
               "prefetcht1 (%[line])\n lea (%[line],%[step]), %[next]\n cmp %[last], %[line]\n "
               "cmovb %[next], %[line]\n " TANDEM_STEP(0, 32, 0, 4, 8, 12, 16, 20)
                   TANDEM_STEP(64, 96, 24, 28, 32, 36, 40, 44) TANDEM_STEP(128, 160, 48, 52, 56, 60, 64, 68)
                       TANDEM_STEP(192, 224, 72, 76, 80, 84, 88, 92) TANDEM_STEP(256, 288, 96, 100, 104, 108, 112, 116)
                           TANDEM_STEP(320, 352, 120, 124, 128, 132, 136, 140)
                               TANDEM_STEP(384, 416, 144, 148, 152, 156, 160, 164)
                                   TANDEM_STEP(448, 480, 168, 172, 176, 180, 184, 188)
               "add $192, %[a]\n add $512, %[b]\n dec %[count]\n jnz 1b\n 2:\n"
               : [s00] "=&x"(sum[0][0]), [s01] "=&x"(sum[0][1]), [s10] "=&x"(sum[1][0]), [s11] "=&x"(sum[1][1]),
                 [s20] "=&x"(sum[2][0]), [s21] "=&x"(sum[2][1]), [s30] "=&x"(sum[3][0]), [s31] "=&x"(sum[3][1]),
                 [s40] "=&x"(sum[4][0]), [s41] "=&x"(sum[4][1]), [s50] "=&x"(sum[5][0]), [s51] "=&x"(sum[5][1]),
                 [right0] "=&x"(right0), [right1] "=&x"(right1), [left] "=&x"(left), [next] "=&r"(next), [a] "+r"(a),
                 [b] "+r"(b), [line] "+r"(line), [count] "+r"(count)
               : [last] "r"(last), [step] "r"(step)
               : "cc", "memory");
#undef TANDEM_ROW
#undef TANDEM_STEP
#undef TANDEM_ZERO
}

}  // namespace tandem::library::TANDEM_ISA
#endif
