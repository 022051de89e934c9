// sort (x) -> (values, int64 indices), ints [axis, descending, stable].
// topk (x) -> (values, int64 indices), ints [axis, k, largest, sorted].
//
// NaN is greater than everything, as in NumPy; equal elements keep their order, so results never depend on the method.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "library/radix.h"
#include "library/registry.h"
#include "library/rows.h"
#include "library/scalar.h"
#include "library/sort_key.h"

namespace tandem::library {
namespace {

// Key and position. For keys of 32 bits both fit one word, and comparing words compares keys, then positions.
struct Packed {
  uint64_t word;
  Packed() = default;
  Packed(uint32_t key, uint32_t position) : word(uint64_t{key} << 32 | position) {}
  bool operator<(const Packed& other) const { return word < other.word; }
  int64_t position() const { return static_cast<uint32_t>(word); }
  uint32_t key() const { return static_cast<uint32_t>(word >> 32); }
};
struct Pair {
  uint64_t key_, position_;
  Pair() = default;
  Pair(uint64_t key, uint64_t position) : key_(key), position_(position) {}
  bool operator<(const Pair& other) const {
    return key_ != other.key_ ? key_ < other.key_ : position_ < other.position_;
  }
  int64_t position() const { return static_cast<int64_t>(position_); }
  uint64_t key() const { return key_; }
};

// The smallest k entries of a long line, in order: a heap of the best so far turns most elements away with one
// comparison.
template <typename Entry, typename Make>
void select_few(int64_t n, int64_t k, std::vector<Entry>& best, Make&& make) {
  best.clear();
  for (int64_t i = 0; i < k; ++i) best.push_back(make(i));
  std::make_heap(best.begin(), best.end());
  for (int64_t i = k; i < n; ++i) {
    const Entry entry = make(i);
    if (!(entry < best.front())) continue;
    std::pop_heap(best.begin(), best.end());
    best.back() = entry;
    std::push_heap(best.begin(), best.end());
  }
  std::sort_heap(best.begin(), best.end());
}

// The first k of n entries, in order. Returns where they are.
template <typename Entry, typename Make>
const Entry* put_in_order(int64_t n, int64_t k, std::vector<Entry>& few, Scratch<Entry>& entries, Scratch<Entry>& other,
                          Make&& make) {
  if (k > 0 && k <= n / 16) {
    select_few(n, k, few, make);
    return few.data();
  }
  if (!entries.data()) entries.resize(n);
  Entry* first = entries.data();
  for (int64_t i = 0; i < n; ++i) first[i] = make(i);
  if (k == n) {
    if (!other.data()) other.resize(n);
    return sort_entries(first, other.data(), n);
  }
  std::nth_element(first, first + k, first + n);
  std::sort(first, first + k);
  return first;
}

// Sorts (or selects the first k of) each line of x by ascending or descending key.
template <typename T, typename Entry>
void order_lines(const View& x, const View& values, const View& indices, int axis, int64_t k, bool descending) {
  const int64_t n = x.shape[axis];
  const int64_t x_stride = x.strides[axis], value_stride = values.strides[axis], index_stride = indices.strides[axis];
  const double cost = n * (5.0 + 2.0 * std::log2(static_cast<double>(n)));
  for_lines<3>({&x, &values, &indices}, axis, cost, [&] {
    return [&, few = std::vector<Entry>(),
            entries = std::make_unique<Scratch<Entry>[]>(2)](const int64_t (&offset)[3]) mutable {
      const T* from = x.as<T>() + offset[0];
      const auto make = [&](int64_t i) {
        const auto key = key_of(from[i * x_stride]);
        using Key = std::remove_const_t<decltype(key)>;
        return Entry(descending ? static_cast<Key>(~key) : key, i);
      };
      const Entry* sorted = put_in_order(n, k, few, entries[0], entries[1], make);
      T* value = values.as<T>() + offset[1];
      int64_t* index = indices.as<int64_t>() + offset[2];
      for (int64_t i = 0; i < k; ++i) {
        const int64_t position = sorted[i].position();
        value[i * value_stride] = from[position * x_stride];
        index[i * index_stride] = position;
      }
    };
  });
}

void order(const char* routine, const Call& call, int axis, int64_t k, bool descending) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 2);
  const View &x = call.inputs[0], &values = call.outputs[0], &indices = call.outputs[1];
  TD_CHECK(indices.dtype == DType::Int64 && values.dtype == x.dtype, routine);
  if (x.ndim == 0) {
    copy_elements(x, values);
    *indices.as<int64_t>() = 0;
    return;
  }
  const int64_t n = x.shape[axis];
  TD_CHECK(axis >= 0 && axis < x.ndim && k <= n && values.shape[axis] == k && indices.shape[axis] == k, routine);
  if (values.numel() == 0) return;
  for_real(routine, x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (sizeof(T) < 8) {
      if (n < (int64_t{1} << 32)) return order_lines<T, Packed>(x, values, indices, axis, k, descending);
    }
    order_lines<T, Pair>(x, values, indices, axis, k, descending);
  });
}

void run_sort(const Call& call) {
  TD_CHECK(call.num_ints == 3);
  const View& x = call.inputs[0];
  order("sort", call, static_cast<int>(call.ints[0]), x.ndim ? x.shape[call.ints[0]] : 1, call.ints[1] != 0);
}

void run_topk(const Call& call) {
  TD_CHECK(call.num_ints == 4);
  order("topk", call, static_cast<int>(call.ints[0]), call.ints[1], call.ints[2] != 0);
}

const Register sort("sort", &run_sort);
const Register topk("topk", &run_topk);

}  // namespace
}  // namespace tandem::library
