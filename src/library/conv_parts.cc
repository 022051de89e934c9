// Convolutions of frozen models on several threads: each has its part of the images or rows.
//
// Note [Parts of a convolution]
// oneDNN shares a convolution by whatever suits that one: here channels, there rows. Between layers nearly all of an
// image then goes from the cache of one core to that of another, and networks whose layers are small gain nothing from
// a second thread. So every thread computes the same part of every image, with primitives made for one thread: some of
// the images, or of one image some of its rows, which are side by side in memory where channels are last. Only rows at
// the seams are read by two. Where parts would be unequal, or weights, which all threads read, are larger than the
// images, it is left to oneDNN; what is too small to be shared runs in the calling thread.
//
// A part is computed by Winograd's method where that is quicker, with weights that were transformed once; with blocks
// of two by two it is as exact as direct sums (Note [Winograd] in conv_winograd.cc).
#include <algorithm>
#include <atomic>
#include <cmath>

#include "device/parallel.h"
#include "library/conv_impl.h"
#include "library/layout.h"

namespace tandem::library {
namespace {

constexpr double kOperations = 200, kBytes = 50;  // of one thread in a nanosecond
constexpr double kWorthSharing = 20'000;          // nanoseconds of one thread
constexpr double kUneven = 1.15;                  // the largest part by the mean one

double nanoseconds(const Conv& conv) {
  const Geometry& g = conv.geometry;
  const double sums = static_cast<double>(g.batch * g.positions() * g.taps()) * g.out_channels;
  const double elements = static_cast<double>(conv.x.numel() + conv.y.numel() * (conv.residual ? 2 : 1));
  return 2 * sums * (g.in_channels / g.groups) / kOperations + elements * sizeof(float) / kBytes;
}

// Whether Winograd's method is quicker with weights at its points: fewer multiplications, more bytes of weights, which
// come from memory, and transforms of images. Gelu must not follow: ours has no vectors.
bool winograd_wins(const Conv& conv) {
  constexpr double kDirect = 280, kProducts = 250, kMemory = 30, kTransform = 0.045, kMargin = 0.9;
  constexpr double kTaps = 9, kPoints = 16, kBlock = 2;
  const Geometry& g = conv.geometry;
  if (conv.activation == Activation::Gelu) return false;
  if (conv.residual && !is_channels_last(*conv.residual)) return false;
  if (!conv.kept || !is_channels_last(conv.y) || g.kernel[1] != 3 || g.kernel[2] != 3 || g.stride[1] != 1) return false;
  const double in = static_cast<double>(g.in_channels), out = static_cast<double>(g.out_channels);
  const double blocks = static_cast<double>(g.batch) * std::ceil(static_cast<double>(g.out[1]) / kBlock) *
                        std::ceil(static_cast<double>(g.out[2]) / kBlock);
  const double sums = in * out, floats = sizeof(float);
  const double direct = kTaps * sums * (2.0 * g.batch * g.positions() / kDirect + floats / kMemory);
  const double ours = kPoints * (sums * (2 * blocks / kProducts + floats / kMemory) + blocks * (in + out) * kTransform);
  return ours < kMargin * direct;
}

bool compute_part(const Conv& conv) {
  return (winograd_wins(conv) && conv_winograd(conv)) || conv_onednn(conv, true);
}

void cut(View& v, int axis, int64_t first, int64_t count) {
  v.data += first * v.strides[axis] * static_cast<int64_t>(item_size(v.dtype));
  v.shape[axis] = count;
}

// Part `index` of `parts`: images, or positions along spatial axis `d` (of the three).
struct Part {
  Conv conv;
  View residual;

  Part(const Conv& whole, int d, int64_t index, int64_t parts) : conv(whole) {
    Geometry& g = conv.geometry;
    const int64_t extent = d < 0 ? g.batch : g.out[d];
    const int64_t first = extent * index / parts, last = extent * (index + 1) / parts;
    const int axis = d < 0 ? 0 : d - (3 - g.spatial) + 2;
    if (conv.residual) residual = *conv.residual, cut(residual, axis, first, last - first), conv.residual = &residual;
    cut(conv.y, axis, first, last - first);
    if (d < 0) {
      cut(conv.x, 0, first, last - first);
      g.batch = last - first;
      return;
    }
    const int64_t from = first * g.stride[d] - g.pad_low[d];
    const int64_t to = (last - 1) * g.stride[d] - g.pad_low[d] + (g.kernel[d] - 1) * g.dilation[d] + 1;
    const int64_t begin = std::clamp<int64_t>(from, 0, g.in[d]), end = std::clamp<int64_t>(to, begin, g.in[d]);
    cut(conv.x, axis, begin, end - begin);
    g.out[d] = last - first, g.in[d] = end - begin, g.pad_low[d] = begin - from, g.pad_high[d] = to - end;
  }
  Part(const Part&) = delete;
  bool computable() const { return conv.x.numel() > 0 && conv.y.numel() > 0; }
};

bool even(int64_t extent, int64_t parts) {
  return static_cast<double>((extent + parts - 1) / parts * parts) <= kUneven * static_cast<double>(extent);
}

}  // namespace

bool conv_in_parts(const Conv& conv) {
  const Geometry& g = conv.geometry;
  if (in_parallel() || num_threads() == 1) return compute_part(conv);
  if (nanoseconds(conv) < kWorthSharing) {
    const Alone alone;
    return conv_onednn(conv, true);
  }
  if (!is_channels_last(conv.x) || !is_channels_last(conv.y)) return false;
  if (conv.residual && !is_channels_last(*conv.residual)) return false;
  const int parts = num_threads();
  int d = -1;
  if (!even(g.batch, parts)) {
    if (g.batch > 1 || conv.w.numel() > conv.x.numel() + conv.y.numel()) return false;
    for (d = 3 - g.spatial; d < 2 && g.out[d] == 1;) ++d;
    if (!even(g.out[d], parts)) return false;
  }
  for (int i = 0; i < parts; ++i)
    if (!Part(conv, d, i, parts).computable()) return false;
  if (preparing()) {
    const Alone alone;
    bool all = true;
    for (int i = 0; i < (measuring() ? 1 : parts); ++i) all = compute_part(Part(conv, d, i, parts).conv) && all;
    return all;
  }
  struct Work {
    const Conv* conv;
    int d;
    std::atomic<bool> failed{false};
    void run(int index, int count) {
      if (!compute_part(Part(*conv, d, index, count).conv)) failed = true;
    }
  } work{&conv, d};
  const int size = begin_team(
      parts, nullptr, [](int index, int count, void* data) { static_cast<Work*>(data)->run(index, count); }, &work);
  try {
    work.run(0, size);
  } catch (...) {
    end_team(size);
    throw;
  }
  end_team(size);
  return !work.failed;
}

}  // namespace tandem::library
