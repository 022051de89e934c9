// Matrix products by register tiles; see GemmKernels for what each does.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

// c (M rows, NV vectors of W) = or += a b, with b and c contiguous along n. The accumulators stay in registers.
template <typename T, int W, int NV, int M>
inline __attribute__((always_inline)) void tile(int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b,
                                                int64_t b_row, T* c, int64_t c_row, bool accumulate, const T* bias) {
  using Vector = typename VectorOf<T, W>::type;
  Vector sum[M][NV];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      if (accumulate)
        sum[i][v] = load<T, W>(c + i * c_row + v * W);
      else if (bias)
        sum[i][v] = load<T, W>(bias + v * W);
      else
        sum[i][v] = Vector{};
    }
  for (int64_t p = 0; p < k; ++p) {
    Vector right[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) right[v] = load<T, W>(b + v * W);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const T left = a[i * a_row];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) sum[i][v] += left * right[v];
    }
    a += a_column, b += b_row;
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store<T, W>(c + i * c_row + v * W, sum[i][v]);
}

template <typename T, int W, int NV, int M>
void rows_of_tiles(int64_t& i, int64_t m, int64_t k, const Matrix<const T>& a, const T* b, int64_t b_row, T* c,
                   int64_t c_row, const T* bias) {
  for (; i + M <= m; i += M)
    tile<T, W, NV, M>(k, a.data + i * a.row, a.row, a.column, b, b_row, c + i * c_row, c_row, false, bias);
}

template <typename T, int W, int NV>
void column_of_tiles(int64_t m, int64_t k, const Matrix<const T>& a, const T* b, int64_t b_row, T* c, int64_t c_row,
                     const T* bias) {
  int64_t i = 0;
  if constexpr (NV == 1) rows_of_tiles<T, W, NV, 8>(i, m, k, a, b, b_row, c, c_row, bias);
  rows_of_tiles<T, W, NV, 4>(i, m, k, a, b, b_row, c, c_row, bias);
  rows_of_tiles<T, W, NV, 2>(i, m, k, a, b, b_row, c, c_row, bias);
  rows_of_tiles<T, W, NV, 1>(i, m, k, a, b, b_row, c, c_row, bias);
}

// Columns in vectors of W; where W does not divide n the last vector overlaps the one before and computes some columns
// twice.
template <typename T, int W>
void small_in_vectors_of(int64_t m, int64_t n, int64_t k, const Matrix<const T>& a, const Matrix<const T>& b,
                         const Matrix<T>& c, const T* bias) {
  int64_t j = 0;
  const auto at = [&](int64_t j) { return bias ? bias + j : nullptr; };
  if constexpr (W == kWidth<T>)
    for (; j + 2 * W <= n; j += 2 * W) column_of_tiles<T, W, 2>(m, k, a, b.data + j, b.row, c.data + j, c.row, at(j));
  for (; j + W <= n; j += W) column_of_tiles<T, W, 1>(m, k, a, b.data + j, b.row, c.data + j, c.row, at(j));
  if (j < n) column_of_tiles<T, W, 1>(m, k, a, b.data + n - W, b.row, c.data + n - W, c.row, at(n - W));
}

template <typename T, int W = kWidth<T>>
void small_of_width(int64_t m, int64_t n, int64_t k, const Matrix<const T>& a, const Matrix<const T>& b,
                    const Matrix<T>& c, const T* bias) {
  if constexpr (W > 1) {
    if (n < W) return small_of_width<T, W / 2>(m, n, k, a, b, c, bias);
  }
  small_in_vectors_of<T, W>(m, n, k, a, b, c, bias);
}

template <typename T>
void small(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const T* bias) {
  small_of_width<T>(m, n, k, a, b, c, bias);
}

