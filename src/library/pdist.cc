// pdist (x) -> (n (n - 1) / 2), floats [p]: distances of all pairs of the rows of x (n, d) by the p-norm, in the order
// (0, 1), (0, 2), ..., (1, 2), ... float32 and float64.
#include <algorithm>
#include <cmath>

#include "device/parallel.h"
#include "library/kernels/kernels.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

template <typename T>
const DistanceKernels<T>& distance_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().distance_f32;
  else
    return kernels().distance_f64;
}

template <typename T>
void any_norm(const T* points, int64_t apart, const T* x, int64_t d, int64_t n, T* out, T p) {
  for (int64_t i = 0; i < n; ++i) {
    double total = 0;
    for (int64_t k = 0; k < d; ++k) {
      const T size = std::abs(points[k * apart + i] - x[k]);
      total += p == 0 ? T(size != 0) : std::pow(size, p);
    }
    out[i] = static_cast<T>(p == 0 ? total : std::pow(total, 1.0 / static_cast<double>(p)));
  }
}

// Sums over many coordinates are added up from slices: one long sum in float32 was off by 0.35 % of a distance at
// ten million.
template <typename T, typename Kernel>
void sum_in_slices(Kernel kernel, const T* points, int64_t apart, const T* x, int64_t d, int64_t n, T* out) {
  constexpr int64_t kSlice = 512;
  if (d <= kSlice) return kernel(points, apart, x, d, n, out);
  Scratch<double> totals(n);
  std::fill_n(totals.data(), n, 0.0);
  for (int64_t k = 0; k < d; k += kSlice) {
    kernel(points + k * apart, apart, x + k, std::min(kSlice, d - k), n, out);
    for (int64_t i = 0; i < n; ++i) totals[i] += static_cast<double>(out[i]);
  }
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(totals[i]);
}

template <typename T>
void run(const View& x, const View& out, double p) {
  const int64_t n = x.shape[0], d = x.shape[1];
  // Coordinate by coordinate: neighbouring results then read neighbouring elements.
  Scratch<T> points(n * d + 1), rows(n * d + 1);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < d; ++k)
      points[k * n + i] = rows[i * d + k] = x.as<T>()[i * x.strides[0] + k * x.strides[1]];
  const auto& kernel = distance_kernels<T>();
  const auto known = p == 1 ? kernel.sum : p == 2 ? kernel.squares : std::isinf(p) ? kernel.largest : nullptr;
  parallel_for(n - 1, n * d * 0.05 * (known ? 1 : 100), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* to = out.as<T>() + i * (2 * n - i - 1) / 2;
      const int64_t count = n - i - 1;
      if (!known) {
        any_norm(points.data() + i + 1, n, rows.data() + i * d, d, count, to, static_cast<T>(p));
        continue;
      }
      if (std::isinf(p))
        known(points.data() + i + 1, n, rows.data() + i * d, d, count, to);
      else
        sum_in_slices(known, points.data() + i + 1, n, rows.data() + i * d, d, count, to);
      if (p == 2)
        for (int64_t k = 0; k < count; ++k) to[k] = std::sqrt(to[k]);
    }
  });
}

void run_pdist(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_floats == 1);
  const View &x = call.inputs[0], &out = call.outputs[0];
  TD_CHECK(x.ndim == 2 && out.ndim == 1 && out.is_contiguous() && out.dtype == x.dtype &&
               out.shape[0] == x.shape[0] * (x.shape[0] - 1) / 2,
           "operands of pdist");
  if (out.shape[0] == 0) return;
  if (x.dtype == DType::Float32)
    run<float>(x, out, call.floats[0]);
  else if (x.dtype == DType::Float64)
    run<double>(x, out, call.floats[0]);
  else
    unsupported("pdist", x.dtype);
}

const Register pdist("pdist", &run_pdist);

}  // namespace
}  // namespace tandem::library
