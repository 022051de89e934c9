// Inner loops of pooling; see PoolKernels.
#pragma once
#include "library/kernels/kernels.h"

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
  return {&max<T>, &add<T>, &spread<T>, &sum<T>};
}

}  // namespace tandem::library::TANDEM_ISA
