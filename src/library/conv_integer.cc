// conv_integer (x (N, C, spatial...), weight, sums (O), x_zero (), w_zero (O)) -> (N, O, spatial...), channels last:
// the sum over a window of (x - x_zero) * (w - w_zero), exactly, in 32 bits. x: unsigned bytes; weight: signed ones,
// packed (Note [Integer products]), windows in the order (spatial..., C); sums: of an output's weights. What lies
// outside of an image is x_zero. ints: [kernel...] and those of a convolution.
#include <algorithm>
#include <cstring>

#include "check.h"
#include "device/parallel.h"
#include "library/byte_windows.h"
#include "library/gemm_int8.h"
#include "library/registry.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

constexpr int64_t kRows = 48;           // windows that are gathered at a time
constexpr double kPerProduct = 0.0025;  // nanoseconds

const int32_t* integers_of(const View& v, int64_t n, const char* what) {
  const bool fits =
      v.dtype == DType::Int32 && v.is_contiguous() && (n < 0 ? v.ndim == 0 : v.ndim == 1 && v.shape[0] == n);
  TD_CHECK(fits, what, " of an integer convolution");
  return reinterpret_cast<const int32_t*>(v.data);
}

// Images with channels last: x itself, or a copy.
const uint8_t* channels_last(const View& x, Scratch<uint8_t>& copy) {
  View dense = x;
  for (int d = 1; d + 1 < x.ndim; ++d) dense.shape[d] = x.shape[d + 1], dense.strides[d] = x.strides[d + 1];
  dense.shape[x.ndim - 1] = x.shape[1], dense.strides[x.ndim - 1] = x.strides[1];
  if (dense.is_contiguous()) return reinterpret_cast<const uint8_t*>(dense.data);
  copy.resize(static_cast<size_t>(x.numel()));
  View target = dense;
  target.data = reinterpret_cast<char*>(copy.data());
  set_contiguous(target);
  copy_elements(dense, target);
  return copy.data();
}

int32_t sum_of(const uint8_t* row, int64_t k) {
  int32_t total = 0;
  for (int64_t i = 0; i < k; ++i) total += row[i];
  return total;
}

// What the zero points take off: sum (x - a) (w - b) = sum x w - a (sum w) - b (sum x) + k a b
struct ZeroPoints {
  int32_t x, k;
  const int32_t *weights, *sums;
  bool of_weights;  // whether any of those is other than 0

  void take_off(int32_t* c, int64_t n, const uint8_t* row) const {
    for (int64_t j = 0; j < n; ++j) c[j] -= x * sums[j];
    if (!of_weights) return;
    const int32_t rest = sum_of(row, k) - k * x;
    for (int64_t j = 0; j < n; ++j) c[j] -= weights[j] * rest;
  }
};

void run_conv_integer(const Call& call) {
  TD_CHECK(call.num_inputs == 5 && call.num_outputs == 1);
  const View &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  TD_CHECK(x.dtype == DType::UInt8 && y.dtype == DType::Int32 && x.shape[0] == y.shape[0], "operands of conv_integer");
  const ByteWindow g = byte_window(call, x, y);
  const int64_t k = g.taps() * g.channels, n = y.shape[1], k4 = (k + 3) / 4, row = k4 * 4, batch = x.shape[0];
  TD_CHECK(w.dtype == DType::Int8 && w.ndim == 4 && w.is_contiguous() &&
               w.shape[0] == (n + kInt8Panel - 1) / kInt8Panel && w.shape[1] == k4 && w.shape[2] == kInt8Panel &&
               w.shape[3] == 4,
           "packed weights of conv_integer");
  ZeroPoints zeros{*integers_of(call.inputs[3], -1, "zero point"), static_cast<int32_t>(k),
                   integers_of(call.inputs[4], n, "zero points"), integers_of(call.inputs[2], n, "sums"), false};
  zeros.of_weights = std::any_of(zeros.weights, zeros.weights + n, [](int32_t z) { return z != 0; });
  TD_CHECK(zeros.x >= 0 && zeros.x <= 255, "the zero point of an integer convolution must be a byte, not ", zeros.x);
  if (y.numel() == 0) return;
  Scratch<uint8_t> copy;
  const uint8_t* images = channels_last(x, copy);
  const int64_t positions = g.positions(), total = batch * positions, image = g.in[0] * g.in[1] * g.in[2] * g.channels;
  const bool in_place = g.is_pointwise() && k == row;
  auto* c = reinterpret_cast<int32_t*>(y.data);
  const auto* panels = reinterpret_cast<const int8_t*>(w.data);
  parallel_for((total + kRows - 1) / kRows, kPerProduct * static_cast<double>(kRows * n * k) + 10 * kRows,
               [&](int64_t begin, int64_t end) {
                 const Scratch<uint8_t> windows(in_place ? 0 : static_cast<size_t>(kRows * row));
                 for (int64_t t = begin; t < end; ++t) {
                   const int64_t first = t * kRows, rows = std::min(kRows, total - first);
                   const uint8_t* left = images + first * row;
                   for (int64_t i = 0; i < rows && !in_place; ++i) {
                     uint8_t* to = windows.data() + i * row;
                     gather(g, images + (first + i) / positions * image, (first + i) % positions, zeros.x, to);
                     std::memset(to + k, 0, static_cast<size_t>(row - k));
                   }
                   if (!in_place) left = windows.data();
                   int8_sums(left, row, rows, panels, k4, n, c + first * n, n);
                   for (int64_t i = 0; i < rows; ++i) zeros.take_off(c + (first + i) * n, n, left + i * row);
                 }
               });
}

const Register conv_integer("conv_integer", &run_conv_integer);

}  // namespace
}  // namespace tandem::library
