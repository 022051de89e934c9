// Operators of Tensor: slots that call what Python registered under their names. See set_operator.
#include <nanobind/nanobind.h>

#include <array>
#include <string>

#include "bindings/basic_index.h"
#include "bindings/bindings.h"
#include "bindings/numpy_types.h"
#include "bindings/tensor_convert.h"
#include "bindings/tensor_type.h"
#include "capture/capture.h"
#include "raise.h"
#include "tensor/move.h"
#include "tensor/scalar.h"
#include "tensor/tensor.h"

namespace nb = nanobind;

namespace tandem {
namespace {

enum Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kMatrixMultiply,
  kTrueDivide,
  kFloorDivide,
  kRemainder,
  kDivmod,
  kPower,
  kLshift,
  kRshift,
  kAnd,
  kOr,
  kXor,
  kInplaceAdd,
  kInplaceSubtract,
  kInplaceMultiply,
  kInplaceMatrixMultiply,
  kInplaceTrueDivide,
  kInplaceFloorDivide,
  kInplaceRemainder,
  kInplacePower,
  kInplaceLshift,
  kInplaceRshift,
  kInplaceAnd,
  kInplaceOr,
  kInplaceXor,
  kNegative,
  kPositive,
  kAbsolute,
  kInvert,
  kLess,
  kLessEqual,
  kEqual,
  kNotEqual,
  kGreater,
  kGreaterEqual,  // in the order of Py_LT ... Py_GE
  kGetItem,
  kSetItem,
  kContains,
  kIter,
  kRepr,
  kStr,
  kNumOperators,
};

constexpr std::array<const char*, kNumOperators> kNames = {
    "add",
    "subtract",
    "multiply",
    "matrix_multiply",
    "true_divide",
    "floor_divide",
    "remainder",
    "divmod",
    "power",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
    "inplace_add",
    "inplace_subtract",
    "inplace_multiply",
    "inplace_matrix_multiply",
    "inplace_true_divide",
    "inplace_floor_divide",
    "inplace_remainder",
    "inplace_power",
    "inplace_lshift",
    "inplace_rshift",
    "inplace_and",
    "inplace_or",
    "inplace_xor",
    "negative",
    "positive",
    "absolute",
    "invert",
    "less",
    "less_equal",
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "getitem",
    "setitem",
    "contains",
    "iter",
    "repr",
    "str",
};

PyObject* table[kNumOperators];  // owned callables

// Operands that our operators understand. Everything else gets its own turn (__radd__, ...): symbolic values above all.
bool is_operand(PyObject* o) {
  return is_tensor_exact(o) || PyFloat_Check(o) || PyLong_Check(o) || is_tensor(o) || PyComplex_Check(o) ||
         is_numpy_value(o);
}

template <size_t N>
PyObject* call(Operator op, PyObject* const (&arguments)[N]) {
  PyObject* function = table[op];
  if (!function) [[unlikely]] {
    PyErr_Format(PyExc_TypeError, "operator '%s' of Tensor is not registered", kNames[op]);
    return nullptr;
  }
  return PyObject_Vectorcall(function, arguments, N, nullptr);
}

template <Operator op>
PyObject* unary(PyObject* self) {
  return call(op, {self});
}

// CPython gives the operands in the order they were written; either of them may be the Tensor.
template <Operator op>
PyObject* binary(PyObject* left, PyObject* right) {
  if (!is_operand(left) || !is_operand(right)) Py_RETURN_NOTIMPLEMENTED;
  return call(op, {left, right});
}

template <Operator op>
PyObject* power(PyObject* left, PyObject* right, PyObject* modulus) {
  if (modulus != Py_None || !is_operand(left) || !is_operand(right)) Py_RETURN_NOTIMPLEMENTED;
  return call(op, {left, right});
}

PyObject* compare(PyObject* self, PyObject* other, int op) {
  static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);
  if (!is_operand(other)) Py_RETURN_NOTIMPLEMENTED;
  return call(static_cast<Operator>(kLess + op), {self, other});
}

// Comparison is elementwise, so identity is the only hash that means something.
Py_hash_t hash(PyObject* self) {
  return PyBaseObject_Type.tp_hash(self);
}

const Tensor* as_tensor(PyObject* self) {
  return reinterpret_cast<const Tensor*>(self);
}

Py_ssize_t length(PyObject* self) {
  const View& view = as_tensor(self)->view;
  if (view.ndim > 0) return view.shape[0];
  return guarded<Py_ssize_t>(-1, []() -> Py_ssize_t { fail(ErrorKind::Type, "len() of a 0-d tensor"); });
}

