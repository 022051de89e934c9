// Convolutions as matrix products over unfolded patches: for float64, and where oneDNN is missing or refuses.
#include <algorithm>
#include <utility>

#include "device/parallel.h"
#include "library/conv_impl.h"
#include "library/gemm.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

// All tensors are contiguous here. A block of `count` output positions from `first` on has one column for each position
// and one row for each (channel of the group, tap).
template <typename T>
struct Patches {
  const Geometry& g;
  int64_t channels;  // of one group

  int64_t rows() const { return channels * g.taps(); }

  // Calls body(row, offset in the image's channels or -1 for padding, column) for a block.
  template <typename Body>
  void walk(int64_t first, int64_t count, Body&& body) const {
    const int64_t plane = g.in[0] * g.in[1] * g.in[2];
    for (int64_t column = 0; column < count; ++column) {
      const int64_t position = first + column;
      const int64_t start[3] = {position / (g.out[1] * g.out[2]) * g.stride[0] - g.pad_low[0],
                                position / g.out[2] % g.out[1] * g.stride[1] - g.pad_low[1],
                                position % g.out[2] * g.stride[2] - g.pad_low[2]};
      int64_t tap = 0;
      for (int64_t a = 0; a < g.kernel[0]; ++a) {
        const int64_t z = start[0] + a * g.dilation[0];
        for (int64_t b = 0; b < g.kernel[1]; ++b) {
          const int64_t y = start[1] + b * g.dilation[1];
          const bool row_inside = z >= 0 && z < g.in[0] && y >= 0 && y < g.in[1];
          for (int64_t c = 0; c < g.kernel[2]; ++c, ++tap) {
            const int64_t x = start[2] + c * g.dilation[2];
            const bool inside = row_inside && x >= 0 && x < g.in[2];
            const int64_t offset = (z * g.in[1] + y) * g.in[2] + x;
            for (int64_t channel = 0; channel < channels; ++channel)
              body(channel * g.taps() + tap, inside ? channel * plane + offset : -1, column);
          }
        }
      }
    }
  }

  // columns[position][row]: position-major, so that a position's row is written in one go.
  void unfold(const T* image, int64_t first, int64_t count, T* columns) const {
    const int64_t width = rows();
    walk(first, count, [&](int64_t row, int64_t offset, int64_t column) {
      columns[column * width + row] = offset < 0 ? T(0) : image[offset];
    });
  }
  void fold(const T* columns, int64_t first, int64_t count, T* image) const {
    const int64_t width = rows();
    walk(first, count, [&](int64_t row, int64_t offset, int64_t column) {
      if (offset >= 0) image[offset] += columns[column * width + row];
    });
  }
};

// How many positions to unfold at a time: a block that stays in the cache.
int64_t block_of(const Geometry& g, int64_t rows) {
  return std::clamp<int64_t>((1 << 16) / std::max<int64_t>(rows, 1), 16, std::max<int64_t>(g.positions(), 16));
}

template <typename T>
struct Sizes {
  const Geometry& g;
  int64_t in = g.in_channels / g.groups, out = g.out_channels / g.groups;  // channels of a group
  int64_t positions = g.positions(), plane = g.in[0] * g.in[1] * g.in[2];
  Patches<T> patches{g, in};
  int64_t rows = patches.rows(), block = block_of(g, rows), blocks = (positions + block - 1) / block;
  double cost = 0.1 * out * rows + 2.0 * rows;  // of one position
};

template <typename T>
void forward(const Geometry& g, const T* x, const T* w, const T* bias, T* y) {
  const Sizes<T> s{g};
  parallel_for(g.batch * g.groups * s.blocks, s.cost * s.block, [&](int64_t begin, int64_t end) {
    const Scratch<T> columns(s.block * s.rows);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / s.blocks, group = image % g.groups, first = task % s.blocks * s.block;
      const int64_t count = std::min(s.block, s.positions - first);
      s.patches.unfold(x + image * s.in * s.plane, first, count, columns.data());
      T* result = y + image * s.out * s.positions + first;
      gemm<T>({s.out,
               count,
               s.rows,
               {w + group * s.out * s.rows, s.rows, 1},
               {columns.data(), 1, s.rows},
               {result, s.positions, 1}});
      if (!bias) continue;
      for (int64_t o = 0; o < s.out; ++o)
        for (int64_t p = 0; p < count; ++p) result[o * s.positions + p] += bias[group * s.out + o];
    }
  });
}

