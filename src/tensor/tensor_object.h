// What the Python type needs from tensor.cc: the life-cycle slots.
#pragma once
#include <Python.h>

namespace tandem {

void dealloc_tensor(PyObject* self);
int traverse_tensor(PyObject* self, visitproc visit, void* arg);
int clear_tensor(PyObject* self);

}  // namespace tandem
