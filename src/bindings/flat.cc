// Tensors of one geometry as vectors, for updates of many parameters at once (tandem/optim/together.py).
#include "bindings/bindings.h"
#include "operators/signature.h"
#include "tensor/tensor.h"

namespace nb = nanobind;

namespace tandem {
namespace {

bool same_strides(const View& a, const View& b) {
  if (a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i)
    if (a.shape[i] != b.shape[i] || (a.shape[i] != 1 && a.strides[i] != b.strides[i])) return false;
  return true;
}

// (kind, flat views of the tensors, single numbers as they are), or None where one lies otherwise than the first, or
// has no memory yet. `kind` differs for tensors of other dtypes and devices.
PyObject* flat_alike(nb::tuple tensors) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tensors.ptr());
  uint64_t kind = 0;
  const Tensor* first = nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* object = PyTuple_GET_ITEM(tensors.ptr(), i);
    if (!is_tensor(object)) Py_RETURN_NONE;
    const auto* t = reinterpret_cast<Tensor*>(object);
    if (t->storage->pending() || t->storage->on_host() || is_complex(t->view.dtype)) Py_RETURN_NONE;
    kind = kind * 257 + static_cast<uint64_t>(t->view.dtype) * 16 + static_cast<uint64_t>(t->storage->device());
    uint8_t order[kMaxDims];
    if (i == 0) {
      if (t->view.numel() < 2 || classify(t->view, order) == LayoutClass::Strided) Py_RETURN_NONE;
      first = t;
    } else if (t->view.ndim != 0 && !same_strides(t->view, first->view)) {
      Py_RETURN_NONE;
    }
  }
  if (!first) Py_RETURN_NONE;
  const int64_t size = first->view.numel(), step = 1;
  PyObject* result = PyTuple_New(count + 1);
  if (!result) throw nb::python_error();
  PyTuple_SET_ITEM(result, 0, PyLong_FromUnsignedLongLong(kind));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* object = PyTuple_GET_ITEM(tensors.ptr(), i);
    const auto* t = reinterpret_cast<Tensor*>(object);
    PyTuple_SET_ITEM(result, i + 1,
                     t->view.ndim == 0
                         ? Py_NewRef(object)
                         : reinterpret_cast<PyObject*>(new_view(t, t->view.data, t->view.dtype, 1, &size, &step)));
  }
  return result;
}

}  // namespace

void register_flat(nb::module_& m) {
  m.def(
      "flat_alike", [](nb::tuple tensors) { return nb::steal(flat_alike(tensors)); }, nb::arg("tensors"),
      "(kind, *views as vectors) of tensors on a device that lie alike; None where they do not.");
}

}  // namespace tandem
