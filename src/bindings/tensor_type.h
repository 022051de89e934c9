// The parts of the Tensor type, put together in tensor_type.cc.
#pragma once
#include <Python.h>

#include <vector>

namespace tandem {

struct Tensor;

void add_operator_slots(std::vector<PyType_Slot>& slots);           // tensor_operators.cc
extern PyGetSetDef tensor_properties[];                             // tensor_properties.cc
void take_data(Tensor* t, Tensor* source);                          // the same: a leaf gets another one's memory
extern PyMethodDef tensor_methods[];                                // tensor_methods.cc
int get_tensor_buffer(PyObject* self, Py_buffer* view, int flags);  // buffer.cc
void release_tensor_buffer(PyObject* self, Py_buffer* view);

}  // namespace tandem
