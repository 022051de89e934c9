// Products without packing: small ones, dot products, and a few rows against a large matrix.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

// c (M rows, NV vectors of W) = or += a b, with b and c contiguous along n. The accumulators stay in registers. What c
// holds is added at the end: a long sum taken in parts is then off by less than one in a single row.
template <typename T, int W, int NV, int M>
inline __attribute__((always_inline)) void tile(int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b,
                                                int64_t b_row, T* c, int64_t c_row, bool accumulate, const T* bias) {
  using Vector = typename VectorOf<T, W>::type;
  Vector sum[M][NV];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      if (bias)
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
    for (int v = 0; v < NV; ++v) {
      T* to = c + i * c_row + v * W;
      store<T, W>(to, accumulate ? sum[i][v] + load<T, W>(to) : sum[i][v]);
    }
}

// Terms of a sum that are added in a row, so that rounding does not pile up; the parts are added to what c holds.
template <typename T>
constexpr int64_t kTermsInRow = sizeof(T) < 8 ? 32 : 1024;

template <typename T, int W, int NV, int M>
void rows_of_tiles(int64_t& i, int64_t m, int64_t k, const Matrix<const T>& a, const T* b, int64_t b_row, T* c,
                   int64_t c_row, const T* bias) {
  constexpr int64_t kTerms = kTermsInRow<T>;
  for (; i + M <= m; i += M) {
    const T* left = a.data + i * a.row;
    T* to = c + i * c_row;
    tile<T, W, NV, M>(k < kTerms ? k : kTerms, left, a.row, a.column, b, b_row, to, c_row, false, bias);
    for (int64_t p = kTerms; p < k; p += kTerms)
      tile<T, W, NV, M>(k - p < kTerms ? k - p : kTerms, left + p * a.column, a.row, a.column, b + p * b_row, b_row, to,
                        c_row, true, nullptr);
  }
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

constexpr int64_t kDotsAhead = 2048;  // bytes

// The elements of a vector added up in pairs.
template <typename Vector>
inline auto sum_of(Vector v) {
  constexpr int W = sizeof(v) / sizeof(v[0]);
  using T = std::remove_cv_t<std::remove_reference_t<decltype(v[0])>>;
  T lanes[W];
  __builtin_memcpy(lanes, &v, sizeof v);
#pragma GCC unroll 5
  for (int half = W / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// M rows of a with one column of b, which is contiguous. Columns are taken one after the other, and so is memory where
// they follow one another: it then comes 1.15 times as quickly as by four columns at once, and from caches no slower.
template <typename T, int M>
void dots(int64_t k, const T* a, int64_t a_row, const T* b, T* c, int64_t c_row, const T* bias) {
  constexpr int W = kWidth<T>, U = M == 1 ? 4 : M == 2 ? 2 : 1;  // chains for each sum
  using Vector = typename VectorOf<T, W>::type;
  Vector sum[M][U] = {};
  int64_t p = 0;
  for (; p + U * W <= k; p += U * W) {
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      // A large matrix comes from memory: what is asked for by hand comes sooner than what the processor foresees.
      __builtin_prefetch(b + p + u * W + kDotsAhead / sizeof(T), 0, 0);
      const Vector right = load(b + p + u * W);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) sum[i][u] += load(a + i * a_row + p + u * W) * right;
    }
  }
  for (; U > 1 && p + W <= k; p += W)
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) sum[i][0] += load(a + i * a_row + p) * load(b + p);
  if (p < k) {  // the rest among zeros, so that it is added in pairs like all else
    T left[W] = {}, right[W] = {};
    const size_t rest = static_cast<size_t>(k - p) * sizeof(T);
    __builtin_memcpy(right, b + p, rest);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      __builtin_memcpy(left, a + i * a_row + p, rest);
      sum[i][0] += load(left) * load(right);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) {
    Vector all = sum[i][0];
    if constexpr (U == 2) all = sum[i][0] + sum[i][1];
    if constexpr (U == 4) all = (sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3]);
    c[i * c_row] = sum_of(all) + (bias ? *bias : T(0));
  }
}

template <typename T>
void dot(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, const T* bias) {
  int64_t i = 0;
  const auto rows = [&](auto some) {
    for (int64_t j = 0; j < n; ++j)
      dots<T, some.value>(k, a.data + i * a.row, a.row, b.data + j * b.column, c.data + i * c.row + j * c.column, c.row,
                          bias ? bias + j : nullptr);
    i += some.value;
  };
  while (m - i >= 4) rows(std::integral_constant<int, 4>());
  if (m - i == 3) return rows(std::integral_constant<int, 3>());
  if (m - i == 2) return rows(std::integral_constant<int, 2>());
  if (m - i == 1) rows(std::integral_constant<int, 1>());
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

}  // namespace tandem::library::TANDEM_ISA
