// Convolutions in float32 whose channels have windows of their own, 16 channels at a time, in any layout.
//
// Note [Depthwise blocks]
// A block of channels is worked on as if it lay with channels last: where it does, in place; otherwise a strip of rows
// is brought into a tile that stays in the cache, and results are brought back. An output row is a few runs of
// positions that meet the same taps of the window: one in the middle, short ones at the borders. The gradient of the
// image is such a sum too, over the gradient of the result; with a stride, every so many positions meet the same taps.
//
// Gradients of windows are added up by parts of the images, which do not depend on the number of threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include "device/parallel.h"
#include "library/conv_impl.h"
#include "library/kernels/kernels.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

constexpr int64_t kLanes = kDepthwiseChannels;
constexpr int64_t kTile = 1 << 15;  // floats of a strip
constexpr int64_t kLong = 8;        // positions in a row that are taken row by row
constexpr int64_t kParts = 16;      // that gradients of windows are added up in
constexpr double kPerVector = 0.5;  // nanoseconds of a tap in a block of channels

// One spatial axis, seen from the positions of a result: `forward` from those of y into x, otherwise from x into y.
struct Axis {
  int64_t taps, stride, dilation, pad, sources, positions;
  bool forward;

  Axis(const Geometry& g, int d, bool forward)
      : taps(g.kernel[d]),
        stride(g.stride[d]),
        dilation(g.dilation[d]),
        pad(g.pad_low[d]),
        sources(forward ? g.in[d] : g.out[d]),
        positions(forward ? g.out[d] : g.in[d]),
        forward(forward) {}

  int64_t period() const { return forward ? 1 : stride; }    // positions that meet the same taps are so far apart
  int64_t advance() const { return forward ? stride : 1; }   // and what they read
  int64_t tap_step() const { return forward ? 1 : stride; }  // between the taps that a position meets
  int64_t source_step() const { return forward ? dilation : stride > 1 ? -1 : -dilation; }

  struct Met {
    int64_t tap, count, source;  // the first tap, how many, and where the first one reads
  };
  Met at(int64_t position) const {
    const int64_t shifted = position + pad;
    int64_t tap = forward ? 0 : shifted % stride;
    int64_t source = forward ? position * stride - pad : (shifted - tap) / stride;
    int64_t count = tap < taps ? (taps - tap + tap_step() - 1) / tap_step() : 0;
    const int64_t step = source_step();
    for (; count > 0 && (source < 0 || source >= sources); --count) tap += tap_step(), source += step;
    while (count > 0 && (source + (count - 1) * step < 0 || source + (count - 1) * step >= sources)) --count;
    return {tap, count, source};
  }

  // Sources that positions in [begin, end) read lie in [first, last).
  std::pair<int64_t, int64_t> read_by(int64_t begin, int64_t end) const {
    int64_t first = sources, last = 0;
    for (int64_t position = begin; position < end; ++position) {
      const Met met = at(position);
      if (!met.count) continue;
      const int64_t other = met.source + (met.count - 1) * source_step();
      first = std::min({first, met.source, other}), last = std::max({last, met.source + 1, other + 1});
    }
    return {std::min(first, last), last};
  }
};

struct Run {
  int64_t first, count;  // positions, period() apart
  Axis::Met met;         // of the first
};

std::vector<Run> runs_of(const Axis& axis, int64_t begin, int64_t end) {
  std::vector<Run> runs;
  for (int64_t phase = 0; phase < std::min(axis.period(), end - begin); ++phase)
    for (int64_t position = begin + phase; position < end; position += axis.period()) {
      const Axis::Met met = axis.at(position);
      const bool more =
          position != begin + phase && met.tap == runs.back().met.tap && met.count == runs.back().met.count;
      if (more)
        ++runs.back().count;
      else
        runs.push_back({position, 1, met});
    }
  return runs;
}

// Rows of one block of channels: element (row, column, channel) is data[row * down + column * across + channel].
struct Rows {
  float* data;
  int64_t down, across;
};

// A tensor (N, C, height, width), by blocks of channels.
class Blocks {
 public:
  explicit Blocks(const View& v)
      : data_(reinterpret_cast<float*>(v.data)), channels_(v.shape[1]), image_(v.strides[0]), channel_(v.strides[1]) {
    width_ = v.shape[v.ndim - 1], column_ = v.strides[v.ndim - 1];
    row_ = v.ndim == 4 ? v.strides[2] : 0;
    last_ = channel_ == 1;
  }
  static bool fit(const View& v) {
    return v.strides[1] == 1 || (v.strides[v.ndim - 1] == 1 && (v.ndim == 3 || v.strides[2] == v.shape[3]));
  }
  bool in_place(int64_t block) const { return last_ && (block + 1) * kLanes <= channels_; }
  int64_t tile(int64_t rows) const { return rows * width_ * kLanes; }

