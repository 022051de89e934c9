#include "library/gemm.h"

#include <algorithm>

#include "device/parallel.h"
#include "library/scratch.h"

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

// Returns false where the layout asks for packing on the heap.
template <typename T>
bool small_product(const Product<T>& p) {
  if (p.c.column != 1 && p.n > 1) return false;
  const GemmKernels<T>& kernel = gemm_kernels<T>();
  if (p.b.column == 1 || p.n == 1) {
    kernel.small(p.m, p.n, p.k, p.a, p.b, p.c, p.bias);
    return true;
  }
  if (p.k * p.n <= kStackElements && p.m > 2) {
    T packed[kStackElements];
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

int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Goto's scheme: a slice of b (kDepth x columns) is packed once for all threads; each task packs a block of a that
// stays in its L2 cache and multiplies the two tile by tile.
template <typename T>
void blocked_product(const Product<T>& p) {
  const GemmKernels<T>& kernel = gemm_kernels<T>();
  constexpr int64_t kDepth = 256;
  const int64_t rows = round_up(std::min<int64_t>(p.m, sizeof(T) == 8 ? 96 : 144), kernel.mr);
  const int64_t columns = round_up(std::min<int64_t>(p.n, (4 << 20) / (kDepth * sizeof(T))), kernel.nr);
  const int64_t depth = std::min(p.k, kDepth);
  const double mac = 0.06 * sizeof(T) / 4;  // nanoseconds

  const Scratch<T> packed_b(columns * depth);
  for (int64_t j = 0; j < p.n; j += columns) {
    const int64_t n = std::min(columns, p.n - j);
    for (int64_t q = 0; q < p.k; q += depth) {
      const int64_t k = std::min(depth, p.k - q);
      const Matrix<const T> b{p.b.data + q * p.b.row + j * p.b.column, p.b.column,
                              p.b.row};  // rows of the panel run along n
      parallel_for((n + kernel.nr - 1) / kernel.nr, kernel.nr * k * 1.0, [&](int64_t begin, int64_t end) {
        const int64_t first = begin * kernel.nr, last = std::min(end * kernel.nr, n);
        kernel.pack(last - first, k, kernel.nr, {b.data + first * b.row, b.row, b.column}, packed_b.data() + first * k);
      });

      // Few blocks of rows: also split the columns, so that every thread has some.
      const int64_t row_blocks = (p.m + rows - 1) / rows;
      const int64_t splits = std::clamp<int64_t>(4 * num_threads() / row_blocks, 1, (n + kernel.nr - 1) / kernel.nr);
      const int64_t part = round_up((n + splits - 1) / splits, kernel.nr);
      const int64_t parts = (n + part - 1) / part;
      parallel_for(row_blocks * parts, rows * part * k * mac, [&](int64_t begin, int64_t end) {
        const Scratch<T> packed_a(rows * k);
        int64_t packed_block = -1;
        for (int64_t task = begin; task < end; ++task) {
          const int64_t block = task / parts, i = block * rows, m = std::min(rows, p.m - i);
          const int64_t first = task % parts * part, width = std::min(part, n - first);
          if (block != packed_block)
            kernel.pack(m, k, kernel.mr, {p.a.data + i * p.a.row + q * p.a.column, p.a.row, p.a.column},
                        packed_a.data());
          packed_block = block;
          const Matrix<T> c{p.c.data + i * p.c.row + (j + first) * p.c.column, p.c.row, p.c.column};
          kernel.product(m, width, k, packed_a.data(), packed_b.data() + first * k, c, q > 0 || p.accumulate,
                         p.bias ? p.bias + j + first : nullptr);
        }
      });
    }
  }
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
  blocked_product(p);
}

template void gemm(const Product<float>&);
template void gemm(const Product<double>&);
template void gemm(const Product<uint32_t>&);
template void gemm(const Product<uint64_t>&);

}  // namespace tandem::library
