#include "library/gemm.h"

#include <algorithm>

#include "device/parallel.h"
#include "library/gemm_blocked.h"

namespace tandem::library {

template <>
const GemmKernels<float>& gemm_kernels<float>() {
  return kernels().f32;
}
template <>
const GemmKernels<double>& gemm_kernels<double>() {
  return kernels().f64;
}
template <>
const GemmKernels<uint32_t>& gemm_kernels<uint32_t>() {
  return kernels().u32;
}
template <>
const GemmKernels<uint64_t>& gemm_kernels<uint64_t>() {
  return kernels().u64;
}

namespace {

template <typename T>
void fill_with_bias(const Product<T>& p) {  // the product over an empty k
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) p.c.data[i * p.c.row + j * p.c.column] = p.bias ? p.bias[j] : T(0);
}

constexpr int64_t kStackElements = 4096;

// Columns of b that lie one after the other in memory, as rows beside each other: packed[q * n + j] = b(q, j).
template <typename T>
void pack_columns(int64_t n, int64_t k, const T* b, int64_t column, T* packed) {
  int64_t whole_n = 0, whole_k = 0;
  if constexpr (sizeof(T) == 4) {
    typedef T Four __attribute__((vector_size(16)));
    typedef T Loose __attribute__((vector_size(16), aligned(alignof(T)), may_alias));  // in memory
    whole_n = n / 4 * 4, whole_k = k / 4 * 4;
    for (int64_t j = 0; j < whole_n; j += 4) {
      for (int64_t q = 0; q < whole_k; q += 4) {
        const T* from = b + j * column + q;
        T* to = packed + q * n + j;
        const auto load = [&](int64_t i) -> Four { return *reinterpret_cast<const Loose*>(from + i * column); };
        const auto store = [&](int64_t i, Four v) { *reinterpret_cast<Loose*>(to + i * n) = v; };
        const Four x0 = load(0), x1 = load(1), x2 = load(2), x3 = load(3);
        const Four low01 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5);
        const Four low23 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
        const Four high01 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
        const Four high23 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
        store(0, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
        store(1, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
        store(2, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
        store(3, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
      }
    }
  }
  for (int64_t j = 0; j < n; ++j)
    for (int64_t q = j < whole_n ? whole_k : 0; q < k; ++q) packed[q * n + j] = b[j * column + q];
}

// Returns false where the layout asks for packing on the heap.
template <typename T>
bool small_product(const Product<T>& p) {
  if (p.c.column != 1 && p.n > 1) return false;
  const GemmKernels<T>& kernel = gemm_kernels<T>();
  constexpr int64_t kManyTerms = 32;  // of one sum: taken by vectors
  if (p.n == 1 && p.k >= kManyTerms && p.b.row == 1 && p.a.column == 1) {
    kernel.dot(p.m, p.n, p.k, p.a, p.b, p.c, p.bias);
    return true;
  }
  if (p.b.column == 1 || p.n == 1) {
    kernel.small(p.m, p.n, p.k, p.a, p.b, p.c, p.bias);
    return true;
  }
  if (p.k * p.n <= kStackElements && p.m > 2) {
    T packed[kStackElements];
    if (p.b.row == 1) {
      pack_columns(p.n, p.k, p.b.data, p.b.column, packed);
      kernel.small(p.m, p.n, p.k, p.a, {packed, p.n, 1}, p.c, p.bias);
      return true;
    }
    for (int64_t j = 0; j < p.n; ++j)
      for (int64_t q = 0; q < p.k; ++q) packed[q * p.n + j] = p.b.data[q * p.b.row + j * p.b.column];
    kernel.small(p.m, p.n, p.k, p.a, {packed, p.n, 1}, p.c, p.bias);
    return true;
  }
  if ((p.b.row == 1 || p.k == 1) && (p.a.column == 1 || p.k == 1)) {
    kernel.dot(p.m, p.n, p.k, p.a, p.b, p.c, p.bias);
    return true;
  }
  return false;
}

// A few rows against a large matrix: the time goes into reading the matrix once, which packing would triple.
template <typename T>
bool thin_product(const Product<T>& p) {
  if (p.m > 4 || p.accumulate) return false;
  const GemmKernels<T>& kernel = gemm_kernels<T>();
  const bool along_rows = p.b.column == 1 && p.c.column == 1, along_columns = p.b.row == 1 && p.a.column == 1;
  if (!along_rows && !along_columns) return false;
  constexpr int64_t kColumns = 64;
  parallel_for((p.n + kColumns - 1) / kColumns, kColumns * p.k * sizeof(T) * 0.1, [&](int64_t begin, int64_t end) {
    const int64_t j = begin * kColumns, n = std::min(end * kColumns, p.n) - j;
    const Matrix<const T> b{p.b.data + j * p.b.column, p.b.row, p.b.column};
    const Matrix<T> c{p.c.data + j * p.c.column, p.c.row, p.c.column};
    (along_rows ? kernel.thin : kernel.dot)(p.m, n, p.k, p.a, b, c, p.bias ? p.bias + j : nullptr);
  });
  return true;
}

}  // namespace

template <typename T>
void gemm(const Product<T>& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return p.accumulate ? void() : fill_with_bias(p);
  if (!p.accumulate && is_small(p.m, p.n, p.k) && small_product(p)) return;
  if (thin_product(p)) return;
  // (a b)^T = b^T a^T: to write along the dense axis, and for a few columns to be a few rows.
  const bool few_columns = p.n <= 4 && p.m > 4 && p.a.column == 1 && p.b.row == 1;
  if (!p.bias && ((p.c.column != 1 && p.c.row == 1) || few_columns)) {
    return gemm<T>({p.n,
                    p.m,
                    p.k,
                    {p.b.data, p.b.column, p.b.row},
                    {p.a.data, p.a.column, p.a.row},
                    {p.c.data, p.c.column, p.c.row},
                    nullptr,
                    p.accumulate});
  }
  // Working memory grows with k, so a long sum is made of several.
  Product<T> part = p;
  for (int64_t q = 0; q < p.k; q += kLongestProduct) {
    part.k = std::min(kLongestProduct, p.k - q);
    blocked_product(part);
    part.a.data += part.k * p.a.column, part.b.data += part.k * p.b.row;
    part.accumulate = true, part.bias = nullptr;
  }
}

template void gemm(const Product<float>&);
template void gemm(const Product<double>&);
template void gemm(const Product<uint32_t>&);
template void gemm(const Product<uint64_t>&);

}  // namespace tandem::library
