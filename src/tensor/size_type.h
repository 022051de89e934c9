// tandem.Size: the tuple that x.shape is, with PyTorch's numel(). Slices and sums of sizes are sizes.
#pragma once
#include <Python.h>

namespace tandem {

extern PyTypeObject* SizeType;  // made once, by make_size_type

// Sizes are tuples by value wherever a tuple is meant.
inline bool is_plain_tuple(PyObject* o) {
  return PyTuple_CheckExact(o) || Py_TYPE(o) == SizeType;
}

PyObject* make_size_type();         // borrowed; null with a Python error
PyObject* new_sizes(Py_ssize_t n);  // a new reference to n sizes that are still to be set, or null
}  // namespace tandem
