// Convolutions with windows of 3 x 3 positions and stride 1 in float32, where there are many channels.
//
// Note [Winograd]
// Four by four neighbouring outputs need six by six inputs and 16 * 9 multiplications for each pair of channels. Seen
// as products of polynomials, they need 36: both factors are evaluated at six points of each axis, multiplied there,
// and interpolated. Over channels and blocks, the products at each of the 36 points are one matrix product. So
//
//     output = from_points(to_points(input) * to_points(weights))
//
// The other two kinds follow: the gradient of the input is such a convolution with turned weights, and the gradient of
// the weights is the product of the input at the points with the gradient at the points (transforms transposed).
//
// Blocks of two by two outputs need 16 points for 36 multiplications, with the points 0, 1, -1 and infinity. They lose
// nothing: against float64 their error is that of direct sums (0.9 to 1.2 times, 64 to 512 channels). Blocks of four by
// four, with the points 0, +-sqrt(1/2), +-sqrt(2) and infinity, are quicker and off by 3 to 5 times as much: transforms
// alone cost 1.7 times. They are for those who ask for less precision (td.set_float32_matmul_precision("high")). As in
// every method that subtracts, an infinity or NaN in the input reaches all outputs of its block.
// Products over channels are added up in parts of kDepth: a sum of 512 in one row is off by twice as much.
//
// A block of images goes through three phases, each on all threads: transform of the input, products, transform of the
// output. Blocks are as large as the cache holds. No sum depends on the number of threads.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "device/parallel.h"
#include "library/conv_impl.h"
#include "library/gemm.h"
#include "library/kernels/kernels.h"
#include "library/scratch.h"
#include "library/strided.h"
#include "switches.h"

namespace tandem::library {
namespace {

constexpr int64_t kTaps = 9, kDepth = 32;
constexpr int64_t kCache = 6 << 20;  // bytes at the points that one round of phases works on

const uint32_t* words(const float* p) {
  return reinterpret_cast<const uint32_t*>(p);
}
uint32_t* words(float* p) {
  return reinterpret_cast<uint32_t*>(p);
}

// Blocks of one of the two sizes.
struct Method {
  const WinogradKernels* kernel;
  int64_t block, patch, points;
  explicit Method(const WinogradKernels& kernels)
      : kernel(&kernels), block(kernels.block), patch(block + 2), points(patch * patch) {}
};

Method wanted_method() {  // 1: as exact as direct sums; 2: quicker
  return Method(switches::get(switches::winograd) > 1 ? kernels().winograd : kernels().winograd_small);
}

// Images whose channels or columns lie side by side.
struct Images {
  float* data;
  int64_t batch, channels, height, width;
  int64_t image, channel, row, column;  // strides

  explicit Images(const View& v)
      : data(reinterpret_cast<float*>(v.data)),
        batch(v.shape[0]),
        channels(v.shape[1]),
        height(v.shape[2]),
        width(v.shape[3]),
        image(v.strides[0]),
        channel(v.strides[1]),
        row(v.strides[2]),
        column(v.strides[3]) {}

  static bool fit(const View& v) { return v.strides[1] == 1 || v.strides[3] == 1; }

  // Rows from `first` on of image n as (row, position, channel), with `left` positions before the image; 0 outside.
  void read(int64_t n, int64_t first, int64_t rows, int64_t left, int64_t positions, float* to) const {
    const int64_t last = std::min(left + width, positions);
    for (int64_t i = 0; i < rows; ++i, to += positions * channels) {
      const int64_t y = first + i;
      if (y < 0 || y >= height) {
        std::memset(to, 0, positions * channels * sizeof(float));
        continue;
      }
      std::memset(to, 0, left * channels * sizeof(float));
      std::memset(to + last * channels, 0, (positions - last) * channels * sizeof(float));
      copy_row<false>(data + n * image + y * row, to + left * channels, last - left);
    }
  }

  // The other way: the rows and positions of the image that there are.
  void write(int64_t n, int64_t first, int64_t rows, int64_t positions, float* from) const {
    for (int64_t i = 0; i < rows && first + i < height; ++i)
      copy_row<true>(data + n * image + (first + i) * row, from + i * positions * channels, std::min(positions, width));
  }

