// Matrix products by register tiles; see GemmKernels for what each does.
#pragma once
#include "library/kernels/gemm_pack.h"
#include "library/kernels/gemm_small.h"
#include "library/kernels/gemm_tile_avx2.h"

namespace tandem::library::TANDEM_ISA {

// Where a tile asks for memory, kAsked lines in kAskEvery steps: the places between, and including, two ends.
struct Ask {
  const char *first, *last;
  int64_t step;
};
constexpr int64_t kAskEvery = 8, kAsked = 2;

#ifdef TANDEM_TILE_AVX2
template <typename T>
constexpr bool kAssembly = std::is_same_v<T, float>;
#else
template <typename T>
constexpr bool kAssembly = false;
#endif

// A tile of packed operands, in a function of its own for the sake of registers. c is asked for early and added at the
// end: it comes from further away than a and b. M is less than the rows of a panel where it ends early. Rows of an a
// that is not packed lie `stride` elements apart.
template <typename T, Left LEFT = Left::kPacked, int M = kTileRows>
__attribute__((noinline)) void packed_tile(int64_t k, const T* a, int64_t stride, const T* b, T* c, int64_t c_row,
                                           bool accumulate, const T* bias, const Ask& ask) {
  constexpr int W = kWidth<T>, N = kTileColumns<T>;
  using Vector = typename VectorOf<T, W>::type;
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    __builtin_prefetch(c + i * c_row, 1);
    __builtin_prefetch(c + i * c_row + N - 1, 1);
  }
  Vector sum[M][2];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) sum[i][0] = sum[i][1] = Vector{};
  const auto step = [&]() __attribute__((always_inline)) {
    const Vector right0 = load<T, W>(b), right1 = load<T, W>(b + W);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const T left = a[LEFT == Left::kRows ? i * stride : i];
      sum[i][0] += left * right0;
      sum[i][1] += left * right1;
    }
    a += LEFT == Left::kRows ? 1 : kTileRows, b += N;
  };
  if constexpr (kAssembly<T> && M == 6) {
#ifdef TANDEM_TILE_AVX2
    static_assert(kAskEvery == 8 && kAsked == 2 && kTileRows == 6 && N == 16);
    six_rows<LEFT>(k / kAskEvery, a, stride * static_cast<int64_t>(sizeof(T)), b, sum, ask.first, ask.last, ask.step);
#endif
  } else {
    const char *line = ask.first, *const last = ask.last;
    const T* const stop = b + k / kAskEvery * kAskEvery * N;
    while (b < stop) {
      for (int i = 0; i < kAsked; ++i) {
        __builtin_prefetch(line, 0, 2);
        line = line < last ? line + ask.step : line;
      }
      int64_t count = kAskEvery;
      asm("" : "+r"(count));  // unrolled, GCC runs out of registers
      for (; count > 0; --count) step();
    }
  }
#pragma GCC unroll 1
  for (int64_t p = k % kAskEvery; p > 0; --p) step();
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      T* to = c + i * c_row + v * W;
      if (accumulate)
        sum[i][v] += load<T, W>(to);
      else if (bias)
        sum[i][v] += load<T, W>(bias + v * W);
      store<T, W>(to, sum[i][v]);
    }
}

