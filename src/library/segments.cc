// segment_reduce (x, lengths) -> (k, *rest), ints [mode], floats [initial]: sums (0), products (1), maxima (2) or
// minima (3) over neighbouring stretches of the first axis of x, of these int64 lengths, each starting from `initial`.
// NaN wins over what is larger or smaller. Lengths that reach beyond x count as far as it goes.
#include <algorithm>
#include <vector>

#include "device/parallel.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

enum Mode : int64_t { kSum, kProduct, kMax, kMin };

template <typename W, Mode mode>
W combine(W total, W value) {
  if constexpr (mode == kSum)
    return total + value;
  else if constexpr (mode == kProduct)
    return total * value;
  else if constexpr (mode == kMax)
    return total > value || total != total ? total : value;
  else
    return total < value || total != total ? total : value;
}

template <typename T, Mode mode>
void reduce_rows(const T* from, int64_t rows, int64_t width, double initial, T* to) {
  using W = std::conditional_t<kIsFloat<T>, Wide<T>, T>;
  if (width == 1) {
    W total = static_cast<W>(initial);
    for (int64_t i = 0; i < rows; ++i) total = combine<W, mode>(total, static_cast<W>(from[i]));
    *to = T(total);
    return;
  }
  std::vector<W> totals(width, static_cast<W>(initial));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < width; ++k) totals[k] = combine<W, mode>(totals[k], static_cast<W>(from[i * width + k]));
  for (int64_t k = 0; k < width; ++k) to[k] = T(totals[k]);
}

void run_segment_reduce(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1 && call.num_ints == 1 && call.num_floats == 1);
  const View &lengths = call.inputs[1], &out = call.outputs[0];
  TD_CHECK(lengths.dtype == DType::Int64 && lengths.ndim == 1 && out.is_contiguous() && out.ndim >= 1 &&
               out.shape[0] == lengths.shape[0] && out.dtype == call.inputs[0].dtype,
           "operands of segment_reduce");
  Scratch<char> memory;
  View x = call.inputs[0];
  if (!x.is_contiguous()) {
    memory.resize(x.numel() * item_size(x.dtype));
    x.data = memory.data();
    set_contiguous(x);
    copy_elements(call.inputs[0], x);
  }
  const int64_t count = lengths.shape[0], n = x.shape[0];
  if (out.numel() == 0) return;
  const int64_t width = out.numel() / count;
  std::vector<int64_t> starts(count + 1, 0);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = std::max<int64_t>(lengths.as<int64_t>()[i * lengths.strides[0]], 0);
    starts[i + 1] = starts[i] + std::min(length, n - starts[i]);
  }
  for_float("segment_reduce", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto run = [&](auto reduce) {
      parallel_for(count, static_cast<double>(n) / count * width + 2, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          reduce(x.as<T>() + starts[i] * width, starts[i + 1] - starts[i], width, call.floats[0],
                 out.as<T>() + i * width);
      });
    };
    switch (call.ints[0]) {
      case kSum:
        return run(&reduce_rows<T, kSum>);
      case kProduct:
        return run(&reduce_rows<T, kProduct>);
      case kMax:
        return run(&reduce_rows<T, kMax>);
      case kMin:
        return run(&reduce_rows<T, kMin>);
      default:
        TD_CHECK(false, "mode ", call.ints[0], " of segment_reduce");
    }
  });
}

const Register segment_reduce("segment_reduce", &run_segment_reduce);

}  // namespace
}  // namespace tandem::library
