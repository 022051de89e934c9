// linear_int8 (x (m, k), weight, scale (n), weight_sums (n)[, bias (n)]) -> (m, n): activations are rounded to 8 bits,
// each row with a scale of its own or all with the one of floats[0]. weight: packed (Note [Integer products]), (panels,
// k / 4, 32, 4). linear_int4 (x (m, k), weight, scale (groups, n)[, bias (n)]) -> (m, n): the same of 4-bit weights,
// whose groups and rows' groups have scales of their own. weight: (panels, groups, g / 8, 16, 4). ints: [k of a group].
// conv_int8 (x (N, C, spatial...), weight, scale (O), weight_sums (O)[, bias (O)]) -> (N, O, spatial...), channels
// last: windows as rows, in the order (spatial..., C). ints: [kernel...] and those of a convolution; floats: the scale
// of x, 0 for its own. All in float32.
#include <algorithm>
#include <cmath>
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

constexpr int64_t kRows = 96;           // of a task with many
constexpr double kPerProduct = 0.0025;  // nanoseconds

int64_t up(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

const float* floats_of(const View& v) {
  return reinterpret_cast<const float*>(v.data);
}

void check_vector(const View& v, DType dtype, int64_t n, const char* what) {
  TD_CHECK(v.dtype == dtype && v.ndim == 1 && v.shape[0] == n && v.is_contiguous(), what, " of an integer product");
}

// The operands after the weight.
Int8Output output_of(const Call& call, int64_t n) {
  check_vector(call.inputs[2], DType::Float32, n, "scale");
  check_vector(call.inputs[3], DType::Int32, n, "sums");
  if (call.num_inputs == 5) check_vector(call.inputs[4], DType::Float32, n, "bias");
  return {floats_of(call.inputs[2]), reinterpret_cast<const int32_t*>(call.inputs[3].data),
          call.num_inputs == 5 ? floats_of(call.inputs[4]) : nullptr};
}

void check_weight(const View& w, int64_t k, int64_t n) {
  TD_CHECK(w.dtype == DType::Int8 && w.ndim == 4 && w.is_contiguous() && w.shape[0] == up(n, kInt8Panel) &&
               w.shape[1] == up(k, 4) && w.shape[2] == kInt8Panel && w.shape[3] == 4,
           "packed weights of an integer product");
}

void run_linear_int8(const Call& call) {
  TD_CHECK((call.num_inputs == 4 || call.num_inputs == 5) && call.num_outputs == 1 && call.num_floats == 1);
  const View &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  TD_CHECK(x.dtype == DType::Float32 && y.dtype == DType::Float32 && x.ndim == 2 && y.ndim == 2 && x.strides[1] == 1 &&
               y.is_contiguous() && x.shape[0] == y.shape[0],
           "operands of linear_int8");
  const int64_t m = x.shape[0], k = x.shape[1], n = y.shape[1], k4 = up(k, 4), row = k4 * 4;
  check_weight(w, k, n);
  const Int8Output output = output_of(call, n);
  if (m == 0 || n == 0) return;
  const Scratch<uint8_t> quantized(static_cast<size_t>(m * row));
  const Scratch<float> scales(static_cast<size_t>(m));
  const auto given = static_cast<float>(call.floats[0]);
  parallel_for(m, 0.2 * static_cast<double>(k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      scales[i] = quantize_row(floats_of(x) + i * x.strides[0], k, row, given, quantized.data() + i * row);
  });
  // A task takes one panel and some rows: of panels the weights stay near, whose rows come by again and again.
  const int64_t panels = w.shape[0], blocks = up(m, kRows);
  float* c = reinterpret_cast<float*>(y.data);
  const double cost = kPerProduct * static_cast<double>(std::min(m, kRows) * kInt8Panel * k) + 0.04 * kInt8Panel * k;
  parallel_for(panels * blocks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t panel = t / blocks, i = t % blocks * kRows, rows = std::min(kRows, m - i);
      int8_rows(quantized.data() + i * row, row, scales.data() + i, rows, reinterpret_cast<const int8_t*>(w.data), k4,
                panel, std::min(kInt8Panel, n - panel * kInt8Panel), output, c + i * n + panel * kInt8Panel, n);
    }
  });
}

