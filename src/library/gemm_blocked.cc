// Goto's scheme: slices along k, in which panels of b stay in the L1 cache and a block of rows of a in the L2 cache
// while register tiles of c are computed. Both are packed in the order they are read in, but for rows of a that a tile
// reads as quickly where they lie. What has to come from further away is asked for while tiles before it are computed
// (Ahead), because a tile takes longer than any memory access.
//
// Slices depend on the sizes alone, so results do not depend on the number of threads.
#include "library/gemm_blocked.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <type_traits>
#include <utility>

#include "device/parallel.h"
#include "library/gemm_impl.h"
#include "library/gemm_listed.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

// Bytes of a row of a slice: a panel of b then leaves room in the L1 cache. Slices are added up in c, so that shorter
// ones round less: these have the error of the best libraries, at 1 to 2 % of the time.
constexpr int64_t kDeepest = 768;
constexpr int64_t kBlockBytes = 160 << 10;    // of packed a in the L2 cache, where the next rows come to lie beside it
constexpr int64_t kFewRowsBytes = 400 << 10;  // of a, where nothing but a panel of b is beside it

template <typename T>
double nanoseconds(int64_t m, int64_t n, int64_t k) {
  return 0.02 * sizeof(T) / 4 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// The part of it that one of several has to ask for.
Ahead share_of(const Ahead& all, int64_t index, int64_t count) {
  Ahead part = all;
  const int64_t rows = divide_up(all.rows, count), first = std::min(index * rows, all.rows);
  part.data += first * all.stride;
  part.rows = std::min(rows, all.rows - first);
  return part;
}

constexpr int64_t kPanels = 24;  // of FewRows at a time, so that c stays near between slices
constexpr int64_t kStrip = 64;   // columns of many_rows that an epilogue gets at a time
// Of many_rows, the last of which ask for the rows that come next: early ones would leave the L2 cache again.
constexpr int64_t kLatePanels = 6, kLateStrips = 2;

template <typename T>
int64_t depth_of_few(int64_t m, int64_t k) {
  const int64_t padded = round_up(m, gemm_kernels<T>().mr);
  return even_depth(k, std::min<int64_t>(kDeepest, kFewRowsBytes / padded) / sizeof(T));
}

// Rows of a tile where two whole ones would leave a third of another: they are shared evenly.
template <typename T>
int64_t short_tile() {
  return gemm_kernels<T>().mr * 2 / 3;
}

// A panel of a slice of b: columns from panel * nr on, rows from q on.
struct Panel {
  int64_t panel, q, columns, k;
};

// Few rows: all of a is packed first. A task takes columns of b, and packs a panel right before it is used, which saves
// writing and reading a packed copy of b through the memory.
template <typename T>
class FewRows {
 public:
  explicit FewRows(const Product<T>& p)
      : p_(p),
        padded_(round_up(p.m, kernel_.mr)),
        whole_(p.m % kernel_.mr == kernel_.mr / 3 && p.m > kernel_.mr ? p.m - 2 * short_tile<T>() : p.m),
        depth_(p.packed ? p.packed->depth() : depth_of_few<T>(p.m, p.k)),
        packed_a_(padded_ * p.k) {
    parallel_for(padded_ / kernel_.mr, 0.3 * static_cast<double>(kernel_.mr * p.k), [&](int64_t begin, int64_t end) {
      const int64_t first = first_row(begin), whole = std::min(first_row(end), whole_) - first;
      if (whole > 0) pack_rows(first, whole);
      for (int64_t row = std::max(first, whole_); row < first_row(end); row += short_tile<T>())
        pack_rows(row, short_tile<T>());
    });
  }

  void run() {
    const int64_t panels = divide_up(p_.n, kernel_.nr);
    const int threads = in_parallel() ? 1 : num_threads();
    // Long pieces first: each goes through all of a. Short ones at the end, for threads to end together.
    std::atomic<int64_t> next{0};
    parallel_for(threads, nanoseconds<T>(p_.m, p_.n, p_.k) / threads, [&](int64_t, int64_t) {
      const Scratch<T> packed_b(p_.packed ? 0 : 2 * kernel_.nr * depth_),
          block(apart() ? p_.m * kPanels * kernel_.nr : 0);
      for (int64_t begin = next.load(std::memory_order_relaxed); begin < panels;) {
        const int64_t rest = panels - begin;
        const int64_t count = threads == 1 ? rest : std::min(rest, std::max<int64_t>(rest / (2 * threads), 1));
        if (!next.compare_exchange_weak(begin, begin + count, std::memory_order_relaxed)) continue;
        for (int64_t first = begin; first < begin + count; first += kPanels)
          some(first, std::min(first + kPanels, begin + count), packed_b.data(), block.data());
        begin = next.load(std::memory_order_relaxed);
      }
    });
  }

 private:
  bool apart() const { return p_.epilogue && !p_.epilogue->keeps; }  // c has no other memory

  // Where rows of a lie once they are packed: panels of mr, of which the last two may hold fewer.
  int64_t first_row(int64_t tile) const {
    const int64_t row = tile * kernel_.mr;
    return row <= whole_ ? row : std::min(whole_ + (row - whole_) / kernel_.mr * short_tile<T>(), p_.m);
  }
  int64_t place(int64_t row) const {
    return row <= whole_ ? row : whole_ + (row - whole_) / short_tile<T>() * kernel_.mr;
  }
  void pack_rows(int64_t row, int64_t rows) const {
    for (int64_t q = 0; q < p_.k; q += depth_) {
      const int64_t k = std::min(depth_, p_.k - q);
      kernel_.pack(rows, k, kernel_.mr, {p_.a.data + row * p_.a.row + q * p_.a.column, p_.a.row, p_.a.column},
                   packed_a_.data() + q * padded_ + place(row) * k);
    }
  }

  Matrix<const T> rows_of(const Panel& at, int64_t row) const {
    return {p_.b.data + (at.q + row) * p_.b.row + at.panel * kernel_.nr * p_.b.column, p_.b.row, p_.b.column};
  }
  void pack(const Panel& at, int64_t row, int64_t rows, T* to) const {
    const Matrix<const T> b = rows_of(at, row);
    kernel_.pack(at.columns, rows, kernel_.nr, {b.data, b.column, b.row}, to + row * kernel_.nr);
  }

  void some(int64_t first, int64_t last, T* packed_b, T* block) const {
    const int64_t nr = kernel_.nr, stop = std::min(last * nr, p_.n);
    const Matrix<T> c = apart() ? Matrix<T>{block, kPanels * nr, 1}
                                : Matrix<T>{p_.c.data + first * nr * p_.c.column, p_.c.row, p_.c.column};
    Asks asks = asks_of(p_, 0, p_.m, first * nr, stop - first * nr);
    const auto panel_at = [&](int64_t panel, int64_t q) {
      return Panel{panel, q, std::min(nr, p_.n - panel * nr), std::min(depth_, p_.k - q)};
    };
    // Rows of b that lie a multiple of 2 KB apart share so few sets of the caches that a panel asked for at once pushes
    // itself out again. It is asked for and packed in parts, between rows of tiles.
    const bool in_parts = !p_.packed && p_.b.column == 1 && p_.b.row * static_cast<int64_t>(sizeof(T)) % 2048 == 0;
    T *own = packed_b, *others = p_.packed ? nullptr : packed_b + nr * depth_;
    if (in_parts) pack(panel_at(first, 0), 0, std::min(depth_, p_.k), own);
    for (int64_t q = 0; q < p_.k; q += depth_) {
      const int64_t rest = std::min(depth_, p_.k - q - depth_);
      const T* next_slice = packed_a_.data() + (q + depth_) * padded_;
      Asks slice;  // the next one of a, asked for by the last panels
      if (rest > 0) slice.add(lines_of(Matrix<const T>{next_slice, padded_ * rest, 1}, 1, padded_ * rest));
      for (int64_t panel = first; panel < last; ++panel) {
        const Panel at = panel_at(panel, q);
        const Matrix<T> to{c.data + (panel - first) * nr * c.column, c.row, c.column};
        Asks* more = rest <= 0 ? &asks : panel + kLastPanels >= last ? &slice : nullptr;
        const bool is_last = panel + 1 == last && rest <= 0;
        const Panel next = panel + 1 < last ? panel_at(panel + 1, q)
                           : rest > 0       ? panel_at(first, q + depth_)
                                            : Panel{last, 0, 0, at.k};
        if (p_.packed) {
          Ahead ahead;  // panels follow one another, which the hardware sees
          ahead.more = more;
          multiply(at, 0, p_.m, p_.packed->panel(panel, q), to, ahead);
        } else if (in_parts) {
          between(at, is_last ? nullptr : &next, own, others, to, more);
          std::swap(own, others);
        } else {
          pack(at, 0, at.k, own);
          Ahead ahead = lines_of(rows_of(next, 0), next.k, nr);
          ahead.more = more;
          multiply(at, 0, p_.m, own, to, ahead);
        }
      }
    }
    if (p_.epilogue) p_.epilogue->run(0, p_.m, first * nr, stop, reinterpret_cast<char*>(c.data), c.row, sizeof(T));
  }

  void multiply(const Panel& at, int64_t row, int64_t rows, const T* packed_b, Matrix<T> c, const Ahead& ahead) const {
    const auto tiles = [&](int64_t i, int64_t m, const Ahead& asked) {
      kernel_.product(m, at.columns, at.k, packed_a_.data() + at.q * padded_ + place(i) * at.k, packed_b,
                      {c.data + i * c.row, c.row, c.column}, at.q > 0 || p_.accumulate,
                      p_.bias ? p_.bias + at.panel * kernel_.nr : nullptr, asked);
    };
    const int64_t whole = std::min(rows, whole_ - row);
    if (whole > 0) tiles(row, whole, ahead);
    Ahead rest;
    rest.more = ahead.more;
    for (int64_t i = row + whole; i < row + rows; i += short_tile<T>()) tiles(i, short_tile<T>(), rest);
  }

  // The product of a panel, and between rows of it parts of the next one are packed.
  void between(const Panel& at, const Panel* next, const T* own, T* others, Matrix<T> c, Asks* more) const {
    constexpr int64_t kRows = 48;
    const int64_t parts = std::max<int64_t>(divide_up(whole_, kRows), 1), step = next ? divide_up(next->k, parts) : 0;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t row = part * kRows, begin = part * step, end = next ? std::min(begin + step, next->k) : 0;
      Ahead ahead;
      if (begin < end && end < next->k)  // what is packed after the next rows
        ahead = lines_of(rows_of(*next, end), std::min(step, next->k - end), kernel_.nr);
      ahead.more = more;
      multiply(at, row, part + 1 < parts ? kRows : p_.m - row, own, c, ahead);
      if (begin < end) pack(*next, begin, end - begin, others);
    }
  }

  static constexpr int64_t kLastPanels = 4;
  const Product<T>& p_;
  const GemmKernels<T>& kernel_ = gemm_kernels<T>();
  const int64_t padded_, whole_, depth_;  // whole_: rows before those in short tiles
  const Scratch<T> packed_a_;
};

