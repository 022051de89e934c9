// pool_avg (x) -> y, pool_avg_backward (g) -> dx, and the adaptive ones.
#include <algorithm>
#include <vector>

#include "device/parallel.h"
#include "library/convert.h"
#include "library/kernels/kernels.h"
#include "library/layout.h"
#include "library/pool_impl.h"
#include "library/scalar.h"

namespace tandem::library {
namespace {

template <typename T>
const PoolKernels<T>& pool_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().pool_f32;
  else
    return kernels().pool_f64;
}

constexpr int64_t kLanes = 256;

template <typename T>
struct AveragePool {
  const Pool& p;
  T* large;  // x, or its gradient
  T* small;  // y, or its gradient
  const PoolKernels<T>& kernel = pool_kernels<T>();

  T factor(int64_t a, int64_t b, int64_t c) const {
    const Window &wa = p.axes[0].windows[a], &wb = p.axes[1].windows[b], &wc = p.axes[2].windows[c];
    const int64_t count = p.include_pad ? wa.size * wb.size * wc.size : wa.count * wb.count * wc.count;
    return T(1) / static_cast<T>(count);
  }

  template <typename Body>
  void for_taps(int64_t a, int64_t b, int64_t c, Body&& body) const {  // body(offset in the plane)
    const Window &wa = p.axes[0].windows[a], &wb = p.axes[1].windows[b], &wc = p.axes[2].windows[c];
    for (int64_t i = 0, z = wa.first; i < wa.count; ++i, z += p.axes[0].step)
      for (int64_t j = 0, y = wb.first; j < wb.count; ++j, y += p.axes[1].step)
        for (int64_t k = 0, w = wc.first; k < wc.count; ++k, w += p.axes[2].step)
          body(z * p.in.spatial[0] + y * p.in.spatial[1] + w * p.in.spatial[2]);
  }

  // Body(lanes [begin, end) of the row, offset of the first one's element, distance between elements), tap by tap.
  template <typename Body>
  void for_row_taps(int64_t a, int64_t b, int64_t left, int64_t count, Body&& body) const {
    const PoolAxis& axis = p.axes[2];
    const Window &wa = p.axes[0].windows[a], &wb = p.axes[1].windows[b];
    for (int64_t i = 0, z = wa.first; i < wa.count; ++i, z += p.axes[0].step)
      for (int64_t j = 0, y = wb.first; j < wb.count; ++j, y += p.axes[1].step)
        for (int64_t tap = 0; tap < axis.kernel; ++tap) {
          const int64_t shift = tap * axis.step - axis.pad_low;
          const int64_t low = shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
          const int64_t high = shift >= axis.in ? 0 : (axis.in - 1 - shift) / axis.stride + 1;
          const int64_t begin = std::max<int64_t>(low - left, 0), end = std::min(high - left, count);
          if (begin >= end) continue;
          const int64_t w = (left + begin) * axis.stride + shift;
          body(begin, end, z * p.in.spatial[0] + y * p.in.spatial[1] + w * p.in.spatial[2],
               axis.stride * p.in.spatial[2]);
        }
  }

  template <typename Body>
  void for_outputs(Body&& body) const {  // body(a, b, c, offset in the small plane)
    for (int64_t a = 0; a < p.axes[0].out; ++a)
      for (int64_t b = 0; b < p.axes[1].out; ++b)
        for (int64_t c = 0; c < p.axes[2].out; ++c)
          body(a, b, c, a * p.out.spatial[0] + b * p.out.spatial[1] + c * p.out.spatial[2]);
  }