void run_linear_int4(const Call& call) {
  TD_CHECK((call.num_inputs == 3 || call.num_inputs == 4) && call.num_outputs == 1 && call.num_ints == 1);
  const View &x = call.inputs[0], &w = call.inputs[1], &scale = call.inputs[2], &y = call.outputs[0];
  TD_CHECK(x.dtype == DType::Float32 && y.dtype == DType::Float32 && x.ndim == 2 && y.ndim == 2 && x.strides[1] == 1 &&
               y.is_contiguous() && x.shape[0] == y.shape[0],
           "operands of linear_int4");
  const int64_t m = x.shape[0], k = x.shape[1], n = y.shape[1], g = call.ints[0];
  TD_CHECK(g > 0 && g % 8 == 0 && k % g == 0, "groups of linear_int4");
  const int64_t groups = k / g;
  TD_CHECK(w.dtype == DType::UInt8 && w.ndim == 5 && w.is_contiguous() && w.shape[0] == up(n, kInt4Panel) &&
               w.shape[1] == groups && w.shape[2] == g / 8 && w.shape[3] == kInt4Panel && w.shape[4] == 4,
           "packed weights of linear_int4");
  TD_CHECK(scale.dtype == DType::Float32 && scale.ndim == 2 && scale.is_contiguous() && scale.shape[0] == groups &&
               scale.shape[1] == n,
           "scale of linear_int4");
  const float* bias = nullptr;
  if (call.num_inputs == 4) check_vector(call.inputs[3], DType::Float32, n, "bias"), bias = floats_of(call.inputs[3]);
  if (m == 0 || n == 0) return;
  const Scratch<int8_t> quantized(static_cast<size_t>(m * k));
  const Scratch<float> scales(static_cast<size_t>(m * groups));
  const Scratch<int32_t> sums(static_cast<size_t>(m * groups));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t group = 0; group < groups; ++group)
      scales[i * groups + group] = quantize_group(floats_of(x) + i * x.strides[0] + group * g, g,
                                                  quantized.data() + i * k + group * g, &sums[i * groups + group]);
  float* c = reinterpret_cast<float*>(y.data);
  parallel_for(w.shape[0], 0.03 * static_cast<double>(m * k * kInt4Panel), [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel)
      for (int64_t i = 0; i < m; ++i) {
        const int64_t first = panel * kInt4Panel;
        int4_row(quantized.data() + i * k, scales.data() + i * groups, sums.data() + i * groups,
                 reinterpret_cast<const uint8_t*>(w.data), floats_of(scale), groups, g, n, panel,
                 std::min(kInt4Panel, n - first), bias, c + i * n + first);
      }
  });
}

// Images as bytes, with channels last.
struct Bytes {
  Scratch<uint8_t> memory;
  float scale;
};

void quantize_images(const View& x, float scale, Bytes& to) {
  View dense = x;
  Scratch<float> copy;
  const int64_t channels = x.shape[1], stride = x.strides[1];
  for (int d = 1; d + 1 < x.ndim; ++d) dense.shape[d] = x.shape[d + 1], dense.strides[d] = x.strides[d + 1];
  dense.shape[x.ndim - 1] = channels, dense.strides[x.ndim - 1] = stride;
  if (!dense.is_contiguous()) {
    copy.resize(static_cast<size_t>(x.numel()));
    View target = dense;
    target.data = reinterpret_cast<char*>(copy.data());
    set_contiguous(target);
    copy_elements(dense, target);
    dense = target;
  }
  const int64_t count = x.numel();
  const float* from = floats_of(dense);
  to.memory.resize(static_cast<size_t>(count));
  constexpr int64_t kPart = 4096;
  const int64_t parts = up(count, kPart);
  if (scale == 0) {
    const Scratch<float> own(static_cast<size_t>(parts));
    parallel_for(parts, 0.2 * kPart, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        own[p] = largest_number(from + p * kPart, std::min(kPart, count - p * kPart));
    });
    for (int64_t p = 0; p < parts; ++p) scale = scale > own[p] || std::isnan(scale) ? scale : own[p];
    scale = scale == 0 ? 1 : scale / 127;
  }
  to.scale = scale;
  parallel_for(parts, 0.2 * kPart, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t n = std::min(kPart, count - p * kPart);
      quantize_row(from + p * kPart, n, n, to.scale, to.memory.data() + p * kPart);
    }
  });
}

void run_conv_int8(const Call& call) {
  TD_CHECK((call.num_inputs == 4 || call.num_inputs == 5) && call.num_outputs == 1 && call.num_floats == 1);
  const View &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  TD_CHECK(x.dtype == DType::Float32 && y.dtype == DType::Float32 && x.shape[0] == y.shape[0], "operands of conv_int8");
  const ByteWindow g = byte_window(call, x, y);
  const int64_t k = g.taps() * g.channels, n = y.shape[1], k4 = up(k, 4), row = k4 * 4, batch = x.shape[0];
  check_weight(w, k, n);
  const Int8Output output = output_of(call, n);
  if (y.numel() == 0) return;
  Bytes bytes;
  quantize_images(x, static_cast<float>(call.floats[0]), bytes);
  const Scratch<float> scales(kRows);
  std::fill_n(scales.data(), kRows, bytes.scale);
  const int64_t positions = g.positions(), total = batch * positions, image = g.in[0] * g.in[1] * g.in[2] * g.channels;
  const bool in_place = g.taps() == 1 && k == row && g.in[0] == g.out[0] && g.in[1] == g.out[1] && g.in[2] == g.out[2];
  float* c = reinterpret_cast<float*>(y.data);
  parallel_for(up(total, kRows), kPerProduct * static_cast<double>(kRows * n * k), [&](int64_t begin, int64_t end) {
    const Scratch<uint8_t> windows(in_place ? 0 : static_cast<size_t>(kRows * row));
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t * kRows, rows = std::min(kRows, total - first);
      const uint8_t* left = bytes.memory.data() + first * row;
      if (!in_place) {
        left = windows.data();
        for (int64_t i = 0; i < rows; ++i) {
          uint8_t* to = windows.data() + i * row;
          gather(g, bytes.memory.data() + (first + i) / positions * image, (first + i) % positions, kInt8Zero, to);
          std::memset(to + k, static_cast<int>(kInt8Zero), static_cast<size_t>(row - k));
        }
      }
      int8_rows(left, row, scales.data(), rows, reinterpret_cast<const int8_t*>(w.data), k4, 0, n, output,
                c + first * n, n);
    }
  });
}

const Register linear_int8("linear_int8", &run_linear_int8);
const Register linear_int4("linear_int4", &run_linear_int4);
const Register conv_int8("conv_int8", &run_conv_int8);

}  // namespace
}  // namespace tandem::library
