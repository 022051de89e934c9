#include "library/layout.h"

#include "library/convert.h"
#include "library/strided.h"

namespace tandem::library {

void set_channels_last(View& view) {
  int64_t stride = view.shape[1];
  view.strides[1] = 1;
  for (int d = view.ndim - 1; d >= 2; --d) {
    view.strides[d] = stride;
    stride *= view.shape[d];
  }
  view.strides[0] = stride;
}

bool is_channels_first(const View& view) {
  return view.is_contiguous();
}

bool is_channels_last(const View& view) {
  if (view.ndim < 3) return false;
  View dense = view;
  set_channels_last(dense);
  for (int d = 0; d < view.ndim; ++d)
    if (view.shape[d] != 1 && view.strides[d] != dense.strides[d]) return false;
  return true;
}

View stand_in(const View& view, DType dtype, Scratch<char>& memory, bool load) {
  View other = view;
  other.dtype = dtype;
  memory.resize(std::max<int64_t>(view.numel(), 1) * item_size(dtype));
  other.data = memory.data();
  if (is_channels_last(view) && !is_channels_first(view))
    set_channels_last(other);
  else
    set_contiguous(other);
  if (load) convert_elements(view, other);
  return other;
}

}  // namespace tandem::library