template <typename T, int N>
void dots(int64_t k, const T* a, const T* b, int64_t b_column, T* c, int64_t c_column, const T* bias) {
  constexpr int W = kWidth<T>;
  using Vector = typename VectorOf<T, W>::type;
  Vector sum[N][2] = {};
  int64_t p = 0;
  for (; p + 2 * W <= k; p += 2 * W) {
    const Vector left0 = load(a + p), left1 = load(a + p + W);
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
      sum[j][0] += left0 * load(b + j * b_column + p);
      sum[j][1] += left1 * load(b + j * b_column + p + W);
    }
  }
  for (int j = 0; j < N; ++j) {
    const Vector both = sum[j][0] + sum[j][1];
    T total = bias ? bias[j] : T(0);
    for (int w = 0; w < W; ++w) total += both[w];
    for (int64_t q = p; q < k; ++q) total += a[q] * b[j * b_column + q];
    c[j * c_column] = total;
  }
}

template <typename T>
void dot(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const T* bias) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4)
    for (int64_t i = 0; i < m; ++i)
      dots<T, 4>(k, a.data + i * a.row, b.data + j * b.column, b.column, c.data + i * c.row + j * c.column, c.column,
                 bias ? bias + j : nullptr);
  for (; j < n; ++j)
    for (int64_t i = 0; i < m; ++i)
      dots<T, 1>(k, a.data + i * a.row, b.data + j * b.column, b.column, c.data + i * c.row + j * c.column, c.column,
                 bias ? bias + j : nullptr);
}

template <typename T>
void thin(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const T* bias) {
  constexpr int64_t kColumns = 4096 / sizeof(T);  // four rows of b and a row of c stay in the L1 cache
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t width = n - j < kColumns ? n - j : kColumns;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t q = 0; q < width; ++q) c.data[i * c.row + j + q] = bias ? bias[j + q] : T(0);
    int64_t p = 0;
    for (; p + 4 <= k; p += 4)
      for (int64_t i = 0; i < m; ++i) {
        const T *left = a.data + i * a.row + p * a.column, *right = b.data + p * b.row + j;
        const T a0 = left[0], a1 = left[a.column], a2 = left[2 * a.column], a3 = left[3 * a.column];
        const T *b1 = right + b.row, *b2 = b1 + b.row, *b3 = b2 + b.row;
        T* to = c.data + i * c.row + j;
        for (int64_t q = 0; q < width; ++q) to[q] += a0 * right[q] + a1 * b1[q] + a2 * b2[q] + a3 * b3[q];
      }
    for (; p < k; ++p)
      for (int64_t i = 0; i < m; ++i) {
        const T left = a.data[i * a.row + p * a.column];
        for (int64_t q = 0; q < width; ++q) c.data[i * c.row + j + q] += left * b.data[p * b.row + j + q];
      }
  }
}

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

