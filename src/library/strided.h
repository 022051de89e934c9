// Loops over several views of one shape: size-1 axes dropped, axes ordered and merged where the strides allow it.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "tensor/view.h"

namespace tandem::library {

template <int K>
struct Loop {
  int ndim = 0;
  int64_t shape[kMaxDims];
  int64_t strides[K][kMaxDims];  // in elements

  int64_t count(int first, int last) const {  // of positions along the axes [first, last)
    int64_t n = 1;
    for (int d = first; d < last; ++d) n *= shape[d];
    return n;
  }

  // Offsets of the position with this number among the leading `axes` axes.
  void locate(int64_t number, int axes, int64_t (&index)[kMaxDims], int64_t (&offset)[K]) const {
    for (int k = 0; k < K; ++k) offset[k] = 0;
    for (int d = axes - 1; d >= 0; --d) {
      index[d] = number % shape[d];
      number /= shape[d];
      for (int k = 0; k < K; ++k) offset[k] += index[d] * strides[k][d];
    }
  }

  // The next position, last axis fastest.
  void advance(int axes, int64_t (&index)[kMaxDims], int64_t (&offset)[K]) const {
    for (int d = axes - 1; d >= 0; --d) {
      for (int k = 0; k < K; ++k) offset[k] += strides[k][d];
      if (++index[d] < shape[d]) return;
      for (int k = 0; k < K; ++k) offset[k] -= strides[k][d] * shape[d];
      index[d] = 0;
    }
  }

  void merge() {
    int last = 0;
    for (int d = 1; d < ndim; ++d) {
      bool together = true;
      for (int k = 0; k < K; ++k) together &= strides[k][last] == strides[k][d] * shape[d];
      if (!together) ++last;
      shape[last] = together ? shape[last] * shape[d] : shape[d];
      for (int k = 0; k < K; ++k) strides[k][last] = strides[k][d];
    }
    if (ndim > 0) ndim = last + 1;
  }
};

// Axes [first, last) of views that agree in shape there. With `sorted`, the first view's largest stride comes first.
template <int K>
Loop<K> make_loop(const View* const (&views)[K], int first, int last, bool sorted) {
  Loop<K> loop;
  for (int d = first; d < last; ++d) {
    if (views[0]->shape[d] == 1) continue;
    int at = loop.ndim++;
    const int64_t key = std::abs(views[0]->strides[d]);
    while (sorted && at > 0 && std::abs(loop.strides[0][at - 1]) < key) {
      loop.shape[at] = loop.shape[at - 1];
      for (int k = 0; k < K; ++k) loop.strides[k][at] = loop.strides[k][at - 1];
      --at;
    }
    loop.shape[at] = views[0]->shape[d];
    for (int k = 0; k < K; ++k) loop.strides[k][at] = views[k]->strides[d];
  }
  loop.merge();
  return loop;
}

inline void set_contiguous(View& view) {
  int64_t stride = 1;
  for (int d = view.ndim - 1; d >= 0; --d) {
    view.strides[d] = stride;
    stride *= std::max<int64_t>(view.shape[d], 1);
  }
}

// Copies equal shapes of equal element size; the element types are not looked at. Copies in threads where it pays.
void copy_elements(const View& from, const View& to);
void fill_zero(const View& view);

}  // namespace tandem::library
