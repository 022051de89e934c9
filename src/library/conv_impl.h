// The geometry of a convolution, and the ways to compute one.
#pragma once
#include "library/kernels/kernels.h"
#include "library/registry.h"

namespace tandem::library {

// Tensors are (N, C, spatial...), weights (O, C / groups, spatial...). Spatial arrays hold 3 axes; unused leading ones
// are trivial (size 1, kernel 1).
struct Geometry {
  int spatial;  // 1, 2 or 3 axes in the tensors
  int64_t batch, in_channels, out_channels, groups;
  int64_t in[3], out[3], kernel[3], stride[3], pad_low[3], pad_high[3], dilation[3];

  int64_t positions() const { return out[0] * out[1] * out[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

enum class ConvKind { Forward, BackwardData, BackwardWeight };

// The three tensors of a convolution: two are read and one is written, depending on the kind.
struct Conv {
  ConvKind kind;
  Geometry geometry;
  View x, w, y;
  const View* bias = nullptr;  // forward only
  // Of conv_fused: y = activation(convolution + bias + residual).
  bool fused = false;
  const View* residual = nullptr;  // lies as y does
  Activation activation = Activation::None;
  float alpha = 0, beta = 0;              // of the activation
  std::unique_ptr<Kept>* kept = nullptr;  // where packed weights stay, if these never change
};

// What a convolution keeps of weights that never change, by the way that it is computed.
struct KeptConv : Kept {
  std::unique_ptr<Kept> onednn, winograd[2];  // of Winograd's method by the size of its blocks
};

float activate(const Conv& conv, float x);

bool conv_winograd(const Conv& conv);  // false where the case is not for it; likewise
bool conv_pointwise(const Conv& conv);
bool conv_onednn(const Conv& conv, bool last);  // with channels last in memory, or as oneDNN likes it
bool conv_in_parts(const Conv& conv);           // of conv_fused: one part of the images for each thread
bool conv_depthwise_blocks(const Conv& conv);
void conv_own(const Conv& conv);  // float32 and float64

// Of contiguous tensors: channels that have windows of their own. False for others.
template <typename T>
bool conv_depthwise(ConvKind kind, const Geometry& geometry, T* x, T* w, const T* bias, T* y);

}  // namespace tandem::library
