// Vector exp, and the rows of attention; see RowKernels.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

template <typename T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  using Bits = uint32_t;
  static constexpr float kLowest = -87.33f;   // below, the result is flushed to zero
  static constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer, which then stands in the low bits
  static constexpr int kMantissa = 23;
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  // Of (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2 (Cephes).
  static constexpr float kPolynomial[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                          4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
};
template <>
struct ExpConstants<double> {
  using Bits = uint64_t;
  static constexpr double kLowest = -708.39;
  static constexpr double kRound = 0x1.8p52;
  static constexpr int kMantissa = 52;
  static constexpr double kLn2High = 6.93145751953125e-1, kLn2Low = 1.42860682030941723212e-6;
  // Taylor's series is good enough this close to zero: the next term is below 2^-57.
  static constexpr double kPolynomial[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                           1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                                           1.0 / 120,        1.0 / 24,        1.0 / 6,        1.0 / 2};
};

// exp(x) for x that is not far above zero (scores minus their maximum).
template <typename T, int W>
inline __attribute__((always_inline)) typename VectorOf<T, W>::type exp(typename VectorOf<T, W>::type x) {
  using C = ExpConstants<T>;
  using V = typename VectorOf<T, W>::type;
  using B = typename VectorOf<typename C::Bits, W>::type;
  const V shifted = x * T(1.44269504088896340736) + C::kRound;
  const V n = shifted - C::kRound;
  const V r = (x - n * C::kLn2High) - n * C::kLn2Low;
  V p = V{} + C::kPolynomial[0];
#pragma GCC unroll 16
  for (unsigned i = 1; i < sizeof(C::kPolynomial) / sizeof(T); ++i) p = p * r + C::kPolynomial[i];
  p = p * (r * r) + (r + T(1));
  const B power = __builtin_bit_cast(B, p) + (__builtin_bit_cast(B, shifted) << C::kMantissa);
  return x < C::kLowest ? V{} : x != x ? x : __builtin_bit_cast(V, power);
}

// Calls body(W as a constant, i) for whole vectors and then for single elements.
template <int W>
struct Width {
  static constexpr int value = W;
};
template <typename T, typename Body>
inline __attribute__((always_inline)) void for_vectors(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>) body(Width<kWidth<T>>{}, i);
  for (; i < n; ++i) body(Width<1>{}, i);
}

template <typename T>
T row_max(const T* x, int64_t n) {
  constexpr int W = kWidth<T>;
  T best = x[0];
  int64_t i = 0;
  if (n >= W) {
    auto lanes = load(x);
    for (i = W; i + W <= n; i += W) {
      const auto next = load(x + i);
      lanes = next > lanes ? next : lanes;
    }
    for (int w = 0; w < W; ++w) best = lanes[w] > best ? lanes[w] : best;
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

template <typename T>
T row_exp_sum(T* x, int64_t n, T factor, T shift) {
  typename VectorOf<T, kWidth<T>>::type lanes{};
  T sum = 0;
  for_vectors<T>(n, [&](auto width, int64_t i) __attribute__((always_inline)) {
    constexpr int W = decltype(width)::value;
    const auto e = exp<T, W>(load<T, W>(x + i) * factor - shift);
    store<T, W>(x + i, e);
    if constexpr (W == 1)
      sum += e;
    else
      lanes += e;
  });
  for (int w = 0; w < kWidth<T>; ++w) sum += lanes[w];
  return sum;
}

template <typename T>
T row_dot(const T* x, const T* y, int64_t n) {
  typename VectorOf<T, kWidth<T>>::type lanes{};
  T sum = 0;
  for_vectors<T>(n, [&](auto width, int64_t i) __attribute__((always_inline)) {
    constexpr int W = decltype(width)::value;
    if constexpr (W == 1)
      sum += x[i] * y[i];
    else
      lanes += load(x + i) * load(y + i);
  });
  for (int w = 0; w < kWidth<T>; ++w) sum += lanes[w];
  return sum;
}

template <typename T>
void row_scale(T* x, int64_t n, T factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <typename T>
void row_backward(T* p, T* g, int64_t n, T factor, T log_sum, T delta, T scale) {
  for_vectors<T>(n, [&](auto width, int64_t i) __attribute__((always_inline)) {
    constexpr int W = decltype(width)::value;
    const auto e = exp<T, W>(load<T, W>(p + i) * factor - log_sum);
    store<T, W>(p + i, e);
    store<T, W>(g + i, e * (load<T, W>(g + i) - delta) * scale);
  });
}

template <typename T>
constexpr RowKernels<T> row_kernels() {
  return {&row_max<T>, &row_exp_sum<T>, &row_dot<T>, &row_scale<T>, &row_backward<T>};
}

}  // namespace tandem::library::TANDEM_ISA
