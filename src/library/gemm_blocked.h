// Products of matrices that are worth packing.
#pragma once
#include "library/gemm.h"

namespace tandem::library {

// Needs p.k > 0. Working memory grows with k.
template <typename T>
void blocked_product(const Product<T>& p);

}  // namespace tandem::library
