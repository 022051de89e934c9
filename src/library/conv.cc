// conv_forward (x, w[, bias]) -> y, conv_backward_data (g, w) -> dx, conv_backward_weight (x, g) -> dw.
//
// x is (N, C, spatial...), w (O, C / groups, spatial...), y and g (N, O, spatial...), with one to three spatial axes;
// strides tell the layout. ints: [spatial axes, stride..., pad_low..., pad_high..., dilation..., groups].
//
// conv_fused (x, w[, bias][, residual]) -> activation(conv + residual), for float32 and inference. ints: [1 with a bias
// + 2 with a residual, activation] and those above; floats: two of the activation. Weights that stay the same are
// packed once.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "device/parallel.h"
#include "library/conv_choice.h"
#include "library/conv_impl.h"
#include "library/convert.h"
#include "library/deterministic.h"
#include "library/layout.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {

float activate(const Conv& conv, float x) {
  switch (conv.activation) {
    case Activation::Relu:
      return x < 0 ? 0 : x;
    case Activation::Clip:
      return x < conv.alpha ? conv.alpha : x > conv.beta ? conv.beta : x;
    case Activation::Silu:
      return x / (1 + std::exp(-x));
    case Activation::Sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::HardSwish:
      return x * std::clamp((x + 3) / 6, 0.0f, 1.0f);
    case Activation::LeakyRelu:
      return x > 0 ? x : conv.alpha * x;
    case Activation::Gelu:
      return 0.5f * x * (1 + std::erf(x * 0.70710678f));
    default:
      return x;
  }
}

namespace {

Geometry geometry_of(const int64_t* at, int count, const View& x, const View& w, const View& y) {
  Geometry g;
  g.spatial = static_cast<int>(*at++);
  TD_CHECK(g.spatial >= 1 && g.spatial <= 3 && count == 2 + 4 * g.spatial, "attributes of a convolution");
  TD_CHECK(x.ndim == g.spatial + 2 && w.ndim == g.spatial + 2 && y.ndim == g.spatial + 2,
           "dimensions of a convolution");
  const int skip = 3 - g.spatial;
  const auto axes = [&](int64_t (&list)[3], int64_t unused, auto value) {
    for (int d = 0; d < 3; ++d) list[d] = d < skip ? unused : value(d - skip);
  };
  const auto next = [&](int64_t (&list)[3], int64_t unused) {
    axes(list, unused, [&](int d) { return at[d]; });
    at += g.spatial;
  };
  next(g.stride, 1);
  next(g.pad_low, 0);
  next(g.pad_high, 0);
  next(g.dilation, 1);
  g.groups = *at;
  axes(g.in, 1, [&](int d) { return x.shape[2 + d]; });
  axes(g.out, 1, [&](int d) { return y.shape[2 + d]; });
  axes(g.kernel, 1, [&](int d) { return w.shape[2 + d]; });
  g.batch = x.shape[0], g.in_channels = x.shape[1], g.out_channels = y.shape[1];
  TD_CHECK(g.groups >= 1 && w.shape[0] == g.out_channels && w.shape[1] * g.groups == g.in_channels &&
               g.out_channels % g.groups == 0 && y.shape[0] == g.batch,
           "channels of a convolution");
  for (int d = 0; d < 3; ++d) TD_CHECK(g.stride[d] >= 1 && g.dilation[d] >= 1, "stride or dilation of a convolution");
  return g;
}

Geometry geometry_of(const Call& call, const View& x, const View& w, const View& y) {
  return geometry_of(call.ints, call.num_ints, x, w, y);
}

// The output where there is nothing to sum over: zeros, or the bias in every position.
void fill_empty(const Conv& conv, const View& result) {
  if (!conv.bias) return fill_zero(result);
  View spread = result;
  spread.data = conv.bias->data;
  std::fill(spread.strides, spread.strides + spread.ndim, 0);
  spread.strides[1] = conv.bias->strides[0];
  copy_elements(spread, result);
}

void compute(Conv conv);

// conv_fused where oneDNN is not there: the parts, one after the other.
void compute_then_finish(Conv conv) {
  TD_CHECK(conv.y.dtype == DType::Float32, "conv_fused is for float32");
  const Conv all = conv;
  conv.fused = false;
  compute(conv);
  const View& y = conv.y;
  const View& other = all.residual ? *all.residual : y;
  const Loop<2> loop = make_loop<2>({&y, &other}, 0, y.ndim, false);
  const int64_t count = loop.count(0, loop.ndim);
  parallel_for(count, 4, [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims], offset[2];
    loop.locate(begin, loop.ndim, index, offset);
    for (int64_t i = begin; i < end; ++i) {
      float& to = reinterpret_cast<float*>(y.data)[offset[0]];
      to = activate(all, all.residual ? to + reinterpret_cast<const float*>(other.data)[offset[1]] : to);
      loop.advance(loop.ndim, index, offset);
    }
  });
}

View& result_of(Conv& conv) {
  return conv.kind == ConvKind::Forward ? conv.y : conv.kind == ConvKind::BackwardData ? conv.x : conv.w;
}

}  // namespace

bool compute_by(ConvWay way, const Conv& conv) {
  switch (way) {
    case ConvWay::kWinograd:
      return conv_winograd(conv);
    case ConvWay::kPointwise:
      return conv_pointwise(conv);
    case ConvWay::kDepthwise:
      return conv_depthwise_blocks(conv);
    default:
      return !deterministic() && conv_onednn(conv, way == ConvWay::kOneDnnLast);
  }
}

