// x[key] for keys of plain ints, slices, None and ..., where no gradient is recorded: a view, made without a plan.
#pragma once
#include <Python.h>

#include "tensor/tensor.h"

namespace tandem {

// A new reference, or null without an exception for every other case: errors, index tensors, recording, capturing.
Tensor* basic_view(Tensor* x, PyObject* key);

// Views of equal parts along an axis, the last of which may be smaller: a tuple, or null as above.
PyObject* chunk_views(Tensor* x, int64_t chunks, int64_t axis);

// x[key] by the operator, for keys of ints, slices, None and an ellipsis: what is captured or recorded. Null where the
// key has anything else, or, with an exception set, where the operator fails.
PyObject* index_basic(Tensor* x, PyObject* key);

}  // namespace tandem
