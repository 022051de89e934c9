// Distances of one point to many; see DistanceKernels.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

template <typename T, int W, DistanceKind kind>
inline __attribute__((always_inline)) typename VectorOf<T, W>::type distance_step(typename VectorOf<T, W>::type total,
                                                                                  typename VectorOf<T, W>::type d) {
  using V = typename VectorOf<T, W>::type;
  if constexpr (kind == DistanceKind::Squares) {
    return total + d * d;
  } else {
    const V size = d < T(0) ? -d : d;
    if constexpr (kind == DistanceKind::Sum) return total + size;
    return size > total || size != size ? size : total;
  }
}

template <typename T, int W, int N, DistanceKind kind>
inline __attribute__((always_inline)) void distance_block(const T* points, int64_t apart, const T* x, int64_t d,
                                                          T* out) {
  using V = typename VectorOf<T, W>::type;
  V total[N] = {};
  for (int64_t k = 0; k < d; ++k) {
    const T* row = points + k * apart;
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) total[v] = distance_step<T, W, kind>(total[v], load<T, W>(row + v * W) - x[k]);
  }
  for (int v = 0; v < N; ++v) store<T, W>(out + v * W, total[v]);
}

template <typename T, DistanceKind kind>
void distances(const T* points, int64_t apart, const T* x, int64_t d, int64_t n, T* out) {
  constexpr int W = kWidth<T>;
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) distance_block<T, W, 4, kind>(points + i, apart, x, d, out + i);
  for (; i + W <= n; i += W) distance_block<T, W, 1, kind>(points + i, apart, x, d, out + i);
  for (; i < n; ++i) distance_block<T, 1, 1, kind>(points + i, apart, x, d, out + i);
}

template <typename T>
constexpr DistanceKernels<T> distance_kernels() {
  return {&distances<T, DistanceKind::Sum>, &distances<T, DistanceKind::Squares>, &distances<T, DistanceKind::Largest>};
}

}  // namespace tandem::library::TANDEM_ISA
