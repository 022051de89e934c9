#include "tensor/scalar.h"

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <type_traits>

#include "check.h"
#include "tensor/half.h"

namespace tandem {
namespace {

template <typename T>
T load(const char* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

template <typename T>
void store(char* address, T value) {
  std::memcpy(address, &value, sizeof value);
}

std::string repr(PyObject* value) {
  PyObject* text = PyObject_Repr(value);
  const char* utf8 = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string result = utf8 ? utf8 : "the value";
  Py_XDECREF(text);
  PyErr_Clear();
  return result;
}

[[noreturn]] void fail_not_a_number(PyObject* value) {
  PyErr_Clear();
  fail(ErrorKind::Type, "expected a number, got ", repr(value), " of type ", Py_TYPE(value)->tp_name);
}

[[noreturn]] void fail_range(PyObject* value, DType dtype) {
  PyErr_Clear();
  const char* advice =
      dtype == DType::Int64 ? "\n  fix: pass dtype=td.uint64 or a float type" : "\n  fix: pass a wider dtype";
  fail(ErrorKind::Value, repr(value), " does not fit ", name(dtype), advice);
}

double as_double(PyObject* value) {
  if (PyFloat_Check(value)) return PyFloat_AS_DOUBLE(value);
  if (PyComplex_Check(value)) fail(ErrorKind::Type, repr(value), " is complex and the tensor is not");
  double result = PyFloat_AsDouble(value);
  if (result == -1.0 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) fail_range(value, DType::Float64);
    fail_not_a_number(value);
  }
  return result;
}

std::complex<double> as_complex(PyObject* value) {
  if (PyFloat_Check(value)) return PyFloat_AS_DOUBLE(value);
  Py_complex result = PyComplex_AsCComplex(value);
  if (result.real == -1.0 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) fail_range(value, DType::Complex128);
    fail_not_a_number(value);
  }
  return {result.real, result.imag};
}

template <typename T>
T as_integer(PyObject* value, DType dtype) {
  if (PyFloat_Check(value)) {
    double number = std::trunc(PyFloat_AS_DOUBLE(value));
    // The bounds are powers of two, so exact: -2^(n-1) <= number < 2^(n-1), or 0 <= number < 2^n.
    double upper = std::ldexp(1.0, std::numeric_limits<T>::digits);
    double lower = std::is_signed_v<T> ? -upper : 0.0;
    if (!(number >= lower && number < upper)) fail_range(value, dtype);
    return static_cast<T>(number);
  }
  PyObject* integer = PyLong_Check(value) ? Py_NewRef(value) : PyNumber_Index(value);
  if (!integer) {
    PyErr_Clear();
    if (PyComplex_Check(value)) fail(ErrorKind::Type, repr(value), " is complex and the tensor is not");
    PyObject* number = PyNumber_Float(value);
    if (!number) fail_not_a_number(value);
    struct Release {
      PyObject* object;
      ~Release() { Py_DECREF(object); }
    } release{number};
    if (!PyFloat_Check(number)) fail_not_a_number(value);
    return as_integer<T>(number, dtype);
  }
  if constexpr (std::is_same_v<T, uint64_t>) {
    uint64_t number = PyLong_AsUnsignedLongLong(integer);
    Py_DECREF(integer);
    if (number == static_cast<uint64_t>(-1) && PyErr_Occurred()) fail_range(value, dtype);
    return number;
  } else {
    int overflow;
    int64_t number = PyLong_AsLongLongAndOverflow(integer, &overflow);
    Py_DECREF(integer);
    if (overflow || number < static_cast<int64_t>(std::numeric_limits<T>::min()) ||
        number > static_cast<int64_t>(std::numeric_limits<T>::max()))
      fail_range(value, dtype);
    return static_cast<T>(number);
  }
}

bool as_bool(PyObject* value) {
  if (!PyNumber_Check(value)) fail_not_a_number(value);
  int truth = PyObject_IsTrue(value);
  if (truth < 0) fail_not_a_number(value);
  return truth;
}

}  // namespace

