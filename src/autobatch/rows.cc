#include "autobatch/rows.h"

#include <cstring>

#include "callbacks.h"
#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/driver.h"
#include "tensor/device_copy.h"
#include "tensor/half.h"

namespace tandem {

namespace {

// f(element of a, element of b) for every index; strides in elements of T.
template <typename T, typename F>
void for_each(const View& a, const View& b, F f) {
  const int last = a.ndim - 1;
  int64_t index[kMaxDims] = {};
  const int64_t inner = a.ndim ? a.shape[last] : 1;
  const int64_t step_a = a.ndim ? a.strides[last] : 0, step_b = a.ndim ? b.strides[last] : 0;
  T *at_a = a.as<T>(), *at_b = b.as<T>();
  if (a.numel() == 0) return;
  while (true) {
    if (step_a == 1 && step_b == 1) {
      for (int64_t i = 0; i < inner; ++i) f(at_a[i], at_b[i]);
    } else {
      for (int64_t i = 0; i < inner; ++i) f(at_a[i * step_a], at_b[i * step_b]);
    }
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      at_a += a.strides[axis];
      at_b += b.strides[axis];
      if (++index[axis] < a.shape[axis]) break;
      at_a -= a.strides[axis] * a.shape[axis];
      at_b -= b.strides[axis] * a.shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

struct Pair {  // an element of 16 bytes
  double first, second;
};

template <typename T>
void copy_elements_of(const View& from, const View& to) {
  for_each<T>(from, to, [](T& a, T& b) { b = a; });
}

// A view whose last axis runs over real and imaginary parts.
View parts(const View& v, DType dtype) {
  View p = v;
  p.dtype = dtype;
  for (int i = 0; i < v.ndim; ++i) p.strides[i] *= 2;
  p.shape[p.ndim] = 2;
  p.strides[p.ndim++] = 1;
  return p;
}

void add_on_host(const View& from, const View& to) {
  switch (to.dtype) {
    case DType::Float32:
      return for_each<float>(from, to, [](float& a, float& b) { b += a; });
    case DType::Float64:
      return for_each<double>(from, to, [](double& a, double& b) { b += a; });
    case DType::Float16:
      return for_each<uint16_t>(
          from, to, [](uint16_t& a, uint16_t& b) { b = double_to_half(half_to_double(a) + half_to_double(b)); });
    case DType::BFloat16:
      return for_each<uint16_t>(from, to, [](uint16_t& a, uint16_t& b) {
        b = double_to_bfloat16(bfloat16_to_double(a) + bfloat16_to_double(b));
      });
    case DType::Complex64:
      return add_on_host(parts(from, DType::Float32), parts(to, DType::Float32));
    case DType::Complex128:
      return add_on_host(parts(from, DType::Float64), parts(to, DType::Float64));
    default:
      TD_CHECK(false, "gradients of ", name(to.dtype));
  }
}

TensorRef tensor_of(const Tensor* whole, const View& v) {
  return TensorRef::adopt(new_view(whole, v.data, v.dtype, v.ndim, v.shape, v.strides));
}

}  // namespace

void copy_row(const View& from, const View& to, int device) {
  if (device) return cuda::copy_elements(device - 1, from, to);
  const size_t item = item_size(from.dtype);
  if (from.is_contiguous() && to.is_contiguous()) {
    std::memcpy(to.data, from.data, static_cast<size_t>(from.numel()) * item);
    return;
  }
  switch (item) {
    case 1:
      return copy_elements_of<uint8_t>(from, to);
    case 2:
      return copy_elements_of<uint16_t>(from, to);
    case 4:
      return copy_elements_of<uint32_t>(from, to);
    case 8:
      return copy_elements_of<uint64_t>(from, to);
    default:
      return copy_elements_of<Pair>(from, to);
  }
}

void add_row(const Tensor* of, const View& from, const Tensor* onto, const View& to) {
  TD_CHECK(from.dtype == to.dtype, "a gradient of another dtype");
  if (!onto->storage->device()) return add_on_host(from, to);
  const TensorRef target = tensor_of(onto, to), source = tensor_of(of, from);
  PyObject* args[] = {target.object(), source.object()};
  PyObject* done = PyObject_Vectorcall(callbacks.add_, args, 2, nullptr);
  if (!done) throw PythonError{};
  Py_DECREF(done);
}

}  // namespace tandem