  // Rows [first, last) of a block, as if row 0 came first; in a tile where they are not in place.
  Rows enter(int64_t image, int64_t block, int64_t first, int64_t last, bool load, Scratch<float>& tile) const {
    float* from = at(image, block);
    if (in_place(block)) return {from, row_, column_};
    const int64_t count = std::min(kLanes, channels_ - block * kLanes), pixels = (last - first) * width_;
    tile.resize(pixels * kLanes);
    if (load) {
      if (count < kLanes) std::memset(tile.data(), 0, pixels * kLanes * sizeof(float));
      if (last_)
        each(first, last, [&](int64_t i, int64_t place) {
          std::memcpy(tile.data() + i * kLanes, from + place, count * sizeof(float));
        });
      else
        kernels().transpose_u32(words(from + first * row_), channel_, words(tile.data()), kLanes, pixels, count);
    }
    return {tile.data() - first * width_ * kLanes, width_ * kLanes, kLanes};
  }
  void leave(int64_t image, int64_t block, int64_t first, int64_t last, Scratch<float>& tile) const {
    if (in_place(block)) return;
    float* to = at(image, block);
    const int64_t count = std::min(kLanes, channels_ - block * kLanes), pixels = (last - first) * width_;
    if (last_)
      each(first, last,
           [&](int64_t i, int64_t place) { std::memcpy(to + place, tile.data() + i * kLanes, count * sizeof(float)); });
    else
      kernels().transpose_u32(words(tile.data()), kLanes, words(to + first * row_), channel_, count, pixels);
  }

 private:
  static uint32_t* words(float* p) { return reinterpret_cast<uint32_t*>(p); }
  float* at(int64_t image, int64_t block) const { return data_ + image * image_ + block * kLanes * channel_; }
  template <typename Body>
  void each(int64_t first, int64_t last, Body&& body) const {
    for (int64_t r = first, i = 0; r < last; ++r)
      for (int64_t c = 0; c < width_; ++c, ++i) body(i, r * row_ + c * column_);
  }

  float* data_;
  int64_t channels_, image_, channel_, row_, column_, width_;
  bool last_;
};

struct Depthwise {
  const Geometry& g;
  Axis rows, columns;
  std::vector<Run> runs;
  int64_t blocks = (g.in_channels + kLanes - 1) / kLanes, taps = g.kernel[1] * g.kernel[2];
  int64_t strip, strips;  // rows of positions in one, and how many in an image

  Depthwise(const Geometry& g, bool forward, bool in_place)
      : g(g), rows(g, 1, forward), columns(g, 2, forward), runs(runs_of(columns, 0, columns.positions)) {
    // Of all blocks together where they lie side by side, so that memory is read in order.
    const int64_t across = std::max(g.in[2], g.out[2]) * kLanes * (in_place ? blocks : 1);
    strip = std::clamp<int64_t>(kTile * (in_place ? 2 : 1) / across, 1, rows.positions);
    strips = (rows.positions + strip - 1) / strip;
  }
  int64_t end_of(int64_t s) const { return std::min((s + 1) * strip, rows.positions); }
  double cost() const { return kPerVector * static_cast<double>(strip * columns.positions * taps); }

  // Calls body(description of positions in a row or column) for the positions of a strip, along the longer runs.
  template <typename Body>
  void each_run(int64_t s, const Rows& from, const Rows& to, float* weights, Body&& body) const {
    DepthwiseRow row;
    row.row = rows.source_step() * from.down, row.column = columns.source_step() * from.across;
    row.weights_row = rows.tap_step() * g.kernel[2] * kLanes, row.weights_column = columns.tap_step() * kLanes;
    const int64_t down = rows.advance() * from.down, across = columns.advance() * from.across;
    const int64_t to_down = rows.period() * to.down, to_across = columns.period() * to.across;
    for (const Run& d : runs_of(rows, s * strip, end_of(s)))
      for (const Run& a : runs) {
        const float* first = from.data + d.met.source * from.down + a.met.source * from.across;
        float* result = to.data + d.first * to.down + a.first * to.across;
        row.weights = weights + (d.met.tap * g.kernel[2] + a.met.tap) * kLanes;
        row.rows = d.met.count, row.columns = a.met.count;
        const bool by_rows = a.count >= d.count || a.count >= kLong;
        row.step = by_rows ? across : down, row.to_step = by_rows ? to_across : to_down;
        row.count = by_rows ? a.count : d.count;
        for (int64_t i = 0; i < (by_rows ? d.count : a.count); ++i) {
          row.from = first + i * (by_rows ? down : across), row.to = result + i * (by_rows ? to_down : to_across);
          body(row);
        }
      }
  }

