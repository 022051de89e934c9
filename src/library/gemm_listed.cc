// c is computed by panels of columns, as wide as the registers hold a row of. Slices of a panel of b stay in the L1
// cache while rows of a go by.
#include "library/gemm_listed.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "device/parallel.h"
#include "library/gemm_blocked.h"
#include "library/gemm_impl.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

constexpr int64_t kSliceBytes = 25 << 10;         // of a panel of b in the L1 cache
constexpr int64_t kDeepest = 128;                 // rows of it
constexpr int64_t kWholeBytes = 128 << 10;        // of a panel of b that is packed at once, and stays in the L2 cache
constexpr int64_t kListed = 512 << 10;            // elements of a that are listed at a time
constexpr int64_t kRows = 256, kBlockRows = 128;  // of a that go through a slice, or a whole panel

bool fits(const Product<float>& p) {
  // Measured with vectors of 32 and 64 bytes; with those of 16 it was not.
  const bool wide = std::strcmp(kernels().name, "baseline") != 0;
  return wide && !p.packed && p.c.column == 1 && p.m >= 64 && p.n >= 256 && p.k >= 64 && p.k <= kLongestProduct &&
         p.m * p.n * p.k >= int64_t{1} << 25;
}

// The part of a that is not 0, by some elements spread over it. The same ones every time, and most matrices need but
// the first.
double density(const Product<float>& p) {
  constexpr int kFirst = 64, kAll = 512;
  const auto zeros = [&](int begin, int end) {
    int count = 0;
    for (int t = begin; t < end; ++t) {
      const uint64_t h = static_cast<uint64_t>(t + 1) * 0x9e3779b97f4a7c15;
      const auto row = static_cast<int64_t>((h >> 32) % static_cast<uint64_t>(p.m)),
                 column = static_cast<int64_t>((h & 0xffffffff) % static_cast<uint64_t>(p.k));
      count += p.a.data[row * p.a.row + column * p.a.column] == 0;
    }
    return count;
  };
  const int first = zeros(0, kFirst);
  if (first < kFirst / 8) return 1;
  return 1 - static_cast<double>(first + zeros(kFirst, kAll)) / kAll;
}

// Cycles of a core, as they were measured.
bool pays(const Product<float>& p, double density) {
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double listing = 4 * m * k, packing = k * n * static_cast<double>(divide_up(p.m, kRows)),
               rows = m * 45 * (k / 56) * (n / 112), multiplying = density * m * n * k * 9 / 112;
  const double tiles = m * n * k / 14.3;
  return listing + packing + rows + multiplying < 0.9 * tiles;
}

// The elements of some rows of a that are not 0, by slices, and in them row by row: that is how they are read.
class Lists {
 public:
  Lists(const Product<float>& p, int64_t rows, int64_t depth)
      : p_(p),
        depth_(depth),
        elements_(static_cast<size_t>(round_up(rows, kAtOnce) * round_up(p.k, depth))),
        rows_(static_cast<size_t>(rows * divide_up(p.k, depth))) {}
  static size_t bytes(int64_t rows, int64_t k, int64_t depth) {
    return scratch_bytes(static_cast<size_t>(round_up(rows, kAtOnce) * round_up(k, depth)) * sizeof(Listed)) +
           scratch_bytes(static_cast<size_t>(rows * divide_up(k, depth)) * sizeof(ListedRow));
  }