namespace {

void compute(Conv conv) {
  View& result = result_of(conv);
  if (result.numel() == 0) return;
  const Geometry& g = conv.geometry;
  const bool empty_sum = conv.kind == ConvKind::Forward        ? conv.w.numel() == 0
                         : conv.kind == ConvKind::BackwardData ? conv.y.numel() == 0 || conv.w.numel() == 0
                                                               : conv.x.numel() == 0 || conv.y.numel() == 0;
  if (empty_sum || (conv.kind == ConvKind::Forward && g.in_channels == 0))
    return preparing() ? void() : fill_empty(conv, result);
  if (conv.fused) {
    const auto surely_last = [](const View& v) { return is_channels_last(v) && !is_channels_first(v); };
    const bool last = conv.residual || surely_last(conv.x) || surely_last(conv.y);
    if (!deterministic() && ((last && conv_in_parts(conv)) || conv_onednn(conv, last))) return;
    if (preparing()) return;
    return compute_then_finish(conv);
  }
  for (const ConvWay way : ways_of(conv))
    if (compute_by(way, conv)) return;
  if (preparing()) return;
  if (result.dtype == DType::Float32 || result.dtype == DType::Float64) return conv_own(conv);
  if (result.dtype != DType::Float16 && result.dtype != DType::BFloat16) unsupported("convolution", result.dtype);

  Scratch<char> memory[4];
  Conv wide = conv;
  wide.x = stand_in(conv.x, DType::Float32, memory[0], conv.kind != ConvKind::BackwardData);
  wide.w = stand_in(conv.w, DType::Float32, memory[1], conv.kind != ConvKind::BackwardWeight);
  wide.y = stand_in(conv.y, DType::Float32, memory[2], conv.kind != ConvKind::Forward);
  View wide_bias;
  if (conv.bias) wide_bias = stand_in(*conv.bias, DType::Float32, memory[3], true), wide.bias = &wide_bias;
  compute(wide);
  convert_elements(result_of(wide), result);
}

void run_forward(const Call& call) {
  TD_CHECK((call.num_inputs == 2 || call.num_inputs == 3) && call.num_outputs == 1);
  const View &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  const View* bias = call.num_inputs == 3 ? &call.inputs[2] : nullptr;
  TD_CHECK(x.dtype == y.dtype && w.dtype == y.dtype && (!bias || bias->dtype == y.dtype), "dtypes of a convolution");
  TD_CHECK(!bias || (bias->ndim == 1 && bias->shape[0] == y.shape[1]), "bias of a convolution");
  compute({ConvKind::Forward, geometry_of(call, x, w, y), x, w, y, bias});
}

// An image of one column as one of one row: the library works along rows.
void swap_axes(View& v) {
  std::swap(v.shape[2], v.shape[3]);
  std::swap(v.strides[2], v.strides[3]);
}
void lay_down(Conv& conv, View& residual) {
  Geometry& g = conv.geometry;
  if (g.spatial != 2 || g.in[2] != 1 || g.out[2] != 1 || g.kernel[2] != 1 || g.in[1] == 1) return;
  for (int64_t* list : {g.in, g.out, g.kernel, g.stride, g.pad_low, g.pad_high, g.dilation})
    std::swap(list[1], list[2]);
  for (View* v : {&conv.x, &conv.w, &conv.y}) swap_axes(*v);
  if (!conv.residual) return;
  residual = *conv.residual;
  swap_axes(residual);
  conv.residual = &residual;
}

void run_fused(const Call& call) {
  constexpr int kOwn = 2, kBias = 1, kResidual = 2;  // attributes before those of a convolution; flags
  TD_CHECK(call.num_ints > kOwn && call.num_floats == 2 && call.num_outputs == 1, "attributes of conv_fused");
  const int64_t flags = call.ints[0];
  const bool has_bias = flags & kBias, has_residual = flags & kResidual;
  TD_CHECK(call.num_inputs == 2 + has_bias + has_residual, "operands of conv_fused");
  const View &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  const View* bias = has_bias ? &call.inputs[2] : nullptr;
  TD_CHECK(x.dtype == y.dtype && w.dtype == y.dtype && (!bias || bias->dtype == y.dtype), "dtypes of a convolution");
  TD_CHECK(!bias || (bias->ndim == 1 && bias->shape[0] == y.shape[1]), "bias of a convolution");
  Conv conv{ConvKind::Forward, geometry_of(call.ints + kOwn, call.num_ints - kOwn, x, w, y), x, w, y, bias};
  conv.fused = true;
  conv.residual = has_residual ? &call.inputs[2 + has_bias] : nullptr;
  conv.activation = static_cast<Activation>(call.ints[1]);
  conv.alpha = static_cast<float>(call.floats[0]), conv.beta = static_cast<float>(call.floats[1]);
  conv.kept = call.same & 2 ? call.kept : nullptr;
  View residual;
  lay_down(conv, residual);
  compute(conv);
}

void run_backward_data(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1);
  const View &y = call.inputs[0], &w = call.inputs[1], &x = call.outputs[0];
  TD_CHECK(x.dtype == y.dtype && w.dtype == y.dtype, "dtypes of a convolution");
  compute({ConvKind::BackwardData, geometry_of(call, x, w, y), x, w, y});
}

void run_backward_weight(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1);
  const View &x = call.inputs[0], &y = call.inputs[1], &w = call.outputs[0];
  TD_CHECK(x.dtype == y.dtype && w.dtype == y.dtype, "dtypes of a convolution");
  compute({ConvKind::BackwardWeight, geometry_of(call, x, w, y), x, w, y});
}

const Register forward("conv_forward", &run_forward, true);
const Register fused("conv_fused", &run_fused, true);
const Register backward_data("conv_backward_data", &run_backward_data, true);
const Register backward_weight("conv_backward_weight", &run_backward_weight, true);

}  // namespace
}  // namespace tandem::library