 private:
  template <bool INTO_IMAGE>
  void copy_row(float* own, float* other, int64_t count) const {
    if (channel == 1) {
      for (int64_t x = 0; x < count; ++x)
        std::memcpy(INTO_IMAGE ? own + x * column : other + x * channels,
                    INTO_IMAGE ? other + x * channels : own + x * column, channels * sizeof(float));
    } else if (INTO_IMAGE) {
      kernels().transpose_u32(words(other), channels, words(own), channel, channels, count);
    } else {
      kernels().transpose_u32(words(own), channel, words(other), channels, count, channels);
    }
  }
};

// Images cut into strips: rows of blocks, `across` in each.
struct Strips {
  int64_t down, across, count, points;
  Strips(const Images& images, const Method& method)
      : down((images.height + method.block - 1) / method.block),
        across((images.width + method.block - 1) / method.block),
        count(images.batch * down),
        points(method.points) {}

  // As many as fit the cache at a time, with `channels` in all.
  int64_t at_once(int64_t channels) const {
    const int64_t bytes = points * across * channels * static_cast<int64_t>(sizeof(float));
    const int64_t step = std::clamp<int64_t>(kCache / bytes, 1, count);
    const int64_t number = (count + step - 1) / step;
    return (count + number - 1) / number;
  }

  // Calls body(first strip, number of strips) for so many at a time.
  template <typename Body>
  void rounds(int64_t channels, Body&& body) const {
    const int64_t even = at_once(channels);
    for (int64_t first = 0; first < count; first += even) body(first, std::min(even, count - first));
  }
};

// Room for `rows` rows of channels at each point. Points do not lie a power of two apart, which few sets of the cache
// would have to hold, and products may read a few rows more.
struct AtPoints {
  int64_t apart;
  Scratch<float> memory;
  AtPoints(const Method& method, int64_t rows, int64_t channels)
      : apart(rows * channels + 16), memory(method.points * apart + 32 * channels) {}
  float* point(int64_t e) const { return memory.data() + e * apart; }
};

size_t bytes_at_points(const Method& method, int64_t rows, int64_t channels) {
  return (method.points * (rows * channels + 16) + 32 * channels) * sizeof(float);
}

// Nanoseconds of a transform of one block in one channel.
constexpr double kTransform = 6;

// Weights at the points, packed for products with `k` channels on the left: [point][panel of n][k][panel].
struct Weights {
  int64_t n, k, panel, apart;
  Scratch<float> memory;