  void sum(const Blocks& from, const Blocks& to, float* weights, const float* bias) const {
    const auto sum = kernels().depthwise.sum;
    parallel_for(g.batch * strips * blocks, cost(), [&](int64_t begin, int64_t end) {
      Scratch<float> in, out;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t n = task / (strips * blocks), s = task / blocks % strips, block = task % blocks;
        const auto [first, last] = rows.read_by(s * strip, end_of(s));
        const Rows x = from.enter(n, block, first, last, true, in);
        const Rows y = to.enter(n, block, s * strip, end_of(s), false, out);
        const float* start = bias ? bias + block * kLanes : nullptr;
        each_run(s, x, y, weights + block * taps * kLanes, [&](const DepthwiseRow& row) { sum(row, start); });
        to.leave(n, block, s * strip, end_of(s), out);
      }
    });
  }

  // Sums of every part of the images, [part][block][tap][channel].
  void dot(const Blocks& x, const Blocks& y, float* sums, int64_t parts) const {
    const auto dot = kernels().depthwise.dot;
    const int64_t all = g.batch * strips;
    parallel_for(parts * blocks, cost() * static_cast<double>(all) / parts, [&](int64_t begin, int64_t end) {
      Scratch<float> in, out;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t part = task / blocks, block = task % blocks;
        float* total = sums + task * taps * kLanes;
        std::fill_n(total, taps * kLanes, 0.f);
        for (int64_t i = all * part / parts; i < all * (part + 1) / parts; ++i) {
          const int64_t n = i / strips, s = i % strips;
          const auto [first, last] = rows.read_by(s * strip, end_of(s));
          const Rows from = x.enter(n, block, first, last, true, in);
          const Rows by = y.enter(n, block, s * strip, end_of(s), true, out);
          each_run(s, from, by, total, [&](const DepthwiseRow& row) {
            if (row.rows && row.columns) dot(row);
          });
        }
      }
    });
  }
};

}  // namespace

bool conv_depthwise_blocks(const Conv& conv) {
  const Geometry& g = conv.geometry;
  if (conv.x.dtype != DType::Float32 || g.groups != g.in_channels || g.out_channels != g.groups || g.groups < 2 ||
      g.spatial > 2 || !Blocks::fit(conv.x) || !Blocks::fit(conv.y))
    return false;
  for (int d = 1; d < 3; ++d)
    if (g.pad_low[d] < 0 || g.pad_high[d] < 0 || (g.stride[d] > 1 && g.dilation[d] > 1)) return false;
  const bool in_place = conv.x.strides[1] == 1 && conv.y.strides[1] == 1;
  const Depthwise depthwise(g, conv.kind != ConvKind::BackwardData, in_place);
  const int64_t taps = depthwise.taps, whole = depthwise.blocks * taps * kLanes;
  const int64_t parts = std::min(kParts, g.batch * depthwise.strips);
  if (preparing()) {
    need_scratch(whole * sizeof(float) * (conv.kind == ConvKind::BackwardWeight ? parts : 1));
    return true;
  }

  const auto each_weight = [&](auto&& body) {  // body(weight, place in blocks)
    const View& w = conv.w;
    for (int64_t c = 0; c < g.groups; ++c)
      for (int64_t a = 0; a < g.kernel[1]; ++a)
        for (int64_t b = 0; b < g.kernel[2]; ++b) {
          const int64_t down = w.ndim == 4 ? a * w.strides[2] : 0;
          body(w.as<float>()[c * w.strides[0] + down + b * w.strides[w.ndim - 1]],
               (c / kLanes * taps + a * g.kernel[2] + b) * kLanes + c % kLanes);
        }
  };
  const Blocks x(conv.x), y(conv.y);
  if (conv.kind == ConvKind::BackwardWeight) {
    const Scratch<float> sums(whole * parts);
    depthwise.dot(x, y, sums.data(), parts);
    each_weight([&](float& weight, int64_t place) {
      weight = 0;
      for (int64_t part = 0; part < parts; ++part) weight += sums.data()[part * whole + place];
    });
    return true;
  }
  const Scratch<float> weights(whole), bias(conv.bias ? depthwise.blocks * kLanes : 0);
  std::fill_n(weights.data(), whole, 0.f);
  each_weight([&](float& weight, int64_t place) { weights.data()[place] = weight; });
  if (conv.bias) {
    std::fill_n(bias.data(), depthwise.blocks * kLanes, 0.f);
    for (int64_t c = 0; c < g.groups; ++c) bias.data()[c] = conv.bias->as<float>()[c * conv.bias->strides[0]];
  }
  if (conv.kind == ConvKind::Forward)
    depthwise.sum(x, y, weights.data(), conv.bias ? bias.data() : nullptr);
  else
    depthwise.sum(y, x, weights.data(), nullptr);
  return true;
}

}  // namespace tandem::library
