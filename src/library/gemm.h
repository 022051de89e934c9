// Matrix products of our own, for every size that a library does not serve better.
#pragma once
#include "library/epilogue.h"
#include "library/kernels/kernels.h"

namespace tandem::library {

template <typename T>
class PackedRight;  // library/gemm_blocked.h

template <typename T>
struct Product {  // c (m, n) = a (m, k) b (k, n), plus c or bias (n) where asked for; any strides
  int64_t m, n, k;
  Matrix<const T> a, b;
  Matrix<T> c;
  const T* bias = nullptr;  // contiguous
  bool accumulate = false;
  // Only blocked_product knows these.
  const Epilogue* epilogue = nullptr;      // c has no memory unless it keeps it
  const PackedRight<T>* packed = nullptr;  // b, in the order that it is read in; b itself may be missing then
};

template <typename T>
const GemmKernels<T>& gemm_kernels();

// Where its product is small the call costs tens of nanoseconds. Larger ones use threads, unless called in a parallel
// piece.
template <typename T>
void gemm(const Product<T>& product);

// Whether a product is best done in one go, without packing or threads. A thin one counts as small for less work,
// because its time goes into reading the matrix.
inline bool is_small(int64_t m, int64_t n, int64_t k) {
  const int64_t work = m * n * k;
  return work <= 32 * 32 * 32 || (work <= 64 * 64 * 64 && m >= 16 && n >= 16 && k >= 16);
}

}  // namespace tandem::library
