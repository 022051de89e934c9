// Positions by what they hold.
//
// group_index (index) -> start (bound + 1), order (m), ints [bound]: the positions of index (m) sorted by its values,
// equal ones in order; those that hold b are order[start[b]] to order[start[b + 1] - 1].
//
// coalesce_rows (index, values) -> rows (m), sums (m, *rest), count (): the values (m, *rest) of every row that index
// (m) names, added up in order, by rising row. Behind the first `count` of them the last is repeated, so that writing
// all of them to their rows writes nothing wrong.
#include <algorithm>

#include "device/parallel.h"
#include "library/radix.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

void run_group_index(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 2 && call.num_ints == 1);
  const View &index = call.inputs[0], &start = call.outputs[0], &order = call.outputs[1];
  TD_CHECK(index.dtype == DType::Int64 && index.ndim == 1 && start.is_contiguous() && order.is_contiguous());
  const int64_t n = index.shape[0], step = index.strides[0], bound = call.ints[0];
  const int64_t* from = index.as<int64_t>();
  int64_t *starts = start.as<int64_t>(), *to = order.as<int64_t>();
  std::fill(starts, starts + bound + 1, 0);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t value = from[i * step];
    if (value < 0 || value >= bound)
      fail(ErrorKind::Index, "index ", value, " is out of range for axis 0 with size ", bound);
    ++starts[value + 1];
  }
  for (int64_t b = 0; b < bound; ++b) starts[b + 1] += starts[b];
  Scratch<int64_t> next(std::max<int64_t>(bound, 1));
  std::copy(starts, starts + bound, next.data());
  for (int64_t i = 0; i < n; ++i) to[next[from[i * step]]++] = i;
}

struct Place {
  uint64_t row;
  int64_t position;
  uint64_t key() const { return row; }
  bool operator<(const Place& other) const { return row != other.row ? row < other.row : position < other.position; }
};

template <typename T>
void sum_runs(const Place* places, const int64_t* starts, int64_t count, int64_t n, const T* values, int64_t width,
              T* sums) {
  using W = Wide<T>;
  parallel_for(count, 2 + 0.4 * static_cast<double>(n) / static_cast<double>(count) * static_cast<double>(width),
               [&](int64_t begin, int64_t end) {
                 Scratch<W> wide(std::is_same_v<W, T> ? 0 : width);
                 for (int64_t r = begin; r < end; ++r) {
                   T* to = sums + r * width;
                   const T* first = values + places[starts[r]].position * width;
                   if (starts[r + 1] - starts[r] == 1) {
                     std::copy(first, first + width, to);
                     continue;
                   }
                   W* total = nullptr;
                   if constexpr (std::is_same_v<W, T>)
                     total = to;
                   else
                     total = wide.data();
                   std::copy(first, first + width, total);
                   for (int64_t i = starts[r] + 1; i < starts[r + 1]; ++i) {
                     const T* from = values + places[i].position * width;
                     for (int64_t k = 0; k < width; ++k) total[k] = static_cast<W>(total[k] + static_cast<W>(from[k]));
                   }
                   if constexpr (!std::is_same_v<W, T>) std::copy(total, total + width, to);
                 }
               });
}

void run_coalesce_rows(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 3);
  const View &index = call.inputs[0], &rows = call.outputs[0], &sums = call.outputs[1], &count = call.outputs[2];
  TD_CHECK(index.dtype == DType::Int64 && index.ndim == 1 && rows.is_contiguous() && sums.is_contiguous());
  const int64_t n = index.shape[0];
  *count.as<int64_t>() = 0;
  if (n == 0) return;
  Scratch<char> memory;
  View values = call.inputs[1];
  if (!values.is_contiguous()) {
    memory.resize(values.numel() * item_size(values.dtype));
    values.data = memory.data();
    set_contiguous(values);
    copy_elements(call.inputs[1], values);
  }
  Scratch<Place> entries(n), other(n);
  for (int64_t i = 0; i < n; ++i) entries[i] = {static_cast<uint64_t>(index.as<int64_t>()[i * index.strides[0]]), i};
  const Place* sorted = sort_entries(entries.data(), other.data(), n);
  Scratch<int64_t> starts(n + 1);
  int64_t runs = 0, *names = rows.as<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    if (i && sorted[i].row == sorted[i - 1].row) continue;
    names[runs] = static_cast<int64_t>(sorted[i].row);
    starts[runs++] = i;
  }
  starts[runs] = n;
  *count.as<int64_t>() = runs;
  std::fill(names + runs, names + n, names[runs - 1]);
  const int64_t width = values.numel() / n;
  const auto sum = [&](auto type) {
    using T = typename decltype(type)::type;
    T* to = sums.as<T>();
    sum_runs(sorted, starts.data(), runs, n, values.as<T>(), width, to);
    for (int64_t i = runs; i < n; ++i) std::copy(to + (runs - 1) * width, to + runs * width, to + i * width);
  };
  if (is_complex(values.dtype))
    for_complex("coalesce_rows", values.dtype, sum);
  else
    for_real("coalesce_rows", values.dtype, sum);
}

const Register group_index("group_index", &run_group_index);
const Register coalesce_rows("coalesce_rows", &run_coalesce_rows);

}  // namespace
}  // namespace tandem::library
