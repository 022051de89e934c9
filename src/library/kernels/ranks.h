// What several ranks have, added up.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

constexpr int64_t kRanksAhead = 1024;  // bytes that are asked for before they are read: pages of others are small ones

template <typename T, int N>
inline __attribute__((always_inline)) void sum_vectors(const T* const* in, int count, T* const* out, int outs,
                                                       int64_t i, T factor, T divisor) {
  constexpr int W = kWidth<T>;
  typename VectorOf<T, W>::type sums[N];
  for (int j = 0; j < N; ++j) sums[j] = load(in[0] + i + j * W);
  for (int r = 0; r < count; ++r)
    for (int64_t b = 0; b < N * W * static_cast<int64_t>(sizeof(T)); b += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(in[r] + i) + kRanksAhead + b);
  for (int r = 1; r < count; ++r)
    for (int j = 0; j < N; ++j) sums[j] += load(in[r] + i + j * W);
  for (int j = 0; j < N; ++j) sums[j] = divisor == T(1) ? sums[j] * factor : sums[j] / divisor;
  for (int k = 0; k < outs; ++k)
    for (int j = 0; j < N; ++j) store(out[k] + i + j * W, sums[j]);
}

template <typename T>
void sum_ranks(const T* const* in, int count, T* const* out, int outs, int64_t n, T factor, T divisor) {
  constexpr int W = kWidth<T>, N = 128 / TANDEM_VECTOR_BYTES;
  int64_t i = 0;
  for (; i + N * W <= n; i += N * W) sum_vectors<T, N>(in, count, out, outs, i, factor, divisor);
  for (; i < n; ++i) {
    T sum = in[0][i];
    for (int r = 1; r < count; ++r) sum += in[r][i];
    sum = divisor == T(1) ? sum * factor : sum / divisor;
    for (int k = 0; k < outs; ++k) out[k][i] = sum;
  }
}

}  // namespace tandem::library::TANDEM_ISA