PyObject* get_item(PyObject* self, PyObject* key) {
  if (Tensor* view = basic_view(reinterpret_cast<Tensor*>(self), key)) return reinterpret_cast<PyObject*>(view);
  if (PyObject* made = index_basic(reinterpret_cast<Tensor*>(self), key)) return made;
  return PyErr_Occurred() ? nullptr : call(kGetItem, {self, key});
}

int set_item(PyObject* self, PyObject* key, PyObject* value) {
  if (!value) {
    return guarded(-1, []() -> int { fail(ErrorKind::Type, "elements of a tensor cannot be deleted"); });
  }
  PyObject* result = call(kSetItem, {self, key, value});
  Py_XDECREF(result);
  return result ? 0 : -1;
}

PyObject* sequence_item(PyObject* self, Py_ssize_t index) {  // the step of iteration
  const View& view = as_tensor(self)->view;
  if (view.ndim == 0 || index < 0 || index >= view.shape[0]) {
    PyErr_SetString(PyExc_IndexError, "tensor index out of range");
    return nullptr;
  }
  PyObject* key = PyLong_FromSsize_t(index);
  if (!key) return nullptr;
  PyObject* result = get_item(self, key);
  Py_DECREF(key);
  return result;
}

PyObject* iterate(PyObject* self) {
  if (as_tensor(self)->view.ndim == 0) {
    return guarded<PyObject*>(nullptr, []() -> PyObject* {
      fail(ErrorKind::Type, "a 0-d tensor cannot be iterated over\n  fix: use x.item() for its value");
    });
  }
  return table[kIter] ? call(kIter, {self}) : PySeqIter_New(self);
}

int contains(PyObject* self, PyObject* value) {
  PyObject* result = call(kContains, {self, value});
  if (!result) return -1;
  int truth = PyObject_IsTrue(result);
  Py_DECREF(result);
  return truth;
}

PyObject* represent(PyObject* self) {
  if (table[kRepr]) return call(kRepr, {self});
  return guarded<PyObject*>(nullptr, [&] {
    const View& view = as_tensor(self)->view;
    std::string text = std::string("<Tensor ") + name(view.dtype) + " " + format_shape(view.ndim, view.shape) + ">";
    return PyUnicode_FromString(text.c_str());
  });
}

PyObject* to_string(PyObject* self) {
  return table[kStr] ? call(kStr, {self}) : represent(self);
}

// bool(x), int(x), float(x), operator.index(x): the one element as a Python number.
ElementCopy single_element(PyObject* self, const char* what) {
  const View& view = as_tensor(self)->view;
  int64_t count = view.numel();
  if (count != 1)
    fail(ErrorKind::Value, what, " needs a tensor with one element, this one has ", count,
         "\n  fix: reduce it first (x.sum(), x[0], ...), or use x.tolist()");
  const TensorRef whole = gathered(as_tensor(self));
  materialize(whole.get());
  return ElementCopy(whole.get());
}

int truth(PyObject* self) {
  return guarded(-1, [&] {
    const View& view = as_tensor(self)->view;
    int64_t count = view.numel();
    if (count != 1)
      fail(ErrorKind::Value, "the truth of a tensor with ", count,
           " elements is ambiguous\n  fix: use x.any() or x.all()");
    const TensorRef whole = gathered(as_tensor(self));
    materialize(whole.get());
    return static_cast<int>(element_is_true(ElementCopy(whole.get()).data, view.dtype));
  });
}

PyObject* to_int(PyObject* self) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    const ElementCopy view = single_element(self, "int()");
    if (is_complex(view.dtype)) fail(ErrorKind::Type, "int() of a complex tensor\n  fix: take x.real or x.abs() first");
    nb::object value = nb::steal(read_element(view.data, view.dtype));
    return PyNumber_Long(value.ptr());
  });
}

PyObject* to_float(PyObject* self) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    const ElementCopy view = single_element(self, "float()");
    if (is_complex(view.dtype))
      fail(ErrorKind::Type, "float() of a complex tensor\n  fix: take x.real or x.abs() first");
    nb::object value = nb::steal(read_element(view.data, view.dtype));
    return PyNumber_Float(value.ptr());
  });
}

PyObject* to_index(PyObject* self) {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    const View& view = as_tensor(self)->view;
    if (view.dtype >= DType::Float16 || view.dtype == DType::Bool || view.numel() != 1)
      fail(ErrorKind::Type, "only an integer tensor with one element can be used as an index, this one is ",
           name(view.dtype), " ", format_shape(view.ndim, view.shape));
    const TensorRef whole = gathered(as_tensor(self));
    materialize(whole.get());
    return read_element(ElementCopy(whole.get()).data, view.dtype);
  });
}

template <typename F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

