// What all kinds of pooling share: windows along each axis, and tensors with three spatial axes.
#pragma once
#include <vector>

#include "check.h"
#include "library/registry.h"

namespace tandem::library {

// The elements that one output reads along one axis: first, first + step, ... (count of them, all inside the input).
struct Window {
  int64_t first, count;
  int64_t size;  // elements counted with padding, for the divisor of an average
};

struct PoolAxis {
  int64_t in, out;
  int64_t kernel = 0, stride = 1, pad_low = 0, pad_high = 0, step = 1;  // step: dilation
  std::vector<Window> windows;                                          // one for each output
};

struct Plane {  // one tensor: (N, C) and three spatial strides, in elements
  int64_t n, c, spatial[3];
};

struct Pool {
  int64_t batch, channels;
  PoolAxis axes[3];
  bool regular = false;      // windows follow from kernel and stride; adaptive ones do not
  bool include_pad = false;  // averages divide by the size with padding
  Plane in, out;             // strides of the larger and of the smaller tensor

  int64_t outputs() const { return axes[0].out * axes[1].out * axes[2].out; }
  int64_t inputs() const { return axes[0].in * axes[1].in * axes[2].in; }
  double taps() const;  // per output, about
};

// Reads the attributes: [spatial axes, kernel..., stride..., pad_low..., pad_high..., dilation..., (include_pad)], or
// with `adaptive` just [spatial axes].
Pool make_pool(const Call& call, const View& large, const View& small, bool adaptive);
Plane plane_of(const View& view);

}  // namespace tandem::library
