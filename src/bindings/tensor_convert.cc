#include "bindings/tensor_convert.h"

#include "bindings/bindings.h"
#include "check.h"

namespace nb = nanobind;

namespace tandem {
namespace {

PyObject* dtypes[kNumDTypes];
PyObject* devices[16];

}  // namespace

PyObject* dtype_object(DType dtype) {
  PyObject* object = dtypes[static_cast<int>(dtype)];
  TD_CHECK(object, "set_dtypes was not called");
  return object;
}

DType dtype_from_object(PyObject* object) {
  for (int code = 0; code < kNumDTypes; ++code) {
    if (dtypes[code] == object) return static_cast<DType>(code);
  }
  if (PyLong_CheckExact(object)) {
    long code = PyLong_AsLong(object);
    if (code >= 0 && code < kNumDTypes) return static_cast<DType>(code);
    PyErr_Clear();
  }
  fail(ErrorKind::Type, nb::repr(object).c_str(), " is not a dtype of Tandem");
}

PyObject* device_object(int device) {
  PyObject* object = devices[device & 15];
  return object ? object : Py_None;
}

Sizes sizes_from_object(PyObject* object, const char* what) {
  Sizes sizes;
  auto convert = [&](PyObject* item) {
    int64_t value = PyNumber_AsSsize_t(item, PyExc_OverflowError);
    if (value == -1 && PyErr_Occurred()) {
      bool overflow = PyErr_ExceptionMatches(PyExc_OverflowError);
      PyErr_Clear();
      if (overflow) fail(ErrorKind::Value, what, " has ", nb::repr(item).c_str(), ", which does not fit 64 bits");
      fail(ErrorKind::Type, what, " must be made of ints, got ", nb::repr(item).c_str());
    }
    return value;
  };
  // Arrays and tensors have __index__ too, so being a sequence counts first.
  PyObject* fast = PyLong_Check(object) ? nullptr : PySequence_Fast(object, "");
  if (!fast) {
    PyErr_Clear();
    if (PyIndex_Check(object)) {
      sizes.count = 1;
      sizes.values[0] = convert(object);
      return sizes;
    }
    fail(ErrorKind::Type, what, " must be an int or a sequence of ints, got ", nb::repr(object).c_str());
  }
  nb::object owner = nb::steal(fast);
  Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
  if (count > kMaxDims) fail(ErrorKind::Shape, what, " has ", count, " axes; at most ", kMaxDims, " are supported");
  for (Py_ssize_t i = 0; i < count; ++i) sizes.values[i] = convert(PySequence_Fast_GET_ITEM(fast, i));
  sizes.count = static_cast<int>(count);
  return sizes;
}

PyObject* tuple_from_sizes(int count, const int64_t* values) {
  PyObject* tuple = PyTuple_New(count);
  if (!tuple) return nullptr;
  for (int i = 0; i < count; ++i) {
    PyObject* item = PyLong_FromLongLong(values[i]);
    if (!item) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

void register_convert(nb::module_& m) {
  m.def(
      "set_dtypes",
      [](nb::sequence objects) {
        if (nb::len(objects) != kNumDTypes) fail(ErrorKind::Value, "set_dtypes: expected ", kNumDTypes, " dtypes");
        for (int code = 0; code < kNumDTypes; ++code) {
          PyObject* before = dtypes[code];
          dtypes[code] = nb::object(objects[code]).release().ptr();
          Py_XDECREF(before);
        }
      },
      nb::arg("dtypes"), "The objects that stand for element types, in the order of their codes.");
  m.def(
      "set_devices",
      [](nb::sequence objects) {
        for (size_t i = 0; i < nb::len(objects) && i < 16; ++i) {
          PyObject* before = devices[i];
          devices[i] = nb::object(objects[i]).release().ptr();
          Py_XDECREF(before);
        }
      },
      nb::arg("devices"), "The objects that Tensor.device gives: for the CPU, then for each CUDA device.");
}

}  // namespace tandem