  void fill(int64_t first, int64_t rows) {
    first_ = first, count_ = rows;
    parallel_for(divide_up(rows, kAtOnce), 1.0 * static_cast<double>(kAtOnce * p_.k), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin * kAtOnce; row < std::min(end * kAtOnce, rows); row += kAtOnce)
        for (int64_t q = 0; q < p_.k; q += depth_) list(row, std::min(kAtOnce, rows - row), q);
    });
  }

  // From `row` on, counted from the first listed one, of the slice that begins at q.
  const ListedRow* rows(int64_t row, int64_t q) const { return rows_.data() + q / depth_ * count_ + row; }

  // One row with its zeros.
  ListedRow list_all(int64_t row, int64_t q, Listed* to) const {
    const float* from = p_.a.data + (first_ + row) * p_.a.row + q * p_.a.column;
    const int64_t k = std::min(depth_, p_.k - q);
    for (int64_t i = 0; i < k; ++i) to[i] = {from[i * p_.a.column], static_cast<int32_t>(i) * columns_};
    return {to, to + k};
  }

 private:
  // Rows that are listed together: a cache line, where a is contiguous along the numbers of its rows.
  static constexpr int64_t kAtOnce = 16;

  void list(int64_t row, int64_t rows, int64_t q) {
    const int64_t k = std::min(depth_, p_.k - q), down = p_.a.row, along = p_.a.column;
    const float* const from = p_.a.data + (first_ + row) * down + q * along;
    Listed* to = elements_.data() + q * round_up(count_, kAtOnce) + row * depth_;
    ListedRow* const lists = rows_.data() + q / depth_ * count_ + row;
    const int32_t step = columns_;
    // Whether or not an element counts, it is written: that is cheaper than to foresee it.
    if (down == 1 && rows == kAtOnce) {
      int32_t counts[kAtOnce] = {};
      for (int64_t i = 0; i < k; ++i)
        for (int64_t r = 0; r < kAtOnce; ++r) counts[r] += from[i * along + r] != 0;
      Listed own[kAtOnce][kDeepest];
      Listed* ends[kAtOnce];
      for (int64_t r = 0; r < kAtOnce; ++r) ends[r] = own[r];
      for (int64_t i = 0; i < k; ++i)
        for (int64_t r = 0; r < kAtOnce; ++r) {
          const float value = from[i * along + r];
          *ends[r] = {value, static_cast<int32_t>(i) * step};
          ends[r] += value != 0;
        }
      for (int64_t r = 0; r < kAtOnce; ++r) {
        lists[r] = {to, to + counts[r]};
        to = std::copy_n(own[r], counts[r], to);
      }
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        lists[r].begin = to;
        const float* element = from + r * down;
        for (int32_t i = 0; i < k; ++i, element += along) {
          *to = {*element, i * step};
          to += *element != 0;
        }
        lists[r].end = to;
      }
    }
  }

  const Product<float>& p_;
  const int64_t depth_;
  const int32_t columns_ = kernels().listed.columns;
  int64_t first_ = 0, count_ = 0;
  const Scratch<Listed> elements_;
  const Scratch<ListedRow> rows_;
};

struct Task {
  int64_t column, columns, row, rows;
};

class ListedProduct {
 public:
  explicit ListedProduct(const Product<float>& p) : p_(p), lists_(p, rows_at_once(p.m, p.k), depth(p.k)) {}

  static int64_t depth(int64_t k) {
    const auto most = kSliceBytes / static_cast<int64_t>(kernels().listed.columns * sizeof(float));
    return even_depth(k, std::min(most, kDeepest) / 8 * 8);
  }
  static int64_t rows_at_once(int64_t m, int64_t k) {
    return std::min(m, std::max<int64_t>(kListed / k / kRows, 1) * kRows);
  }
  // Whether a panel of b is packed as a whole, for several blocks of rows of a.
  static bool packs_whole(int64_t k) {
    return round_up(k, depth(k)) * kernels().listed.columns * static_cast<int64_t>(sizeof(float)) <= kWholeBytes;
  }
  static size_t thread_scratch(int64_t k) {
    const size_t line = kernels().listed.columns * sizeof(float), slice = static_cast<size_t>(depth(k));
    return scratch_bytes(line * (packs_whole(k) ? static_cast<size_t>(round_up(k, depth(k))) : slice)) +
           scratch_bytes(line * (packs_whole(k) ? kBlockRows : kRows));
  }

