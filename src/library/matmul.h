// Batched matrix products over strided views.
#pragma once
#include "library/registry.h"

namespace tandem::library {

// c = a b (+ bias along the last axis): a (batch..., m, k), b (batch..., k, n), c (batch..., m, n), any strides.
void matmul(const View& a, const View& b, const View& c, const View* bias);

}  // namespace tandem::library
