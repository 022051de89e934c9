// pool_max (x) -> (values, int64 indices) and pool_adaptive_max: the index is the position in the flattened spatial
// axes of x. pool_max_values (x) -> values. NaN counts as the greatest; of equal elements the first one is taken.
#include <algorithm>

#include "device/parallel.h"
#include "library/convert.h"
#include "library/kernels/kernels.h"
#include "library/layout.h"
#include "library/pool_impl.h"
#include "library/scalar.h"

namespace tandem::library {
namespace {

template <typename T>
void take_max(const T* x, int64_t stride, T* best, typename PoolKernels<T>::Index* where,
              typename PoolKernels<T>::Index first, typename PoolKernels<T>::Index step, int64_t n) {
  if constexpr (std::is_same_v<T, float>)
    return kernels().pool_f32.max(x, stride, best, where, first, step, n);
  else if constexpr (std::is_same_v<T, double>)
    return kernels().pool_f64.max(x, stride, best, where, first, step, n);
  else
    for (int64_t i = 0; i < n; ++i)
      if (x[i * stride] > best[i]) best[i] = x[i * stride], where[i] = static_cast<decltype(first)>(first + i * step);
}

constexpr int64_t kLanes = 256;

template <typename T>
struct MaxPool {
  using Index = typename PoolKernels<T>::Index;
  const Pool& p;
  const T* x;
  T* values;
  int64_t* indices;  // null where nobody asks for them
  Plane index_plane;

  int64_t flat(int64_t a, int64_t b, int64_t c) const { return (a * p.axes[1].in + b) * p.axes[2].in + c; }

  struct Lanes {
    T best[kLanes];
    Index where[kLanes];
  };
  void store(const Lanes& lanes, int64_t value_at, int64_t value_stride, int64_t index_at, int64_t index_stride,
             int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      values[value_at + i * value_stride] = lanes.best[i];
      if (indices) indices[index_at + i * index_stride] = lanes.where[i];
    }
  }

  // Body(position in x's plane, flat index) for the taps of the output (a, b, c).
  template <typename Body>
  void for_taps(int64_t a, int64_t b, int64_t c, Body&& body) const {
    const Window &wa = p.axes[0].windows[a], &wb = p.axes[1].windows[b], &wc = p.axes[2].windows[c];
    for (int64_t i = 0, z = wa.first; i < wa.count; ++i, z += p.axes[0].step)
      for (int64_t j = 0, y = wb.first; j < wb.count; ++j, y += p.axes[1].step)
        for (int64_t k = 0, w = wc.first; k < wc.count; ++k, w += p.axes[2].step)
          body(z * p.in.spatial[0] + y * p.in.spatial[1] + w * p.in.spatial[2], static_cast<Index>(flat(z, y, w)));
  }

  void take_window(const T* from, const std::vector<int64_t>& offsets, const std::vector<Index>& taken, Lanes& lanes,
                   int64_t n) const {
    const auto taps = static_cast<int64_t>(offsets.size());
    if constexpr (std::is_same_v<T, float>) {
      kernels().pool_f32.max_window(from, offsets.data(), taken.data(), taps, lanes.best, lanes.where, n);
    } else if constexpr (std::is_same_v<T, double>) {
      kernels().pool_f64.max_window(from, offsets.data(), taken.data(), taps, lanes.best, lanes.where, n);
    } else {
      for (int64_t t = 0; t < taps; ++t) take_max<T>(from + offsets[t], 1, lanes.best, lanes.where, taken[t], 0, n);
    }
  }

