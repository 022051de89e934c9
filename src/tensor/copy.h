// Plain copies between strided views, for exchange with the outside. Operators on tensors use generated kernels
// instead.
#pragma once
#include "tensor/tensor.h"

namespace tandem {

void copy_view(const View& from, const View& to);  // same dtype and shape; must not overlap
Tensor* copy_contiguous(const Tensor* tensor);     // new reference; same values in memory of its own

}  // namespace tandem
