#include "operators/signature.h"

#include "tensor/size_type.h"

namespace tandem {

uint64_t Signature::hash() const {
  uint64_t h = 0x9E3779B97F4A7C15ull ^ size_;
  size_t i = 0;
  auto mix = [&](uint64_t v) {
    __uint128_t m = static_cast<__uint128_t>(h ^ v) * 0xD6E8FEB86659FD93ull;
    h = static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
  };
  for (; i + 8 <= size_; i += 8) {
    uint64_t v;
    std::memcpy(&v, data_ + i, 8);
    mix(v);
  }
  if (i < size_) {
    uint64_t v = 0;
    std::memcpy(&v, data_ + i, size_ - i);
    mix(v);
  }
  return h;
}

void Signature::view(const View& v, bool requires_grad, int device) {
  uint8_t order[kMaxDims];
  uint32_t ones = 0;  // a bit for each of kMaxDims axes
  for (int i = 0; i < v.ndim; ++i) ones |= static_cast<uint32_t>(v.shape[i] == 1) << i;
  LayoutClass layout = classify(v, order);
  byte('T');
  byte(static_cast<uint8_t>(static_cast<int>(v.dtype) | device << 4));
  byte(static_cast<uint8_t>(v.ndim));
  byte(static_cast<uint8_t>(static_cast<int>(layout) | (requires_grad << 4)));
  value(ones);
  if (layout == LayoutClass::Dense) bytes(order, v.ndim);
  if (layout == LayoutClass::Strided)
    for (int i = 0; i < v.ndim; ++i) byte(v.shape[i] == 1 ? 1 : v.strides[i] == 0 ? 0 : v.strides[i] == 1 ? 1 : 2);
}

void Signature::object(PyObject* o) {
  if (o == Py_None) return byte('N');
  if (PyBool_Check(o)) return byte(o == Py_True ? 'Y' : 'y');
  if (PyLong_CheckExact(o)) {
    int overflow = 0;
    long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow) {
      byte('i');
      return value(static_cast<int64_t>(v));
    }
  } else if (PyFloat_CheckExact(o)) {
    byte('f');
    return value(PyFloat_AS_DOUBLE(o));
  } else if (PyUnicode_CheckExact(o)) {
    Py_ssize_t n = 0;
    const char* s = PyUnicode_AsUTF8AndSize(o, &n);
    if (s) {
      byte('s');
      value(static_cast<uint32_t>(n));
      return bytes(s, n);
    }
    PyErr_Clear();
  } else if (is_plain_tuple(o) || PyList_CheckExact(o)) {
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    byte(is_plain_tuple(o) ? '(' : '[');
    value(static_cast<uint32_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) object(PySequence_Fast_GET_ITEM(o, i));
    return;
  }
  byte('O');
  value(o);  // the cache entry keeps o alive, so its address stays its own
}

}  // namespace tandem
