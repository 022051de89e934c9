// pool_max_backward (g, indices) -> dx: zeros, with g added at the positions that max pooling found. g and the int64
// indices are (N, C, out...), dx is (N, C, spatial...); an index is a position in the flattened spatial axes of dx.
#include <algorithm>

#include "device/parallel.h"
#include "library/convert.h"
#include "library/layout.h"
#include "library/pool_impl.h"
#include "library/scalar.h"

namespace tandem::library {
namespace {

// Three spatial axes, of which leading ones may be trivial.
struct Spatial {
  int64_t size[3] = {1, 1, 1};
  explicit Spatial(const View& view) {
    const int spatial = view.ndim - 2;
    for (int d = 0; d < spatial; ++d) size[3 - spatial + d] = view.shape[2 + d];
  }
  int64_t count() const { return size[0] * size[1] * size[2]; }
};

template <typename T>
struct MaxPoolBackward {
  const View &g, &indices, &dx;
  Spatial small{g}, large{dx};
  int64_t positions = large.count();
  Plane from = plane_of(g), at = plane_of(indices), to = plane_of(dx);
  // Whether a step of one in the flattened spatial axes is always a step of to.spatial[2] in memory.
  bool flat = (large.size[1] == 1 || to.spatial[1] == to.spatial[2] * large.size[2]) &&
              (large.size[0] == 1 || to.spatial[0] == to.spatial[2] * large.size[2] * large.size[1]);

  int64_t offset(int64_t index) const {
    if (flat) return index * to.spatial[2];
    const int64_t w = index % large.size[2], rest = index / large.size[2];
    return w * to.spatial[2] + rest % large.size[1] * to.spatial[1] + rest / large.size[1] * to.spatial[0];
  }

  // Channels [first, last) of one sample. Channels run innermost, which suits channels-last; a plane is one channel.
  void run_block(int64_t n, int64_t first, int64_t last) const {
    T* out = dx.as<T>() + n * to.n + first * to.c;
    clear(out, last - first);
    const T* gradient = g.as<T>() + n * from.n + first * from.c;
    const int64_t* index = indices.as<int64_t>() + n * at.n + first * at.c;
    const auto row = [&](auto place) {
      for (int64_t a = 0; a < small.size[0]; ++a)
        for (int64_t b = 0; b < small.size[1]; ++b) {
          const T* value = gradient + a * from.spatial[0] + b * from.spatial[1];
          const int64_t* where = index + a * at.spatial[0] + b * at.spatial[1];
          for (int64_t w = 0; w < small.size[2]; ++w, value += from.spatial[2], where += at.spatial[2])
            for (int64_t c = 0; c < last - first; ++c)
              out[place(check(where[c * at.c])) + c * to.c] += value[c * from.c];
        }
    };
    const int64_t step = to.spatial[2];
    if (flat)
      row([step](int64_t position) { return position * step; });
    else
      row([this](int64_t position) { return offset(position); });
  }

  int64_t check(int64_t position) const {
    if (static_cast<uint64_t>(position) >= static_cast<uint64_t>(positions)) [[unlikely]]
      fail(ErrorKind::Index, "position ", position, " of max pooling is not among ", positions);
    return position;
  }

  void clear(T* out, int64_t channels) const {
    if (flat && channels == 1 && to.spatial[2] == 1) {
      std::fill_n(out, positions, T(0));
    } else if (flat && to.c == 1 && to.spatial[2] == channels) {
      std::fill_n(out, positions * channels, T(0));
    } else {
      for (int64_t i = 0; i < positions; ++i)
        for (int64_t c = 0; c < channels; ++c) out[offset(i) + c * to.c] = T(0);
    }
  }

  void run() const {
    const int64_t batch = dx.shape[0], channels = dx.shape[1];
    int64_t block = 1;
    if (to.c == 1 && channels > 1) block = batch >= 2 * num_threads() ? channels : std::min<int64_t>(channels, 64);
    const int64_t blocks = (channels + block - 1) / block;
    const double cost = block * (large.count() * 0.3 + small.count() * 1.0);
    parallel_for(batch * blocks, cost, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % blocks * block;
        run_block(task / blocks, first, std::min(first + block, channels));
      }
    });
  }
};

void run_max_backward(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1);
  const View &g = call.inputs[0], &indices = call.inputs[1], &dx = call.outputs[0];
  TD_CHECK(g.dtype == dx.dtype && indices.dtype == DType::Int64 && g.ndim == dx.ndim && indices.ndim == g.ndim &&
               g.ndim >= 3 && g.ndim <= 5 && std::equal(g.shape, g.shape + g.ndim, indices.shape) &&
               std::equal(g.shape, g.shape + 2, dx.shape),
           "operands of pool_max_backward");
  if (dx.numel() == 0) return;
  if (g.dtype == DType::Float16 || g.dtype == DType::BFloat16) {
    Scratch<char> memory[2];
    const View wide[] = {stand_in(g, DType::Float32, memory[0], true), indices};
    const View result = stand_in(dx, DType::Float32, memory[1], false);
    MaxPoolBackward<float>{wide[0], wide[1], result}.run();
    return convert_elements(result, dx);
  }
  if (g.dtype == DType::Float32)
    MaxPoolBackward<float>{g, indices, dx}.run();
  else if (g.dtype == DType::Float64)
    MaxPoolBackward<double>{g, indices, dx}.run();
  else
    unsupported("max pooling, backward", g.dtype);
}

const Register backward("pool_max_backward", &run_max_backward);

}  // namespace
}  // namespace tandem::library