// b is packed for all threads, as many columns of it as the L3 cache holds. A task takes some rows of a and columns of
// b through all slices, so that its part of c stays in its L2 cache, and packs the rows of a for each, unless tiles
// read them as they lie. The rows that are read next are asked for along with the tiles: a large a is read from memory
// once, and nobody waits for it.
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
  // Where there is little to compute, what an epilogue reads is read along long rows.
  const bool streams = p.epilogue && p.epilogue->num_alike && p.k < 64;
  const int64_t strip_width = streams ? 16 * kStrip : kStrip;

  // Tiles may read rows of a from the L2 cache as they lie, unless these share few sets of the L1 cache, where a panel
  // of b lies, too, or begin anywhere in cache lines, not all of which are asked for then. Packed rows are read a
  // little quicker, by less than packing costs.
  const int64_t row_bytes = p.a.row * static_cast<int64_t>(sizeof(T));
  const bool in_place = kernel.in_place && p.a.column == 1 && row_bytes % 64 == 0 && row_bytes % 2048 != 0;

  const Scratch<T> packed_b(columns * p.k);
  for (int64_t j = 0; j < p.n; j += columns) {
    const int64_t n = std::min(columns, p.n - j), panels = divide_up(n, nr), padded = panels * nr;
    const auto slice = [&](int64_t q, int64_t first) {  // of panels from column `first` on
      return packed_b.data() + q * padded + first * std::min(depth, p.k - q);
    };
    const auto columns_of_b = [&](int64_t first, int64_t q) {
      return Matrix<const T>{p.b.data + q * p.b.row + (j + first) * p.b.column, p.b.row, p.b.column};
    };
    const auto pack_columns = [&](int64_t first, int64_t last, int64_t q) {
      const Matrix<const T> b = columns_of_b(first, q);
      kernel.pack(last - first, std::min(depth, p.k - q), kernel.nr, {b.data, b.column, b.row}, slice(q, first));
    };

    // About 8 tasks a thread if there is that much, of not too few rows, which come with all of b, and not too few
    // columns, which come with packing a again.
    constexpr int64_t kFewestRows = 72, kFewestColumns = 512, kStreamedRows = 24, kUnit = 128;
    const int64_t wanted = threads == 1 ? 1 : 8 * threads, most_splits = std::max<int64_t>(n / kFewestColumns, 1);
    const int64_t block =
        std::clamp<int64_t>(p.m * most_splits / wanted, kFewestRows,
                            std::max(kBlockBytes / static_cast<int64_t>(depth * sizeof(T)), kFewestRows));
    const int64_t row_blocks = divide_up(p.m, streams ? kStreamedRows : block),
                  rows = round_up(divide_up(p.m, row_blocks), mr);
    const int64_t splits = std::clamp<int64_t>(divide_up(wanted, row_blocks), 1, most_splits);
    const int64_t part = round_up(divide_up(n, splits), nr), parts = divide_up(n, part), tasks = row_blocks * parts;
    const int64_t unit = streams ? part : std::min(part, round_up(kUnit, nr)), units = divide_up(part, unit);
    const int64_t pitch = one_slice ? strip_width : part;  // of a block of c that has no other memory

    const auto rows_of = [&](int64_t task, int64_t q) {
      const int64_t i = std::min(task / parts * rows, p.m);
      return lines_of(Matrix<const T>{p.a.data + i * p.a.row + q * p.a.column, p.a.row, p.a.column},
                      std::min(rows, p.m - i), std::min(depth, p.k - q));
    };
    // Columns [first, first + width) of a block and a slice; where it packs b, panel by panel, and the next one is
    // asked for.
    const auto multiply = [&](const Block& at, int64_t first, int64_t width, int64_t q, const LeftRows<T>& left,
                              Matrix<T> c, Asks* more, bool packs) {
      const int64_t k = std::min(depth, p.k - q), step = packs ? nr : width, end = at.column + at.columns;
      for (int64_t s = 0; s < width; s += step) {
        const int64_t column = first + s, count = std::min(step, width - s);
        Ahead ahead;
        if (packs) {
          pack_columns(column, column + count, q);
          const bool again = column + nr >= end && q + depth < p.k;  // the next slice of the same panels
          const int64_t next = again ? at.column : column + nr, row = again ? q + depth : column + nr < end ? q : 0;
          if (next < n) ahead = lines_of(columns_of_b(next, row), std::min(depth, p.k - row), std::min(nr, n - next));
        } else if (first + width < end) {
          ahead = lines_of(Matrix<const T>{slice(q, first + width), k * nr, 1}, 1, k * nr);
        }
        ahead.more = more;
        kernel.product(at.rows, count, k, left, slice(q, column), {c.data + s * c.column, c.row, c.column},
                       q > 0 || p.accumulate, p.bias ? p.bias + j + column : nullptr, ahead);
      }
    };
    const auto finish = [&](const Block& at, Matrix<T> c, int64_t q, const LeftRows<T>& left, const Ahead& next_rows,
                            bool packs) {  // the last slice, in strips
      for (int64_t s = 0; s < at.columns; s += strip_width) {
        const int64_t width = std::min(strip_width, at.columns - s), first = at.column + s;
        Matrix<T> strip = c;
        if (!apart || !one_slice) strip.data += s * c.column;
        Asks asks = asks_of(p, at.row, at.rows, j + first, width);
        const int64_t strips = divide_up(at.columns, strip_width), late = std::min<int64_t>(strips, kLateStrips);
        if (s / strip_width >= strips - late) asks.add(share_of(next_rows, s / strip_width - (strips - late), late));
        multiply(at, first, width, q, left, strip, &asks, packs);
        p.epilogue->run(at.row, at.row + at.rows, j + first, j + first + width, reinterpret_cast<char*>(strip.data),
                        strip.row, sizeof(T));
      }
    };
    const auto run = [&](const Block& at, int64_t task, int64_t following, T* packed_a, T* own_c, bool packs) {
      if (at.rows <= 0 || at.columns <= 0) return;
      const Matrix<T> c =
          apart ? Matrix<T>{own_c, pitch, 1}
                : Matrix<T>{p.c.data + at.row * p.c.row + (j + at.column) * p.c.column, p.c.row, p.c.column};
      for (int64_t q = 0; q < p.k; q += depth) {
        const int64_t k = std::min(depth, p.k - q);
        const T* first_row = p.a.data + at.row * p.a.row + q * p.a.column;
        const int64_t whole = in_place ? at.rows / mr * mr : 0;
        if (whole < at.rows)
          kernel.pack(at.rows - whole, k, kernel.mr, {first_row + whole * p.a.row, p.a.row, p.a.column}, packed_a);
        const LeftRows<T> left = in_place ? LeftRows<T>(first_row, p.a.row, packed_a) : LeftRows<T>(packed_a);
        const Ahead next_rows = q + depth < p.k ? rows_of(task, q + depth) : rows_of(following, 0);
        if (p.epilogue && q + depth >= p.k) return finish(at, c, q, left, next_rows, packs);
        Asks asks;
        asks.add(next_rows);
        const int64_t early = std::max<int64_t>(at.columns - kLatePanels * nr, 0) / nr * nr;
        if (early > 0) multiply(at, at.column, early, q, left, c, nullptr, packs);
        multiply(at, at.column + early, at.columns - early, q, left, {c.data + early * c.column, c.row, c.column},
                 &asks, packs);
      }
    };
    const auto on_threads = [&](double cost, const auto& body) {  // body(packed a, block of c)
      parallel_for(threads, cost / threads, [&](int64_t, int64_t) {
        const Scratch<T> packed_a(rows * depth), own_c(apart ? rows * pitch : 0);
        body(packed_a.data(), own_c.data());
      });
    };

    // Packing b waits for memory, unless it is asked for before. So the first rows of a are multiplied with each panel
    // as soon as it is packed, and meanwhile the next one comes, if there is enough for all threads to do and they do
    // not each have to pack these rows.
    const bool along = in_place && panels >= 12 * threads && !streams;
    if (along) {
      std::atomic<int64_t> next{0};
      on_threads(nanoseconds<T>(rows, n, p.k), [&](T* packed_a, T* own_c) {
        for (int64_t at = next.load(std::memory_order_relaxed); at < panels;) {
          const int64_t share = round_up(divide_up(panels - at, threads), strip_width / nr);
          const int64_t end = std::min({at + share, at + part / nr, panels});
          if (!next.compare_exchange_strong(at, end, std::memory_order_relaxed)) continue;
          run({0, std::min(rows, p.m), at * nr, std::min(end * nr, n) - at * nr}, 0, parts, packed_a, own_c, true);
          at = next.load(std::memory_order_relaxed);
        }
      });
    } else {
      parallel_for(panels, 0.3 * static_cast<double>(nr * p.k), [&](int64_t begin, int64_t end) {
        // b is read the way it lies in memory.
        const int64_t all = (end - begin) * nr, step = p.b.row == 1 ? nr : all;
        for (int64_t first = begin * nr, stop = std::min(first + all, n); first < stop; first += step)
          for (int64_t q = 0; q < p.k; q += depth) pack_columns(first, std::min(first + step, stop), q);
      });
    }

    // Single tasks on demand, because they are few and long; at the end parts of them, for threads to end together.
    const int64_t done = along ? parts * units : 0, all = tasks * units;
    std::atomic<int64_t> next{done};
    if (done < all)
      on_threads(nanoseconds<T>(p.m, n, p.k), [&](T* packed_a, T* own_c) {
        for (int64_t at = next.load(std::memory_order_relaxed); at < all; at = next.load(std::memory_order_relaxed)) {
          const int64_t task = at / units, begin = at % units;
          const int64_t share = threads == 1 ? units : std::max<int64_t>((all - at) / (2 * threads), 1);
          const int64_t end = std::min(begin + share, units);
          if (!next.compare_exchange_strong(at, task * units + end, std::memory_order_relaxed)) continue;
          // The others are in the middle of theirs, and will probably each take as much before.
          const int64_t following = task + (end + (threads - 1) * (end - begin)) / units;
          const int64_t i = task / parts * rows, start = task % parts * part;
          run({i, std::min(rows, p.m - i), start + begin * unit,
               std::min({end * unit, part, n - start}) - begin * unit},
              task, following, packed_a, own_c, false);
        }
      });
  }
}

}  // namespace

