// Products of matrices that are worth packing.
#pragma once
#include "library/gemm.h"

namespace tandem::library {

constexpr int64_t kLongestProduct = 8192;  // working memory grows with k

// Needs p.k > 0.
template <typename T>
void blocked_product(const Product<T>& p);

// Bytes of Scratch that the calling thread takes for it.
template <typename T>
size_t blocked_scratch(int64_t m, int64_t n, int64_t k);

}  // namespace tandem::library
