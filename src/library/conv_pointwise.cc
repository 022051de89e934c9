// Convolutions whose window is one position, channels first, in float32: matrix products over channels.
//
// An image is a matrix (channels, positions), and y = w x for each. Positions are taken by blocks that stay in the
// cache with the panels they are packed into; images are used where they are, so there is nothing to reorder. Where
// positions are skipped (stride) or are few, those of all images are copied side by side first.
#include <algorithm>
#include <cstring>

#include "device/parallel.h"
#include "library/conv_impl.h"
#include "library/kernels/kernels.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

constexpr int64_t kDepth = 256;       // terms that are summed in registers: a panel of them stays in the L1 cache
constexpr int64_t kFew = 128;         // positions of an image
constexpr double kPerProduct = 0.02;  // nanoseconds of a multiplication

int64_t parts_of(int64_t size, int64_t part) {
  return (size + part - 1) / part;
}
int64_t round_up(int64_t size, int64_t unit) {
  return parts_of(size, unit) * unit;
}

// Images as matrices (channels, positions); positions lie side by side.
struct Planes {
  float* data;
  int64_t batch, channels, positions;
  int64_t image, channel;  // strides
};

bool fits(const View& v) {
  int64_t next = 1;
  for (int d = v.ndim - 1; d >= 2; --d) {
    if (v.shape[d] != 1 && v.strides[d] != next) return false;
    next *= v.shape[d];
  }
  return true;
}

Planes planes_of(const View& v) {
  Planes p{reinterpret_cast<float*>(v.data), v.shape[0], v.shape[1], 1, v.strides[0], v.strides[1]};
  for (int d = 2; d < v.ndim; ++d) p.positions *= v.shape[d];
  return p;
}

// The positions that the convolution looks at: x as seen from y, copied side by side, or put back with zeros between.
class Chosen {
 public:
  Chosen(const Planes& planes, const Geometry& g) : planes_(planes), g_(g) {
    plain_ = g.stride[0] == 1 && g.stride[1] == 1 && g.stride[2] == 1;
  }

  // One image with the positions of all, (channel, image, position).
  Planes gather(Scratch<float>& memory, bool load) const {
    const int64_t count = g_.positions();
    Planes all{nullptr, 1, planes_.channels, planes_.batch * count, 0, planes_.batch * count};
    memory.resize(all.channels * all.positions);
    all.data = memory.data();
    if (load)
      walk([&](const float* own, int64_t at) {
        if (plain_)
          std::memcpy(all.data + at, own, count * sizeof(float));
        else
          lines([&](int64_t from, int64_t to) {
            for (int64_t i = 0; i < g_.out[2]; ++i) all.data[at + to + i] = own[from + i * g_.stride[2]];
          });
      });
    return all;
  }

  void scatter(const Planes& all) const {
    walk([&](float* own, int64_t at) {
      if (plain_) return void(std::memcpy(own, all.data + at, g_.positions() * sizeof(float)));
      std::memset(own, 0, planes_.positions * sizeof(float));
      lines([&](int64_t from, int64_t to) {
        for (int64_t i = 0; i < g_.out[2]; ++i) own[from + i * g_.stride[2]] = all.data[at + to + i];
      });
    });
  }

 private:
  template <typename Body>
  void walk(Body&& body) const {  // body(plane, its place among the gathered)
    const int64_t count = g_.positions();
    parallel_for(planes_.channels * planes_.batch, static_cast<double>(planes_.positions), [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const int64_t c = i / planes_.batch, n = i % planes_.batch;
        body(planes_.data + n * planes_.image + c * planes_.channel, i * count);
      }
    });
  }
  template <typename Body>
  void lines(Body&& body) const {  // body(first position of a line in the plane, its place among the chosen)
    for (int64_t z = 0; z < g_.out[0]; ++z)
      for (int64_t y = 0; y < g_.out[1]; ++y)
        body((z * g_.stride[0] * g_.in[1] + y * g_.stride[1]) * g_.in[2], (z * g_.out[1] + y) * g_.out[2]);
  }

  const Planes& planes_;
  const Geometry& g_;
  bool plain_;
};

