// The loop of a 6x16 tile of float32 in assembly, for AVX2 with its 16 registers.
//
// Compilers run out of registers where they unroll it, and kept rolled it has a fifth more instructions. Alone on a
// core that costs 1 % (101.2 instead of 100.1 GFLOP/s on Zen 3); beside another thread of the core, which takes part of
// what it can begin in a cycle, 10 to 17 %. The multiplications and their order are the same.
#pragma once
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

// How the left side of a tile lies: the elements of a step side by side, or rows as they are in a matrix.
enum class Left { kPacked, kRows };

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__) && defined(__x86_64__)
#define TANDEM_TILE_AVX2 1

// sum[i][j] = rows of a times columns of b, over 8 * count steps, which a and b are moved on by. Rows of a lie
// `stride` bytes apart where it is not packed. `line`, where memory is asked for, goes on to `last` in steps.
template <Left LEFT>
inline __attribute__((always_inline)) void six_rows(int64_t count, const float*& a, int64_t stride, const float*& b,
                                                    VectorOf<float, 8>::type (&sum)[6][2], const char* line,
                                                    const char* last, int64_t step) {
  VectorOf<float, 8>::type right0, right1, left;
  const char *next, *fourth = reinterpret_cast<const char*>(a) + 3 * stride;
#define TANDEM_ROW(I, A)                                                                                               \
  "vbroadcastss " A ", %[left]\n vfmadd231ps %[left], %[right0], %[s" #I "0]\n vfmadd231ps %[left], %[right1], %[s" #I \
  "1]\n "
#define TANDEM_STEP(B0, B1, A0, A1, A2, A3, A4, A5)                                                            \
  "vmovups " #B0 "(%[b]), %[right0]\n vmovups " #B1 "(%[b]), %[right1]\n " TANDEM_ROW(0, A0) TANDEM_ROW(1, A1) \
      TANDEM_ROW(2, A2) TANDEM_ROW(3, A3) TANDEM_ROW(4, A4) TANDEM_ROW(5, A5)
#define TANDEM_ZERO(I) "vxorps %[s" #I "0], %[s" #I "0], %[s" #I "0]\n vxorps %[s" #I "1], %[s" #I "1], %[s" #I "1]\n "
#define TANDEM_ASK \
  "prefetcht1 (%[line])\n lea (%[line],%[step]), %[next]\n cmp %[last], %[line]\n cmovb %[next], %[line]\n "
#define TANDEM_STEPS(FIRST, SECOND, MOVE)                                                                             \
  asm volatile(TANDEM_ZERO(0) TANDEM_ZERO(1) TANDEM_ZERO(2) TANDEM_ZERO(3) TANDEM_ZERO(4) TANDEM_ZERO(                \
                   5) "test %[count], %[count]\n jz 2f\n .p2align 5\n 1:\n " TANDEM_ASK FIRST TANDEM_ASK SECOND MOVE  \
                      "add $512, %[b]\n dec %[count]\n jnz 1b\n 2:\n"                                                 \
               : [s00] "=&x"(sum[0][0]), [s01] "=&x"(sum[0][1]), [s10] "=&x"(sum[1][0]), [s11] "=&x"(sum[1][1]),      \
                 [s20] "=&x"(sum[2][0]), [s21] "=&x"(sum[2][1]), [s30] "=&x"(sum[3][0]), [s31] "=&x"(sum[3][1]),      \
                 [s40] "=&x"(sum[4][0]), [s41] "=&x"(sum[4][1]), [s50] "=&x"(sum[5][0]), [s51] "=&x"(sum[5][1]),      \
                 [right0] "=&x"(right0), [right1] "=&x"(right1), [left] "=&x"(left), [next] "=&r"(next), [a] "+r"(a), \
                 [b] "+r"(b), [line] "+r"(line), [count] "+r"(count), [fourth] "+r"(fourth)                           \
               : [last] "r"(last), [step] "r"(step), [stride] "r"(stride)                                             \
               : "cc", "memory")
  if constexpr (LEFT == Left::kPacked) {
#define TANDEM_PACKED(B0, B1, A0, A1, A2, A3, A4, A5) \
  TANDEM_STEP(B0, B1, #A0 "(%[a])", #A1 "(%[a])", #A2 "(%[a])", #A3 "(%[a])", #A4 "(%[a])", #A5 "(%[a])")
    TANDEM_STEPS(
        TANDEM_PACKED(0, 32, 0, 4, 8, 12, 16, 20) TANDEM_PACKED(64, 96, 24, 28, 32, 36, 40, 44)
            TANDEM_PACKED(128, 160, 48, 52, 56, 60, 64, 68) TANDEM_PACKED(192, 224, 72, 76, 80, 84, 88, 92),
        TANDEM_PACKED(256, 288, 96, 100, 104, 108, 112, 116) TANDEM_PACKED(320, 352, 120, 124, 128, 132, 136, 140)
            TANDEM_PACKED(384, 416, 144, 148, 152, 156, 160, 164) TANDEM_PACKED(448, 480, 168, 172, 176, 180, 184, 188),
        "add $192, %[a]\n ");
#undef TANDEM_PACKED
  } else {
#define TANDEM_ROWS(B0, B1, P)                                                                       \
  TANDEM_STEP(B0, B1, #P "(%[a])", #P "(%[a],%[stride])", #P "(%[a],%[stride],2)", #P "(%[fourth])", \
              #P "(%[fourth],%[stride])", #P "(%[fourth],%[stride],2)")
    TANDEM_STEPS(TANDEM_ROWS(0, 32, 0) TANDEM_ROWS(64, 96, 4) TANDEM_ROWS(128, 160, 8) TANDEM_ROWS(192, 224, 12),
                 TANDEM_ROWS(256, 288, 16) TANDEM_ROWS(320, 352, 20) TANDEM_ROWS(384, 416, 24)
                     TANDEM_ROWS(448, 480, 28),
                 "add $32, %[a]\n add $32, %[fourth]\n ");
#undef TANDEM_ROWS
  }
#undef TANDEM_STEPS
#undef TANDEM_ASK
#undef TANDEM_ZERO
#undef TANDEM_STEP
#undef TANDEM_ROW
}
#endif

}  // namespace tandem::library::TANDEM_ISA