template <typename T>
void backward_data(const Geometry& g, const T* gradient, const T* w, T* dx) {
  const Sizes<T> s{g};
  parallel_for(g.batch * g.groups, s.cost * s.positions, [&](int64_t begin, int64_t end) {
    const Scratch<T> columns(s.block * s.rows);
    for (int64_t image = begin; image < end; ++image) {
      T* result = dx + image * s.in * s.plane;
      std::fill_n(result, s.in * s.plane, T(0));
      for (int64_t first = 0; first < s.positions; first += s.block) {
        const int64_t count = std::min(s.block, s.positions - first);
        gemm<T>({count,
                 s.rows,
                 s.out,
                 {gradient + image * s.out * s.positions + first, 1, s.positions},
                 {w + image % g.groups * s.out * s.rows, s.rows, 1},
                 {columns.data(), s.rows, 1}});
        s.patches.fold(columns.data(), first, count, result);
      }
    }
  });
}

// Summed over the batch in order, so the result does not depend on the number of threads.
template <typename T>
void backward_weight(const Geometry& g, const T* x, const T* gradient, T* dw) {
  const Sizes<T> s{g};
  parallel_for(g.groups, s.cost * s.positions * g.batch, [&](int64_t begin, int64_t end) {
    const Scratch<T> columns(s.block * s.rows);
    for (int64_t group = begin; group < end; ++group) {
      T* result = dw + group * s.out * s.rows;
      std::fill_n(result, s.out * s.rows, T(0));
      for (int64_t n = 0; n < g.batch; ++n) {
        const int64_t image = n * g.groups + group;
        for (int64_t first = 0; first < s.positions; first += s.block) {
          const int64_t count = std::min(s.block, s.positions - first);
          parallel_for(count, 2.0 * s.rows, [&](int64_t from, int64_t to) {
            s.patches.unfold(x + image * s.in * s.plane, first + from, to - from, columns.data() + from * s.rows);
          });
          Product<T> product{s.out,
                             s.rows,
                             count,
                             {gradient + image * s.out * s.positions + first, s.positions, 1},
                             {columns.data(), s.rows, 1},
                             {result, s.rows, 1}};
          product.accumulate = true;
          gemm(product);
        }
      }
    }
  });
}

// The tensor itself where it is contiguous, else a contiguous copy (or only the memory for one).
View dense(const View& view, Scratch<char>& memory, bool load) {
  if (view.is_contiguous()) return view;
  View copy = view;
  memory.resize(view.numel() * item_size(view.dtype));
  copy.data = memory.data();
  set_contiguous(copy);
  if (load) copy_elements(view, copy);
  return copy;
}

template <typename T>
void run(const Conv& conv) {
  Scratch<char> memory[4];
  const View x = dense(conv.x, memory[0], conv.kind != ConvKind::BackwardData);
  const View w = dense(conv.w, memory[1], conv.kind != ConvKind::BackwardWeight);
  const View y = dense(conv.y, memory[2], conv.kind != ConvKind::Forward);
  const T* bias = conv.bias ? dense(*conv.bias, memory[3], true).as<T>() : nullptr;
  const Geometry& g = conv.geometry;
  if (!conv_depthwise<T>(conv.kind, g, x.as<T>(), w.as<T>(), bias, y.as<T>())) switch (conv.kind) {
      case ConvKind::Forward:
        forward<T>(g, x.as<T>(), w.as<T>(), bias, y.as<T>());
        break;
      case ConvKind::BackwardData:
        backward_data<T>(g, y.as<T>(), w.as<T>(), x.as<T>());
        break;
      case ConvKind::BackwardWeight:
        backward_weight<T>(g, x.as<T>(), y.as<T>(), w.as<T>());
        break;
    }
  const auto [made, wanted] = conv.kind == ConvKind::Forward        ? std::pair(&y, &conv.y)
                              : conv.kind == ConvKind::BackwardData ? std::pair(&x, &conv.x)
                                                                    : std::pair(&w, &conv.w);
  if (made->data != wanted->data) copy_elements(*made, *wanted);
}

}  // namespace

void conv_own(const Conv& conv) {
  if (conv.x.dtype == DType::Float32) return run<float>(conv);
  run<double>(conv);
}

}  // namespace tandem::library