// y = left x (+ bias) for each image, left (m, k).
void multiply(Matrix<const float> left, const Planes& x, const Planes& y, const float* bias) {
  const auto& kernel = kernels().f32;
  const int64_t m = y.channels, k = x.channels, rows = round_up(m, kernel.mr);
  Scratch<float> packed(rows * k);  // by kDepth columns
  const int64_t depths = parts_of(k, kDepth);
  parallel_for(depths, static_cast<double>(rows * kDepth), [&](int64_t i, int64_t end) {
    for (; i < end; ++i)
      kernel.pack(m, std::min(kDepth, k - i * kDepth), kernel.mr,
                  {left.data + i * kDepth * left.column, left.row, left.column}, packed.data() + rows * i * kDepth);
  });

  const int64_t width = std::clamp<int64_t>(65536 / k / kernel.nr, 2, 64) * kernel.nr;  // positions in a block
  const int64_t blocks = parts_of(x.positions, width);
  const int64_t height = 16 * kernel.mr;  // rows of the left matrix that stay in the cache
  parallel_for(x.batch * blocks, kPerProduct * static_cast<double>(m * k) * width, [&](int64_t i, int64_t end) {
    Scratch<float> panels(width * k);
    for (; i < end; ++i) {
      const int64_t n = i / blocks, first = i % blocks * width, count = std::min(width, x.positions - first);
      float* result = y.data + n * y.image + first;
      if (bias)
        for (int64_t r = 0; r < m; ++r) std::fill_n(result + r * y.channel, count, bias[r]);
      for (int64_t p = 0; p < k; p += kDepth) {
        const int64_t depth = std::min(kDepth, k - p);
        kernel.pack(count, depth, kernel.nr, {x.data + n * x.image + p * x.channel + first, 1, x.channel},
                    panels.data());
        for (int64_t r = 0; r < m; r += height)
          kernel.product(std::min(height, m - r), count, depth, packed.data() + rows * p + r * depth, panels.data(),
                         {result + r * y.channel, y.channel, 1}, bias || p > 0, nullptr, {});
      }
    }
  });
}

// w (m, n) = the sum of y x^T over images.
void gradient(const Planes& y, const Planes& x, float* w) {
  const auto& kernel = kernels().f32;
  const int64_t m = y.channels, n = x.channels, rows = round_up(m, kernel.mr), columns = round_up(n, kernel.nr);
  const int64_t depth = round_up(parts_of(x.positions, parts_of(x.positions, kDepth)), 8);
  const int64_t in_image = parts_of(x.positions, depth), blocks = x.batch * in_image;
  const int64_t at_once = std::clamp<int64_t>((3 << 18) / ((rows + columns) * depth), 1, blocks);
  Scratch<float> left(rows * depth * at_once), right(columns * depth * at_once);
  int64_t height = 16 * kernel.mr, width = 8 * kernel.nr;  // of the result that one thread works on
  while (parts_of(m, height) * parts_of(n, width) < 3 * num_threads() && height > 4 * kernel.mr)
    (height > width ? height : width) /= 2;
  height = round_up(height, kernel.mr), width = round_up(width, kernel.nr);
  const int64_t across = parts_of(n, width);

  for (int64_t start = 0; start < blocks; start += at_once) {
    const int64_t count = std::min(at_once, blocks - start);
    const auto place = [&](int64_t b) { return (start + b) % in_image * depth; };
    const auto length = [&](int64_t b) { return std::min(depth, x.positions - place(b)); };
    parallel_for(2 * count, 0.5 * static_cast<double>(rows * depth), [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const int64_t b = i / 2, image = (start + b) / in_image;
        if (i % 2 == 0)
          kernel.pack(m, length(b), kernel.mr, {y.data + image * y.image + place(b), y.channel, 1},
                      left.data() + b * rows * depth);
        else
          kernel.pack(n, length(b), kernel.nr, {x.data + image * x.image + place(b), x.channel, 1},
                      right.data() + b * columns * depth);
      }
    });
    const double work = kPerProduct * static_cast<double>(height * width) * depth * count;
    parallel_for(parts_of(m, height) * across, work, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const int64_t r = i / across * height, c = i % across * width;
        for (int64_t b = 0; b < count; ++b)
          kernel.product(std::min(height, m - r), std::min(width, n - c), length(b),
                         left.data() + b * rows * depth + r * length(b),
                         right.data() + b * columns * depth + c * length(b), {w + r * n + c, n, 1}, start + b > 0,
                         nullptr, {});
      }
    });
  }
}

