// The first position of the largest or smallest element of a row; see SearchKernels.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

// Blocks are searched for their extremum alone, which takes a comparison an element; where it is, is looked up at the
// end in the one block that has it. NaN counts as the extremum.
template <typename T, bool Largest>
int64_t arg_extremum(const T* x, int64_t n) {
  constexpr int W = kWidth<T>, kVectors = 4;
  constexpr int64_t kBlock = 1024;
  using V = typename VectorOf<T, W>::type;
  const auto beats = [](T a, T b) { return Largest ? a > b : a < b; };
  T best = x[0];
  int64_t where = 0;
  if (best != best) return 0;
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t length = n - start < kBlock ? n - start : kBlock;
    const T* row = x + start;
    T found = row[0];
    bool odd = false;  // whether there is a NaN
    int64_t i = 0;
    if (length >= W * kVectors) {
      V lanes[kVectors];
      for (int v = 0; v < kVectors; ++v) lanes[v] = load<T>(row + v * W);
      auto same = lanes[0] == lanes[0];
      for (int v = 1; v < kVectors; ++v) same &= lanes[v] == lanes[v];
      for (i = W * kVectors; i + W * kVectors <= length; i += W * kVectors)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const V next = load<T>(row + i + v * W);
          same &= next == next;
          lanes[v] = (Largest ? next > lanes[v] : next < lanes[v]) ? next : lanes[v];
        }
      for (int v = 0; v < kVectors; ++v)
        for (int w = 0; w < W; ++w) found = beats(lanes[v][w], found) ? lanes[v][w] : found;
      for (int w = 0; w < W; ++w) odd |= !same[w];
    }
    for (; i < length; ++i) {
      odd |= row[i] != row[i];
      found = beats(row[i], found) ? row[i] : found;
    }
    if (odd)
      for (int64_t k = 0; k < length; ++k)
        if (row[k] != row[k]) return start + k;
    if (beats(found, best)) best = found, where = start;
  }
  constexpr int64_t kLook = 64;
  for (; where + kLook <= n; where += kLook) {
    int32_t found = 0;
    for (int64_t k = 0; k < kLook; ++k) found |= x[where + k] == best;
    if (found) break;
  }
  while (!(x[where] == best)) ++where;
  return where;
}

template <typename T>
constexpr SearchKernels<T> search_kernels() {
  return {&arg_extremum<T, true>, &arg_extremum<T, false>};
}

}  // namespace tandem::library::TANDEM_ISA
