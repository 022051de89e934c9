// NumPy, reached through its Python objects: no headers, so one build serves every version.
#pragma once
#include <Python.h>

#include "tensor/tensor.h"

namespace tandem {

bool is_numpy_array(PyObject* object);
bool is_numpy_value(PyObject* object);  // an array or a scalar (np.float32(1.0))

Tensor* tensor_from_numpy(PyObject* array);         // new reference; shares memory
PyObject* numpy_from_tensor(const Tensor* tensor);  // new reference; shares memory
Tensor* tensor_from_buffer(PyObject* object);       // new reference; shares memory (buffer.cc)

// Throws for a tensor that takes part in differentiation: an export would silently leave it (tensor_methods.cc).
void refuse_recorded(const Tensor* tensor, const char* who);

}  // namespace tandem