  void run() {
    const int64_t step = rows_at_once(p_.m, p_.k);
    for (int64_t first = 0; first < p_.m; first += step) some(first, std::min(step, p_.m - first));
  }

 private:
  std::vector<Task> tasks_of(int64_t rows, int threads) const {
    const int64_t width = kernel_.width, vectors = divide_up(p_.n, width),
                  panels = divide_up(vectors * width, kernel_.columns),
                  most = packs_whole(p_.k) ? 4 * kBlockRows : kRows;
    std::vector<Task> tasks;
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t column = panel * vectors / panels * width;
      const int64_t columns = std::min((panel + 1) * vectors / panels * width, p_.n) - column;
      for (int64_t row = 0; row < rows; row += most)
        tasks.push_back({column, columns, row, std::min(most, rows - row)});
    }
    if (threads == 1) return tasks;
    // The last ones in parts, for threads to end together.
    constexpr int64_t kParts = 4;
    const auto whole = static_cast<int64_t>(tasks.size()) - std::min<int64_t>(tasks.size(), 2 * threads);
    const std::vector<Task> last(tasks.begin() + whole, tasks.end());
    tasks.resize(whole);
    for (const Task& task : last)
      for (int64_t row = 0, part = round_up(divide_up(task.rows, kParts), 8); row < task.rows; row += part)
        tasks.push_back({task.column, task.columns, task.row + row, std::min(part, task.rows - row)});
    return tasks;
  }

  void some(int64_t first, int64_t rows) {
    lists_.fill(first, rows);
    first_ = first;
    const int threads = in_parallel() ? 1 : num_threads();
    const std::vector<Task> tasks = tasks_of(rows, threads);
    std::atomic<size_t> next{0};
    const double nanoseconds =
        0.015 * static_cast<double>(rows) * static_cast<double>(p_.n) * static_cast<double>(p_.k);
    parallel_for(threads, nanoseconds / threads, [&](int64_t, int64_t) {
      const bool whole = packs_whole(p_.k);
      const Scratch<float> packed(kernel_.columns * (whole ? round_up(p_.k, depth_) : depth_)),
          block(kernel_.columns * (whole ? kBlockRows : kRows));
      for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks.size();)
        whole ? whole_panel(tasks[i], packed.data(), block.data()) : by_slices(tasks[i], packed.data(), block.data());
    });
  }

  Matrix<const float> slice_of(const Task& task, int64_t q) const {
    return {p_.b.data + q * p_.b.row + task.column * p_.b.column, p_.b.row, p_.b.column};
  }
  bool pack(const Task& task, int64_t q, float* to) const {
    return kernel_.pack(task.columns, std::min(depth_, p_.k - q), slice_of(task, q), to);
  }

  void whole_panel(const Task& task, float* packed, float* block) const {
    bool finite = true;
    for (int64_t q = 0; q < p_.k; q += depth_) finite = pack(task, q, packed + q * kernel_.columns) && finite;
    for (int64_t row = 0; row < task.rows; row += kBlockRows) {
      const Task part{task.column, task.columns, task.row + row, std::min(kBlockRows, task.rows - row)};
      Asks asks = epilogue_asks(part);
      const int64_t lines = lines_for_row(asks, part.rows * divide_up(p_.k, depth_));
      const Result result = result_of(part, block);
      for (int64_t q = 0; q < p_.k; q += depth_)
        multiply(part, q, packed + q * kernel_.columns, finite, result, asks, lines);
      finish(part, result);
    }
  }

  void by_slices(const Task& task, float* packed, float* block) const {
    const Result result = result_of(task, block);
    for (int64_t q = 0; q < p_.k; q += depth_) {
      const bool finite = pack(task, q, packed), is_last = q + depth_ >= p_.k;
      Asks asks;
      if (is_last)
        asks = epilogue_asks(task);
      else
        asks.add(lines_of(slice_of(task, q + depth_), std::min(depth_, p_.k - q - depth_), task.columns));
      multiply(task, q, packed, finite, result, asks, lines_for_row(asks, task.rows));
    }
    finish(task, result);
  }

  Asks epilogue_asks(const Task& task) const {
    return asks_of(p_, first_ + task.row, task.rows, task.column, task.columns);
  }
  static int64_t lines_for_row(const Asks& asks, int64_t rows) {
    int64_t lines = 0;
    for (int i = 0; i < asks.count; ++i) lines += asks.parts[i].rows * asks.parts[i].count;
    return divide_up(lines, rows);
  }

  // Where a part of c is computed: in a block of its own where it has no other memory, or where whole vectors would
  // reach beyond its last column.
  struct Result {
    Matrix<float> c;
    bool apart;
  };
  Result result_of(const Task& task, float* block) const {
    const bool ragged = task.columns % kernel_.width != 0;
    // Rows a multiple of 2 KB apart share few sets of the cache, and would have to come back for every slice.
    const bool collides = !packs_whole(p_.k) && p_.c.row * static_cast<int64_t>(sizeof(float)) % 2048 == 0;
    if (collides || (p_.epilogue && !p_.epilogue->keeps) || ragged) return {{block, kernel_.columns, 1}, true};
    return {{c_of(task), p_.c.row, 1}, false};
  }
  float* c_of(const Task& task) const { return p_.c.data + (first_ + task.row) * p_.c.row + task.column; }

  void multiply(const Task& task, int64_t q, const float* packed, bool finite, const Result& result, Asks& asks,
                int64_t lines) const {
    const bool ragged = task.columns % kernel_.width != 0;
    if (result.apart && q == 0 && p_.accumulate)
      for (int64_t i = 0; i < task.rows; ++i)
        std::copy_n(c_of(task) + i * p_.c.row, task.columns, result.c.data + i * result.c.row);
    float padded[16 * 14] = {};  // the widest panel
    const float* bias = p_.bias ? p_.bias + task.column : nullptr;
    if (bias && ragged) bias = std::copy_n(bias, task.columns, padded) - task.columns;
    const bool accumulate = q > 0 || p_.accumulate;
    if (finite)
      return kernel_.rows(task.rows, task.columns, lists_.rows(task.row, q), packed, result.c, accumulate, bias, asks,
                          lines);
    Listed all[kDeepest];
    for (int64_t i = 0; i < task.rows; ++i) {
      const ListedRow row = lists_.list_all(task.row + i, q, all);
      kernel_.rows(1, task.columns, &row, packed, {result.c.data + i * result.c.row, result.c.row, 1}, accumulate, bias,
                   asks, lines);
    }
  }

  void finish(const Task& task, Result result) const {
    const int64_t row = first_ + task.row;
    if (result.apart && (!p_.epilogue || p_.epilogue->keeps)) {
      for (int64_t i = 0; i < task.rows; ++i)
        std::copy_n(result.c.data + i * result.c.row, task.columns, c_of(task) + i * p_.c.row);
      result.c = {c_of(task), p_.c.row, 1};
    }
    if (p_.epilogue)
      p_.epilogue->run(row, row + task.rows, task.column, task.column + task.columns,
                       reinterpret_cast<char*>(result.c.data), result.c.row, sizeof(float));
  }

  const Product<float>& p_;
  const ListedKernels& kernel_ = kernels().listed;
  const int64_t depth_ = depth(p_.k);
  int64_t first_ = 0;
  Lists lists_;
};

}  // namespace

bool listed_product(const Product<float>& p) {
  if (!fits(p) || !pays(p, 0) || !pays(p, density(p))) return false;
  ListedProduct(p).run();
  return true;
}

size_t listed_scratch(int64_t m, int64_t n, int64_t k) {
  if (!fits({m, n, k, {}, {}, {nullptr, n, 1}})) return 0;
  const int64_t rows = ListedProduct::rows_at_once(m, k);
  return Lists::bytes(rows, k, ListedProduct::depth(k)) + ListedProduct::thread_scratch(k);
}

}  // namespace tandem::library