template <typename T>
PackedRight<T>::PackedRight(std::span<const Rows> parts, int64_t n)
    : k_(std::accumulate(parts.begin(), parts.end(), int64_t{0}, [](int64_t k, const Rows& r) { return k + r.count; })),
      padded_(round_up(n, gemm_kernels<T>().nr)),
      depth_(depth_of_few<T>(1, k_)),
      memory_(static_cast<T*>(allocate(static_cast<size_t>(padded_ * k_) * sizeof(T), &capacity_))) {
  const GemmKernels<T>& kernel = gemm_kernels<T>();
  parallel_for(padded_ / kernel.nr, 0.3 * static_cast<double>(kernel.nr * k_), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t j = index * kernel.nr;
      int64_t row = 0;
      for (const auto& [b, count] : parts) {
        for (int64_t q = row; q < row + count;) {  // up to the end of its slice
          const int64_t rows = std::min(depth_ - q % depth_, row + count - q);
          kernel.pack(std::min<int64_t>(kernel.nr, n - j), rows, kernel.nr,
                      {b.data + (q - row) * b.row + j * b.column, b.column, b.row},
                      memory_ + place(index, q - q % depth_) + q % depth_ * kernel.nr);
          q += rows;
        }
        row += count;
      }
    }
  });
}

template <typename T>
PackedRight<T>::~PackedRight() {
  deallocate(memory_, capacity_);
}

