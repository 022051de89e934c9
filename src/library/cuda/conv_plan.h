// Convolutions as execution plans of cuDNN's graph interface.
//
// Note [Convolution plans]
// cuDNN's older functions look for a kernel at every call, which takes the host about 100 µs for bfloat16; a plan is
// made once for a problem and then only launched. Engines are tried in the order of cuDNN's heuristics; the first one
// that gives the same result every time, keeps to the precision asked for and needs no compiler is taken.
//
// A bias of the type of y is added by the same kernels; for one of another type cuDNN would have to compile some.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/view.h"

namespace tandem::library {

enum class ConvolutionKind { Forward, Data, Weight };

struct ConvolutionShape {  // as cuDNN wants it: in ints, with one padding for both sides
  int spatial;
  int stride[3], pad[3], dilation[3];
  int groups;
};

inline constexpr uint64_t kPlanAlignment = 16;  // of addresses, in bytes

class ConvolutionPlan {
 public:
  virtual ~ConvolutionPlan() = default;
  size_t workspace = 0;  // bytes

  // Queues it on the handle's stream; returns cuDNN's status. bias: of plans that were made with one.
  virtual int run(void* handle, void* x, void* w, void* y, void* bias, void* memory) const = 0;
};

// Null if cuDNN has no plan for it, and for versions of cuDNN without the interface. x, w, y: sizes, strides and dtype.
// bias: null, or (channels of y), without gaps; only in the forward direction. relu: of the biased result.
// `strict`: float32 is multiplied as such, not as TensorFloat-32.
std::unique_ptr<ConvolutionPlan> make_convolution_plan(void* handle, ConvolutionKind kind, const View& x, const View& w,
                                                       const View& y, const View* bias, bool relu,
                                                       const ConvolutionShape& geometry, bool strict,
                                                       size_t most_workspace);

}  // namespace tandem::library
