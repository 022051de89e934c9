// Panels of matrices in the order that the packed product reads them.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

// 12 (24 with AVX-512) accumulators, two vectors of b and one broadcast element of a fill the register file.
constexpr int kTileRows = TANDEM_VECTOR_BYTES == 64 ? 12 : 6;
template <typename T>
constexpr int kTileColumns = 2 * kWidth<T>;

// The first COUNT elements of a vector of 8.
template <typename T, int COUNT>
inline __attribute__((always_inline)) void store_some(T* to, const typename VectorOf<T, 8>::type& v) {
  static_assert(COUNT == 4 || COUNT == 6 || COUNT == 8);
  if constexpr (COUNT == 8) {
    store<T, 8>(to, v);
  } else {
    store<T, 4>(to, __builtin_shufflevector(v, v, 0, 1, 2, 3));
    if constexpr (COUNT == 6) store<T, 2>(to + 4, __builtin_shufflevector(v, v, 4, 5));
  }
}

// to[q * STEP + i] = from[i * row + q] for 8 values of q and ROWS <= 8 of i, by shuffling registers. Halves of vectors
// meet when they are loaded, which is cheaper than to exchange them later.
template <typename T, int ROWS, int STEP>
inline __attribute__((always_inline)) void transpose(const T* from, int64_t row, T* to) {
  using V = typename VectorOf<T, 8>::type;
#pragma GCC unroll 2
  for (int q = 0; q < 8; q += 4) {
    V r[4], t[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto upper = load<T, 4>(from + i * row + q);
      if (i + 4 < ROWS)
        r[i] = __builtin_shufflevector(upper, load<T, 4>(from + (i + 4) * row + q), 0, 1, 2, 3, 4, 5, 6, 7);
      else
        r[i] = __builtin_shufflevector(upper, upper, 0, 1, 2, 3, 0, 1, 2, 3);
    }
    t[0] = __builtin_shufflevector(r[0], r[1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[1] = __builtin_shufflevector(r[0], r[1], 2, 10, 3, 11, 6, 14, 7, 15);
    t[2] = __builtin_shufflevector(r[2], r[3], 0, 8, 1, 9, 4, 12, 5, 13);
    t[3] = __builtin_shufflevector(r[2], r[3], 2, 10, 3, 11, 6, 14, 7, 15);
#pragma GCC unroll 4
    for (int h = 0; h < 4; ++h) {
      const V v = h % 2 == 0 ? __builtin_shufflevector(t[h / 2], t[h / 2 + 2], 0, 1, 8, 9, 4, 5, 12, 13)
                             : __builtin_shufflevector(t[h / 2], t[h / 2 + 2], 2, 3, 10, 11, 6, 7, 14, 15);
      // What is stored too much is stored again, but for the last.
      if (ROWS == STEP && q + h < 7)
        store<T, 8>(to + (q + h) * STEP, v);
      else
        store_some<T, ROWS>(to + (q + h) * STEP, v);
    }
  }
}

// One panel whose rows are all there, from a matrix that is contiguous along k. Whether another one is packed next.
template <typename T, int WIDTH>
void pack_along(int64_t k, const T* panel, int64_t row, T* to, bool another) {
  int64_t p = 0;
  if constexpr (sizeof(T) == 4) {
    // 16 elements of a row at a time are a whole cache line, which may not stay if rows lie a power of two apart.
    const auto some = [&](int64_t count) __attribute__((always_inline)) {
      // Many short streams are more than the hardware looks ahead for.
      if (another)
        for (int i = 0; i < WIDTH; ++i) __builtin_prefetch(panel + (i + WIDTH) * row + p);
#pragma GCC unroll 4
      for (int i = 0; i + 8 <= WIDTH; i += 8)
        for (int64_t q = 0; q < count; q += 8)
          transpose<T, 8, WIDTH>(panel + i * row + p + q, row, to + (p + q) * WIDTH + i);
      constexpr int kRest = WIDTH % 8;
      if constexpr (kRest > 0)
        for (int64_t q = 0; q < count; q += 8)
          transpose<T, kRest, WIDTH>(panel + (WIDTH - kRest) * row + p + q, row, to + (p + q) * WIDTH + WIDTH - kRest);
    };
    for (; p + 16 <= k; p += 16) some(16);
    for (; p + 8 <= k; p += 8) some(8);
  } else {
    for (; p + 8 <= k; p += 8)
      for (int i = 0; i < WIDTH; ++i)
        for (int q = 0; q < 8; ++q) to[(p + q) * WIDTH + i] = panel[i * row + p + q];
  }
  for (; p < k; ++p)
    for (int i = 0; i < WIDTH; ++i) to[p * WIDTH + i] = panel[i * row + p];
}

template <typename T, int COUNT>
inline __attribute__((always_inline)) void copy(const T* from, T* to) {
  constexpr int W = kWidth<T>;
  if constexpr (COUNT % W == 0) {
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; i += W) store<T, W>(to + i, load<T, W>(from + i));
  } else {
    __builtin_memcpy(to, from, COUNT * sizeof(T));
  }
}

// Panels of a matrix that is contiguous across k. Panels that fill whole cache lines are written one after another,
// while lines of the matrix are read once, from end to end. Narrower ones are written side by side, as many as make
// whole lines of the matrix, so that none is fetched twice.
template <typename T, int WIDTH>
void pack_across(int64_t panels, int64_t k, const T* from, int64_t column, T* to) {
  if constexpr (WIDTH * sizeof(T) % 64 == 0) {
    constexpr int64_t kAtOnce = 8;  // so many lines of one cache set stay
    for (int64_t p = 0; p < k; p += kAtOnce, from += kAtOnce * column, to += kAtOnce * WIDTH) {
      const int64_t count = k - p < kAtOnce ? k - p : kAtOnce;
      for (int64_t panel = 0; panel < panels; ++panel)
        for (int64_t q = 0; q < count; ++q)
          copy<T, WIDTH>(from + panel * WIDTH + q * column, to + panel * WIDTH * k + q * WIDTH);
    }
  } else {
    constexpr int64_t kGroup = 8, kAheadRows = 8;
    for (int64_t first = 0; first < panels; first += kGroup) {
      const int64_t count = panels - first < kGroup ? panels - first : kGroup;
      const T* line = from + first * WIDTH;
      T* group = to + first * WIDTH * k;
      for (int64_t p = 0; p < k; ++p, line += column) {
        const T* ahead = line + kAheadRows * column;
        for (int64_t i = 0; i < count * WIDTH; i += 64 / sizeof(T)) __builtin_prefetch(ahead + i);
        for (int64_t panel = 0; panel < count; ++panel)
          copy<T, WIDTH>(line + panel * WIDTH, group + panel * WIDTH * k + p * WIDTH);
      }
    }
  }
}

template <typename T, int WIDTH>
void pack_panels(int64_t rows, int64_t k, Matrix<const T> from, T* to) {
  const int64_t whole = rows / WIDTH, rest = rows - whole * WIDTH;
  if (from.row == 1)
    pack_across<T, WIDTH>(whole, k, from.data, from.column, to);
  else
    for (int64_t panel = 0; panel < whole; ++panel) {
      const T* first = from.data + panel * WIDTH * from.row;
      T* target = to + panel * WIDTH * k;
      if (from.column == 1)
        pack_along<T, WIDTH>(k, first, from.row, target, panel + 1 < whole);
      else
        for (int64_t p = 0; p < k; ++p)
          for (int i = 0; i < WIDTH; ++i) target[p * WIDTH + i] = first[i * from.row + p * from.column];
    }
  if (rest == 0) return;
  from.data += whole * WIDTH * from.row, to += whole * WIDTH * k;
  for (int64_t p = 0; p < k; ++p)
    for (int i = 0; i < WIDTH; ++i) to[p * WIDTH + i] = i < rest ? from.data[i * from.row + p * from.column] : T(0);
}

template <typename T>
void pack(int64_t rows, int64_t k, int width, Matrix<const T> from, T* to) {
  if (width == kTileRows)
    pack_panels<T, kTileRows>(rows, k, from, to);
  else
    pack_panels<T, kTileColumns<T>>(rows, k, from, to);
}

}  // namespace tandem::library::TANDEM_ISA
