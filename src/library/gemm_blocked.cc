// Goto's scheme: slices along k, in which panels of b stay in the L1 cache and a block of rows of a in the L2 cache
// while register tiles of c are computed. Both are packed in the order they are read in. What has to come from further
// away is asked for while tiles before it are computed (Ahead), because a tile takes longer than any memory access.
//
// Slices depend on the sizes alone, so results do not depend on the number of threads.
#include "library/gemm_blocked.h"

#include <algorithm>
#include <atomic>

#include "device/parallel.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

constexpr int64_t kDeepest = 1536;          // bytes of a row of a slice: a panel of b then leaves room in the L1 cache
constexpr int64_t kBlockBytes = 288 << 10;  // of a in the L2 cache
constexpr int64_t kFewRows = 288;

int64_t divide_up(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}
int64_t round_up(int64_t n, int64_t multiple) {
  return divide_up(n, multiple) * multiple;
}

int64_t even_depth(int64_t k, int64_t most) {
  return round_up(divide_up(k, divide_up(k, most)), 8);
}

template <typename T>
double nanoseconds(int64_t m, int64_t n, int64_t k) {
  return 0.02 * sizeof(T) / 4 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// A part of a matrix, of `rows` by `columns` elements; nothing where the part fills no cache lines.
template <typename T>
Ahead lines_of(const Matrix<const T>& x, int64_t rows, int64_t columns) {
  if (x.column != 1 && x.row != 1) return {};
  const bool along = x.column == 1;
  const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data) % 64);
  const int64_t bytes = static_cast<int64_t>((along ? columns : rows) * sizeof(T)) + misaligned;
  const int64_t lines = divide_up(bytes, 64), others = along ? rows : columns;
  const int64_t apart = static_cast<int64_t>((along ? x.row : x.column) * sizeof(T));
  const char* data = reinterpret_cast<const char*>(x.data) - misaligned;
  if (lines < others) return {data, others, apart, lines, 64};
  return {data, lines, 64, others, apart};
}

// What the epilogue of a block of c will read and write, to be asked for while the block is computed.
template <typename T>
Asks asks_of(const Product<T>& p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  Asks asks;
  if (!p.epilogue || sizeof(T) != 4) return asks;
  const Epilogue& e = *p.epilogue;
  for (int i = 0; i < e.num_alike && asks.count < Asks::kMost; ++i) {
    const T* data = static_cast<const T*>(e.pointers[e.alike[i]]) + row * p.n + column;
    asks.parts[asks.count++] = lines_of(Matrix<const T>{data, p.n, 1}, rows, columns);
  }
  return asks;
}

constexpr int64_t kPanels = 16;  // of few_rows at a time, so that c stays near between slices
constexpr int64_t kStrip = 64;   // columns of many_rows that an epilogue gets at a time

template <typename T>
int64_t depth_of_few(int64_t m, int64_t k) {
  const int64_t padded = round_up(m, gemm_kernels<T>().mr);
  return even_depth(k, std::min<int64_t>(kDeepest, kBlockBytes / padded) / sizeof(T));
}

