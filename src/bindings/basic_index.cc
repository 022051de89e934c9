#include "bindings/basic_index.h"

#include <algorithm>

#include "autobatch/batch.h"
#include "autograd/record.h"
#include "capture/capture.h"
#include "modes.h"
#include "operators/op_function.h"
#include "tensor/size_type.h"

namespace tandem {

namespace {

struct Cursor {
  const View& x;
  char* data;
  int axis = 0;  // of x: the next to be indexed
  int ndim = 0;  // of the result
  int64_t shape[kMaxDims], strides[kMaxDims];

  bool add(int64_t size, int64_t stride) {
    if (ndim == kMaxDims) return false;
    shape[ndim] = size;
    strides[ndim++] = stride;
    return true;
  }
  void move(int64_t elements) { data += elements * static_cast<int64_t>(item_size(x.dtype)); }

  bool integer(PyObject* k) {
    int overflow = 0;
    int64_t i = PyLong_AsLongLongAndOverflow(k, &overflow);
    const int64_t n = x.shape[axis];
    if (overflow || i < -n || i >= n) return false;
    move((i < 0 ? i + n : i) * x.strides[axis++]);
    return true;
  }

  static bool is_plain(PyObject* part) { return part == Py_None || PyLong_CheckExact(part); }

  bool slice(PyObject* k) {
    auto* s = reinterpret_cast<PySliceObject*>(k);
    if (!is_plain(s->start) || !is_plain(s->stop) || !is_plain(s->step)) return false;
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(k, &start, &stop, &step) < 0) {  // step 0
      PyErr_Clear();
      return false;
    }
    const int64_t size = PySlice_AdjustIndices(x.shape[axis], &start, &stop, step);
    if (size > 0) move(start * x.strides[axis]);
    const int64_t stride = x.strides[axis++];
    return add(size, size > 1 ? stride * step : stride);
  }

  bool rest(int until) {
    while (axis < until) {
      if (!add(x.shape[axis], x.strides[axis])) return false;
      ++axis;
    }
    return true;
  }
};

}  // namespace

Tensor* basic_view(Tensor* x, PyObject* key) {
  if (active_capture || tracing_depth > 0 || x->storage->sharded()) return nullptr;
  const bool deferred = x->storage->pending();
  auto* base = x->extra ? reinterpret_cast<Tensor*>(x->extra->base) : nullptr;
  if (deferred) {
    if (!active_batch || x->storage->batch() != active_batch || !active_batch->takes_views(x)) return nullptr;
  } else if (grad_mode.enabled && (x->requires_grad || (base && base->requires_grad))) {
    return nullptr;
  }
  PyObject* const* items = &key;
  Py_ssize_t count = 1;
  if (is_plain_tuple(key)) {
    items = reinterpret_cast<PyTupleObject*>(key)->ob_item;
    count = PyTuple_GET_SIZE(key);
  }
  int indexed = 0;
  bool has_ellipsis = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* k = items[i];
    if (PyLong_CheckExact(k) || PySlice_Check(k))
      ++indexed;
    else if (k == Py_Ellipsis && !has_ellipsis)
      has_ellipsis = true;
    else if (k != Py_None)
      return nullptr;
  }
  if (indexed > x->view.ndim) return nullptr;
  Cursor cursor{x->view, x->view.data};
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* k = items[i];
    bool done;
    if (PyLong_CheckExact(k))
      done = cursor.integer(k);
    else if (PySlice_Check(k))
      done = cursor.slice(k);
    else if (k == Py_None)
      done = cursor.add(1, 0);
    else
      done = cursor.rest(cursor.axis + x->view.ndim - indexed);
    if (!done) return nullptr;
  }
  if (!cursor.rest(x->view.ndim)) return nullptr;
  Tensor* made;
  if (deferred) {
    View v;
    v.data = cursor.data, v.dtype = x->view.dtype, v.ndim = cursor.ndim;
    std::copy_n(cursor.shape, cursor.ndim, v.shape);
    std::copy_n(cursor.strides, cursor.ndim, v.strides);
    made = active_batch->view(x, v, true).leak();
  } else {
    made = new_view(x, cursor.data, x->view.dtype, cursor.ndim, cursor.shape, cursor.strides);
  }
  made->inference = grad_mode.inference || x->inference;
  if (!made->inference) {
    AutogradExtra& extra = extra_of(made);
    extra.base = Py_NewRef(base ? x->extra->base : reinterpret_cast<PyObject*>(x));
    extra.history_version = x->storage->version();
  }
  return made;
}

}  // namespace tandem
