// Tensors from Python numbers and nested lists, and from and to bytes.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/numpy_types.h"
#include "bindings/tensor_convert.h"
#include "capture/capture.h"
#include "check.h"
#include "tensor/copy.h"
#include "tensor/default_dtype.h"
#include "tensor/move.h"
#include "tensor/scalar.h"

namespace nb = nanobind;

namespace tandem {
namespace {

enum Kind : unsigned { kBool = 1, kInt = 2, kFloat = 4, kComplex = 8 };

// The rule of tandem/dtypes.py for tensors meeting in one list.
DType promote(DType a, DType b) {
  if (a == b) return a;
  auto order = [](DType t) { return t == DType::Bool ? 0 : t < DType::Float16 ? 1 : t < DType::Complex64 ? 2 : 3; };
  if (order(a) < order(b)) std::swap(a, b);
  if (order(a) == 3) {
    bool wide = a == DType::Complex128 || b == DType::Complex128 || b == DType::Float64;
    return wide ? DType::Complex128 : DType::Complex64;
  }
  if (order(a) != order(b)) return a;
  if (order(a) == 2) {
    if (item_size(a) == 2 && item_size(b) == 2) return DType::Float32;
    return item_size(a) > item_size(b) ? a : b;
  }
  bool a_unsigned = a >= DType::UInt8, b_unsigned = b >= DType::UInt8;
  if (a_unsigned == b_unsigned) return item_size(a) > item_size(b) ? a : b;
  DType is_signed = a_unsigned ? b : a, is_unsigned = a_unsigned ? a : b;
  if (item_size(is_signed) > item_size(is_unsigned)) return is_signed;
  if (is_unsigned == DType::UInt64) return DType::Float32;
  return static_cast<DType>(static_cast<int>(is_unsigned) - static_cast<int>(DType::UInt8) +
                            static_cast<int>(DType::Int8) + 1);
}

// Reads nested data twice: `look` finds the shape and the element type, `fill` stores the elements.
class Reader {
 public:
  explicit Reader(PyObject* data) { look(data, 0); }

  int ndim() const { return ndim_; }
  const int64_t* shape() const { return shape_; }

  DType dtype() const {
    unsigned kinds = kinds_;
    if (has_arrays_) {  // Python numbers adapt to the arrays among them
      bool keeps = !(kinds & kComplex) || is_complex(array_dtype_);
      keeps = keeps && (!(kinds & kFloat) || array_dtype_ >= DType::Float16);
      keeps = keeps && (!(kinds & kInt) || array_dtype_ != DType::Bool);
      if (keeps) return array_dtype_;
      if (kinds & kComplex) return array_dtype_ == DType::Float64 ? DType::Complex128 : default_complex();
      return kinds & kFloat ? default_float : DType::Int64;
    }
    if (kinds & kComplex) return default_complex();
    if (kinds & kFloat || kinds == 0) return default_float;
    return kinds & kInt ? DType::Int64 : DType::Bool;
  }

  void fill(PyObject* data, const View& view) {
    path_.clear();
    next_array_ = 0;
    fill(data, 0, view.data, view);
  }

 private:
  static bool is_list(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }

  // Arrays and whatever can become one are converted once; `fill` meets them in the same order.
  Tensor* as_array(PyObject* o) {
    TensorRef tensor;
    if (is_tensor(o)) {
      tensor = TensorRef::share(reinterpret_cast<Tensor*>(o));
      materialize(tensor.get());
      tensor = on_host(tensor.get());
    } else if (is_numpy_array(o)) {
      tensor = TensorRef::adopt(tensor_from_numpy(o));
    } else if (is_numpy_value(o)) {
      nb::object array = nb::module_::import_("numpy").attr("asarray")(nb::handle(o));
      tensor = TensorRef::adopt(tensor_from_numpy(array.ptr()));
    } else if (PyBytes_Check(o)) {
      return nullptr;  // text, more likely than numbers; from_buffer takes it
    } else if (PyObject_CheckBuffer(o)) {
      tensor = TensorRef::adopt(tensor_from_buffer(o));
    } else if (PyObject_HasAttrString(o, "__array__")) {
      nb::object array = nb::module_::import_("numpy").attr("asarray")(nb::handle(o));
      tensor = TensorRef::adopt(tensor_from_numpy(array.ptr()));
    } else {
      return nullptr;
    }
    arrays_.push_back(tensor);
    return tensor.get();
  }

  std::string path() const {
    std::string text = "data";
    for (int64_t i : path_) text.append("[").append(std::to_string(i)).append("]");
    return text;
  }