// Few rows: all of a is packed first. A task takes columns of b, and packs a panel right before it is used, which saves
// writing and reading a packed copy of b through the memory.
template <typename T>
void few_rows(const Product<T>& p) {
  const GemmKernels<T>& kernel = gemm_kernels<T>();
  const int64_t mr = kernel.mr, nr = kernel.nr, padded = round_up(p.m, mr), tiles = padded / mr;
  const int64_t depth = depth_of_few<T>(p.m, p.k);
  const bool apart = p.epilogue && !p.epilogue->keeps;

  const Scratch<T> packed_a(padded * p.k);
  parallel_for(tiles, 0.3 * static_cast<double>(mr * p.k), [&](int64_t begin, int64_t end) {
    const int64_t i = begin * mr, m = std::min(end * mr, p.m) - i;
    for (int64_t q = 0; q < p.k; q += depth) {
      const int64_t k = std::min(depth, p.k - q);
      kernel.pack(m, k, kernel.mr, {p.a.data + i * p.a.row + q * p.a.column, p.a.row, p.a.column},
                  packed_a.data() + q * padded + i * k);
    }
  });

  const int64_t panels = divide_up(p.n, nr);
  parallel_for(panels, nanoseconds<T>(p.m, nr, p.k), [&](int64_t begin, int64_t end) {
    const Scratch<T> packed_b(nr * depth);
    const Scratch<T> block(apart ? p.m * kPanels * nr : 0);
    const auto panel_of_b = [&](int64_t panel, int64_t q) {
      return Matrix<const T>{p.b.data + q * p.b.row + panel * nr * p.b.column, p.b.row, p.b.column};
    };
    for (int64_t first = begin; first < end; first += kPanels) {
      const int64_t last = std::min(first + kPanels, end), stop = std::min(last * nr, p.n);
      const Matrix<T> c = apart ? Matrix<T>{block.data(), kPanels * nr, 1}
                                : Matrix<T>{p.c.data + first * nr * p.c.column, p.c.row, p.c.column};
      Asks asks = asks_of(p, 0, p.m, first * nr, stop - first * nr);
      for (int64_t q = 0; q < p.k; q += depth) {
        const int64_t k = std::min(depth, p.k - q);
        for (int64_t panel = first; panel < last; ++panel) {
          const int64_t j = panel * nr, n = std::min(nr, p.n - j);
          const Matrix<const T> b = panel_of_b(panel, q);
          kernel.pack(n, k, kernel.nr, {b.data, b.column, b.row}, packed_b.data());
          const Matrix<const T> next = panel + 1 < last  ? panel_of_b(panel + 1, q)
                                       : q + depth < p.k ? panel_of_b(first, q + depth)
                                                         : panel_of_b(last, 0);
          Ahead ahead = lines_of(next, k, nr);
          if (q + depth >= p.k) ahead.more = &asks;
          kernel.product(p.m, n, k, packed_a.data() + q * padded, packed_b.data(),
                         {c.data + (j - first * nr) * c.column, c.row, c.column}, q > 0 || p.accumulate,
                         p.bias ? p.bias + j : nullptr, ahead);
        }
      }
      if (p.epilogue) p.epilogue->run(0, p.m, first * nr, stop, reinterpret_cast<char*>(c.data), c.row, sizeof(T));
    }
  });
}

// b is packed for all threads, as many columns of it as the L3 cache holds. A task takes some rows of a and columns of
// b through all slices, so that its part of c stays in its L2 cache, and packs the rows of a for each.
template <typename T>
struct ManyRows {
  int64_t depth, columns;  // of a slice, and of b that are packed at a time

  explicit ManyRows(int64_t n, int64_t k) {
    constexpr int64_t kPackedBytes = 8 << 20;
    const int64_t nr = gemm_kernels<T>().nr;
    depth = even_depth(k, kDeepest / sizeof(T));
    columns =
        std::min(round_up(n, nr), std::max<int64_t>(kPackedBytes / static_cast<int64_t>(k * sizeof(T)), 256) / nr * nr);
  }
};

// A block of c that one task computes.
struct Block {
  int64_t row, rows, column, columns;
};

