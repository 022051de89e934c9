// copy (x) -> y: same shape and dtype, any strides.
#include <cstring>

#include "check.h"
#include "device/parallel.h"
#include "library/kernels/kernels.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

constexpr double kNanosecondsPerByte = 0.15;

// memcpy, but where the target lies a little after the source within their pages: there `rep movsb`, which long ones
// use, takes ten times as long on some CPUs, and loads wait for stores that only seem to overlap them. From the end,
// none does.
void copy_bytes(char* to, const char* from, size_t bytes) {
  constexpr size_t kPage = 4096, kNear = 256, kShort = 2048, kBlock = 64;
  const size_t ahead = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kPage;
  if (bytes < kShort || ahead == 0 || ahead >= kNear) {
    std::memcpy(to, from, bytes);
    return;
  }
  size_t left = bytes;
  for (; left >= kBlock; left -= kBlock) {
    char block[kBlock];  // in registers
    std::memcpy(block, from + left - kBlock, kBlock);
    std::memcpy(to + left - kBlock, block, kBlock);
  }
  std::memcpy(to, from, left);
}

template <typename T>
void copy_row(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n) {
  if (from_stride == 1 && to_stride == 1) {
    copy_bytes(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(from), n * sizeof(T));
  } else if (from_stride == 0 && to_stride == 1) {
    std::fill(to, to + n, *from);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

template <typename T>
void copy_rows(const Loop<2>& loop, T* to, const T* from) {
  const int inner = loop.ndim - 1;
  const int64_t n = loop.shape[inner];
  parallel_for(loop.count(0, inner), n * sizeof(T) * kNanosecondsPerByte + 2, [&](int64_t begin, int64_t end) {
    int64_t index[kMaxDims], offset[2];
    loop.locate(begin, inner, index, offset);
    for (int64_t row = begin; row < end; ++row) {
      copy_row(from + offset[1], loop.strides[1][inner], to + offset[0], loop.strides[0][inner], n);
      loop.advance(inner, index, offset);
    }
  });
}

// One long row is the only axis left: split it.
template <typename T>
void copy_line(const Loop<2>& loop, T* to, const T* from) {
  parallel_for(loop.shape[0], sizeof(T) * kNanosecondsPerByte, [&](int64_t begin, int64_t end) {
    const int64_t to_stride = loop.strides[0][0], from_stride = loop.strides[1][0];
    copy_row(from + begin * from_stride, from_stride, to + begin * to_stride, to_stride, end - begin);
  });
}

// The last axis is dense in `to` and axis `other` is densest in `from`: move square tiles, which use whole cache lines
// of both.
template <typename T>
void copy_transposed(Loop<2> loop, int other, T* to, const T* from) {
  constexpr int64_t kSquare = sizeof(T) >= 8 ? 32 : 64, kStrip = 8, kFew = 4;
  const int inner = loop.ndim - 1;
  const int64_t rows = loop.shape[other], columns = loop.shape[inner];
  const int64_t tile = columns <= kFew ? kSquare * kSquare / kFew : kSquare;  // few columns need not be square
  const int64_t to_row = loop.strides[0][other], from_row = loop.strides[1][other];
  const int64_t to_column = loop.strides[0][inner], from_column = loop.strides[1][inner];
  // The axes that are left, then the tiles along `other`.
  Loop<2> outer;
  for (int d = 0; d < inner; ++d) {
    if (d == other) continue;
    outer.shape[outer.ndim] = loop.shape[d];
    for (int k = 0; k < 2; ++k) outer.strides[k][outer.ndim] = loop.strides[k][d];
    ++outer.ndim;
  }
  const int64_t tiles = (rows + tile - 1) / tile;
  const double cost = std::min(rows, tile) * columns * sizeof(T) * kNanosecondsPerByte * 2;
  parallel_for(outer.count(0, outer.ndim) * tiles, cost, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t index[kMaxDims], offset[2];
      outer.locate(unit / tiles, outer.ndim, index, offset);
      const int64_t first_row = unit % tiles * tile, last_row = std::min(rows, first_row + tile);
      if constexpr (sizeof(T) == 4) {
        if (to_column == 1 && from_row == 1) {
          for (int64_t first = 0; first < columns; first += tile)
            kernels().transpose_u32(from + offset[1] + first_row + first * from_column, from_column,
                                    to + offset[0] + first_row * to_row + first, to_row, last_row - first_row,
                                    std::min(tile, columns - first));
          continue;
        }
      }
      for (int64_t first = 0; first < columns; first += kStrip) {
        const int64_t width = std::min(kStrip, columns - first);
        T* target = to + offset[0] + first * to_column;
        const T* source = from + offset[1] + first * from_column;
        if (width == kStrip) {
          for (int64_t r = first_row; r < last_row; ++r)
            for (int64_t c = 0; c < kStrip; ++c)
              target[r * to_row + c * to_column] = source[r * from_row + c * from_column];
        } else {
          for (int64_t r = first_row; r < last_row; ++r)
            for (int64_t c = 0; c < width; ++c)
              target[r * to_row + c * to_column] = source[r * from_row + c * from_column];
        }
      }
    }
  });
}

void run_copy(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.inputs[0].dtype == call.outputs[0].dtype);
  copy_elements(call.inputs[0], call.outputs[0]);
}

const Register copy("copy", &run_copy);

}  // namespace

void copy_elements(const View& from, const View& to) {
  TD_CHECK(from.ndim == to.ndim && std::equal(from.shape, from.shape + from.ndim, to.shape),
           "copy between different shapes");
  if (to.numel() == 0) return;
  const Loop<2> loop = make_loop<2>({&to, &from}, 0, to.ndim, true);
  for_size(item_size(to.dtype), [&](auto type) {
    using T = typename decltype(type)::type;
    T* target = to.as<T>();
    const T* source = from.as<T>();
    if (loop.ndim == 0) {
      *target = *source;
      return;
    }
    if (loop.ndim == 1) return copy_line(loop, target, source);
    const int inner = loop.ndim - 1;
    int densest = inner;
    for (int d = 0; d < inner; ++d)
      if (loop.strides[1][d] != 0 && std::abs(loop.strides[1][d]) < std::abs(loop.strides[1][densest])) densest = d;
    if (densest != inner && loop.shape[densest] > 1 && loop.strides[1][inner] != 0)
      return copy_transposed(loop, densest, target, source);
    copy_rows(loop, target, source);
  });
}

void fill_zero(const View& view) {
  static const uint64_t zero[2] = {0, 0};
  View source = view;
  source.data = reinterpret_cast<char*>(const_cast<uint64_t*>(zero));
  std::fill(source.strides, source.strides + source.ndim, 0);
  copy_elements(source, view);
}

}  // namespace tandem::library
