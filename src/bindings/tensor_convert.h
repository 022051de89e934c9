// Between Python objects and what the runtime calls them: tensors, element types, shapes.
#pragma once
#include <nanobind/nanobind.h>

#include "tensor/tensor.h"

namespace tandem {

PyObject* dtype_object(DType dtype);        // borrowed; throws before set_dtypes was called
DType dtype_from_object(PyObject* object);  // a registered DType object, or its code
PyObject* device_object(int device);        // borrowed; None before set_devices was called

struct Sizes {  // a shape, or strides
  int count = 0;
  int64_t values[kMaxDims];
};
Sizes sizes_from_object(PyObject* object, const char* what);   // an int, or a sequence of ints
PyObject* tuple_from_sizes(int count, const int64_t* values);  // new reference

}  // namespace tandem

// A Tensor as an argument or result of a bound function.
namespace nanobind::detail {
template <>
struct type_caster<tandem::TensorRef> {
  NB_TYPE_CASTER(tandem::TensorRef, const_name("Tensor"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!tandem::is_tensor(source.ptr())) return false;
    value = tandem::TensorRef::share(reinterpret_cast<tandem::Tensor*>(source.ptr()));
    return true;
  }
  static handle from_cpp(tandem::TensorRef source, rv_policy, cleanup_list*) noexcept {
    return reinterpret_cast<PyObject*>(source.leak());
  }
};
}  // namespace nanobind::detail