  // w is (O, C, 3, 3). `turned`: for the gradient of the input, from O channels to C.
  Weights(const Method& method, const float* w, int64_t out, int64_t in, bool turned)
      : n(turned ? in : out),
        k(turned ? out : in),
        panel(method.kernel->panel),
        apart(n * k + 16),
        memory(method.points * apart) {
    parallel_for(n / panel, static_cast<double>(k * panel) * kTransform, [&](int64_t begin, int64_t end) {
      Scratch<float> taps(k * kTaps * panel);
      for (int64_t p = begin; p < end; ++p) {
        if (turned)
          for (int64_t o = 0; o < k; ++o)
            kernels().transpose_u32(words(w + (o * in + p * panel) * kTaps), kTaps,
                                    words(taps.data() + o * kTaps * panel), panel, kTaps, panel);
        else
          kernels().transpose_u32(words(w + p * panel * in * kTaps), in * kTaps, words(taps.data()), panel, in * kTaps,
                                  panel);
        float* to = memory.data() + p * panel * k;
        const WinogradKernels& kernel = *method.kernel;
        (turned ? kernel.turned : kernel.weights)(taps.data(), k, to, apart);
      }
    });
  }
};

struct KeptWinograd : Kept {
  Weights weights;
  KeptWinograd(const Method& method, const float* w, int64_t out, int64_t in) : weights(method, w, out, in, false) {}
};

const Weights& kept_weights(const Method& method, const float* w, int64_t out, int64_t in,
                            std::unique_ptr<Kept>& place) {
  auto& all = kept_by<KeptConv>(place, [] { return std::make_unique<KeptConv>(); });
  return kept_by<KeptWinograd>(all.winograd[method.block > 2],
                               [&] {
                                 const ScratchPool pool = std::exchange(scratch_pool, {});  // it outlives the call
                                 auto made = std::make_unique<KeptWinograd>(method, w, out, in);
                                 scratch_pool = pool;
                                 return made;
                               })
      .weights;
}

void read_blocks(const Method& method, const Images& images, int64_t top, int64_t left, bool gradient,
                 const Strips& strips, int64_t first, int64_t count, const AtPoints& to) {
  const int64_t block = method.block, size = gradient ? block : method.patch;
  const int64_t positions = strips.across * block + size - block;
  const int64_t channels = images.channels;
  parallel_for(count, static_cast<double>(strips.across * channels) * kTransform, [&](int64_t begin, int64_t end) {
    Scratch<float> rows(size * positions * channels);
    const WinogradKernels& kernel = *method.kernel;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t strip = first + i;
      images.read(strip / strips.down, strip % strips.down * block - top, size, left, positions, rows.data());
      (gradient ? kernel.gradient : kernel.input)(rows.data(), positions, channels, strips.across,
                                                  to.point(0) + i * strips.across * channels, to.apart);
    }
  });
}

// Of conv_fused: the residual and the activation, on rows of blocks before they are written.
void finish(const Conv& conv, int64_t n, int64_t first, int64_t rows, int64_t positions, float* from) {
  const int64_t height = conv.y.shape[2], channels = conv.y.shape[1], count = conv.y.shape[3] * channels;
  for (int64_t i = 0; i < rows && first + i < height; ++i, from += positions * channels) {
    if (const View* residual = conv.residual) {
      const float* add = residual->as<float>() + n * residual->strides[0] + (first + i) * residual->strides[2];
      for (int64_t j = 0; j < count; ++j) from[j] += add[j];
    }
    if (!kernels().activate(from, count, conv.activation, conv.alpha, conv.beta))
      for (int64_t j = 0; j < count; ++j) from[j] = activate(conv, from[j]);
  }
}

void convolve(const Method& method, const Images& x, const Weights& weights, const Images& y, int64_t top, int64_t left,
              const float* bias, const Conv* fused = nullptr) {
  const Strips strips(y, method);
  const int64_t k = weights.k, n = weights.n;
  strips.rounds(n + k, [&](int64_t first, int64_t count) {
    const int64_t blocks = count * strips.across;
    const AtPoints in(method, blocks, k), out(method, blocks, n);
    read_blocks(method, x, top, left, false, strips, first, count, in);

    const int64_t panel = weights.panel, panels = n / panel;
    const int64_t parts = std::clamp<int64_t>(num_threads() / 8, 1, panels);  // of the columns
    const double work = 0.02 * static_cast<double>(blocks) * n * k / parts;
    parallel_for(method.points * parts, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t e = i / parts, part = i % parts;
        const int64_t from = panels * part / parts * panel, to = panels * (part + 1) / parts * panel;
        for (int64_t p = 0; p < k; p += kDepth)
          kernels().f32.product_of(blocks, to - from, std::min(kDepth, k - p), {in.point(e) + p, k, 1},
                                   weights.memory.data() + e * weights.apart + from * k + p * panel, panel * k,
                                   {out.point(e) + from, n, 1}, p > 0);
      }
    });

    parallel_for(count, static_cast<double>(strips.across * n) * kTransform, [&](int64_t begin, int64_t end) {
      const int64_t block = method.block, positions = strips.across * block;
      Scratch<float> rows(block * positions * n);
      for (int64_t i = begin; i < end; ++i) {
        method.kernel->output(out.point(0) + i * strips.across * n, out.apart, n, strips.across, bias, rows.data(),
                              positions);
        if (fused)
          finish(*fused, (first + i) / strips.down, (first + i) % strips.down * block, block, positions, rows.data());
        y.write((first + i) / strips.down, (first + i) % strips.down * block, block, positions, rows.data());
      }
    });
  });
}

void gradient_of_weights(const Method& method, const Images& x, const Images& y, int64_t top, int64_t left, float* w) {
  const Strips strips(y, method);
  const int64_t in = x.channels, out = y.channels;
  const AtPoints sums(method, in, out);
  strips.rounds(in + out, [&](int64_t first, int64_t count) {
    const int64_t blocks = count * strips.across;
    const AtPoints values(method, blocks, in), gradients(method, blocks, out);
    read_blocks(method, x, top, left, false, strips, first, count, values);
    read_blocks(method, y, 0, 0, true, strips, first, count, gradients);
    parallel_for(method.points, 0.02 * static_cast<double>(blocks) * in * out, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e)
        gemm<float>({.m = in,
                     .n = out,
                     .k = blocks,
                     .a = {values.point(e), 1, in},
                     .b = {gradients.point(e), out, 1},
                     .c = {sums.point(e), out, 1},
                     .accumulate = first > 0});
    });
  });

  const int64_t panel = method.kernel->panel;
  parallel_for(out / panel, static_cast<double>(in * panel) * kTransform, [&](int64_t begin, int64_t end) {
    Scratch<float> taps(in * kTaps * panel);
    for (int64_t p = begin; p < end; ++p) {
      method.kernel->weights_gradient(sums.point(0) + p * panel, sums.apart, out, in, taps.data());
      kernels().transpose_u32(words(taps.data()), panel, words(w + p * panel * in * kTaps), in * kTaps, panel,
                              in * kTaps);
    }
  });
}

