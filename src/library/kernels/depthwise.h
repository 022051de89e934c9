// Rows of convolutions whose channels have windows of their own; see DepthwiseKernels.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

constexpr int kDepthwiseWidth = kWidth<float> < kDepthwiseChannels ? kWidth<float> : kDepthwiseChannels;
constexpr int kDepthwiseParts = kDepthwiseChannels / kDepthwiseWidth;  // vectors of a block of channels
using DepthwiseVector = VectorOf<float, kDepthwiseWidth>::type;

inline DepthwiseVector depthwise_load(const float* p, int part) {
  return load<float, kDepthwiseWidth>(p + part * kDepthwiseWidth);
}

template <int P>
inline __attribute__((always_inline)) void depthwise_sum_of(const DepthwiseRow& r, const float* from, float* to,
                                                            const float* bias) {
  DepthwiseVector sums[P][kDepthwiseParts];
  for (int v = 0; v < kDepthwiseParts; ++v)
    for (int p = 0; p < P; ++p) sums[p][v] = bias ? depthwise_load(bias, v) : DepthwiseVector{};
  for (int64_t a = 0; a < r.rows; ++a) {
    const float *x = from + a * r.row, *w = r.weights + a * r.weights_row;
    for (int64_t b = 0; b < r.columns; ++b, x += r.column, w += r.weights_column)
      for (int v = 0; v < kDepthwiseParts; ++v) {
        const DepthwiseVector factor = depthwise_load(w, v);
        for (int p = 0; p < P; ++p) sums[p][v] += depthwise_load(x + p * r.step, v) * factor;
      }
  }
  for (int p = 0; p < P; ++p)
    for (int v = 0; v < kDepthwiseParts; ++v)
      store<float, kDepthwiseWidth>(to + p * r.to_step + v * kDepthwiseWidth, sums[p][v]);
}

// Positions are taken a few at a time, in parts of nearly the same size: sums that follow one another wait for each
// other.
constexpr int kDepthwiseMost = kDepthwiseParts == 1 ? 14 : kDepthwiseParts == 2 ? 6 : 2;

template <int P = kDepthwiseMost>
void depthwise_sum_some(int count, const DepthwiseRow& r, int64_t first, const float* bias) {
  if (count == P) return depthwise_sum_of<P>(r, r.from + first * r.step, r.to + first * r.to_step, bias);
  if constexpr (P > 1) depthwise_sum_some<P - 1>(count, r, first, bias);
}

inline void depthwise_sum(const DepthwiseRow& r, const float* bias) {
  const int64_t parts = (r.count + kDepthwiseMost - 1) / kDepthwiseMost;
  for (int64_t i = 0, first = 0; i < parts; ++i) {
    const int64_t end = r.count * (i + 1) / parts;
    depthwise_sum_some(static_cast<int>(end - first), r, first, bias);
    first = end;
  }
}

// Taps of A rows and B columns of the window, summed over all positions in registers.
template <int A, int B>
void depthwise_dot_of(const DepthwiseRow& r, const float* from, float* sums) {
  DepthwiseVector totals[A][B][kDepthwiseParts];
  for (int a = 0; a < A; ++a)
    for (int b = 0; b < B; ++b)
      for (int v = 0; v < kDepthwiseParts; ++v)
        totals[a][b][v] = depthwise_load(sums + a * r.weights_row + b * r.weights_column, v);
  const float* gradient = r.to;
  for (int64_t i = 0; i < r.count; ++i, from += r.step, gradient += r.to_step)
    for (int v = 0; v < kDepthwiseParts; ++v) {
      const DepthwiseVector factor = depthwise_load(gradient, v);
      for (int a = 0; a < A; ++a)
        for (int b = 0; b < B; ++b) totals[a][b][v] += depthwise_load(from + a * r.row + b * r.column, v) * factor;
    }
  for (int a = 0; a < A; ++a)
    for (int b = 0; b < B; ++b)
      for (int v = 0; v < kDepthwiseParts; ++v)
        store<float, kDepthwiseWidth>(sums + a * r.weights_row + b * r.weights_column + v * kDepthwiseWidth,
                                      totals[a][b][v]);
}

constexpr int kDepthwiseColumns = 7;

template <int B, int A>
void depthwise_dot_rows(const DepthwiseRow& r, const float* from, float* sums, int64_t rows) {
  for (; rows >= A; rows -= A, from += A * r.row, sums += A * r.weights_row) depthwise_dot_of<A, B>(r, from, sums);
  if constexpr (A > 1)
    if (rows) depthwise_dot_rows<B, A - 1>(r, from, sums, rows);
}

template <int B = kDepthwiseColumns>
void depthwise_dot_columns(int columns, const DepthwiseRow& r, const float* from, float* sums) {
  constexpr int kMost = (kDepthwiseParts == 1 ? 24 : 12) / kDepthwiseParts;  // sums that registers hold
  constexpr int kRows = kMost / B > 5 ? 5 : kMost / B > 1 ? kMost / B : 1;
  if (columns == B) return depthwise_dot_rows<B, kRows>(r, from, sums, r.rows);
  if constexpr (B > 1) depthwise_dot_columns<B - 1>(columns, r, from, sums);
}

inline void depthwise_dot(const DepthwiseRow& r) {
  for (int64_t b = 0; b < r.columns; b += kDepthwiseColumns) {
    const int64_t columns = r.columns - b < kDepthwiseColumns ? r.columns - b : kDepthwiseColumns;
    depthwise_dot_columns(static_cast<int>(columns), r, r.from + b * r.column, r.weights + b * r.weights_column);
  }
}

constexpr DepthwiseKernels depthwise_kernels() {
  return {&depthwise_sum, &depthwise_dot};
}

}  // namespace tandem::library::TANDEM_ISA
