// Inner loops of pooling; see PoolKernels.
#pragma once
#include <type_traits>

#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

template <typename T, typename Index>
inline __attribute__((always_inline)) void max_at(const T* x, int64_t stride, T* best, Index* where, Index first,
                                                  Index step, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T value = x[i * stride];
    const bool take = !(value <= best[i]);  // also for NaN
    const bool keep = best[i] != best[i] && value == value;
    best[i] = take && !keep ? value : best[i];
    where[i] = take && !keep ? static_cast<Index>(first + static_cast<Index>(i) * step) : where[i];
  }
}

// The common strides get loops of their own, which the compiler can turn into vector code.
template <typename T>
void max(const T* x, int64_t stride, T* best, typename PoolKernels<T>::Index* where,
         typename PoolKernels<T>::Index first, typename PoolKernels<T>::Index step, int64_t n) {
  if (stride == 1 && step == 0)
    max_at<T>(x, 1, best, where, first, decltype(first)(0), n);
  else if (stride == 1)
    max_at<T>(x, 1, best, where, first, step, n);
  else if (stride == 2)
    max_at<T>(x, 2, best, where, first, step, n);
  else
    max_at<T>(x, stride, best, where, first, step, n);
}

template <typename T, int W, int NV>
inline __attribute__((always_inline)) void max_lanes(const T* x, const int64_t* offsets,
                                                     const typename PoolKernels<T>::Index* indices, int64_t taps,
                                                     T* best, typename PoolKernels<T>::Index* where) {
  using Index = typename PoolKernels<T>::Index;
  typename VectorOf<T, W>::type top[NV];
  typename VectorOf<Index, W>::type at[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) top[v] = load<T, W>(best + v * W), at[v] = load<Index, W>(where + v * W);
  for (int64_t t = 0; t < taps; ++t) {
    const T* from = x + offsets[t];
    const Index index = indices[t];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const auto value = load<T, W>(from + v * W);
      const auto take = (value > top[v]) | (value != value);
      top[v] = take ? value : top[v];
      at[v] = take ? at[v] * 0 + index : at[v];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) store<T, W>(best + v * W, top[v]), store<Index, W>(where + v * W, at[v]);
}

// Body(std::integral_constant width, std::integral_constant vectors, first lane) for n lanes: what four whole vectors
// leave goes by ever narrower ones, as few channels are no multiple of a vector.
template <int W, typename Body>
inline __attribute__((always_inline)) void narrow_lanes(int64_t i, int64_t n, const Body& body) {
  for (; i + W <= n; i += W) body(std::integral_constant<int, W>(), std::integral_constant<int, 1>(), i);
  if constexpr (W > 1) narrow_lanes<W / 2>(i, n, body);
}

template <typename T, typename Body>
inline __attribute__((always_inline)) void for_lanes(int64_t n, const Body& body) {
  constexpr int W = kWidth<T>;
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) body(std::integral_constant<int, W>(), std::integral_constant<int, 4>(), i);
  narrow_lanes<W>(i, n, body);
}

template <typename T>
void max_window(const T* x, const int64_t* offsets, const typename PoolKernels<T>::Index* indices, int64_t taps,
                T* best, typename PoolKernels<T>::Index* where, int64_t n) {
  for_lanes<T>(n, [&](auto width, auto vectors, int64_t i) __attribute__((always_inline)) {
    max_lanes<T, width(), vectors()>(x + i, offsets, indices, taps, best + i, where + i);
  });
}

template <typename T, int W, int NV>
inline __attribute__((always_inline)) void max_values_lanes(const T* x, const int64_t* offsets, int64_t taps, T lowest,
                                                            T* best) {
  typename VectorOf<T, W>::type top[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) top[v] = typename VectorOf<T, W>::type{} + lowest;
  for (int64_t t = 0; t < taps; ++t) {
    const T* from = x + offsets[t];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const auto value = load<T, W>(from + v * W);
      top[v] = (value > top[v]) | (value != value) ? value : top[v];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) store<T, W>(best + v * W, top[v]);
}

template <typename T>
void max_values(const T* x, const int64_t* offsets, int64_t taps, T lowest, T* best, int64_t n) {
  for_lanes<T>(n, [&](auto width, auto vectors, int64_t i) __attribute__((always_inline)) {
    max_values_lanes<T, width(), vectors()>(x + i, offsets, taps, lowest, best + i);
  });
}

template <typename T, int W, int NV>
inline __attribute__((always_inline)) void mean_lanes(const T* x, const int64_t* offsets, int64_t taps, T* mean,
                                                      T factor) {
  typename VectorOf<T, W>::type sum[NV] = {};
  for (int64_t t = 0; t < taps; ++t) {
    const T* from = x + offsets[t];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) sum[v] += load<T, W>(from + v * W);
  }
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) store<T, W>(mean + v * W, sum[v] * factor);
}

template <typename T>
void mean_window(const T* x, const int64_t* offsets, int64_t taps, T* mean, T factor, int64_t n) {
  for_lanes<T>(n, [&](auto width, auto vectors, int64_t i) __attribute__((always_inline)) {
    mean_lanes<T, width(), vectors()>(x + i, offsets, taps, mean + i, factor);
  });
}

template <typename T>
void add(const T* x, int64_t stride, T* sum, int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
  } else if (stride == 2) {
    for (int64_t i = 0; i < n; ++i) sum[i] += x[2 * i];
  } else {
    for (int64_t i = 0; i < n; ++i) sum[i] += x[i * stride];
  }
}

template <typename T>
void spread(const T* x, T* to, int64_t stride, int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] += x[i];
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * stride] += x[i];
  }
}

template <typename T>
T sum(const T* x, int64_t n) {
  constexpr int kLanes = 32;
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  for (; i < n; ++i) lanes[0] += x[i];
  return lanes[0];
}

template <typename T>
constexpr PoolKernels<T> pool_kernels() {
  return {&max<T>, &max_window<T>, &max_values<T>, &mean_window<T>, &add<T>, &spread<T>, &sum<T>};
}

}  // namespace tandem::library::TANDEM_ISA
