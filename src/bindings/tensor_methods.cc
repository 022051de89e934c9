// Methods of Tensor that give Python values; those that compute are attached by tandem/ops.
#include "bindings/dlpack.h"
#include "bindings/numpy_types.h"
#include "bindings/tensor_convert.h"
#include "bindings/tensor_type.h"
#include "capture/capture.h"
#include "device/cuda/launcher.h"
#include "raise.h"
#include "tensor/move.h"
#include "tensor/node.h"
#include "tensor/scalar.h"

namespace nb = nanobind;

namespace tandem {
namespace {

Tensor* as_tensor(PyObject* self) {
  return reinterpret_cast<Tensor*>(self);
}

PyObject* numel(PyObject* self, PyObject*) {
  return PyLong_FromLongLong(as_tensor(self)->view.numel());
}

PyObject* data_ptr(PyObject* self, PyObject*) {
  return guarded<PyObject*>(nullptr, [&] {
    materialize(as_tensor(self));
    if (!as_tensor(self)->storage->on_host()) cuda::share_streams();  // somebody may launch kernels of his own there
    return PyLong_FromVoidPtr(as_tensor(self)->view.data);
  });
}

PyObject* address(PyObject* self, PyObject*) {
  return guarded<PyObject*>(nullptr, [&] {
    materialize(as_tensor(self));
    return PyLong_FromVoidPtr(as_tensor(self)->view.data);
  });
}

PyObject* storage_offset(PyObject* self, PyObject*) {
  const Tensor* t = as_tensor(self);
  return PyLong_FromLongLong((t->view.data - t->storage->data()) / static_cast<int64_t>(item_size(t->view.dtype)));
}

PyObject* is_contiguous(PyObject* self, PyObject*) {
  return PyBool_FromLong(as_tensor(self)->view.is_contiguous());
}

PyObject* item(PyObject* self, PyObject*) {
  return guarded<PyObject*>(nullptr, [&] {
    const View& view = as_tensor(self)->view;
    int64_t count = view.numel();
    if (count != 1)
      fail(ErrorKind::Value, "item() needs a tensor with one element, this one has ", count, "\n  fix: use x.tolist()");
    const TensorRef whole = gathered(as_tensor(self));
    materialize(whole.get());
    return read_element(ElementCopy(whole.get()).data, view.dtype);
  });
}

nb::object nested_list(const View& view, int axis, const char* data) {
  if (axis == view.ndim) return nb::steal(read_element(data, view.dtype));
  nb::object list = nb::steal(PyList_New(view.shape[axis]));
  if (!list.is_valid()) nb::raise_python_error();
  int64_t step = view.strides[axis] * static_cast<int64_t>(item_size(view.dtype));
  for (int64_t i = 0; i < view.shape[axis]; ++i)
    PyList_SET_ITEM(list.ptr(), i, nested_list(view, axis + 1, data + i * step).release().ptr());
  return list;
}

PyObject* tolist(PyObject* self, PyObject*) {
  return guarded<PyObject*>(nullptr, [&] {
    const TensorRef whole = gathered(as_tensor(self));
    materialize(whole.get());
    TensorRef here = on_host(whole.get());
    const View& view = here->view;
    return nested_list(view, 0, view.data).release().ptr();
  });
}

PyObject* to_complex(PyObject* self, PyObject*) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    nb::object value = nb::steal(item(self, nullptr));
    if (!value.is_valid()) nb::raise_python_error();
    if (PyComplex_Check(value.ptr())) return value.release().ptr();
    double real = PyFloat_AsDouble(value.ptr());
    if (real == -1.0 && PyErr_Occurred()) nb::raise_python_error();
    return PyComplex_FromDoubles(real, real != real ? real : 0.0);  // of NaN the Array API wants both parts NaN
  });
}

PyObject* set_requires_grad(PyObject* self, PyObject* value) {
  if (PyObject_SetAttrString(self, "requires_grad", value) < 0) return nullptr;
  Py_RETURN_NONE;
}

// x.__array__(dtype=None, copy=None), as NumPy 2 asks for it
PyObject* to_array(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    static const char* names[] = {"dtype", "copy", nullptr};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", const_cast<char**>(names), &dtype, &copy))
      nb::raise_python_error();
    refuse_recorded(as_tensor(self), "NumPy");
    nb::object array = nb::steal(numpy_from_tensor(gathered(as_tensor(self)).get()));
    if (dtype != Py_None) {
      nb::object wanted = nb::module_::import_("numpy").attr("dtype")(nb::handle(dtype));
      if (!wanted.equal(array.attr("dtype"))) {
        if (copy == Py_False) {
          PyErr_SetString(PyExc_ValueError, "a tensor cannot become an array of another dtype without a copy");
          nb::raise_python_error();
        }
        return array.attr("astype")(wanted).release().ptr();
      }
    }
    if (copy == Py_True) return array.attr("copy")().release().ptr();
    return array.release().ptr();
  });
}

PyObject* to_dlpack(PyObject* self, PyObject* args, PyObject* kwargs) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", const_cast<char**>(names), &stream, &version,
                                     &device, &copy))
      nb::raise_python_error();
    refuse_recorded(as_tensor(self), "DLPack");
    return export_dlpack(as_tensor(self), stream, version, device, copy);
  });
}

PyObject* device_of_dlpack(PyObject* self, PyObject*) {
  DLDevice device = dlpack_device(as_tensor(self));
  return Py_BuildValue("(ii)", device.type, device.id);
}

PyCFunction with_keywords(PyObject* (*function)(PyObject*, PyObject*, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

}  // namespace

void refuse_recorded(const Tensor* tensor, const char* who) {
  if (tensor->requires_grad)
    fail(ErrorKind::Autograd, "a tensor that requires gradients cannot be handed to ", who,
         ": what happens there is not recorded\n  fix: pass x.detach()");
}

PyMethodDef tensor_methods[] = {
    {"numel", numel, METH_NOARGS, "Number of elements."},
    {"data_ptr", data_ptr, METH_NOARGS, "Address of the first element."},
    {"_address", address, METH_NOARGS, "As data_ptr(), for comparisons: nobody reads or writes there."},
    {"storage_offset", storage_offset, METH_NOARGS, "Elements between the start of the memory and the first element."},
    {"is_contiguous", is_contiguous, METH_NOARGS, "Whether elements lie in memory in row-major order without gaps."},
    {"item", item, METH_NOARGS, "The only element, as a Python number."},
    {"tolist", tolist, METH_NOARGS, "Nested lists of Python numbers."},
    {"__complex__", to_complex, METH_NOARGS, "__complex__($self, /)\n--\n\nThe only element, as a complex number."},
    {"_set_requires_grad", set_requires_grad, METH_O, nullptr},
    {"__array__", with_keywords(to_array), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__dlpack__", with_keywords(to_dlpack), METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule on the tensor's memory."},
    {"__dlpack_device__", device_of_dlpack, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nDLPack's type and number of the device: (1, 0) is the CPU, (2, k) is cuda:k."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace tandem