PyObject* read_element(const char* p, DType dtype) {
  PyObject* result = nullptr;
  switch (dtype) {
    case DType::Bool:
      result = PyBool_FromLong(*p != 0);
      break;
    case DType::Int8:
      result = PyLong_FromLong(load<int8_t>(p));
      break;
    case DType::Int16:
      result = PyLong_FromLong(load<int16_t>(p));
      break;
    case DType::Int32:
      result = PyLong_FromLong(load<int32_t>(p));
      break;
    case DType::Int64:
      result = PyLong_FromLongLong(load<int64_t>(p));
      break;
    case DType::UInt8:
      result = PyLong_FromLong(load<uint8_t>(p));
      break;
    case DType::UInt16:
      result = PyLong_FromLong(load<uint16_t>(p));
      break;
    case DType::UInt32:
      result = PyLong_FromLongLong(load<uint32_t>(p));
      break;
    case DType::UInt64:
      result = PyLong_FromUnsignedLongLong(load<uint64_t>(p));
      break;
    case DType::Float16:
      result = PyFloat_FromDouble(half_to_double(load<uint16_t>(p)));
      break;
    case DType::BFloat16:
      result = PyFloat_FromDouble(bfloat16_to_double(load<uint16_t>(p)));
      break;
    case DType::Float32:
      result = PyFloat_FromDouble(load<float>(p));
      break;
    case DType::Float64:
      result = PyFloat_FromDouble(load<double>(p));
      break;
    case DType::Complex64:
      result = PyComplex_FromDoubles(load<float>(p), load<float>(p + 4));
      break;
    case DType::Complex128:
      result = PyComplex_FromDoubles(load<double>(p), load<double>(p + 8));
      break;
  }
  if (!result) {
    PyErr_Clear();
    throw std::bad_alloc();
  }
  return result;
}

void write_element(char* p, DType dtype, PyObject* value) {
  switch (dtype) {
    case DType::Bool:
      *p = as_bool(value);
      return;
    case DType::Int8:
      return store(p, as_integer<int8_t>(value, dtype));
    case DType::Int16:
      return store(p, as_integer<int16_t>(value, dtype));
    case DType::Int32:
      return store(p, as_integer<int32_t>(value, dtype));
    case DType::Int64:
      return store(p, as_integer<int64_t>(value, dtype));
    case DType::UInt8:
      return store(p, as_integer<uint8_t>(value, dtype));
    case DType::UInt16:
      return store(p, as_integer<uint16_t>(value, dtype));
    case DType::UInt32:
      return store(p, as_integer<uint32_t>(value, dtype));
    case DType::UInt64:
      return store(p, as_integer<uint64_t>(value, dtype));
    case DType::Float16:
      return store(p, double_to_half(as_double(value)));
    case DType::BFloat16:
      return store(p, double_to_bfloat16(as_double(value)));
    case DType::Float32:
      return store(p, static_cast<float>(as_double(value)));
    case DType::Float64:
      return store(p, as_double(value));
    case DType::Complex64:
      return store(p, std::complex<float>(as_complex(value)));
    case DType::Complex128:
      return store(p, as_complex(value));
  }
}

bool element_is_true(const char* p, DType dtype) {
  switch (dtype) {
    case DType::Float16:
    case DType::BFloat16:
      return (load<uint16_t>(p) & 0x7fff) != 0;  // neither +0 nor -0
    case DType::Float32:
      return load<float>(p) != 0;
    case DType::Float64:
      return load<double>(p) != 0;
    case DType::Complex64:
      return load<std::complex<float>>(p) != 0.0f;
    case DType::Complex128:
      return load<std::complex<double>>(p) != 0.0;
    default:
      break;
  }
  for (size_t i = 0; i < item_size(dtype); ++i) {
    if (p[i]) return true;
  }
  return false;
}

}  // namespace tandem
