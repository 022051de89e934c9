// The tensor. It is itself the Python object, so that a tensor has one identity and one reference count, whoever holds
// it; all handling of Tensor pointers happens with the GIL held. Kernels see only Views.
#pragma once
#include <Python.h>

#include <string>

#include "tensor/storage.h"
#include "tensor/view.h"

namespace tandem {

// Note [Tensors in parts]
// A sparse or nested tensor is an object of a subclass of Tensor that has the dtype, shape and device of what it stands
// for, and no memory: what it holds are ordinary tensors, attributes of the object (indices and values, values and
// lengths), with histories and gradients of their own. Operators never see one: binding arguments finds the flag and
// hands the whole call to Python (callbacks.in_parts, tandem/tensors/parts.py), which has the forms that exist for it
// and an error for the others. Gradients may be such tensors; where backward of an ordinary operator gets one, it is
// made dense first.
class Node;            // tensor/node.h: a tape record
struct AutogradExtra;  // tensor/node.h: grad, hooks, view base; most tensors have none

struct Tensor {
  PyObject_HEAD Storage* storage;  // owned
  bool requires_grad;              // leaf asked for it, or result of a recorded operator
  bool inference;                  // made in inference mode: never takes part in autograd
  bool unwatched;                  // x.data or a view of it: see Note [Writes through x.data]
  bool in_parts;                   // sparse or nested: see Note [Tensors in parts]
  uint16_t output_index;           // which output of `history` this is
  Node* history;                   // owned; the record that made this tensor, or null for leaves
  AutogradExtra* extra;            // owned, lazily made
  PyObject* attributes;            // __dict__
  PyObject* weak_references;
  Tensor** deferred_at;   // where the list of tensors without memory has this one, or null; see deferred.h
  Tensor* next_deferred;  // in that list
  View view;              // last: mostly room for axes that few tensors have

  bool is_leaf() const { return history == nullptr; }
};

extern PyTypeObject* TensorType;  // made once, by bindings/tensor_type.cc

inline bool is_tensor_exact(PyObject* o) {
  return Py_TYPE(o) == TensorType;
}
inline bool is_tensor(PyObject* o) {
  return is_tensor_exact(o) || PyType_IsSubtype(Py_TYPE(o), TensorType);
}

// New references. `storage` is taken over.
Tensor* new_tensor(Storage* storage, char* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides);
// Uninitialised; throws Error(Memory).
Tensor* new_contiguous(DType dtype, int ndim, const int64_t* shape, int device = 0);

// The tensor's data seen through another geometry (same storage, no history).
Tensor* new_view(const Tensor* base, char* data, DType dtype, int ndim, const int64_t* shape, const int64_t* strides);

// The same for a subclass of Tensor (which must not have its own __new__ called): the data of `base`, no history.
Tensor* new_of_type(PyTypeObject* type, const Tensor* base);

// An object of a subclass that stands for a tensor of this dtype, shape and device and has no memory: see
// Note [Tensors in parts].
Tensor* new_in_parts(PyTypeObject* type, DType dtype, int ndim, const int64_t* shape, int device);

// Bytes of a contiguous tensor; throws Error(Shape) for negative sizes and Error(Memory) for what cannot be addressed.
size_t checked_bytes(DType dtype, int ndim, const int64_t* shape);

class TensorRef {  // owning pointer to a Tensor (Python reference)
 public:
  TensorRef() = default;
  static TensorRef adopt(Tensor* t) {
    TensorRef r;
    r.t_ = t;
    return r;
  }
  static TensorRef share(Tensor* t) {
    Py_XINCREF(reinterpret_cast<PyObject*>(t));
    return adopt(t);
  }
  TensorRef(const TensorRef& o) : t_(o.t_) { Py_XINCREF(reinterpret_cast<PyObject*>(t_)); }
  TensorRef(TensorRef&& o) noexcept : t_(std::exchange(o.t_, nullptr)) {}
  TensorRef& operator=(TensorRef o) noexcept {
    std::swap(t_, o.t_);
    return *this;
  }
  ~TensorRef() { Py_XDECREF(reinterpret_cast<PyObject*>(t_)); }
  Tensor* get() const { return t_; }
  Tensor* operator->() const { return t_; }
  explicit operator bool() const { return t_ != nullptr; }
  Tensor* leak() { return std::exchange(t_, nullptr); }
  PyObject* object() const { return reinterpret_cast<PyObject*>(t_); }

 private:
  Tensor* t_ = nullptr;
};

}  // namespace tandem