  void forward_channels_last() const {
    const int64_t outputs = p.outputs();
    parallel_for(p.batch * outputs, p.taps() * p.channels * 0.15 + 10, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> offsets;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t n = task / outputs, at = task % outputs;
        const int64_t a = at / (p.axes[1].out * p.axes[2].out), b = at / p.axes[2].out % p.axes[1].out,
                      c = at % p.axes[2].out;
        T* to = small + n * p.out.n + a * p.out.spatial[0] + b * p.out.spatial[1] + c * p.out.spatial[2];
        const T scale = factor(a, b, c);
        offsets.clear();
        for_taps(a, b, c, [&](int64_t offset) { offsets.push_back(offset); });
        kernel.mean_window(large + n * p.in.n, offsets.data(), static_cast<int64_t>(offsets.size()), to, scale,
                           p.channels);
      }
    });
  }

  void forward_rows() const {
    const PoolAxis& axis = p.axes[2];
    const int64_t rows = p.axes[0].out * p.axes[1].out;
    parallel_for(p.batch * p.channels * rows, p.taps() * axis.out * 0.4 + 20, [&](int64_t begin, int64_t end) {
      T sums[kLanes];
      for (int64_t task = begin; task < end; ++task) {
        const int64_t plane = task / rows, n = plane / p.channels, channel = plane % p.channels;
        const int64_t a = task % rows / p.axes[1].out, b = task % p.axes[1].out;
        const T* from = large + n * p.in.n + channel * p.in.c;
        T* to = small + n * p.out.n + channel * p.out.c + a * p.out.spatial[0] + b * p.out.spatial[1];
        for (int64_t left = 0; left < axis.out; left += kLanes) {
          const int64_t count = std::min(kLanes, axis.out - left);
          std::fill_n(sums, count, T(0));
          if (p.regular) {
            for_row_taps(a, b, left, count, [&](int64_t first, int64_t last, int64_t offset, int64_t stride) {
              kernel.add(from + offset, stride, sums + first, last - first);
            });
          } else {
            for (int64_t i = 0; i < count; ++i) sums[i] = window_sum(from, a, b, left + i);
          }
          for (int64_t i = 0; i < count; ++i) to[(left + i) * p.out.spatial[2]] = sums[i] * factor(a, b, left + i);
        }
      }
    });
  }

  // Windows of different sizes along rows: the rows of a window are added up first, so that every element is read once
  // for each row of windows it is in, in vectors.
  bool by_rows() const { return !p.regular && p.in.spatial[2] == 1 && p.axes[2].out >= 8; }

  void forward_uneven() const {
    const PoolAxis& axis = p.axes[2];
    const int64_t rows = p.axes[0].out * p.axes[1].out;
    parallel_for(p.batch * p.channels * rows, p.taps() * axis.out * 0.2 + 20, [&](int64_t begin, int64_t end) {
      std::vector<T> sums(axis.in);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t plane = task / rows, n = plane / p.channels, channel = plane % p.channels;
        const int64_t a = task % rows / p.axes[1].out, b = task % p.axes[1].out;
        const T* from = large + n * p.in.n + channel * p.in.c;
        T* to = small + n * p.out.n + channel * p.out.c + a * p.out.spatial[0] + b * p.out.spatial[1];
        std::fill(sums.begin(), sums.end(), T(0));
        for_rows(a, b, [&](int64_t offset) { kernel.add(from + offset, 1, sums.data(), axis.in); });
        for (int64_t c = 0; c < axis.out; ++c) {
          const Window& window = axis.windows[c];
          T total = 0;
          for (int64_t k = window.first; k < window.first + window.count; ++k) total += sums[k];
          to[c * p.out.spatial[2]] = total * factor(a, b, c);
        }
      }
    });
  }

  void backward_uneven() const {
    const PoolAxis& axis = p.axes[2];
    parallel_for(p.batch * p.channels, (p.taps() * p.outputs() + p.inputs()) * 0.2, [&](int64_t begin, int64_t end) {
      std::vector<T> spread(axis.in);
      for (int64_t plane = begin; plane < end; ++plane) {
        const int64_t n = plane / p.channels, channel = plane % p.channels;
        T* to = large + n * p.in.n + channel * p.in.c;
        const T* from = small + n * p.out.n + channel * p.out.c;
        for_inputs([&](int64_t offset) { to[offset] = T(0); });
        for (int64_t a = 0; a < p.axes[0].out; ++a)
          for (int64_t b = 0; b < p.axes[1].out; ++b) {
            const T* row = from + a * p.out.spatial[0] + b * p.out.spatial[1];
            std::fill(spread.begin(), spread.end(), T(0));
            for (int64_t c = 0; c < axis.out; ++c) {
              const Window& window = axis.windows[c];
              const T scaled = row[c * p.out.spatial[2]] * factor(a, b, c);
              for (int64_t k = window.first; k < window.first + window.count; ++k) spread[k] += scaled;
            }
            for_rows(a, b, [&](int64_t offset) { kernel.add(spread.data(), 1, to + offset, axis.in); });
          }
      }
    });
  }

  template <typename Body>
  void for_rows(int64_t a, int64_t b, Body&& body) const {  // body(offset of a row of the windows)
    const Window &wa = p.axes[0].windows[a], &wb = p.axes[1].windows[b];
    for (int64_t z = wa.first; z < wa.first + wa.count; ++z)
      for (int64_t y = wb.first; y < wb.first + wb.count; ++y) body(z * p.in.spatial[0] + y * p.in.spatial[1]);
  }

  T window_sum(const T* from, int64_t a, int64_t b, int64_t c) const {
    const Window &wa = p.axes[0].windows[a], &wb = p.axes[1].windows[b], &wc = p.axes[2].windows[c];
    T total = 0;
    if (p.in.spatial[2] != 1) {
      for_taps(a, b, c, [&](int64_t offset) { total += from[offset]; });
      return total;
    }
    for (int64_t z = wa.first; z < wa.first + wa.count; ++z) {
      if (wc.count == p.axes[2].in && p.in.spatial[1] == p.axes[2].in) {  // whole rows, one after the other
        total += kernel.sum(from + z * p.in.spatial[0] + wb.first * p.in.spatial[1], wb.count * wc.count);
        continue;
      }
      for (int64_t y = wb.first; y < wb.first + wb.count; ++y)
        total += kernel.sum(from + z * p.in.spatial[0] + y * p.in.spatial[1] + wc.first, wc.count);
    }
    return total;
  }

  template <typename Body>
  void for_inputs(Body&& body) const {  // body(offset in the large plane)
    for (int64_t a = 0; a < p.axes[0].in; ++a)
      for (int64_t b = 0; b < p.axes[1].in; ++b)
        for (int64_t c = 0; c < p.axes[2].in; ++c)
          body(a * p.in.spatial[0] + b * p.in.spatial[1] + c * p.in.spatial[2]);
  }

  // A task owns some channels of one image, so no two write the same element.
  void backward_channels_last() const {
    constexpr int64_t kChannels = 64;
    const int64_t blocks = (p.channels + kChannels - 1) / kChannels;
    parallel_for(p.batch * blocks, (p.taps() * p.outputs() + p.inputs()) * kChannels * 0.15,
                 [&](int64_t begin, int64_t end) {
                   T scaled[kChannels];
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t n = task / blocks, channel = task % blocks * kChannels,
                                   count = std::min(kChannels, p.channels - channel);
                     T* to = large + n * p.in.n + channel;
                     for_inputs([&](int64_t offset) { std::fill_n(to + offset, count, T(0)); });
                     for_outputs([&](int64_t a, int64_t b, int64_t c, int64_t at) {
                       const T scale = factor(a, b, c);
                       const T* from = small + n * p.out.n + channel + at;
                       for (int64_t i = 0; i < count; ++i) scaled[i] = from[i] * scale;
                       for_taps(a, b, c, [&](int64_t offset) { kernel.spread(scaled, to + offset, 1, count); });
                     });
                   }
                 });
  }

  void backward_rows() const {
    const PoolAxis& axis = p.axes[2];
    parallel_for(p.batch * p.channels, (p.taps() * p.outputs() + p.inputs()) * 0.5, [&](int64_t begin, int64_t end) {
      T scaled[kLanes];
      for (int64_t plane = begin; plane < end; ++plane) {
        const int64_t n = plane / p.channels, channel = plane % p.channels;
        T* to = large + n * p.in.n + channel * p.in.c;
        const T* from = small + n * p.out.n + channel * p.out.c;
        for_inputs([&](int64_t offset) { to[offset] = T(0); });
        for (int64_t a = 0; a < p.axes[0].out; ++a)
          for (int64_t b = 0; b < p.axes[1].out; ++b)
            for (int64_t left = 0; left < axis.out; left += kLanes) {
              const int64_t count = std::min(kLanes, axis.out - left);
              const T* row = from + a * p.out.spatial[0] + b * p.out.spatial[1] + left * p.out.spatial[2];
              for (int64_t i = 0; i < count; ++i) scaled[i] = row[i * p.out.spatial[2]] * factor(a, b, left + i);
              if (p.regular) {
                for_row_taps(a, b, left, count, [&](int64_t first, int64_t last, int64_t offset, int64_t stride) {
                  kernel.spread(scaled + first, to + offset, stride, last - first);
                });
              } else {
                for (int64_t i = 0; i < count; ++i)
                  for_taps(a, b, left + i, [&](int64_t offset) { to[offset] += scaled[i]; });
              }
            }
      }
    });
  }
};