template <typename T>
void product(int64_t m, int64_t n, int64_t k, const LeftRows<T>& a, const T* b, Matrix<T> c, bool accumulate,
             const T* bias, const Ahead& ahead) {
  constexpr int M = kTileRows, N = kTileColumns<T>, kFewRows = M * 2 / 3;
  alignas(64) T edge[M * N];
  for (int64_t j = 0; j < n; j += N) {
    const T* right = b + j * k;
    Ahead wanted = ahead;
    if (j + N < n)
      wanted = {
          reinterpret_cast<const char*>(right + N * k), static_cast<int64_t>(k * N * sizeof(T) / 64), 64, 1, 0, {}};
    int64_t row = 0, next = 0;
    for (int64_t i = 0; i < m; i += M) {
      T* to = c.data + i * c.row + j * c.column;
      Ask ask{reinterpret_cast<const char*>(right), reinterpret_cast<const char*>(right), 0};  // nothing
      if (row < wanted.rows) {
        const char* first = wanted.data + row * wanted.stride;
        ask = {first + next * wanted.step, first + (wanted.count - 1) * wanted.step, wanted.step};
        next += k / kAskEvery * kAsked;
        if (next >= wanted.count) next = 0, ++row;
      } else if (Asks* more = ahead.more; more && more->at < more->count) {
        const Ahead& part = more->parts[more->at];
        const char* first = part.data + more->row * part.stride;
        ask = {first + more->next * part.step, first + (part.count - 1) * part.step, part.step};
        more->next += k / kAskEvery * kAsked;
        if (more->next >= part.count) more->next = 0, ++more->row;
        if (more->row >= part.rows) more->row = 0, ++more->at;
      }
      const int64_t rows = m - i < M ? m - i : M, columns = n - j < N ? n - j : N;
      const bool in_place = kAssembly<T> && a.row > 0;
      const T* left = !in_place ? a.data + i * k : rows == M ? a.data + i * a.row : a.rest;
      auto* run = rows <= kFewRows ? packed_tile<T, Left::kPacked, kFewRows> : packed_tile<T>;
      if constexpr (kAssembly<T>)
        if (in_place && rows == M) run = packed_tile<T, Left::kRows>;
      if ((rows == M || rows == kFewRows) && columns == N && c.column == 1) {
        run(k, left, a.row, right, to, c.row, accumulate, bias ? bias + j : nullptr, ask);
        continue;
      }
      run(k, left, a.row, right, edge, N, false, nullptr, ask);
      const bool dense = c.column == 1;
      for (int64_t r = 0; r < rows; ++r) {
        const T* from = edge + r * N;
        T* line = to + r * c.row;
        int64_t s = 0;
        for (constexpr int W = kWidth<T>; dense && s + W <= columns; s += W) {
          auto v = load<T, W>(from + s);
          if (accumulate)
            v += load<T, W>(line + s);
          else if (bias)
            v += load<T, W>(bias + j + s);
          store<T, W>(line + s, v);
        }
        for (; s < columns; ++s) {
          T& element = line[s * c.column];
          element = from[s] + (accumulate ? element : bias ? bias[j + s] : T(0));
        }
      }
    }
  }
}

template <typename T>
void product_of(int64_t m, int64_t n, int64_t k, Matrix<const T> a, const T* b, int64_t panel, Matrix<T> c,
                bool accumulate) {
  constexpr int M = kTileRows, W = kWidth<T>, N = kTileColumns<T>;
  alignas(64) T edge[M * N];
  for (int64_t j = 0; j < n; j += N, b += panel)
    for (int64_t i = 0; i < m; i += M) {
      const T* left = a.data + i * a.row;
      T* to = c.data + i * c.row + j;
      const bool whole = i + M <= m && j + N <= n;
      // One of a's strides is 1, and known to be is quicker.
      const auto run = [&](int64_t row, int64_t column) __attribute__((always_inline)) {
        if (whole)
          tile<T, W, 2, M>(k, left, row, column, b, N, to, c.row, accumulate, nullptr);
        else
          tile<T, W, 2, M>(k, left, row, column, b, N, edge, N, false, nullptr);
      };
      if (a.row == 1)
        run(1, a.column);
      else
        run(a.row, 1);
      if (whole) continue;
      const int64_t rows = m - i < M ? m - i : M, columns = n - j < N ? n - j : N;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t s = 0; s < columns; ++s) {
          T& element = to[r * c.row + s];
          element = edge[r * N + s] + (accumulate ? element : T(0));
        }
    }
}

template <typename T>
constexpr GemmKernels<T> gemm_kernels() {
  return {kTileRows, kTileColumns<T>, kAssembly<T>, &small<T>,     &dot<T>,
          &thin<T>,  &pack<T>,        &product<T>,  &product_of<T>};
}

}  // namespace tandem::library::TANDEM_ISA
