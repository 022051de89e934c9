// Short rows in order, where their elements lie evenly enough; see OrderKernels.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

template <typename T>
struct SignedOf {
  using type = T;
};
template <>
struct SignedOf<float> {
  using type = int32_t;
};
template <>
struct SignedOf<double> {
  using type = int64_t;
};

// A number of the same order, with -0.0 before 0.0; turned back by the same function.
template <typename T>
inline typename SignedOf<T>::type ordered_bits(typename SignedOf<T>::type bits) {
  using K = typename SignedOf<T>::type;
  constexpr K mask = static_cast<K>(~(uint64_t{1} << (sizeof(T) * 8 - 1)));
  if constexpr (std::is_same_v<T, K>)
    return bits;
  else
    return bits ^ ((bits >> (sizeof(T) * 8 - 1)) & mask);
}

constexpr int64_t kMostInPlace = 48;  // elements of a bucket that insertion may have to sort

// Each element goes to a bucket by its distance from the smallest; what is left is to sort neighbours.
template <typename T>
bool sort_even(const T* x, int64_t n, T* to, char* work) {
  using K = typename SignedOf<T>::type;
  using U = std::make_unsigned_t<K>;
  constexpr bool floating = !std::is_same_v<T, K>;
  constexpr int W = kWidth<T>;
  K* keys = reinterpret_cast<K*>(work);
  K* sorted = keys + n;
  uint16_t* place = reinterpret_cast<uint16_t*>(sorted + n);
  uint16_t* counts = place + n;
  T low = x[0], high = x[0];
  bool odd = x[0] != x[0];
  int64_t i = 0;
  if (n >= W) {
    auto lows = load<T>(x), highs = lows;
    auto same = lows == lows;
    for (i = W; i + W <= n; i += W) {
      const auto v = load<T>(x + i);
      lows = v < lows ? v : lows;
      highs = v > highs ? v : highs;
      same &= v == v;
    }
    for (int w = 0; w < W; ++w) {
      low = lows[w] < low ? lows[w] : low;
      high = highs[w] > high ? highs[w] : high;
      odd |= !same[w];
    }
  }
  for (; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    odd |= x[i] != x[i];
  }
  int64_t buckets = 64;
  while (buckets < 2 * n) buckets *= 2;
  if constexpr (floating) {
    const T scale = static_cast<T>(buckets - 1) / (high - low);
    if (odd || !(scale > 0 && scale < static_cast<T>(1e30)) || !(high - low < static_cast<T>(1e30))) return false;
    for (i = 0; i < n; ++i) place[i] = static_cast<uint16_t>(static_cast<int32_t>((x[i] - low) * scale));
    for (i = 0; i < n; ++i) keys[i] = ordered_bits<T>(__builtin_bit_cast(K, x[i]));
  } else {
    int shift = 0;
    while (((static_cast<U>(high) - static_cast<U>(low)) >> shift) >= static_cast<U>(buckets)) ++shift;
    for (i = 0; i < n; ++i) place[i] = static_cast<uint16_t>((static_cast<U>(x[i]) - static_cast<U>(low)) >> shift);
    for (i = 0; i < n; ++i) keys[i] = x[i];
  }
  for (i = 0; i < buckets; ++i) counts[i] = 0;
  for (i = 0; i < n; ++i) ++counts[place[i]];
  uint16_t most = 0;
  for (i = 0; i < buckets; ++i) most = counts[i] > most ? counts[i] : most;
  if (most > kMostInPlace) return false;
  uint16_t sum = 0;
  for (i = 0; i < buckets; ++i) {
    const uint16_t count = counts[i];
    counts[i] = sum;
    sum = static_cast<uint16_t>(sum + count);
  }
  for (i = 0; i < n; ++i) sorted[counts[place[i]]++] = keys[i];
  for (i = 1; i < n; ++i) {
    const K key = sorted[i];
    int64_t at = i;
    for (; at > 0 && sorted[at - 1] > key; --at) sorted[at] = sorted[at - 1];
    sorted[at] = key;
  }
  for (i = 0; i < n; ++i) to[i] = __builtin_bit_cast(T, ordered_bits<T>(sorted[i]));
  return true;
}

template <typename T>
constexpr OrderKernels<T> order_kernels() {
  return {&sort_even<T>};
}

}  // namespace tandem::library::TANDEM_ISA
