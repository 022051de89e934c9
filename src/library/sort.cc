// sort (x) -> (values, int64 indices), ints [axis, descending, stable].
// topk (x) -> (values, int64 indices), ints [axis, k, largest, sorted].
//
// NaN is greater than everything, as in NumPy; equal elements keep their order, so results never depend on the method.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "library/registry.h"
#include "library/rows.h"
#include "library/scalar.h"

namespace tandem::library {
namespace {

// An unsigned number of the same order as x: equal for elements that compare equal, largest for NaN.
template <typename T>
auto key_of(T x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    constexpr uint16_t kSign = 0x8000;
    if (is_nan(x)) return uint32_t{0xffff};
    const uint16_t bits = x.bits == kSign ? 0 : x.bits;
    return static_cast<uint32_t>(static_cast<uint16_t>(bits & kSign ? ~bits : bits | kSign));
  } else if constexpr (std::is_floating_point_v<T>) {
    using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    constexpr U sign = U{1} << (sizeof(T) * 8 - 1);
    if (x != x) return ~U{0};
    const U bits = std::bit_cast<U>(x == 0 ? T(0) : x);
    return bits & sign ? static_cast<U>(~bits) : static_cast<U>(bits | sign);
  } else {
    using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    constexpr U flip = std::is_signed_v<T> ? U{1} << (sizeof(T) * 8 - 1) : 0;
    return static_cast<U>(static_cast<U>(static_cast<std::make_unsigned_t<T>>(x)) ^ flip);
  }
}

// Key and position. For keys of 32 bits both fit one word, and comparing words compares keys, then positions.
struct Packed {
  uint64_t word;
  Packed() = default;
  Packed(uint32_t key, uint32_t position) : word(uint64_t{key} << 32 | position) {}
  bool operator<(const Packed& other) const { return word < other.word; }
  int64_t position() const { return static_cast<uint32_t>(word); }
  uint64_t key() const { return word >> 32; }
  static constexpr int kKeyBytes = 4;
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
  static constexpr int kKeyBytes = 8;
};

// By bytes of the key, lowest first; bytes that are the same everywhere are skipped.
template <typename Entry>
void radix_sort(std::vector<Entry>& entries, std::vector<Entry>& other) {
  const size_t n = entries.size();
  other.resize(n);
  std::vector<size_t> counts(Entry::kKeyBytes * 256, 0);
  for (const Entry& entry : entries)
    for (int byte = 0; byte < Entry::kKeyBytes; ++byte) ++counts[byte * 256 + (entry.key() >> (8 * byte) & 255)];
  for (int byte = 0; byte < Entry::kKeyBytes; ++byte) {
    size_t* count = counts.data() + byte * 256;
    if (std::any_of(count, count + 256, [n](size_t c) { return c == n; })) continue;
    size_t sum = 0;
    for (int digit = 0; digit < 256; ++digit) {
      const size_t c = count[digit];
      count[digit] = sum;
      sum += c;
    }
    for (const Entry& entry : entries) other[count[entry.key() >> (8 * byte) & 255]++] = entry;
    entries.swap(other);
  }
}

constexpr int64_t kRadixFrom = 300;  // elements

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

// The first k of n entries, in order.
template <typename Entry, typename Make>
void put_in_order(int64_t n, int64_t k, std::vector<Entry>& entries, std::vector<Entry>& other, Make&& make) {
  if (k > 0 && k <= n / 16) return select_few(n, k, entries, make);
  entries.resize(n);
  for (int64_t i = 0; i < n; ++i) entries[i] = make(i);
  if (k == n && n >= kRadixFrom) return radix_sort(entries, other);
  if (k < n) std::nth_element(entries.begin(), entries.begin() + k, entries.end());
  std::sort(entries.begin(), entries.begin() + k);
}

// Sorts (or selects the first k of) each line of x by ascending or descending key.
template <typename T, typename Entry>
void order_lines(const View& x, const View& values, const View& indices, int axis, int64_t k, bool descending) {
  const int64_t n = x.shape[axis];
  const int64_t x_stride = x.strides[axis], value_stride = values.strides[axis], index_stride = indices.strides[axis];
  const double cost = n * (5.0 + 2.0 * std::log2(static_cast<double>(n)));
  for_lines<3>({&x, &values, &indices}, axis, cost, [&] {
    return [&, entries = std::vector<Entry>(), other = std::vector<Entry>()](const int64_t (&offset)[3]) mutable {
      const T* from = x.as<T>() + offset[0];
      const auto make = [&](int64_t i) {
        const auto key = key_of(from[i * x_stride]);
        using Key = std::remove_const_t<decltype(key)>;
        return Entry(descending ? static_cast<Key>(~key) : key, i);
      };
      put_in_order(n, k, entries, other, make);
      T* value = values.as<T>() + offset[1];
      int64_t* index = indices.as<int64_t>() + offset[2];
      for (int64_t i = 0; i < k; ++i) {
        const int64_t position = entries[i].position();
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
