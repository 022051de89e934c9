#include "library/gemm.h"

#include <algorithm>
#include <atomic>

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

// Goto's scheme: b is packed for all threads, in slices of kDepth rows whose panels fit the L1 cache. A task takes some
// rows of a and columns of b through all slices, so that its part of c stays in its L2 cache, and packs the rows of a
// for each.
template <typename T>
void blocked_product(const Product<T>& p) {
  const GemmKernels<T>& kernel = gemm_kernels<T>();
  constexpr int64_t kDepth = 1536 / sizeof(T);
  constexpr int64_t kPackedBytes = 8 << 20;  // of b, shared in the L3 cache
  const int64_t slices = (p.k + kDepth - 1) / kDepth, depth = round_up((p.k + slices - 1) / slices, 8);
  const int64_t columns = std::min(round_up(p.n, kernel.nr),
                                   std::max<int64_t>(kPackedBytes / (p.k * sizeof(T)), 256) / kernel.nr * kernel.nr);
  const int threads = in_parallel() ? 1 : num_threads();

  const Scratch<T> packed_b(columns * p.k);
  for (int64_t j = 0; j < p.n; j += columns) {
    const int64_t n = std::min(columns, p.n - j), panels = (n + kernel.nr - 1) / kernel.nr, padded = panels * kernel.nr;
    const auto slice = [&](int64_t q, int64_t first) {  // of panels from column `first` on
      return packed_b.data() + q * padded + first * std::min(depth, p.k - q);
    };
    const auto pack_columns = [&](int64_t first, int64_t last, int64_t q) {
      kernel.pack(last - first, std::min(depth, p.k - q), kernel.nr,
                  {p.b.data + q * p.b.row + (j + first) * p.b.column, p.b.column, p.b.row}, slice(q, first));
    };
    parallel_for(panels, kernel.nr * p.k * 0.3, [&](int64_t begin, int64_t end) {
      // b is read the way it lies in memory.
      const int64_t all = (end - begin) * kernel.nr, step = p.b.row == 1 ? kernel.nr : all;
      for (int64_t first = begin * kernel.nr, stop = std::min(first + all, n); first < stop; first += step)
        for (int64_t q = 0; q < p.k; q += depth) pack_columns(first, std::min(first + step, stop), q);
    });

    // About 16 tasks a thread if there is that much, of not too few rows: each of them packs its rows.
    const int64_t wanted = threads == 1 ? 1 : 16 * threads;
    const int64_t least = std::clamp<int64_t>(p.m / wanted, 48, sizeof(T) == 8 ? 48 : 96);
    const int64_t row_blocks = (p.m + least - 1) / least,
                  rows = round_up((p.m + row_blocks - 1) / row_blocks, kernel.mr);
    const int64_t splits = std::clamp<int64_t>(wanted / row_blocks, 1, std::max<int64_t>(n / 256, 1));
    const int64_t part = round_up((n + splits - 1) / splits, kernel.nr), parts = (n + part - 1) / part;
    const auto run = [&](int64_t task, T* packed_a) {
      const int64_t i = task / parts * rows, m = std::min(rows, p.m - i);
      const int64_t first = task % parts * part, width = std::min(part, n - first);
      if (m <= 0) return;
      const Matrix<T> c{p.c.data + i * p.c.row + (j + first) * p.c.column, p.c.row, p.c.column};
      for (int64_t q = 0; q < p.k; q += depth) {
        const int64_t k = std::min(depth, p.k - q);
        kernel.pack(m, k, kernel.mr, {p.a.data + i * p.a.row + q * p.a.column, p.a.row, p.a.column}, packed_a);
        kernel.product(m, width, k, packed_a, slice(q, first), c, q > 0 || p.accumulate,
                       p.bias ? p.bias + j + first : nullptr);
      }
    };
    // Single tasks on demand, because they are few and long.
    std::atomic<int64_t> next{0};
    const int64_t tasks = row_blocks * parts;
    parallel_for(threads, 0.02 * sizeof(T) / 4 * p.m * n * p.k / threads, [&](int64_t, int64_t) {
      const Scratch<T> packed_a(round_up(rows, kernel.mr) * depth);
      for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) run(task, packed_a.data());
    });
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
  // Working memory grows with k, so a long sum is made of several.
  constexpr int64_t kLongest = 8192;
  Product<T> part = p;
  for (int64_t q = 0; q < p.k; q += kLongest) {
    part.k = std::min(kLongest, p.k - q);
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
