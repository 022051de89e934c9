// Rows of a matrix that the edges of a graph name: weighted sums, dot products, softmax over the edges of a node.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/row.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

constexpr int64_t kEdgesAhead = 8;  // rows are asked for so many edges before they are read

// N vectors and `rest` single columns of the sum, from `column` on: one pass over the edges.
template <typename T, int N, bool weighted>
inline __attribute__((always_inline)) void sum_columns(const EdgeRows<T>& e, int64_t begin, int64_t end, int64_t column,
                                                       int64_t rest, T* out) {
  constexpr int W = kWidth<T>;
  using V = typename VectorOf<T, W>::type;
  V sums[N > 0 ? N : 1] = {};
  T singles[W] = {};
  int64_t head[N + 1];
  for (int j = 0; j <= N; ++j) head[j] = e.heads == 1 ? 0 : (column + j * W) / e.width;
  for (int64_t q = begin; q < end; ++q) {
    const T* row = e.x + e.column[q] * e.stride + column;
    if (q + kEdgesAhead < end) {
      const T* next = e.x + e.column[q + kEdgesAhead] * e.stride + column;
      for (int64_t b = 0; b < (N * W + rest) * static_cast<int64_t>(sizeof(T)); b += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(next) + b);
    }
    if constexpr (weighted) {
      const T* weights = e.values + (e.order ? e.order[q] : q) * e.heads;
      for (int j = 0; j < N; ++j) sums[j] += load(row + j * W) * weights[head[j]];
      for (int64_t r = 0; r < rest; ++r) singles[r] += row[N * W + r] * weights[head[N]];
    } else {
      for (int j = 0; j < N; ++j) sums[j] += load(row + j * W);
      for (int64_t r = 0; r < rest; ++r) singles[r] += row[N * W + r];
    }
  }
  for (int j = 0; j < N; ++j) store(out + column + j * W, sums[j]);
  for (int64_t r = 0; r < rest; ++r) out[column + N * W + r] = singles[r];
}

// Columns of one head, or of all of them where vectors do not cross from one to the next.
template <typename T, bool weighted>
void sum_range(const EdgeRows<T>& e, int64_t begin, int64_t end, int64_t column, int64_t n, T* out) {
  constexpr int W = kWidth<T>;
  while (n > 0) {
    const int64_t vectors = n / W;
    if (vectors >= 8) {
      sum_columns<T, 8, weighted>(e, begin, end, column, 0, out);
      column += 8 * W, n -= 8 * W;
      continue;
    }
    const int64_t rest = n % W;
    switch (vectors) {
      case 0:
        return sum_columns<T, 0, weighted>(e, begin, end, column, rest, out);
      case 1:
        return sum_columns<T, 1, weighted>(e, begin, end, column, rest, out);
      case 2:
        return sum_columns<T, 2, weighted>(e, begin, end, column, rest, out);
      case 3:
        return sum_columns<T, 3, weighted>(e, begin, end, column, rest, out);
      case 4:
        return sum_columns<T, 4, weighted>(e, begin, end, column, rest, out);
      case 5:
        return sum_columns<T, 5, weighted>(e, begin, end, column, rest, out);
      case 6:
        return sum_columns<T, 6, weighted>(e, begin, end, column, rest, out);
      default:
        return sum_columns<T, 7, weighted>(e, begin, end, column, rest, out);
    }
  }
}

template <typename T>
void edge_sum(const EdgeRows<T>& e, int64_t begin, int64_t end, T* out) {
  const bool crosses = e.heads > 1 && e.width % kWidth<T>;
  const int64_t pieces = crosses && e.values ? e.heads : 1, n = e.heads * e.width / pieces;
  for (int64_t h = 0; h < pieces; ++h)
    e.values ? sum_range<T, true>(e, begin, end, h * n, n, out) : sum_range<T, false>(e, begin, end, h * n, n, out);
}

template <typename T>
void edge_dot(const EdgeRows<T>& e, const T* a, int64_t begin, int64_t end, T* out) {
  for (int64_t q = begin; q < end; ++q) {
    const T* row = e.x + e.column[q] * e.stride;
    if (q + kEdgesAhead < end) {
      const T* next = e.x + e.column[q + kEdgesAhead] * e.stride;
      for (int64_t b = 0; b < e.stride * static_cast<int64_t>(sizeof(T)); b += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(next) + b);
    }
    T* to = out + (e.order ? e.order[q] : q) * e.heads;
    for (int64_t h = 0; h < e.heads; ++h) {
      const T *x = row + h * e.width, *y = a + h * e.width;
      constexpr int W = kWidth<T>;
      typename VectorOf<T, W>::type lanes = {};
      int64_t i = 0;
      for (; i + W <= e.width; i += W) lanes += load(x + i) * load(y + i);
      T sum = 0;
      if (i)
        for (int w = 0; w < W; ++w) sum += lanes[w];
      for (; i < e.width; ++i) sum += x[i] * y[i];
      to[h] = sum;
    }
  }
}

template <typename T>
void segment_softmax(const T* x, int64_t rows, int64_t heads, T* out) {
  constexpr int64_t kMost = 16;  // heads at a time
  if (rows == 0) return;
  if (heads == 1) {
    const T largest = row_max(x, rows);
    for (int64_t i = 0; i < rows; ++i) out[i] = x[i];
    row_scale(out, rows, T(1) / row_exp_sum(out, rows, T(1), largest));
    return;
  }
  for (int64_t first = 0; first < heads; first += kMost) {
    const int64_t n = heads - first < kMost ? heads - first : kMost;
    T largest[kMost], total[kMost];
    for (int64_t h = 0; h < n; ++h) largest[h] = x[first + h], total[h] = 0;
    for (int64_t i = 1; i < rows; ++i)
      for (int64_t h = 0; h < n; ++h) {
        const T value = x[i * heads + first + h];
        largest[h] = value > largest[h] ? value : largest[h];
      }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < n; ++h) out[i * heads + first + h] = x[i * heads + first + h] - largest[h];
    if (n == heads)
      row_exp_sum(out, rows * heads, T(1), T(0));
    else
      for (int64_t i = 0; i < rows; ++i) row_exp_sum(out + i * heads + first, n, T(1), T(0));
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < n; ++h) total[h] += out[i * heads + first + h];
    for (int64_t h = 0; h < n; ++h) total[h] = T(1) / total[h];
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < n; ++h) out[i * heads + first + h] *= total[h];
  }
}

template <typename T>
void segment_softmax_backward(const T* y, const T* g, int64_t rows, int64_t heads, T* out) {
  constexpr int64_t kMost = 16;
  for (int64_t first = 0; first < heads; first += kMost) {
    const int64_t n = heads - first < kMost ? heads - first : kMost;
    T total[kMost] = {};
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < n; ++h) total[h] += y[i * heads + first + h] * g[i * heads + first + h];
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < n; ++h) {
        const int64_t at = i * heads + first + h;
        out[at] = y[at] * (g[at] - total[h]);
      }
  }
}

template <typename T>
constexpr EdgeKernels<T> edge_kernels() {
  return {&edge_sum<T>, &edge_dot<T>, &segment_softmax<T>, &segment_softmax_backward<T>};
}

}  // namespace tandem::library::TANDEM_ISA
