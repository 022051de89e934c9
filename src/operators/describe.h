// Arguments as Python descriptions, for the parts of the compiler that are written in Python.
#pragma once
#include <Python.h>

#include "operators/signature.h"

namespace tandem {

// New references. ("tensor", dtype, shape, strides, layout class, order or None, requires_grad, device)
PyObject* describe_view(const View& view, bool requires_grad, int device);
PyObject* describe_argument(const Argument& argument);

}  // namespace tandem