// Whether it wins, in multiplications: those of transforms take as long as a few each.
bool pays(const Method& method, const Geometry& g) {
  const auto blocks_of = [&](int64_t size) { return (size + method.block - 1) / method.block; };
  const double in = static_cast<double>(g.in_channels), out = static_cast<double>(g.out_channels);
  const double blocks = static_cast<double>(g.batch * blocks_of(g.out[1]) * blocks_of(g.out[2]));
  const double direct = static_cast<double>(kTaps * g.batch * g.out[1] * g.out[2]) * in * out;
  const double ours =
      static_cast<double>(method.points) * (blocks * in * out + 8 * blocks * (in + out) + 12 * in * out);
  return direct > 1.6e7 && 1.15 * ours < direct;
}

}  // namespace

bool conv_winograd(const Conv& conv) {
  const Geometry& g = conv.geometry;
  if (switches::get(switches::winograd) == 0 || conv.x.dtype != DType::Float32 || g.spatial != 2 || g.groups != 1)
    return false;
  for (int d = 1; d < 3; ++d)
    if (g.kernel[d] != 3 || g.stride[d] != 1 || g.dilation[d] != 1 || g.pad_low[d] < 0 || g.pad_low[d] > 2 ||
        g.pad_high[d] < 0)
      return false;
  const Method method = wanted_method();
  const int64_t panel = method.kernel->panel;
  if (g.in_channels % panel != 0 || g.out_channels % panel != 0 || panel != kernels().f32.nr ||
      !(conv.fused || pays(method, g)))
    return false;
  if (!Images::fit(conv.x) || !Images::fit(conv.y)) return false;
  if (preparing()) {
    const Strips strips(Images(conv.y), method);
    const int64_t blocks = strips.at_once(g.in_channels + g.out_channels) * strips.across;
    need_scratch(bytes_at_points(method, g.in_channels, g.out_channels));  // weights, or their gradient
    need_scratch(bytes_at_points(method, blocks, g.in_channels));
    need_scratch(bytes_at_points(method, blocks, g.out_channels));
    return true;
  }

  Scratch<float> own, own_bias;
  View w = conv.w;
  if (!conv.w.is_contiguous()) {
    own.resize(w.numel());
    w.data = reinterpret_cast<char*>(own.data());
    set_contiguous(w);
    if (conv.kind != ConvKind::BackwardWeight) copy_elements(conv.w, w);
  }
  float* weights = reinterpret_cast<float*>(w.data);
  const Images x(conv.x), y(conv.y);
  switch (conv.kind) {
    case ConvKind::Forward: {
      const float* bias = nullptr;
      if (conv.bias) {
        View line = *conv.bias;
        own_bias.resize(g.out_channels);
        line.data = reinterpret_cast<char*>(own_bias.data());
        set_contiguous(line);
        copy_elements(*conv.bias, line);
        bias = own_bias.data();
      }
      const Conv* fused = conv.fused ? &conv : nullptr;
      if (conv.kept)
        convolve(method, x, kept_weights(method, weights, g.out_channels, g.in_channels, *conv.kept), y, g.pad_low[1],
                 g.pad_low[2], bias, fused);
      else
        convolve(method, x, Weights(method, weights, g.out_channels, g.in_channels, false), y, g.pad_low[1],
                 g.pad_low[2], bias, fused);
      break;
    }
    case ConvKind::BackwardData:
      convolve(method, y, Weights(method, weights, g.out_channels, g.in_channels, true), x, 2 - g.pad_low[1],
               2 - g.pad_low[2], nullptr);
      break;
    case ConvKind::BackwardWeight:
      gradient_of_weights(method, x, y, g.pad_low[1], g.pad_low[2], weights);
      if (w.data != conv.w.data) copy_elements(w, conv.w);
      break;
  }
  return true;
}

}  // namespace tandem::library
