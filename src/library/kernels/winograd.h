// The transforms of Winograd's convolutions, for as many channels at once as fit a vector; see Note [Winograd] in
// library/conv_winograd.cc. Each transform is a matrix L applied to both axes of a block: L block L^T.
#pragma once
#include "library/kernels/kernels.h"
#include "library/kernels/vector.h"

namespace tandem::library::TANDEM_ISA {

using Lanes = VectorOf<float, kWidth<float>>::type;

constexpr float kNear = 0.70710678118654752440f, kFar = 1.41421356237309504880f;  // the points other than 0

// Blocks of 4 x 4 outputs: the points are 0, +-near, +-far and infinity.
struct Large {
  static constexpr int kBlock = 4, kPatch = 6;
  struct ToPoints;          // six positions of the input at the six points
  struct FromPoints;        // products at the points to four positions of the output
  struct GradientToPoints;  // the transpose of FromPoints: gradients of four positions at the points
  struct TapsToPoints;      // three taps of the weights at the points
  struct PointsToTaps;      // the transpose of TapsToPoints: gradients at the points to those of three taps
};

struct Large::ToPoints {
  static constexpr int kIn = 6, kOut = 6;
  static inline __attribute__((always_inline)) void apply(const Lanes (&d)[6], Lanes (&t)[6]) {
    const Lanes even = d[4] - 2.0f * d[2], odd = kNear * (d[3] - 2.0f * d[1]);
    const Lanes far_even = d[4] - 0.5f * d[2], far_odd = kFar * (d[3] - 0.5f * d[1]);
    t[0] = d[0] - 2.5f * d[2] + d[4];
    t[1] = even + odd;
    t[2] = even - odd;
    t[3] = far_even + far_odd;
    t[4] = far_even - far_odd;
    t[5] = d[1] - 2.5f * d[3] + d[5];
  }
};

struct Large::FromPoints {
  static constexpr int kIn = 6, kOut = 4;
  static inline __attribute__((always_inline)) void apply(const Lanes (&m)[6], Lanes (&y)[4]) {
    const Lanes sum = m[1] + m[2], difference = m[1] - m[2], far_sum = m[3] + m[4], far_difference = m[3] - m[4];
    y[0] = m[0] + sum + far_sum;
    y[1] = kNear * difference + kFar * far_difference;
    y[2] = 0.5f * sum + 2.0f * far_sum;
    y[3] = 0.5f * kNear * difference + 2.0f * kFar * far_difference + m[5];
  }
};

struct Large::GradientToPoints {
  static constexpr int kIn = 4, kOut = 6;
  static inline __attribute__((always_inline)) void apply(const Lanes (&y)[4], Lanes (&t)[6]) {
    const Lanes even = y[0] + 0.5f * y[2], odd = kNear * (y[1] + 0.5f * y[3]);
    const Lanes far_even = y[0] + 2.0f * y[2], far_odd = kFar * (y[1] + 2.0f * y[3]);
    t[0] = y[0];
    t[1] = even + odd;
    t[2] = even - odd;
    t[3] = far_even + far_odd;
    t[4] = far_even - far_odd;
    t[5] = y[3];
  }
};

struct Large::TapsToPoints {
  static constexpr int kIn = 3, kOut = 6;
  static inline __attribute__((always_inline)) void apply(const Lanes (&w)[3], Lanes (&u)[6]) {
    const Lanes even = (w[0] + 0.5f * w[2]) * (-1.0f / 1.5f), odd = w[1] * (-kNear / 1.5f);
    const Lanes far_even = (w[0] + 2.0f * w[2]) * (1.0f / 6.0f), far_odd = w[1] * (kFar / 6.0f);
    u[0] = w[0];
    u[1] = even + odd;
    u[2] = even - odd;
    u[3] = far_even + far_odd;
    u[4] = far_even - far_odd;
    u[5] = w[2];
  }
};

struct Large::PointsToTaps {
  static constexpr int kIn = 6, kOut = 3;
  static inline __attribute__((always_inline)) void apply(const Lanes (&u)[6], Lanes (&w)[3]) {
    const Lanes sum = (u[1] + u[2]) * (-1.0f / 1.5f), difference = (u[1] - u[2]) * (-kNear / 1.5f);
    const Lanes far_sum = (u[3] + u[4]) * (1.0f / 6.0f), far_difference = (u[3] - u[4]) * (kFar / 6.0f);
    w[0] = u[0] + sum + far_sum;
    w[1] = difference + far_difference;
    w[2] = 0.5f * sum + 2.0f * far_sum + u[5];
  }
};

// Blocks of 2 x 2 outputs: the points are 0, 1, -1 and infinity. The same five transforms.
struct Small {
  static constexpr int kBlock = 2, kPatch = 4;
  struct ToPoints {
    static constexpr int kIn = 4, kOut = 4;
    static inline __attribute__((always_inline)) void apply(const Lanes (&d)[4], Lanes (&t)[4]) {
      t[0] = d[0] - d[2];
      t[1] = d[1] + d[2];
      t[2] = d[2] - d[1];
      t[3] = d[1] - d[3];
    }
  };
  struct FromPoints {
    static constexpr int kIn = 4, kOut = 2;
    static inline __attribute__((always_inline)) void apply(const Lanes (&m)[4], Lanes (&y)[2]) {
      y[0] = m[0] + (m[1] + m[2]);
      y[1] = (m[1] - m[2]) - m[3];
    }
  };
  struct GradientToPoints {
    static constexpr int kIn = 2, kOut = 4;
    static inline __attribute__((always_inline)) void apply(const Lanes (&y)[2], Lanes (&t)[4]) {
      t[0] = y[0];
      t[1] = y[0] + y[1];
      t[2] = y[0] - y[1];
      t[3] = -y[1];
    }
  };
  struct TapsToPoints {
    static constexpr int kIn = 3, kOut = 4;
    static inline __attribute__((always_inline)) void apply(const Lanes (&w)[3], Lanes (&u)[4]) {
      const Lanes even = w[0] + w[2];
      u[0] = w[0];
      u[1] = 0.5f * (even + w[1]);
      u[2] = 0.5f * (even - w[1]);
      u[3] = w[2];
    }
  };
  struct PointsToTaps {
    static constexpr int kIn = 4, kOut = 3;
    static inline __attribute__((always_inline)) void apply(const Lanes (&u)[4], Lanes (&w)[3]) {
      const Lanes even = 0.5f * (u[1] + u[2]);
      w[0] = u[0] + even;
      w[1] = 0.5f * (u[1] - u[2]);
      w[2] = even + u[3];
    }
  };
};

// store(i, j, value) for the block whose element (i, j) is load(i, j).
template <typename Transform, typename Load, typename Store>
inline __attribute__((always_inline)) void transform(Load&& load, Store&& store) {
  constexpr int I = Transform::kIn, O = Transform::kOut;
  Lanes half[O][I];
#pragma GCC unroll 6
  for (int j = 0; j < I; ++j) {
    Lanes in[I], out[O];
#pragma GCC unroll 6
    for (int i = 0; i < I; ++i) in[i] = load(i, j);
    Transform::apply(in, out);
#pragma GCC unroll 6
    for (int i = 0; i < O; ++i) half[i][j] = out[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < O; ++i) {
    Lanes out[O];
    Transform::apply(half[i], out);
#pragma GCC unroll 6
    for (int j = 0; j < O; ++j) store(i, j, out[j]);
  }
}

template <typename Method, typename Transform>
void blocks_to_points(const float* rows, int64_t width, int64_t channels, int64_t blocks, float* to, int64_t apart) {
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t c = 0; c < channels; c += kWidth<float>) {
      const float* from = rows + block * Method::kBlock * channels + c;
      float* target = to + block * channels + c;
      transform<Transform>([&](int i, int j) { return load(from + (i * width + j) * channels); },
                           [&](int i, int j, Lanes value) { store(target + (i * Method::kPatch + j) * apart, value); });
    }
}

template <typename Method>
void points_to_blocks(const float* from, int64_t apart, int64_t channels, int64_t blocks, const float* bias,
                      float* rows, int64_t width) {
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t c = 0; c < channels; c += kWidth<float>) {
      const float* source = from + block * channels + c;
      float* target = rows + block * Method::kBlock * channels + c;
      const Lanes shift = bias ? load(bias + c) : Lanes{};
      transform<typename Method::FromPoints>(
          [&](int i, int j) { return load(source + (i * Method::kPatch + j) * apart); },
          [&](int i, int j, Lanes value) { store(target + (i * width + j) * channels, value + shift); });
    }
}

