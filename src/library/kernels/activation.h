// Activations of vectors; see ActivationKernel.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/row.h"

namespace tandem::library::TANDEM_ISA {

using Floats = VectorOf<float, kWidth<float>>::type;

inline Floats sigmoid(Floats x) {
  const Floats bounded = x < -87.0f ? Floats{} - 87.0f : x;  // exp overflows beyond it
  return 1.0f / (1.0f + exp<float, kWidth<float>>(-bounded));
}

inline Floats tanh(Floats x) {
  const Floats size = x < 0.0f ? -x : x, z = x * x;
  Floats p = z * -5.70498872745e-3f + 2.06390887954e-2f;  // Cephes, for sizes below 0.625
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const Floats near = p * z * x + x;
  const Floats far = 1.0f - 2.0f / (exp<float, kWidth<float>>(2.0f * (size > 20.0f ? Floats{} + 20.0f : size)) + 1.0f);
  return size < 0.625f ? near : x != x ? x : x < 0.0f ? -far : far;
}

inline Floats leaky_relu(Floats x, float alpha) {
  return x > 0.0f ? x : alpha * x;
}

inline Floats hard_swish(Floats x) {
  const Floats t = (x + 3.0f) / 6.0f, low = t < 0.0f ? Floats{} : t;
  return x * (low > 1.0f ? Floats{} + 1.0f : low);
}

// x = f(x), of n floats.
template <typename F>
inline __attribute__((always_inline)) void for_floats(float* x, int64_t n, F&& f) {
  constexpr int W = kWidth<float>;
  int64_t i = 0;
  for (; i + W <= n; i += W) store(x + i, f(load(x + i)));
  if (i == n) return;
  float rest[W] = {};
  for (int64_t k = i; k < n; ++k) rest[k - i] = x[k];
  store(rest, f(load(rest)));
  for (int64_t k = i; k < n; ++k) x[k] = rest[k - i];
}

inline bool activate(float* x, int64_t n, Activation kind, float alpha, float beta) {
  switch (kind) {
    case Activation::None:
      return true;
    case Activation::Relu:
      for_floats(x, n, [](Floats v) { return v < 0.0f ? Floats{} : v; });
      return true;
    case Activation::Clip:
      for_floats(x, n, [&](Floats v) {
        const Floats low = v < alpha ? Floats{} + alpha : v;
        return low > beta ? Floats{} + beta : low;
      });
      return true;
    case Activation::Silu:
      for_floats(x, n, [](Floats v) { return v * sigmoid(v); });
      return true;
    case Activation::Sigmoid:
      for_floats(x, n, [](Floats v) { return sigmoid(v); });
      return true;
    case Activation::HardSwish:
      for_floats(x, n, [](Floats v) { return hard_swish(v); });
      return true;
    case Activation::LeakyRelu:
      for_floats(x, n, [&](Floats v) { return leaky_relu(v, alpha); });
      return true;
    default:
      return false;
  }
}

}  // namespace tandem::library::TANDEM_ISA
