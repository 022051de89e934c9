#include "operators/describe.h"

#include "modes.h"

namespace tandem {

PyObject* describe_view(const View& v, bool requires_grad, int device) {
  uint8_t order[kMaxDims];
  LayoutClass layout = classify(v, order);
  PyObject* shape = PyTuple_New(v.ndim);
  PyObject* strides = PyTuple_New(v.ndim);
  PyObject* permutation = layout == LayoutClass::Dense ? PyTuple_New(v.ndim) : Py_NewRef(Py_None);
  for (int i = 0; i < v.ndim; ++i) {
    PyTuple_SET_ITEM(shape, i, PyLong_FromLongLong(v.shape[i]));
    PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(v.strides[i]));
    if (layout == LayoutClass::Dense) PyTuple_SET_ITEM(permutation, i, PyLong_FromLong(order[i]));
  }
  // -> TensorSpec
  return Py_BuildValue("(siNNiNOi)", "tensor", static_cast<int>(v.dtype), shape, strides, static_cast<int>(layout),
                       permutation, requires_grad ? Py_True : Py_False, device);
}

PyObject* describe_argument(const Argument& a) {
  // Other than tensors: -> ValueSpec
  auto number = [](const char* kind, int64_t v) { return Py_BuildValue("(sL)", kind, static_cast<long long>(v)); };
  switch (a.kind) {
    case Argument::Kind::Tensor:
      return describe_view(a.tensor->view, a.tensor->requires_grad && grad_mode.enabled, a.tensor->storage->device());
    case Argument::Kind::Float:
      return Py_BuildValue("(sd)", "float", a.real);
    case Argument::Kind::Complex: {
      Py_complex value{a.real, a.imaginary};
      return Py_BuildValue("(sD)", "complex", &value);
    }
    case Argument::Kind::Integer:
      return number("integer", a.integer);
    case Argument::Kind::Bool:
      return Py_BuildValue("(sO)", "bool", a.truth ? Py_True : Py_False);
    case Argument::Kind::None:
      return Py_BuildValue("(s)", "none");
    case Argument::Kind::Static:
      return Py_BuildValue("(sO)", "static", a.object);
    case Argument::Kind::Int:
      return number("int", a.integer);
    case Argument::Kind::Count:
      return number("count", a.integer);
    case Argument::Kind::Seed:
      return number("seed", a.integer);
    case Argument::Kind::Offset:
      return number("offset", a.integer);
  }
  return nullptr;
}

}  // namespace tandem
