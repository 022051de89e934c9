// All lines of two views along one axis, in groups of neighbours, as transforms in lanes take them.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "device/parallel.h"
#include "library/strided.h"

namespace tandem::library::fft {

// body(offsets of x, offsets of y, how many) for groups of at most `width` lines; offsets in elements of the views.
// `cost` is that of a group in nanoseconds. body is made by `prepare()` once for each piece. With `parallel` off,
// groups come one after the other, so that the body itself may use the pool.
template <typename Prepare>
void for_groups(const View& x, const View& y, int axis, int width, double cost, bool parallel, Prepare&& prepare) {
  Loop<2> loop;  // of the other axes, the one that is closest in memory last
  for (int d = 0; d < x.ndim; ++d) {
    if (d == axis || x.shape[d] == 1) continue;
    int at = loop.ndim++;
    for (; at > 0 && std::abs(loop.strides[0][at - 1]) < std::abs(x.strides[d]); --at) {
      loop.shape[at] = loop.shape[at - 1];
      for (int k = 0; k < 2; ++k) loop.strides[k][at] = loop.strides[k][at - 1];
    }
    loop.shape[at] = x.shape[d];
    loop.strides[0][at] = x.strides[d];
    loop.strides[1][at] = y.strides[d];
  }
  const int64_t lines = loop.count(0, loop.ndim), groups = (lines + width - 1) / width;
  const auto run = [&](int64_t begin, int64_t end) {
    auto body = prepare();
    int64_t index[kMaxDims], offset[2], from[64], to[64];
    loop.locate(begin * width, loop.ndim, index, offset);
    for (int64_t group = begin; group < end; ++group) {
      const int count = static_cast<int>(std::min<int64_t>(width, lines - group * width));
      for (int l = 0; l < count; ++l) {
        from[l] = offset[0];
        to[l] = offset[1];
        loop.advance(loop.ndim, index, offset);
      }
      body(from, to, count);
    }
  };
  if (!parallel || groups == 1)
    run(0, groups);
  else
    parallel_for(groups, cost, run);
}

}  // namespace tandem::library::fft