template <typename T>
void many_rows(const Product<T>& p) {
  const GemmKernels<T>& kernel = gemm_kernels<T>();
  const int64_t mr = kernel.mr, nr = kernel.nr;
  const auto [depth, columns] = ManyRows<T>(p.n, p.k);
  const int threads = in_parallel() ? 1 : num_threads();
  const bool apart = p.epilogue && !p.epilogue->keeps, one_slice = p.k <= depth;
  // What an epilogue reads shares the L2 cache with a.
  const int64_t block_bytes = p.epilogue && p.epilogue->num_alike ? kBlockBytes * 5 / 9 : kBlockBytes;

  const Scratch<T> packed_b(columns * p.k);
  for (int64_t j = 0; j < p.n; j += columns) {
    const int64_t n = std::min(columns, p.n - j), panels = divide_up(n, nr), padded = panels * nr;
    const auto slice = [&](int64_t q, int64_t first) {  // of panels from column `first` on
      return packed_b.data() + q * padded + first * std::min(depth, p.k - q);
    };
    const auto pack_columns = [&](int64_t first, int64_t last, int64_t q) {
      kernel.pack(last - first, std::min(depth, p.k - q), kernel.nr,
                  {p.b.data + q * p.b.row + (j + first) * p.b.column, p.b.column, p.b.row}, slice(q, first));
    };
    parallel_for(panels, 0.3 * static_cast<double>(nr * p.k), [&](int64_t begin, int64_t end) {
      // b is read the way it lies in memory.
      const int64_t all = (end - begin) * nr, step = p.b.row == 1 ? nr : all;
      for (int64_t first = begin * nr, stop = std::min(first + all, n); first < stop; first += step)
        for (int64_t q = 0; q < p.k; q += depth) pack_columns(first, std::min(first + step, stop), q);
    });

    // About 8 tasks a thread if there is that much, of not too few rows, which come with all of b, and not too few
    // columns, which come with packing a again.
    constexpr int64_t kFewestRows = 160, kFewestColumns = 512;
    const int64_t wanted = threads == 1 ? 1 : 8 * threads, most_splits = std::max<int64_t>(n / kFewestColumns, 1);
    const int64_t block =
        std::clamp<int64_t>(p.m * most_splits / wanted, kFewestRows,
                            std::max(block_bytes / static_cast<int64_t>(depth * sizeof(T)), kFewestRows));
    const int64_t row_blocks = divide_up(p.m, block), rows = round_up(divide_up(p.m, row_blocks), mr);
    const int64_t splits = std::clamp<int64_t>(divide_up(wanted, row_blocks), 1, most_splits);
    const int64_t part = round_up(divide_up(n, splits), nr), parts = divide_up(n, part), tasks = row_blocks * parts;
    const int64_t pitch = one_slice ? kStrip : part;  // of a block of c that has no other memory

    const auto finish = [&](const Block& at, Matrix<T> c, int64_t q, const T* packed_a) {  // the last slice, in strips
      for (int64_t s = 0; s < at.columns; s += kStrip) {
        const int64_t width = std::min(kStrip, at.columns - s), first = at.column + s;
        Matrix<T> strip = c;
        if (!apart || !one_slice) strip.data += s * c.column;
        Asks asks = asks_of(p, at.row, at.rows, j + first, width);
        Ahead ahead;
        ahead.more = &asks;
        kernel.product(at.rows, width, p.k - q, packed_a, slice(q, first), strip, q > 0 || p.accumulate,
                       p.bias ? p.bias + j + first : nullptr, ahead);
        p.epilogue->run(at.row, at.row + at.rows, j + first, j + first + width, reinterpret_cast<char*>(strip.data),
                        strip.row, sizeof(T));
      }
    };
    const auto run = [&](int64_t task, T* packed_a, T* own_c) {
      const int64_t i = task / parts * rows, first = task % parts * part;
      const Block at{i, std::min(rows, p.m - i), first, std::min(part, n - first)};
      if (at.rows <= 0) return;
      const Matrix<T> c = apart ? Matrix<T>{own_c, pitch, 1}
                                : Matrix<T>{p.c.data + i * p.c.row + (j + first) * p.c.column, p.c.row, p.c.column};
      for (int64_t q = 0; q < p.k; q += depth) {
        const int64_t k = std::min(depth, p.k - q);
        kernel.pack(at.rows, k, kernel.mr, {p.a.data + i * p.a.row + q * p.a.column, p.a.row, p.a.column}, packed_a);
        if (p.epilogue && q + depth >= p.k) return finish(at, c, q, packed_a);
        kernel.product(at.rows, at.columns, k, packed_a, slice(q, first), c, q > 0 || p.accumulate,
                       p.bias ? p.bias + j + first : nullptr, {});
      }
    };
    // Single tasks on demand, because they are few and long.
    std::atomic<int64_t> next{0};
    parallel_for(threads, nanoseconds<T>(p.m, n, p.k) / threads, [&](int64_t, int64_t) {
      const Scratch<T> packed_a(rows * depth), own_c(apart ? rows * pitch : 0);
      for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;)
        run(task, packed_a.data(), own_c.data());
    });
  }
}

}  // namespace

template <typename T>
void blocked_product(const Product<T>& p) {
  if (p.m <= kFewRows)
    few_rows(p);
  else
    many_rows(p);
}

template <typename T>
size_t blocked_scratch(int64_t m, int64_t n, int64_t k) {
  const int64_t nr = gemm_kernels<T>().nr;
  int64_t shared, own;
  if (m <= kFewRows) {
    shared = round_up(m, gemm_kernels<T>().mr) * k;
    own = nr * depth_of_few<T>(m, k) + m * kPanels * nr;
  } else {
    const ManyRows<T> sizes(n, k);
    shared = sizes.columns * k;
    own = kBlockBytes / static_cast<int64_t>(sizeof(T));
  }
  return scratch_bytes(shared * sizeof(T)) + scratch_bytes(own * sizeof(T));
}

template size_t blocked_scratch<float>(int64_t, int64_t, int64_t);
template void blocked_product(const Product<float>&);
template void blocked_product(const Product<double>&);
template void blocked_product(const Product<uint32_t>&);
template void blocked_product(const Product<uint64_t>&);

}  // namespace tandem::library
