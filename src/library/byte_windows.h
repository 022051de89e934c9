// Windows of images of bytes as rows, for products of whole numbers.
#pragma once
#include <cstdint>
#include <cstring>

#include "check.h"
#include "library/registry.h"

namespace tandem::library {

// A convolution of images with channels last, one byte each. Fewer spatial axes than three have sizes of 1 in front.
struct ByteWindow {
  int64_t kernel[3], stride[3], pad[3], dilation[3], in[3], out[3];
  int64_t channels;
  int64_t positions() const { return out[0] * out[1] * out[2]; }
  // Whether an output position is an input position.
  bool is_pointwise() const {
    return taps() == 1 && in[0] == out[0] && in[1] == out[1] && in[2] == out[2] && pad[0] + pad[1] + pad[2] == 0;
  }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

// The window of an output position of an image as a row of bytes, with `outer` where there is no image.
inline void gather(const ByteWindow& g, const uint8_t* image, int64_t position, int64_t outer, uint8_t* row) {
  const int64_t z = position / (g.out[1] * g.out[2]), y = position / g.out[2] % g.out[1], x = position % g.out[2];
  for (int64_t a = 0; a < g.kernel[0]; ++a)
    for (int64_t b = 0; b < g.kernel[1]; ++b) {
      const int64_t i = z * g.stride[0] - g.pad[0] + a * g.dilation[0];
      const int64_t j = y * g.stride[1] - g.pad[1] + b * g.dilation[1];
      const bool outside = i < 0 || i >= g.in[0] || j < 0 || j >= g.in[1];
      const uint8_t* line = image + (i * g.in[1] + j) * g.in[2] * g.channels;
      const int64_t first = x * g.stride[2] - g.pad[2];
      if (!outside && g.dilation[2] == 1 && first >= 0 && first + g.kernel[2] <= g.in[2]) {
        std::memcpy(row, line + first * g.channels, static_cast<size_t>(g.kernel[2] * g.channels));
        row += g.kernel[2] * g.channels;
        continue;
      }
      for (int64_t c = 0; c < g.kernel[2]; ++c, row += g.channels) {
        const int64_t k = first + c * g.dilation[2];
        if (outside || k < 0 || k >= g.in[2])
          std::memset(row, static_cast<int>(outer), static_cast<size_t>(g.channels));
        else
          std::memcpy(row, line + k * g.channels, static_cast<size_t>(g.channels));
      }
    }
}

// ints: [kernel...] and the strides, pads and dilations.
inline ByteWindow byte_window(const Call& call, const View& x, const View& y) {
  const int spatial = x.ndim - 2, skip = 3 - spatial;
  TD_CHECK(spatial >= 1 && spatial <= 3 && y.ndim == x.ndim && call.num_ints == 4 * spatial,
           "attributes of an integer convolution");
  ByteWindow g;
  for (int d = 0; d < 3; ++d) g.kernel[d] = g.stride[d] = g.dilation[d] = g.in[d] = g.out[d] = 1, g.pad[d] = 0;
  for (int d = 0; d < spatial; ++d) {
    const int64_t* at = call.ints + d;
    g.kernel[skip + d] = at[0], g.stride[skip + d] = at[spatial], g.pad[skip + d] = at[2 * spatial],
                    g.dilation[skip + d] = at[3 * spatial];
    g.in[skip + d] = x.shape[2 + d], g.out[skip + d] = y.shape[2 + d];
    TD_CHECK(at[0] >= 1 && at[spatial] >= 1 && at[3 * spatial] >= 1, "window of an integer convolution");
  }
  g.channels = x.shape[1];
  return g;
}

}  // namespace tandem::library
