// Work along one axis of several views: one call for every line of elements along that axis.
#pragma once
#include "device/parallel.h"
#include "library/strided.h"

namespace tandem::library {

// body(offsets of the line in each view) for all lines along `axis`; `cost` is that of one line in nanoseconds. The
// views agree in shape but for that axis. body is made by `prepare()` once for each piece, so that it can own working
// memory.
template <int K, typename Prepare>
void for_lines(const View* const (&views)[K], int axis, double cost, Prepare&& prepare) {
  Loop<K> loop;
  for (int d = 0; d < views[0]->ndim; ++d) {
    if (d == axis || views[0]->shape[d] == 1) continue;
    loop.shape[loop.ndim] = views[0]->shape[d];
    for (int k = 0; k < K; ++k) loop.strides[k][loop.ndim] = views[k]->strides[d];
    ++loop.ndim;
  }
  loop.merge();
  parallel_for(loop.count(0, loop.ndim), cost, [&](int64_t begin, int64_t end) {
    auto body = prepare();
    int64_t index[kMaxDims], offset[K];
    loop.locate(begin, loop.ndim, index, offset);
    for (int64_t line = begin; line < end; ++line) {
      body(offset);
      loop.advance(loop.ndim, index, offset);
    }
  });
}

}  // namespace tandem::library