  // The lanes are channels at one position.
  void channels_last() const {
    const int64_t outputs = p.outputs();
    parallel_for(p.batch * outputs, p.taps() * p.channels * 0.3 + 10, [&](int64_t begin, int64_t end) {
      Taps taps;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t n = task / outputs, at = task % outputs;
        const int64_t a = at / (p.axes[1].out * p.axes[2].out), b = at / p.axes[2].out % p.axes[1].out,
                      c = at % p.axes[2].out;
        const int64_t value_at = n * p.out.n + a * p.out.spatial[0] + b * p.out.spatial[1] + c * p.out.spatial[2];
        const T* from = x + n * p.in.n;
        if constexpr (std::is_same_v<T, float>) {
          if (!indices) {
            from += taps.follow(*this, a, b, c);
            kernels().pool_f32.max_values(from, taps.offsets.data(), static_cast<int64_t>(taps.offsets.size()),
                                          lowest<T>(), values + value_at, p.channels);
            continue;
          }
        }
        taps.take(*this, a, b, c);
        positions(
            from, taps, a, b, c, value_at,
            n * index_plane.n + a * index_plane.spatial[0] + b * index_plane.spatial[1] + c * index_plane.spatial[2]);
      }
    });
  }

  // The elements of a window: their places in x's plane, and their flat indices.
  struct Taps {
    std::vector<int64_t> offsets;
    std::vector<Index> taken;
    int64_t counts[3] = {-1, -1, -1};

    void take(const MaxPool& pool, int64_t a, int64_t b, int64_t c) {
      offsets.clear(), taken.clear();
      pool.for_taps(a, b, c, [&](int64_t offset, Index index) { offsets.push_back(offset), taken.push_back(index); });
    }

    // The place of the first; offsets are from there, so that windows of one size share them. Indices are not taken.
    int64_t follow(const MaxPool& pool, int64_t a, int64_t b, int64_t c) {
      const Window* windows[] = {&pool.p.axes[0].windows[a], &pool.p.axes[1].windows[b], &pool.p.axes[2].windows[c]};
      int64_t first = 0;
      for (int i = 0; i < 3; ++i) first += windows[i]->first * pool.p.in.spatial[i];
      if (std::equal(counts, counts + 3, windows, [](int64_t n, const Window* w) { return n == w->count; }))
        return first;
      take(pool, a, b, c);
      for (int64_t& offset : offsets) offset -= first;
      for (int i = 0; i < 3; ++i) counts[i] = windows[i]->count;
      return first;
    }
  };

  void positions(const T* from, const Taps& taps, int64_t a, int64_t b, int64_t c, int64_t value_at,
                 int64_t index_at) const {
    Lanes lanes;
    for (int64_t channel = 0; channel < p.channels; channel += kLanes) {
      const int64_t count = std::min(kLanes, p.channels - channel);
      std::fill_n(lanes.best, count, lowest<T>());
      std::fill_n(lanes.where, count, first_index(a, b, c));
      take_window(from + channel, taps.offsets, taps.taken, lanes, count);
      store(lanes, value_at + channel, 1, index_at + channel * index_plane.c, index_plane.c, count);
    }
  }

  Index first_index(int64_t a, int64_t b, int64_t c) const {
    return static_cast<Index>(flat(p.axes[0].windows[a].first, p.axes[1].windows[b].first, p.axes[2].windows[c].first));
  }

