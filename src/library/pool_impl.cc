#include "library/pool_impl.h"

#include <algorithm>

namespace tandem::library {
namespace {

void set_windows(PoolAxis& axis, bool adaptive) {
  axis.windows.resize(axis.out);
  for (int64_t i = 0; i < axis.out; ++i) {
    Window& window = axis.windows[i];
    if (adaptive) {  // PyTorch's rule: from floor(i * in / out) to ceil((i + 1) * in / out)
      window.first = i * axis.in / axis.out;
      window.count = ((i + 1) * axis.in + axis.out - 1) / axis.out - window.first;
      window.size = window.count;
      continue;
    }
    // A window that ceil_mode lets reach beyond the padding counts only what lies within it.
    const int64_t start = i * axis.stride - axis.pad_low;
    const auto taps_before = [&](int64_t end) {  // how many taps lie before `end`
      return std::clamp<int64_t>((end - start + axis.step - 1) / axis.step, 0, axis.kernel);
    };
    const int64_t outside = start < 0 ? taps_before(0) : 0;
    window.first = start + outside * axis.step;
    window.count = std::max<int64_t>(taps_before(axis.in) - outside, 0);
    window.size = taps_before(axis.in + axis.pad_high);
  }
}

}  // namespace

double Pool::taps() const {
  double product = 1;
  for (const PoolAxis& axis : axes)
    product *= regular ? axis.kernel : static_cast<double>(axis.in) / std::max<int64_t>(axis.out, 1) + 1;
  return product;
}

Plane plane_of(const View& view) {
  const int spatial = view.ndim - 2;
  Plane plane{view.strides[0], view.strides[1], {0, 0, 0}};
  for (int d = 0; d < spatial; ++d) plane.spatial[3 - spatial + d] = view.strides[2 + d];
  return plane;
}

Pool make_pool(const Call& call, const View& large, const View& small, bool adaptive) {
  const int spatial = static_cast<int>(call.ints[0]);
  TD_CHECK(spatial >= 1 && spatial <= 3 && large.ndim == spatial + 2 && small.ndim == spatial + 2,
           "dimensions of pooling");
  TD_CHECK(call.num_ints >= (adaptive ? 1 : 1 + 5 * spatial), "attributes of pooling");
  TD_CHECK(large.shape[0] == small.shape[0] && large.shape[1] == small.shape[1], "channels of pooling");
  Pool pool;
  pool.batch = large.shape[0], pool.channels = large.shape[1];
  pool.regular = !adaptive;
  pool.include_pad = !adaptive && call.num_ints > 1 + 5 * spatial && call.ints[1 + 5 * spatial];
  for (int d = 0; d < 3; ++d) {
    PoolAxis& axis = pool.axes[d];
    const int at = d - (3 - spatial);
    axis.in = at < 0 ? 1 : large.shape[2 + at];
    axis.out = at < 0 ? 1 : small.shape[2 + at];
    axis.kernel = 1;
    if (!adaptive && at >= 0) {
      const int64_t* value = call.ints + 1 + at;
      axis.kernel = value[0], axis.stride = value[spatial];
      axis.pad_low = value[2 * spatial], axis.pad_high = value[3 * spatial], axis.step = value[4 * spatial];
      TD_CHECK(axis.kernel >= 1 && axis.stride >= 1 && axis.step >= 1, "attributes of pooling");
    }
    set_windows(axis, adaptive);
  }
  pool.in = plane_of(large), pool.out = plane_of(small);
  return pool;
}

}  // namespace tandem::library