template <typename Method, bool TURNED>
void weights_to_points(const float* taps, int64_t k, float* to, int64_t apart) {
  constexpr int N = 2 * kWidth<float>;
  for (int64_t p = 0; p < k; ++p)
    for (int n = 0; n < N; n += kWidth<float>) {
      const float* from = taps + p * 9 * N + n;
      float* target = to + p * N + n;
      transform<typename Method::TapsToPoints>(
          [&](int i, int j) { return load(from + (TURNED ? 8 - i * 3 - j : i * 3 + j) * N); },
          [&](int i, int j, Lanes value) { store(target + (i * Method::kPatch + j) * apart, value); });
    }
}

template <typename Method>
void points_to_weights(const float* from, int64_t apart, int64_t row, int64_t k, float* taps) {
  constexpr int N = 2 * kWidth<float>;
  for (int64_t p = 0; p < k; ++p)
    for (int n = 0; n < N; n += kWidth<float>) {
      const float* source = from + p * row + n;
      float* target = taps + p * 9 * N + n;
      transform<typename Method::PointsToTaps>(
          [&](int i, int j) { return load(source + (i * Method::kPatch + j) * apart); },
          [&](int i, int j, Lanes value) { store(target + (i * 3 + j) * N, value); });
    }
}

template <typename Method>
constexpr WinogradKernels winograd_kernels() {
  return {Method::kBlock,
          2 * kWidth<float>,
          &blocks_to_points<Method, typename Method::ToPoints>,
          &blocks_to_points<Method, typename Method::GradientToPoints>,
          &points_to_blocks<Method>,
          &weights_to_points<Method, false>,
          &weights_to_points<Method, true>,
          &points_to_weights<Method>};
}

}  // namespace tandem::library::TANDEM_ISA
