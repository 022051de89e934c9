#include "tensor/layout_class.h"

#include <algorithm>

namespace tandem {

LayoutClass classify(const View& v, uint8_t order[kMaxDims]) {
  if (v.is_contiguous()) return LayoutClass::Contiguous;
  // Axes of size 1 have no stride to speak of: sort the others among themselves and leave those in place.
  uint8_t others[kMaxDims];
  int n = 0;
  for (int i = 0; i < v.ndim; ++i)
    if (v.shape[i] != 1) others[n++] = static_cast<uint8_t>(i);
  std::stable_sort(others, others + n, [&](uint8_t a, uint8_t b) { return v.strides[a] > v.strides[b]; });
  int k = 0;
  for (int i = 0; i < v.ndim; ++i) order[i] = v.shape[i] == 1 ? static_cast<uint8_t>(i) : others[k++];
  int64_t expected = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    int axis = order[i];
    if (v.shape[axis] == 1) continue;
    if (v.strides[axis] != expected) return LayoutClass::Strided;
    expected *= v.shape[axis];
  }
  return LayoutClass::Dense;
}

}  // namespace tandem