void run_average(const Call& call, bool backward, bool adaptive) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.inputs[0].dtype == call.outputs[0].dtype);
  const View &from = call.inputs[0], &to = call.outputs[0];
  if (to.numel() == 0) return;
  if (from.dtype == DType::Float16 || from.dtype == DType::BFloat16) {
    Scratch<char> memory[2];
    const View wide = stand_in(from, DType::Float32, memory[0], true),
               result = stand_in(to, DType::Float32, memory[1], false);
    Call again = call;
    again.inputs = &wide, again.outputs = &result;
    run_average(again, backward, adaptive);
    return convert_elements(result, to);
  }
  const Pool pool = backward ? make_pool(call, to, from, adaptive) : make_pool(call, from, to, adaptive);
  const bool by_channels = pool.in.c == 1 && pool.out.c == 1 && pool.channels > 1;
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    if (backward) {
      const AveragePool<T> job{pool, to.as<T>(), from.as<T>()};
      by_channels ? job.backward_channels_last() : job.by_rows() ? job.backward_uneven() : job.backward_rows();
    } else {
      const AveragePool<T> job{pool, from.as<T>(), to.as<T>()};
      by_channels ? job.forward_channels_last() : job.by_rows() ? job.forward_uneven() : job.forward_rows();
    }
  };
  if (from.dtype == DType::Float32)
    run(Type<float>{});
  else if (from.dtype == DType::Float64)
    run(Type<double>{});
  else
    unsupported("average pooling", from.dtype);
}

const Register forward("pool_avg", [](const Call& call) { run_average(call, false, false); });
const Register backward("pool_avg_backward", [](const Call& call) { run_average(call, true, false); });
const Register adaptive_forward("pool_adaptive_avg", [](const Call& call) { run_average(call, false, true); });
const Register adaptive_backward("pool_adaptive_avg_backward", [](const Call& call) { run_average(call, true, true); });

}  // namespace
}  // namespace tandem::library