void add_operator_slots(std::vector<PyType_Slot>& slots) {
  const PyType_Slot all[] = {
      {Py_nb_add, slot(&binary<kAdd>)},
      {Py_nb_subtract, slot(&binary<kSubtract>)},
      {Py_nb_multiply, slot(&binary<kMultiply>)},
      {Py_nb_matrix_multiply, slot(&binary<kMatrixMultiply>)},
      {Py_nb_true_divide, slot(&binary<kTrueDivide>)},
      {Py_nb_floor_divide, slot(&binary<kFloorDivide>)},
      {Py_nb_remainder, slot(&binary<kRemainder>)},
      {Py_nb_divmod, slot(&binary<kDivmod>)},
      {Py_nb_power, slot(&power<kPower>)},
      {Py_nb_lshift, slot(&binary<kLshift>)},
      {Py_nb_rshift, slot(&binary<kRshift>)},
      {Py_nb_and, slot(&binary<kAnd>)},
      {Py_nb_or, slot(&binary<kOr>)},
      {Py_nb_xor, slot(&binary<kXor>)},
      {Py_nb_inplace_add, slot(&binary<kInplaceAdd>)},
      {Py_nb_inplace_subtract, slot(&binary<kInplaceSubtract>)},
      {Py_nb_inplace_multiply, slot(&binary<kInplaceMultiply>)},
      {Py_nb_inplace_matrix_multiply, slot(&binary<kInplaceMatrixMultiply>)},
      {Py_nb_inplace_true_divide, slot(&binary<kInplaceTrueDivide>)},
      {Py_nb_inplace_floor_divide, slot(&binary<kInplaceFloorDivide>)},
      {Py_nb_inplace_remainder, slot(&binary<kInplaceRemainder>)},
      {Py_nb_inplace_power, slot(&power<kInplacePower>)},
      {Py_nb_inplace_lshift, slot(&binary<kInplaceLshift>)},
      {Py_nb_inplace_rshift, slot(&binary<kInplaceRshift>)},
      {Py_nb_inplace_and, slot(&binary<kInplaceAnd>)},
      {Py_nb_inplace_or, slot(&binary<kInplaceOr>)},
      {Py_nb_inplace_xor, slot(&binary<kInplaceXor>)},
      {Py_nb_negative, slot(&unary<kNegative>)},
      {Py_nb_positive, slot(&unary<kPositive>)},
      {Py_nb_absolute, slot(&unary<kAbsolute>)},
      {Py_nb_invert, slot(&unary<kInvert>)},
      {Py_nb_bool, slot(&truth)},
      {Py_nb_int, slot(&to_int)},
      {Py_nb_float, slot(&to_float)},
      {Py_nb_index, slot(&to_index)},
      {Py_mp_length, slot(&length)},
      {Py_mp_subscript, slot(&get_item)},
      {Py_mp_ass_subscript, slot(&set_item)},
      {Py_sq_length, slot(&length)},
      {Py_sq_item, slot(&sequence_item)},
      {Py_sq_contains, slot(&contains)},
      {Py_tp_iter, slot(&iterate)},
      {Py_tp_richcompare, slot(&compare)},
      {Py_tp_hash, slot(&hash)},
      {Py_tp_repr, slot(&represent)},
      {Py_tp_str, slot(&to_string)},
  };
  slots.insert(slots.end(), std::begin(all), std::end(all));
}

void register_operators(nb::module_& m) {
  m.def(
      "chunk_views",
      [](nb::handle x, int64_t chunks, int64_t axis) -> nb::object {
        PyObject* made = is_tensor(x.ptr()) ? chunk_views(reinterpret_cast<Tensor*>(x.ptr()), chunks, axis) : nullptr;
        return made ? nb::steal(made) : nb::none();
      },
      nb::arg("x"), nb::arg("chunks"), nb::arg("axis"));
  m.def(
      "basic_view",
      [](TensorRef x, nb::object key) -> nb::object {
        Tensor* view = basic_view(x.get(), key.ptr());
        return view ? nb::steal(reinterpret_cast<PyObject*>(view)) : nb::none();
      },
      nb::arg("x"), nb::arg("key").none(), "x[key] where that is a plain view that needs no record; None otherwise.");
  m.def(
      "set_operator",
      [](const char* name, nb::object function) -> nb::object {
        for (int op = 0; op < kNumOperators; ++op) {
          if (std::string_view(kNames[op]) != name) continue;
          PyObject* before = std::exchange(table[op], function.is_none() ? nullptr : function.release().ptr());
          return before ? nb::steal(before) : nb::none();
        }
        fail(ErrorKind::Value, "set_operator: Tensor has no operator '", name, "'");
      },
      nb::arg("name"), nb::arg("function").none(),
      "Have an operator of Tensor call `function` with its operands as they were written; gives what it called "
      "before.");
  nb::list names;
  for (const char* name : kNames) names.append(name);
  m.attr("operator_names") = nb::tuple(names);
}

}  // namespace tandem
