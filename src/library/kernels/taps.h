// Weighted sums of elements at computed places; see TapKernels.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

template <typename T>
constexpr int kTapLanes = 4 * sizeof(T) <= TANDEM_VECTOR_BYTES ? 4 : 2;  // of a run of four

template <typename T>
inline __attribute__((always_inline)) T sum_of(typename VectorOf<T, kTapLanes<T>>::type v) {
  if constexpr (kTapLanes<T> == 4)
    return (v[0] + v[1]) + (v[2] + v[3]);
  else
    return v[0] + v[1];
}

// kTaps and kRun: those of the block, known here so that loops unroll; or 0.
template <typename T, int kTaps, int kRun>
void tap_sum_of(const T* plane, const TapBlock<T>& b, T* out) {
  constexpr int L = kTapLanes<T>;
  const int taps = kTaps ? kTaps : b.taps;
  for (int64_t i = 0; i < b.points; ++i) {
    const int64_t* at = b.offsets + i * taps;
    const T* w = b.weights + i * taps;
    T total = 0;
    if (kRun == 4 && b.regular[i]) {
      typename VectorOf<T, L>::type sums = {};
      for (int t = 0; t < taps; t += 4)
        for (int k = 0; k < 4; k += L) sums += load<T, L>(plane + at[t] + k) * load<T, L>(w + t + k);
      total = sum_of<T>(sums);
    } else if (kRun == 2 && b.regular[i]) {
      T left = 0;
      for (int t = 0; t < taps; t += 2) {
        const T* p = plane + at[t];
        left += p[0] * w[t];
        total += p[1] * w[t + 1];
      }
      total += left;
    } else {
      for (int t = 0; t < taps; ++t)
        if (at[t] >= 0) total += plane[at[t]] * w[t];
    }
    out[i] = total;
  }
}

template <typename T>
void tap_sum(const T* plane, const TapBlock<T>& b, T* out) {
  if (b.taps == 4 && b.run == 2) return tap_sum_of<T, 4, 2>(plane, b, out);
  if (b.taps == 8 && b.run == 2) return tap_sum_of<T, 8, 2>(plane, b, out);
  if (b.taps == 16 && b.run == 4) return tap_sum_of<T, 16, 4>(plane, b, out);
  if (b.taps == 1) return tap_sum_of<T, 1, 1>(plane, b, out);
  tap_sum_of<T, 0, 1>(plane, b, out);
}

template <typename T>
void tap_scatter(T* plane, const TapBlock<T>& b, const T* g) {
  constexpr int L = kTapLanes<T>;
  for (int64_t i = 0; i < b.points; ++i) {
    const int64_t* at = b.offsets + i * b.taps;
    const T* w = b.weights + i * b.taps;
    const T value = g[i];
    if (b.regular[i] && b.run == 4) {
      for (int t = 0; t < b.taps; t += 4)
        for (int k = 0; k < 4; k += L) {
          T* p = plane + at[t] + k;
          store<T, L>(p, load<T, L>(p) + load<T, L>(w + t + k) * value);
        }
    } else {
      for (int t = 0; t < b.taps; ++t)
        if (at[t] >= 0) plane[at[t]] += w[t] * value;
    }
  }
}

template <typename T>
void tap_dot(const T* plane, const TapBlock<T>& b, const T* g, T* sums) {
  constexpr int L = kTapLanes<T>;
  for (int64_t i = 0; i < b.points; ++i) {
    const int64_t* at = b.offsets + i * b.taps;
    T* s = sums + i * b.taps;
    const T value = g[i];
    if (b.regular[i] && b.run == 4) {
      for (int t = 0; t < b.taps; t += 4)
        for (int k = t; k < t + 4; k += L)
          store<T, L>(s + k, load<T, L>(s + k) + load<T, L>(plane + at[t] + k - t) * value);
    } else {
      for (int t = 0; t < b.taps; ++t)
        if (at[t] >= 0) s[t] += plane[at[t]] * value;
    }
  }
}

template <typename T>
constexpr TapKernels<T> tap_kernels() {
  return {&tap_sum<T>, &tap_scatter<T>, &tap_dot<T>};
}

}  // namespace tandem::library::TANDEM_ISA