  // The lanes are neighbouring outputs of one row.
  void rows() const {
    const PoolAxis& axis = p.axes[2];
    const int64_t rows = p.axes[0].out * p.axes[1].out;
    parallel_for(p.batch * p.channels * rows, p.taps() * axis.out * 0.5 + 20, [&](int64_t begin, int64_t end) {
      Lanes lanes;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t plane = task / rows, n = plane / p.channels, channel = plane % p.channels;
        const int64_t a = task % rows / p.axes[1].out, b = task % p.axes[1].out;
        const T* from = x + n * p.in.n + channel * p.in.c;
        const int64_t value_at = n * p.out.n + channel * p.out.c + a * p.out.spatial[0] + b * p.out.spatial[1];
        const int64_t index_at =
            n * index_plane.n + channel * index_plane.c + a * index_plane.spatial[0] + b * index_plane.spatial[1];
        for (int64_t left = 0; left < axis.out; left += kLanes) {
          const int64_t count = std::min(kLanes, axis.out - left);
          for (int64_t i = 0; i < count; ++i) lanes.best[i] = lowest<T>(), lanes.where[i] = first_index(a, b, left + i);
          if (p.regular)
            regular_row(from, a, b, left, count, lanes);
          else
            irregular_row(from, a, b, left, count, lanes);
          store(lanes, value_at + left * p.out.spatial[2], p.out.spatial[2], index_at + left * index_plane.spatial[2],
                index_plane.spatial[2], count);
        }
      }
    });
  }

  void regular_row(const T* from, int64_t a, int64_t b, int64_t left, int64_t count, Lanes& lanes) const {
    const PoolAxis& axis = p.axes[2];
    const Window &wa = p.axes[0].windows[a], &wb = p.axes[1].windows[b];
    for (int64_t i = 0, z = wa.first; i < wa.count; ++i, z += p.axes[0].step)
      for (int64_t j = 0, y = wb.first; j < wb.count; ++j, y += p.axes[1].step)
        for (int64_t tap = 0; tap < axis.kernel; ++tap) {
          // Lanes whose element for this tap is inside: 0 <= (left + lane) * stride + shift < in.
          const int64_t shift = tap * axis.step - axis.pad_low;
          const int64_t low = shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
          const int64_t high = shift >= axis.in ? 0 : (axis.in - 1 - shift) / axis.stride + 1;
          const int64_t begin = std::max<int64_t>(low - left, 0), end = std::min(high - left, count);
          if (begin >= end) continue;
          const int64_t w = (left + begin) * axis.stride + shift;
          take_max<T>(from + z * p.in.spatial[0] + y * p.in.spatial[1] + w * p.in.spatial[2],
                      axis.stride * p.in.spatial[2], lanes.best + begin, lanes.where + begin,
                      static_cast<Index>(flat(z, y, w)), static_cast<Index>(axis.stride), end - begin);
        }
  }

  void irregular_row(const T* from, int64_t a, int64_t b, int64_t left, int64_t count, Lanes& lanes) const {
    for (int64_t i = 0; i < count; ++i)
      for_taps(a, b, left + i, [&](int64_t offset, Index index) {
        const T value = from[offset];
        if (value > lanes.best[i] || is_nan(value)) lanes.best[i] = value, lanes.where[i] = index;
      });
  }
};

void run_max(const Call& call, bool adaptive) {
  TD_CHECK(call.num_inputs == 1 && (call.num_outputs == 1 || call.num_outputs == 2));
  const bool asked = call.num_outputs == 2;
  const View &x = call.inputs[0], &values = call.outputs[0], &indices = call.outputs[asked];
  TD_CHECK(values.dtype == x.dtype, "outputs of max pooling");
  TD_CHECK(!asked || (indices.dtype == DType::Int64 && indices.ndim == values.ndim &&
                      std::equal(values.shape, values.shape + values.ndim, indices.shape)),
           "outputs of max pooling");
  if (values.numel() == 0) return;
  if (x.dtype == DType::Float16 || x.dtype == DType::BFloat16) {  // exact in float32 and back
    Scratch<char> memory[2];
    const View wide[] = {stand_in(x, DType::Float32, memory[0], true)};
    const View results[] = {stand_in(values, DType::Float32, memory[1], false), indices};
    Call again = call;
    again.inputs = wide, again.outputs = results;
    run_max(again, adaptive);
    return convert_elements(results[0], values);
  }
  const Pool pool = make_pool(call, x, values, adaptive);
  TD_CHECK(pool.inputs() < INT32_MAX || item_size(x.dtype) == 8, "max pooling over a plane of 2^31 elements");
  for_real("max pooling", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, BFloat16>) {
      const MaxPool<T> job{pool, x.as<T>(), values.as<T>(), asked ? indices.as<int64_t>() : nullptr, plane_of(indices)};
      const bool by_channels = pool.in.c == 1 && pool.out.c == 1 && pool.channels > 1;
      by_channels ? job.channels_last() : job.rows();
    }
  });
}

const Register pool_max("pool_max", [](const Call& call) { run_max(call, false); });
const Register pool_max_values("pool_max_values", [](const Call& call) { run_max(call, false); });
const Register pool_adaptive_max("pool_adaptive_max", [](const Call& call) { run_max(call, true); });

}  // namespace
}  // namespace tandem::library
