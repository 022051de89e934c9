// x[key] for keys of plain ints, slices, None and ..., where no gradient is recorded: a view, made without a plan.
#pragma once
#include <Python.h>

#include "tensor/tensor.h"

namespace tandem {

// A new reference, or null without an exception for every other case: errors, index tensors, recording, capturing.
Tensor* basic_view(Tensor* x, PyObject* key);

}  // namespace tandem
