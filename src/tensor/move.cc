#include "tensor/move.h"

#include <cstring>

#include "callbacks.h"
#include "check.h"
#include "device/cuda/device.h"
#include "modes.h"
#include "profile/profile.h"
#include "tensor/copy.h"
#include "tensor/layout_class.h"
#include "tensor/pinned.h"

namespace tandem {
namespace {

TensorRef dense(Tensor* tensor) {
  uint8_t order[kMaxDims];
  if (classify(tensor->view, order) != LayoutClass::Strided) return TensorRef::share(tensor);
  if (tensor->storage->on_host()) return TensorRef::adopt(copy_contiguous(tensor));
  GradMode mode = grad_mode;
  grad_mode.enabled = false;
  PyObject* args[] = {reinterpret_cast<PyObject*>(tensor)};
  PyObject* copy = PyObject_Vectorcall(callbacks.clone, args, 1, nullptr);
  grad_mode = mode;
  if (!copy) throw PythonError{};
  return TensorRef::adopt(reinterpret_cast<Tensor*>(copy));
}

std::string describe_copy(int from, int to) {
  const auto name = [](int device) { return device ? "cuda:" + std::to_string(device - 1) : std::string("cpu"); };
  return "copy " + name(from) + " to " + name(to);
}

}  // namespace

Tensor* move_tensor(Tensor* tensor, int device, bool non_blocking) {
  TensorRef source = dense(tensor);
  const View& v = source->view;
  const size_t bytes = checked_bytes(v.dtype, v.ndim, v.shape);
  const int from = source->storage->device();
  Ref<Storage> target = Ref<Storage>::adopt(
      device == 0 && from != 0 && non_blocking ? allocate_pinned(bytes) : Storage::allocate(bytes, device));
  char* to = target->data();
  const int timed_on = device ? device : from;
  const profile::Scope timed(profile::Kind::Copy, profile::recording() ? describe_copy(from, device) : "", nullptr,
                             timed_on, timed_on ? cuda::current_stream(timed_on - 1) : nullptr,
                             static_cast<int64_t>(bytes));
  if (from == 0 && device == 0) {
    std::memcpy(to, v.data, bytes);
  } else if (from == 0) {
    const bool is_pinned = source->storage->pinned();
    cuda::copy_to_device(device - 1, to, v.data, bytes, is_pinned && !non_blocking);
    if (is_pinned && non_blocking) keep_until_done(device - 1, source->storage);
  } else if (device == 0) {
    cuda::copy_to_host(from - 1, to, v.data, bytes, !non_blocking);
    if (non_blocking) keep_until_done(from - 1, target.get());
  } else if (device == from) {
    cuda::copy_on_device(device - 1, to, v.data, bytes);
  } else {
    cuda::copy_between(device - 1, to, from - 1, v.data, bytes);
  }
  return new_tensor(target.leak(), to, v.dtype, v.ndim, v.shape, v.strides);
}

TensorRef on_host(Tensor* tensor) {
  if (tensor->storage->on_host()) return TensorRef::share(tensor);
  return TensorRef::adopt(move_tensor(tensor, 0, false));
}

void require_host(const Tensor* tensor, const char* what) {
  if (tensor->storage->on_host()) return;
  fail(ErrorKind::Device, what, " needs host memory; this tensor is on cuda:", tensor->storage->device() - 1,
       "\n  fix: use x.cpu() first");
}

ElementCopy::ElementCopy(const Tensor* tensor) : dtype(tensor->view.dtype) {
  const size_t size = item_size(dtype);
  if (tensor->storage->on_host())
    std::memcpy(data, tensor->view.data, size);
  else {
    const profile::Scope waiting(profile::Kind::Wait, "item");
    cuda::copy_to_host(tensor->storage->device() - 1, data, tensor->view.data, size, true);
  }
}

Tensor* pin_tensor(Tensor* tensor) {
  require_host(tensor, "pin_memory()");
  TensorRef source = dense(tensor);
  const View& v = source->view;
  const size_t bytes = checked_bytes(v.dtype, v.ndim, v.shape);
  Storage* storage = allocate_pinned(bytes);
  std::memcpy(storage->data(), v.data, bytes);
  return new_tensor(storage, storage->data(), v.dtype, v.ndim, v.shape, v.strides);
}

}  // namespace tandem