  // The sizes found on the way to the first leaf are what every other part must have.
  void set_axis(int depth, int64_t size) {
    if (depth >= kMaxDims)
      fail(ErrorKind::Shape, "tensor: data is nested deeper than the ", kMaxDims, " axes supported");
    if (depth < ndim_) {
      if (shape_[depth] != size)
        fail(ErrorKind::Shape, "tensor: the nested lists are ragged: ", path(), " has ", size,
             " elements where others have ", shape_[depth]);
      return;
    }
    if (complete_)
      fail(ErrorKind::Shape, "tensor: the nested lists are ragged: ", path(),
           " has elements of its own where others are numbers");
    shape_[ndim_++] = size;
  }

  void end_at(int depth) {
    if (depth < ndim_)
      fail(ErrorKind::Shape, "tensor: the nested lists are ragged: ", path(), " is a number where others have ",
           shape_[depth], " elements");
    complete_ = true;
  }

  void look(PyObject* o, int depth) {
    if (PyFloat_CheckExact(o)) {
      kinds_ |= kFloat;
    } else if (PyLong_CheckExact(o)) {
      kinds_ |= kInt;
    } else if (PyBool_Check(o)) {
      kinds_ |= kBool;
    } else if (is_list(o)) {
      look_list(o, depth);
      return;
    } else if (PyRange_Check(o)) {
      nb::object list = nb::steal(PySequence_List(o));
      if (!list.is_valid()) nb::raise_python_error();
      look_list(list.ptr(), depth);
      return;
    } else if (const Tensor* array = is_plain_number(o) ? nullptr : as_array(o)) {
      for (int i = 0; i < array->view.ndim; ++i) set_axis(depth + i, array->view.shape[i]);
      end_at(depth + array->view.ndim);
      array_dtype_ = has_arrays_ ? promote(array_dtype_, array->view.dtype) : array->view.dtype;
      has_arrays_ = true;
      return;
    } else if (PyComplex_Check(o)) {
      kinds_ |= kComplex;
    } else if (PyFloat_Check(o)) {
      kinds_ |= kFloat;
    } else if (PyIndex_Check(o)) {
      kinds_ |= kInt;
    } else if (PyNumber_Check(o) && !PyUnicode_Check(o)) {  // Decimal, Fraction
      kinds_ |= kFloat;
    } else {
      fail(ErrorKind::Type, "tensor: ", path(), " is of type ", Py_TYPE(o)->tp_name,
           ", which is no number, list or array\n  fix: pass numbers, nested lists of them, or arrays");
    }
    end_at(depth);
  }

  // Subclasses of Python's numbers, but not NumPy's (np.float64 is a float and has a type of its own).
  static bool is_plain_number(PyObject* o) {
    return (PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o)) && !is_numpy_value(o);
  }

  void look_list(PyObject* list, int depth) {
    Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    set_axis(depth, count);
    if (count == 0) complete_ = true;
    path_.push_back(0);
    for (Py_ssize_t i = 0; i < count; ++i) {
      path_.back() = i;
      // Converting an element may run Python code that changes the list.
      if (i >= PySequence_Fast_GET_SIZE(list)) fail_changed();
      nb::object item = nb::borrow(PySequence_Fast_GET_ITEM(list, i));
      look(item.ptr(), depth + 1);
    }
    path_.pop_back();
    if (count == 0 && depth + 1 < ndim_)
      fail(ErrorKind::Shape, "tensor: the nested lists are ragged: ", path(), " is empty where others are not");
  }

  void fill(PyObject* o, int depth, char* target, const View& view) {
    if (depth == view.ndim && !is_array_object(o)) {
      if (is_list(o)) fail_changed();
      try {
        write_element(target, view.dtype, o);
      } catch (const Error& error) {
        throw Error(error.kind, "tensor: " + path() + ": " + error.what());
      }
      return;
    }
    if (is_list(o)) {
      fill_list(o, depth, target, view);
    } else if (PyRange_Check(o)) {
      nb::object list = nb::steal(PySequence_List(o));
      if (!list.is_valid()) nb::raise_python_error();
      fill_list(list.ptr(), depth, target, view);
    } else {
      if (next_array_ >= arrays_.size()) fail_changed();
      const View& array = arrays_[next_array_++]->view;
      if (array.ndim != view.ndim - depth || !std::equal(array.shape, array.shape + array.ndim, view.shape + depth))
        fail_changed();
      if (array.numel() == 0) return;  // whatever its other axes are
      if (array.dtype == view.dtype) {
        View part = array;
        part.data = target;
        std::copy_n(view.strides + depth, array.ndim, part.strides);
        copy_view(array, part);
      } else {
        fill_array(array, 0, array.data, target, view, depth);
      }
    }
  }

