// Convolutions of which each channel has a window of its own (groups as many as channels of x), in any number of
// threads the same: rows of a plane are added up tap by tap.
//
// oneDNN is quicker where it may be used; this is for float64 and for td.use_deterministic_algorithms, where products
// over unfolded patches, with a single column of weights, would take ten times as long.
#include <algorithm>

#include "device/parallel.h"
#include "library/conv_impl.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

constexpr double kPerTap = 0.3;  // nanoseconds of a multiplication

struct Range {
  int64_t begin, end;
};

// Positions along an axis whose tap lies inside of the image.
Range inside(const Geometry& g, int axis, int64_t tap) {
  const int64_t shift = tap * g.dilation[axis] - g.pad_low[axis], stride = g.stride[axis];
  const int64_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
  const int64_t last = g.in[axis] - 1 - shift;  // of the positions in the image, the last that may begin a window
  const int64_t end = last < 0 ? 0 : std::min(g.out[axis], last / stride + 1);
  return {begin, std::max(begin, end)};
}

// Calls body(tap, offset in the image, offset in the plane of results, count) for every row of positions and every tap
// that meets the image there; offsets are those of the first position.
template <typename Body>
void each_row(const Geometry& g, Body&& body) {
  int64_t tap = 0;
  for (int64_t a = 0; a < g.kernel[0]; ++a) {
    const Range depth = inside(g, 0, a);
    for (int64_t b = 0; b < g.kernel[1]; ++b) {
      const Range height = inside(g, 1, b);
      for (int64_t c = 0; c < g.kernel[2]; ++c, ++tap) {
        const Range width = inside(g, 2, c);
        if (width.begin == width.end) continue;
        const int64_t column = width.begin * g.stride[2] + c * g.dilation[2] - g.pad_low[2];
        for (int64_t i = depth.begin; i < depth.end; ++i)
          for (int64_t j = height.begin; j < height.end; ++j) {
            const int64_t z = i * g.stride[0] + a * g.dilation[0] - g.pad_low[0];
            const int64_t y = j * g.stride[1] + b * g.dilation[1] - g.pad_low[1];
            body(tap, (z * g.in[1] + y) * g.in[2] + column, (i * g.out[1] + j) * g.out[2] + width.begin,
                 width.end - width.begin);
          }
      }
    }
  }
}

template <typename T>
void multiply_add(T* __restrict to, const T* __restrict from, int64_t stride, T factor, int64_t count) {
  if (stride == 1)
    for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
  else
    for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i * stride];
}

template <typename T>
void spread(T* __restrict to, const T* __restrict from, int64_t stride, T factor, int64_t count) {
  if (stride == 1)
    for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
  else
    for (int64_t i = 0; i < count; ++i) to[i * stride] += factor * from[i];
}

// In lanes, so that it does not wait for one sum after the other, and always in the same order.
template <typename T>
T dot(const T* __restrict x, int64_t stride, const T* __restrict y, int64_t count) {
  constexpr int kLanes = 8;
  T sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int k = 0; k < kLanes; ++k) sums[k] += x[(i + k) * stride] * y[i + k];
  for (int k = 0; i < count; ++i, ++k) sums[k] += x[i * stride] * y[i];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

template <typename T>
struct Depthwise {
  const Geometry& g;
  int64_t each = g.out_channels / g.groups;  // results of a channel
  int64_t plane = g.in[0] * g.in[1] * g.in[2], positions = g.positions(), taps = g.taps();
  double cost = kPerTap * static_cast<double>(positions * taps);

  void forward(const T* x, const T* w, const T* bias, T* y) const {
    parallel_for(g.batch * g.out_channels, cost, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t image = task / g.out_channels, o = task % g.out_channels;
        const T* from = x + (image * g.groups + o / each) * plane;
        T* to = y + task * positions;
        std::fill_n(to, positions, bias ? bias[o] : T(0));
        each_row(g, [&](int64_t tap, int64_t in, int64_t out, int64_t count) {
          multiply_add(to + out, from + in, g.stride[2], w[o * taps + tap], count);
        });
      }
    });
  }

  void backward_data(const T* gradient, const T* w, T* dx) const {
    parallel_for(g.batch * g.groups, cost * static_cast<double>(each), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t image = task / g.groups, channel = task % g.groups;
        T* to = dx + task * plane;
        std::fill_n(to, plane, T(0));
        for (int64_t o = channel * each; o < (channel + 1) * each; ++o) {
          const T* from = gradient + (image * g.out_channels + o) * positions;
          each_row(g, [&](int64_t tap, int64_t in, int64_t out, int64_t count) {
            spread(to + in, from + out, g.stride[2], w[o * taps + tap], count);
          });
        }
      }
    });
  }

  // Images one after the other, whoever adds them up; rows are added up first, so that sums stay short.
  void backward_weight(const T* x, const T* gradient, T* dw) const {
    parallel_for(g.out_channels, cost * static_cast<double>(g.batch), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        T* to = dw + o * taps;
        std::fill_n(to, taps, T(0));
        for (int64_t image = 0; image < g.batch; ++image) {
          const T* from = x + (image * g.groups + o / each) * plane;
          const T* by = gradient + (image * g.out_channels + o) * positions;
          each_row(g, [&](int64_t tap, int64_t in, int64_t out, int64_t count) {
            to[tap] += dot(from + in, g.stride[2], by + out, count);
          });
        }
      }
    });
  }
};

}  // namespace

template <typename T>
bool conv_depthwise(ConvKind kind, const Geometry& g, T* x, T* w, const T* bias, T* y) {
  if (g.groups != g.in_channels || g.groups < 2) return false;
  const Depthwise<T> depthwise{g};
  if (kind == ConvKind::Forward)
    depthwise.forward(x, w, bias, y);
  else if (kind == ConvKind::BackwardData)
    depthwise.backward_data(y, w, x);
  else
    depthwise.backward_weight(x, y, w);
  return true;
}

template bool conv_depthwise(ConvKind, const Geometry&, float*, float*, const float*, float*);
template bool conv_depthwise(ConvKind, const Geometry&, double*, double*, const double*, double*);

}  // namespace tandem::library
