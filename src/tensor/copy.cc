#include "tensor/copy.h"

#include <cstring>

#include "check.h"

namespace tandem {
namespace {

template <size_t Size>
void copy_row(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_step, from + i * from_step, Size);
}

void copy_axis(const View& from, const View& to, int axis, const char* source, char* target) {
  auto size = static_cast<int64_t>(item_size(from.dtype));
  if (axis == from.ndim) {
    std::memcpy(target, source, size);
    return;
  }
  int64_t count = from.shape[axis], from_step = from.strides[axis] * size, to_step = to.strides[axis] * size;
  if (axis + 1 < from.ndim) {
    for (int64_t i = 0; i < count; ++i) copy_axis(from, to, axis + 1, source + i * from_step, target + i * to_step);
    return;
  }
  switch (size) {
    case 1:
      return copy_row<1>(target, to_step, source, from_step, count);
    case 2:
      return copy_row<2>(target, to_step, source, from_step, count);
    case 4:
      return copy_row<4>(target, to_step, source, from_step, count);
    case 8:
      return copy_row<8>(target, to_step, source, from_step, count);
    default:
      return copy_row<16>(target, to_step, source, from_step, count);
  }
}

}  // namespace

void copy_view(const View& from, const View& to) {
  TD_CHECK(from.dtype == to.dtype && from.ndim == to.ndim);
  int64_t count = from.numel();
  if (count == 0) return;
  if (from.is_contiguous() && to.is_contiguous())
    std::memcpy(to.data, from.data, count * item_size(from.dtype));
  else
    copy_axis(from, to, 0, from.data, to.data);
}

Tensor* copy_contiguous(const Tensor* tensor) {
  const View& v = tensor->view;
  Tensor* copy = new_contiguous(v.dtype, v.ndim, v.shape);
  copy_view(v, copy->view);
  return copy;
}

}  // namespace tandem