  static bool is_array_object(PyObject* o) {
    if (PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o) || is_plain_number(o) || is_list(o))
      return false;
    return is_tensor(o) || is_numpy_value(o) || (PyObject_CheckBuffer(o) && !PyBytes_Check(o)) ||
           PyObject_HasAttrString(o, "__array__");
  }

  void fill_list(PyObject* list, int depth, char* target, const View& view) {
    Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    if (depth >= view.ndim || count != view.shape[depth]) fail_changed();
    int64_t step = view.strides[depth] * static_cast<int64_t>(item_size(view.dtype));
    path_.push_back(0);
    for (Py_ssize_t i = 0; i < count; ++i) {
      path_.back() = i;
      if (i >= PySequence_Fast_GET_SIZE(list)) fail_changed();
      nb::object item = nb::borrow(PySequence_Fast_GET_ITEM(list, i));
      fill(item.ptr(), depth + 1, target + i * step, view);
    }
    path_.pop_back();
  }

  // Of another type: element by element, with the checks that Python's numbers get.
  void fill_array(const View& array, int axis, const char* source, char* target, const View& view, int depth) {
    if (axis == array.ndim) {
      nb::object value = nb::steal(read_element(source, array.dtype));
      write_element(target, view.dtype, value.ptr());
      return;
    }
    auto from = array.strides[axis] * static_cast<int64_t>(item_size(array.dtype));
    auto to = view.strides[depth + axis] * static_cast<int64_t>(item_size(view.dtype));
    for (int64_t i = 0; i < array.shape[axis]; ++i)
      fill_array(array, axis + 1, source + i * from, target + i * to, view, depth);
  }

  [[noreturn]] static void fail_changed() { fail(ErrorKind::Value, "tensor: the lists changed while they were read"); }

  int ndim_ = 0;
  int64_t shape_[kMaxDims];
  bool complete_ = false;  // a leaf was reached, so the number of axes is known
  unsigned kinds_ = 0;
  bool has_arrays_ = false;
  DType array_dtype_ = DType::Float32;
  std::vector<TensorRef> arrays_;
  size_t next_array_ = 0;
  std::vector<int64_t> path_;
};

TensorRef from_data(nb::object data, nb::object dtype) {
  Reader reader(data.ptr());
  DType type = dtype.is_none() ? reader.dtype() : dtype_from_object(dtype.ptr());
  auto tensor = TensorRef::adopt(new_contiguous(type, reader.ndim(), reader.shape()));
  reader.fill(data.ptr(), tensor->view);
  return tensor;
}

nb::bytes to_bytes(TensorRef tensor) {
  materialize(tensor.get());
  tensor = on_host(tensor.get());
  View view = tensor->view;
  size_t bytes = view.numel() * item_size(view.dtype);
  nb::object result = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (!result.is_valid()) nb::raise_python_error();
  View target = view;
  target.data = PyBytes_AS_STRING(result.ptr());
  int64_t step = 1;
  for (int i = view.ndim - 1; i >= 0; --i) {
    target.strides[i] = step;
    step *= view.shape[i];
  }
  copy_view(view, target);
  return nb::bytes(result);
}

TensorRef from_bytes(nb::bytes data, nb::object dtype, nb::object shape) {
  Sizes sizes = sizes_from_object(shape.ptr(), "shape");
  DType type = dtype_from_object(dtype.ptr());
  size_t bytes = checked_bytes(type, sizes.count, sizes.values);
  if (bytes != data.size())
    fail(ErrorKind::Value, "from_bytes: ", name(type), " ", format_shape(sizes.count, sizes.values), " takes ", bytes,
         " bytes, got ", data.size());
  auto tensor = TensorRef::adopt(new_contiguous(type, sizes.count, sizes.values));
  std::memcpy(tensor->view.data, data.c_str(), bytes);
  return tensor;
}

}  // namespace

void register_tensor_data(nb::module_& m) {
  m.def("from_data", &from_data, nb::arg("data"), nb::arg("dtype") = nb::none(),
        "A new tensor from a number, nested lists, or arrays among them; float32, int64 or bool unless a dtype is "
        "given.");
  m.def("default_dtype_code", [] { return static_cast<int>(default_float); });
  m.def(
      "set_default_dtype_code", [](int code) { default_float = static_cast<DType>(code); }, nb::arg("code"),
      "The code of the dtype that floats have unless told otherwise; the caller has checked that it is a float's.");
  m.def("to_bytes", &to_bytes, nb::arg("tensor"), "The elements in row-major order.");
  m.def("from_bytes", &from_bytes, nb::arg("data"), nb::arg("dtype"), nb::arg("shape"),
        "A new tensor from such bytes.");
}

}  // namespace tandem
