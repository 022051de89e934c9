// Square blocks of 4-byte elements turned over in registers.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

// Pairs of elements, pairs of pairs, and (of 8) halves of two vectors side by side, in each half of a vector by itself:
// what the machine does in one instruction each.
#if TANDEM_VECTOR_BYTES >= 32
constexpr int kTurn = 8;
using TurnVector = VectorOf<uint32_t, 8>::type;
inline __attribute__((always_inline)) void turn(TurnVector (&a)[8]) {
  TurnVector t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      u[i + 2 * k] = __builtin_shufflevector(t[i + k], t[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      u[i + 2 * k + 1] = __builtin_shufflevector(t[i + k], t[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    a[i] = __builtin_shufflevector(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    a[i + 4] = __builtin_shufflevector(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
#else
constexpr int kTurn = 4;
using TurnVector = VectorOf<uint32_t, 4>::type;
inline __attribute__((always_inline)) void turn(TurnVector (&a)[4]) {
  TurnVector t[4];
  for (int i = 0; i < 4; i += 2) {
    t[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 4, 1, 5);
    t[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 6, 3, 7);
  }
  for (int k = 0; k < 2; ++k) {
    a[2 * k] = __builtin_shufflevector(t[k], t[k + 2], 0, 1, 4, 5);
    a[2 * k + 1] = __builtin_shufflevector(t[k], t[k + 2], 2, 3, 6, 7);
  }
}
#endif

// Planes of an image side by side, position by position.
template <int C>
void interleave(const uint32_t* __restrict from, int64_t from_row, uint32_t* __restrict to, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) to[r * C + c] = from[c * from_row + r];
}

// to[r * to_row + c] = from[c * from_row + r], for r < rows and c < columns.
inline void transpose_u32(const uint32_t* from, int64_t from_row, uint32_t* to, int64_t to_row, int64_t rows,
                          int64_t columns) {
  if (to_row == columns && columns == 2) return interleave<2>(from, from_row, to, rows);
  if (to_row == columns && columns == 3) return interleave<3>(from, from_row, to, rows);
  if (to_row == columns && columns == 4) return interleave<4>(from, from_row, to, rows);
  int64_t r = 0;
  for (; r + kTurn <= rows; r += kTurn) {
    int64_t c = 0;
    for (; c + kTurn <= columns; c += kTurn) {
      TurnVector block[kTurn];
#pragma GCC unroll 8
      for (int i = 0; i < kTurn; ++i) block[i] = load<uint32_t, kTurn>(from + (c + i) * from_row + r);
      turn(block);
#pragma GCC unroll 8
      for (int i = 0; i < kTurn; ++i) store<uint32_t, kTurn>(to + (r + i) * to_row + c, block[i]);
    }
    for (; c < columns; ++c)
      for (int64_t i = r; i < r + kTurn; ++i) to[i * to_row + c] = from[c * from_row + i];
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[r * to_row + c] = from[c * from_row + r];
}

}  // namespace tandem::library::TANDEM_ISA