template <typename T>
int64_t PackedRight<T>::place(int64_t panel, int64_t q) const {
  return q * padded_ + panel * gemm_kernels<T>().nr * std::min(depth_, k_ - q);
}

template <typename T>
void blocked_product(const Product<T>& p) {
  if constexpr (std::is_same_v<T, float>)
    if (p.b.data && listed_product(p)) return;
  if (p.m <= kFewRows)
    FewRows<T>(p).run();
  else
    many_rows(p);
}

template <typename T>
size_t blocked_scratch(int64_t m, int64_t n, int64_t k) {
  const int64_t nr = gemm_kernels<T>().nr;
  int64_t shared, own;
  if (m <= kFewRows) {
    shared = round_up(m, gemm_kernels<T>().mr) * k;
    own = 2 * nr * depth_of_few<T>(m, k) + m * kPanels * nr;
  } else {
    const ManyRows<T> sizes(n, k);
    shared = sizes.columns * k;
    own = 2 * kBlockBytes / static_cast<int64_t>(sizeof(T));  // of a and, where it has no other memory, of c
  }
  return std::max(scratch_bytes(shared * sizeof(T)) + scratch_bytes(own * sizeof(T)), listed_scratch(m, n, k));
}

template class PackedRight<float>;
template size_t blocked_scratch<float>(int64_t, int64_t, int64_t);
template void blocked_product(const Product<float>&);
template void blocked_product(const Product<double>&);
template void blocked_product(const Product<uint32_t>&);
template void blocked_product(const Product<uint64_t>&);

}  // namespace tandem::library
