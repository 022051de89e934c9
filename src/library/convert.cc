#include "library/convert.h"

#include <cstring>
#include <type_traits>

#include "device/parallel.h"
#include "library/kernels/kernels.h"
#include "library/scalar.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

template <typename From, typename To>
void convert_row(const From* from, int64_t from_stride, To* to, int64_t to_stride, int64_t n) {
  if (from_stride == 1 && to_stride == 1) {
    const auto* bits_in = reinterpret_cast<const uint16_t*>(from);
    auto* bits_out = reinterpret_cast<uint16_t*>(to);
    (void)bits_in, (void)bits_out;
    if constexpr (std::is_same_v<From, Half> && std::is_same_v<To, float>) return kernels().from_half(bits_in, to, n);
    if constexpr (std::is_same_v<From, BFloat16> && std::is_same_v<To, float>)
      return kernels().from_bfloat16(bits_in, to, n);
    if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Half>) return kernels().to_half(from, bits_out, n);
    if constexpr (std::is_same_v<From, float> && std::is_same_v<To, BFloat16>)
      return kernels().to_bfloat16(from, bits_out, n);
  }
  for (int64_t i = 0; i < n; ++i) to[i * to_stride] = static_cast<To>(static_cast<Wide<From>>(from[i * from_stride]));
}

template <typename From, typename To>
void convert(const Loop<2>& loop, const From* from, To* to) {
  if (loop.ndim <= 1) {
    const int64_t n = loop.ndim ? loop.shape[0] : 1;
    const int64_t to_stride = loop.ndim ? loop.strides[0][0] : 1, from_stride = loop.ndim ? loop.strides[1][0] : 1;
    return parallel_for(n, 0.5, [&](int64_t begin, int64_t end) {
      convert_row(from + begin * from_stride, from_stride, to + begin * to_stride, to_stride, end - begin);
    });
  }
  const int inner = loop.ndim - 1;
  parallel_for(loop.count(0, inner), loop.shape[inner] * 0.5 + 5, [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims], offset[2];
    loop.locate(begin, inner, index, offset);
    for (int64_t row = begin; row < end; ++row) {
      convert_row(from + offset[1], loop.strides[1][inner], to + offset[0], loop.strides[0][inner], loop.shape[inner]);
      loop.advance(inner, index, offset);
    }
  });
}

}  // namespace

void convert_elements(const View& from, const View& to) {
  if (from.dtype == to.dtype) return copy_elements(from, to);
  if (to.numel() == 0) return;
  const Loop<2> loop = make_loop<2>({&to, &from}, 0, to.ndim, true);
  const bool floats = is_floating(from.dtype);
  TD_CHECK(floats == is_floating(to.dtype), "conversion from ", name(from.dtype), " to ", name(to.dtype));
  for_real("convert", from.dtype, [&](auto source) {
    using From = typename decltype(source)::type;
    for_real("convert", to.dtype, [&](auto target) {
      using To = typename decltype(target)::type;
      if constexpr (kIsFloat<From> == kIsFloat<To>) convert(loop, from.as<From>(), to.as<To>());
    });
  });
}

View contiguous_as(const View& view, DType dtype, Scratch<char>& memory) {
  View copy = view;
  copy.dtype = dtype;
  memory.resize(std::max<int64_t>(view.numel(), 1) * item_size(dtype));
  copy.data = memory.data();
  set_contiguous(copy);
  convert_elements(view, copy);
  return copy;
}

}  // namespace tandem::library
