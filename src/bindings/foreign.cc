#include "bindings/foreign.h"

#include <algorithm>

#include "check.h"

namespace tandem {

void Foreign::set_geometry(int count, const Py_ssize_t* sizes, const Py_ssize_t* byte_strides, const char* what) {
  if (count > kMaxDims) fail(ErrorKind::Shape, what, " has ", count, " axes; at most ", kMaxDims, " are supported");
  auto item = static_cast<int64_t>(item_size(dtype));
  ndim = count;
  std::copy_n(sizes, count, shape);
  checked_bytes(dtype, ndim, shape);
  int64_t step = 1;
  for (int i = count - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  }
  bool empty = std::find(shape, shape + count, 0) != shape + count;
  for (int i = 0; i < count && byte_strides && !empty; ++i) {
    if (shape[i] == 1) continue;  // such a stride means nothing and may be anything
    if (byte_strides[i] % item != 0)
      fail(ErrorKind::Type, what, " with a stride of ", byte_strides[i], " bytes, which is no multiple of the ", item,
           " bytes of ", name(dtype), ", cannot share its memory\n  fix: copy it first: array.copy()");
    strides[i] = byte_strides[i] / item;
  }
  check_alignment(what);
}

void Foreign::check_alignment(const char* what) const {
  size_t alignment = is_complex(dtype) ? item_size(dtype) / 2 : item_size(dtype);
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0)
    fail(ErrorKind::Type, what, " at an address that is no multiple of the size of ", name(dtype),
         " cannot share its memory\n  fix: copy it first: array.copy()");
}

Tensor* Foreign::tensor(void (*release)(void*), void* context) const {
  // The storage spans all elements; with negative strides it starts below the first one.
  int64_t low = 0, high = 0;
  bool empty = false;
  for (int i = 0; i < ndim; ++i) {
    empty |= shape[i] == 0;
    (strides[i] < 0 ? low : high) += (shape[i] - 1) * strides[i];
  }
  auto item = static_cast<int64_t>(item_size(dtype));
  char* start = empty ? data : data + low * item;
  return tensor_on(Storage::borrow(start, empty ? 0 : (high - low + 1) * item, writable, release, context, device));
}

Tensor* Foreign::tensor_on(Storage* storage) const {
  return new_tensor(storage, data, dtype, ndim, shape, strides);
}

}  // namespace tandem
