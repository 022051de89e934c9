#include "tensor/tensor.h"

#include <algorithm>

#include "check.h"
#include "tensor/deferred.h"
#include "tensor/node.h"
#include "tensor/tensor_object.h"

namespace tandem {

PyTypeObject* TensorType = nullptr;

namespace {

// Dead Tensor objects kept for reuse (exact type only). Guarded by the GIL.
constexpr int kPoolSize = 1 << 13;
Tensor* pool[kPoolSize];
int pool_used = 0;

Tensor* new_object() {
  if (pool_used > 0) {
    Tensor* t = pool[--pool_used];
    PyObject_Init(reinterpret_cast<PyObject*>(t), TensorType);
    return t;
  }
  return PyObject_GC_New(Tensor, TensorType);
}

void fill(Tensor* t, Storage* storage, char* data, DType dtype, int ndim, const int64_t* shape,
          const int64_t* strides) {
  t->storage = storage;
  t->view.data = data;
  t->view.dtype = dtype;
  t->view.ndim = ndim;
  std::copy_n(shape, ndim, t->view.shape);
  std::copy_n(strides, ndim, t->view.strides);
  t->requires_grad = false;
  t->inference = false;
  t->unwatched = false;
  t->in_parts = false;
  t->output_index = 0;
  t->history = nullptr;
  t->extra = nullptr;
  t->attributes = nullptr;
  t->weak_references = nullptr;
  t->deferred_at = nullptr;
  if (storage->pending()) [[unlikely]]
    note_deferred(t);
}

void release_parts(Tensor* t) {
  if (Node* history = std::exchange(t->history, nullptr)) history->release();
  if (AutogradExtra* extra = std::exchange(t->extra, nullptr)) {
    Py_XDECREF(extra->grad);
    Py_XDECREF(extra->hooks);
    Py_XDECREF(extra->after);
    Py_XDECREF(extra->base);
    delete extra;
  }
  Py_CLEAR(t->attributes);
  if (Storage* storage = std::exchange(t->storage, nullptr)) {
    // Also a row of a block, which may have got its memory while the rest of its batch still runs.
    if (t->deferred_at) [[unlikely]]
      forget_deferred(t);
    storage->release();
  }
}

void free_object(Tensor* t) {
  PyTypeObject* type = Py_TYPE(t);
  if (type == TensorType && pool_used < kPoolSize)
    pool[pool_used++] = t;
  else
    type->tp_free(t);
  Py_DECREF(type);
}

}  // namespace

void dealloc_tensor(PyObject* self) {
  auto* t = reinterpret_cast<Tensor*>(self);
  PyObject_GC_UnTrack(self);
  if (t->weak_references) PyObject_ClearWeakRefs(self);
  if (!t->extra && !t->attributes) {
    release_parts(t);
    free_object(t);
    return;
  }
  // x.grad.grad.grad... may be long; the trashcan keeps its end from overflowing the stack.
  Py_TRASHCAN_BEGIN(self, dealloc_tensor) release_parts(t);
  free_object(t);
  Py_TRASHCAN_END
}

int traverse_tensor(PyObject* self, visitproc visit, void* arg) {
  auto* t = reinterpret_cast<Tensor*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(t->attributes);
  if (t->extra) {
    Py_VISIT(t->extra->grad);
    Py_VISIT(t->extra->hooks);
    Py_VISIT(t->extra->after);
    Py_VISIT(t->extra->base);
  }
  return t->history ? t->history->visit(visit, arg) : 0;
}

int clear_tensor(PyObject* self) {
  auto* t = reinterpret_cast<Tensor*>(self);
  Py_CLEAR(t->attributes);
  if (t->extra) {
    Py_CLEAR(t->extra->grad);
    Py_CLEAR(t->extra->hooks);
    Py_CLEAR(t->extra->after);
    Py_CLEAR(t->extra->base);
  }
  if (t->history && t->history->holds_python)
    if (Node* history = std::exchange(t->history, nullptr)) history->release();
  return 0;
}

Tensor* new_tensor(Storage* storage, char* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides) {
  Tensor* t = new_object();
  if (!t) {
    storage->release();
    PyErr_Clear();
    fail(ErrorKind::Memory, "out of memory: Python has none for a tensor object");
  }
  fill(t, storage, data, dtype, ndim, shape, strides);
  storage->describe(t->view);
  if (!storage->pending()) [[likely]]  // see Note [Deferred tensors and the collector] in deferred.h
    PyObject_GC_Track(reinterpret_cast<PyObject*>(t));
  return t;
}

Tensor* new_contiguous(DType dtype, int ndim, const int64_t* shape, int device) {
  size_t bytes = checked_bytes(dtype, ndim, shape);
  int64_t strides[kMaxDims];
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  Storage* storage = Storage::allocate(bytes, device);
  return new_tensor(storage, storage->data(), dtype, ndim, shape, strides);
}

Tensor* new_view(const Tensor* base, char* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides) {
  base->storage->retain();
  Tensor* made = new_tensor(base->storage, data, dtype, ndim, shape, strides);
  made->unwatched = base->unwatched;
  return made;
}

Tensor* new_of_type(PyTypeObject* type, const Tensor* base) {
  if (base->in_parts)
    fail(ErrorKind::Type, "a sparse or nested tensor has no memory that ", type->tp_name,
         " could be made of\n  fix: make it dense first: x.to_dense()");
  const View& v = base->view;
  if (type == TensorType) return new_view(base, v.data, v.dtype, v.ndim, v.shape, v.strides);
  auto* t = reinterpret_cast<Tensor*>(type->tp_alloc(type, 0));  // zero-filled, and tracked
  if (!t) {
    PyErr_Clear();
    fail(ErrorKind::Memory, "out of memory: Python has none for a tensor object");
  }
  base->storage->retain();
  fill(t, base->storage, v.data, v.dtype, v.ndim, v.shape, v.strides);
  t->unwatched = base->unwatched;
  return t;
}

Tensor* new_in_parts(PyTypeObject* type, DType dtype, int ndim, const int64_t* shape, int device) {
  auto* t = reinterpret_cast<Tensor*>(type->tp_alloc(type, 0));  // zero-filled, and tracked
  if (!t) {
    PyErr_Clear();
    fail(ErrorKind::Memory, "out of memory: Python has none for a tensor object");
  }
  alignas(16) static char none[16];  // as much as an element, which is zero for whoever reads it
  const int64_t strides[kMaxDims] = {};
  fill(t, Storage::borrow(none, 0, false, [](void*) {}, nullptr, device), none, dtype, ndim, shape, strides);
  t->in_parts = true;
  return t;
}

size_t checked_bytes(DType dtype, int ndim, const int64_t* shape) {
  size_t bytes = item_size(dtype);
  bool empty = false, overflow = false;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] < 0) fail(ErrorKind::Shape, "sizes must not be negative, got ", format_shape(ndim, shape));
    if (shape[i] == 0) empty = true;
    // With a zero the product is zero, but strides are products of the other sizes and must fit too.
    size_t size = static_cast<size_t>(std::max<int64_t>(shape[i], 1));
    overflow |= __builtin_mul_overflow(bytes, size, &bytes) || bytes > (size_t{1} << 62);
  }
  if (overflow) {
    fail(ErrorKind::Memory, "out of memory: a ", name(dtype), " tensor of shape ", format_shape(ndim, shape),
         " is larger than any memory\n  fix: check its shape");
  }
  return empty ? 0 : bytes;
}

}  // namespace tandem
