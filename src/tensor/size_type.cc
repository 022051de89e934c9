#include "tensor/size_type.h"

namespace tandem {

PyTypeObject* SizeType = nullptr;

namespace {

// A tuple that tuple's own code made, as sizes; takes the reference.
PyObject* as_sizes(PyObject* tuple) {
  if (!tuple || !PyTuple_CheckExact(tuple)) return tuple;
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
  PyObject* made = new_sizes(n);
  for (Py_ssize_t i = 0; made && i < n; ++i) PyTuple_SET_ITEM(made, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  Py_DECREF(tuple);
  return made;
}

PyObject* subscript(PyObject* self, PyObject* key) {
  PyObject* found = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
  return PySlice_Check(key) ? as_sizes(found) : found;
}

PyObject* concatenate(PyObject* self, PyObject* other) {
  return as_sizes(PyTuple_Type.tp_as_sequence->sq_concat(self, other));
}

PyObject* numel(PyObject* self, PyObject*) {
  PyObject* product = PyLong_FromLong(1);
  for (Py_ssize_t i = 0; product && i < PyTuple_GET_SIZE(self); ++i) {
    PyObject* next = PyNumber_Multiply(product, PyTuple_GET_ITEM(self, i));
    Py_DECREF(product);
    product = next;
  }
  return product;
}

PyMethodDef methods[] = {
    {"numel", numel, METH_NOARGS, "The number of elements of a tensor with these sizes."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("The sizes of a tensor's axes: a tuple that can tell how many elements there are.\n\n"
                                  ">>> td.ones(2, 3).shape.numel()\n6\n")},
    {Py_mp_subscript, reinterpret_cast<void*>(subscript)},
    {Py_sq_concat, reinterpret_cast<void*>(concatenate)},
    {Py_tp_methods, methods},
    {0, nullptr},
};
PyType_Spec spec = {"tandem.Size", 0, 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyObject* make_size_type() {
  PyObject* bases = PyTuple_Pack(1, &PyTuple_Type);
  if (!bases) return nullptr;
  SizeType = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&spec, bases));
  Py_DECREF(bases);
  return reinterpret_cast<PyObject*>(SizeType);
}

PyObject* new_sizes(Py_ssize_t n) {
  return SizeType->tp_alloc(SizeType, n);
}

}  // namespace tandem