// Whether positions are skipped, or too few in an image to make products of.
bool needs_gathering(const Conv& conv) {
  const Geometry& g = conv.geometry;
  return g.positions() < kFew || g.positions() != g.in[0] * g.in[1] * g.in[2];
}

}  // namespace

bool conv_pointwise(const Conv& conv) {
  const Geometry& g = conv.geometry;
  if (conv.x.dtype != DType::Float32 || g.groups != 1) return false;
  for (int d = 0; d < 3; ++d)
    if (g.kernel[d] != 1 || g.pad_low[d] != 0 || g.pad_high[d] != 0) return false;
  if (!fits(conv.x) || !fits(conv.y) || g.in_channels < 16 || g.out_channels < 16) return false;
  if (static_cast<double>(g.batch * g.positions()) * g.in_channels * g.out_channels < 1e6) return false;
  if (preparing()) {
    if (needs_gathering(conv)) {
      need_scratch(g.batch * g.in_channels * g.positions() * sizeof(float));
      need_scratch(g.batch * g.out_channels * g.positions() * sizeof(float));
    }
    const auto& kernel = kernels().f32;
    const int64_t across = conv.kind == ConvKind::BackwardWeight ? kDepth : g.out_channels;
    need_scratch(round_up(g.in_channels + kernel.nr, kernel.mr) * round_up(across, kernel.mr) * sizeof(float));
    return true;
  }

  Scratch<float> own_w, own_bias, own_x, own_y;
  View w = conv.w;
  if (!w.is_contiguous()) {
    own_w.resize(w.numel());
    w.data = reinterpret_cast<char*>(own_w.data());
    set_contiguous(w);
    if (conv.kind != ConvKind::BackwardWeight) copy_elements(conv.w, w);
  }
  float* weights = reinterpret_cast<float*>(w.data);
  const float* bias = nullptr;
  if (conv.bias) {
    View line = *conv.bias;
    own_bias.resize(g.out_channels);
    line.data = reinterpret_cast<char*>(own_bias.data());
    set_contiguous(line);
    copy_elements(*conv.bias, line);
    bias = own_bias.data();
  }

  const Planes whole_x = planes_of(conv.x), whole_y = planes_of(conv.y);
  Geometry dense = g;
  for (int d = 0; d < 3; ++d) dense.stride[d] = 1;
  const Chosen chosen_x(whole_x, g), chosen_y(whole_y, dense);
  const bool together = needs_gathering(conv);
  const Planes x = together ? chosen_x.gather(own_x, conv.kind != ConvKind::BackwardData) : whole_x;
  const Planes y = together ? chosen_y.gather(own_y, conv.kind != ConvKind::Forward) : whole_y;
  switch (conv.kind) {
    case ConvKind::Forward:
      multiply({weights, g.in_channels, 1}, x, y, bias);
      if (together) chosen_y.scatter(y);
      break;
    case ConvKind::BackwardData:
      multiply({weights, 1, g.in_channels}, y, x, nullptr);
      if (together) chosen_x.scatter(x);
      break;
    case ConvKind::BackwardWeight:
      gradient(y, x, weights);
      if (w.data != conv.w.data) copy_elements(w, conv.w);
      break;
  }
  return true;
}

}  // namespace tandem::library