// to[q * step + i] = from[i * row + q] for 8 values of q and ROWS <= 8 of i, by shuffling registers.
template <typename T, int ROWS>
inline __attribute__((always_inline)) void transpose(const T* from, int64_t row, T* to, int64_t step) {
  using V = typename VectorOf<T, 8>::type;
  V r[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = i < ROWS ? load<T, 8>(from + i * row) : V{};
  V t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      u[i + 2 * h] = __builtin_shufflevector(t[i + h], t[i + h + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      u[i + 2 * h + 1] = __builtin_shufflevector(t[i + h], t[i + h + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    store_some<T, ROWS>(to + q * step, __builtin_shufflevector(u[q], u[q + 4], 0, 1, 2, 3, 8, 9, 10, 11));
    store_some<T, ROWS>(to + (q + 4) * step, __builtin_shufflevector(u[q], u[q + 4], 4, 5, 6, 7, 12, 13, 14, 15));
  }
}

// One panel whose rows are all there, from a matrix that is contiguous along k.
template <typename T, int WIDTH>
void pack_along(int64_t k, const T* panel, int64_t row, T* to) {
  int64_t p = 0;
  if constexpr (sizeof(T) == 4) {
    // 16 elements of a row at a time are a whole cache line, which may not stay if rows lie a power of two apart.
    const auto some = [&](int64_t count) __attribute__((always_inline)) {
      // Many short streams are more than the hardware looks ahead for.
      for (int i = 0; i < WIDTH; ++i) __builtin_prefetch(panel + i * row + p + 128);
#pragma GCC unroll 4
      for (int i = 0; i + 8 <= WIDTH; i += 8)
        for (int64_t q = 0; q < count; q += 8)
          transpose<T, 8>(panel + i * row + p + q, row, to + (p + q) * WIDTH + i, WIDTH);
      constexpr int kRest = WIDTH % 8;
      if constexpr (kRest > 0)
        for (int64_t q = 0; q < count; q += 8)
          transpose<T, kRest>(panel + (WIDTH - kRest) * row + p + q, row, to + (p + q) * WIDTH + WIDTH - kRest, WIDTH);
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

// Panels of a matrix that is contiguous across k: its lines are read once, from end to end.
template <typename T, int WIDTH>
void pack_across(int64_t panels, int64_t k, const T* from, int64_t column, T* to) {
  constexpr int64_t kAtOnce = 8;  // so many lines of one cache set stay
  for (int64_t p = 0; p < k; p += kAtOnce, from += kAtOnce * column, to += kAtOnce * WIDTH) {
    const int64_t count = k - p < kAtOnce ? k - p : kAtOnce;
    for (int64_t panel = 0; panel < panels; ++panel)
      for (int64_t q = 0; q < count; ++q)
        __builtin_memcpy(to + panel * WIDTH * k + q * WIDTH, from + panel * WIDTH + q * column, WIDTH * sizeof(T));
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
        pack_along<T, WIDTH>(k, first, from.row, target);
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

// A tile of packed operands, in a function of its own for the sake of registers. c is asked for early and added at the
// end: it comes from further away than a and b.
template <typename T>
__attribute__((noinline)) void packed_tile(int64_t k, const T* a, const T* b, T* c, int64_t c_row, bool accumulate,
                                           const T* bias) {
  constexpr int M = kTileRows, W = kWidth<T>, N = kTileColumns<T>;
  using Vector = typename VectorOf<T, W>::type;
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    __builtin_prefetch(c + i * c_row, 1);
    __builtin_prefetch(c + i * c_row + N - 1, 1);
  }
  Vector sum[M][2];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) sum[i][0] = sum[i][1] = Vector{};
  for (int64_t p = 0; p < k; ++p, a += M, b += N) {  // unrolled, GCC runs out of registers
    const Vector right0 = load<T, W>(b), right1 = load<T, W>(b + W);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const T left = a[i];
      sum[i][0] += left * right0;
      sum[i][1] += left * right1;
    }
  }
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
void product(int64_t m, int64_t n, int64_t k, const T* a, const T* b, Matrix<T> c, bool accumulate, const T* bias) {
  constexpr int M = kTileRows, N = kTileColumns<T>;
  alignas(64) T edge[M * N];
  for (int64_t j = 0; j < n; j += N)
    for (int64_t i = 0; i < m; i += M) {
      const T* left = a + i * k;
      const T* right = b + j * k;
      T* to = c.data + i * c.row + j * c.column;
      if (i + M <= m && j + N <= n && c.column == 1) {
        packed_tile<T>(k, left, right, to, c.row, accumulate, bias ? bias + j : nullptr);
        continue;
      }
      packed_tile<T>(k, left, right, edge, N, false, nullptr);
      const int64_t rows = m - i < M ? m - i : M, columns = n - j < N ? n - j : N;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t s = 0; s < columns; ++s) {
          T& element = to[r * c.row + s * c.column];
          element = edge[r * N + s] + (accumulate ? element : bias ? bias[j + s] : T(0));
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
  return {kTileRows, kTileColumns<T>, &small<T>, &dot<T>, &thin<T>, &pack<T>, &product<T>, &product_of<T>};
}

}  // namespace tandem::library::TANDEM_ISA
