// sort_values (x) -> values in order, ints [axis, descending]: what sort gives first, without positions.
//
// Elements become unsigned numbers of the same order, are sorted as such and turned back: nothing else is moved. NaN is
// greater than everything, and -0.0 comes before 0.0.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "library/registry.h"
#include "library/rows.h"
#include "library/scalar.h"

namespace tandem::library {
namespace {

template <typename T>
using KeyOf = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

template <typename T>
constexpr bool kFloating = std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <typename T>
KeyOf<T> key_of(T x) {
  using K = KeyOf<T>;
  constexpr K sign = static_cast<K>(K{1} << (sizeof(T) * 8 - 1));
  K bits = std::bit_cast<K>(x);
  if constexpr (kFloating<T>) {
    if (is_nan(x)) bits &= static_cast<K>(~sign);
    return bits & sign ? static_cast<K>(~bits) : static_cast<K>(bits | sign);
  } else {
    return std::is_signed_v<T> ? static_cast<K>(bits ^ sign) : bits;
  }
}

template <typename T>
T value_of(KeyOf<T> key) {
  using K = KeyOf<T>;
  constexpr K sign = static_cast<K>(K{1} << (sizeof(T) * 8 - 1));
  if constexpr (kFloating<T>) {
    return std::bit_cast<T>(key & sign ? static_cast<K>(key ^ sign) : static_cast<K>(~key));
  } else {
    return std::bit_cast<T>(std::is_signed_v<T> ? static_cast<K>(key ^ sign) : key);
  }
}

// By bytes, lowest first; bytes that are the same everywhere are skipped. Returns where the result is.
template <typename K>
K* radix_sort(K* keys, K* other, int64_t n) {
  constexpr int kBits = 8, kDigits = sizeof(K), kValues = 1 << kBits;
  std::array<std::array<uint32_t, kValues>, kDigits> counts{};
  for (int64_t i = 0; i < n; ++i)
    for (int digit = 0; digit < kDigits; ++digit) ++counts[digit][keys[i] >> (kBits * digit) & (kValues - 1)];
  for (int digit = 0; digit < kDigits; ++digit) {
    auto& count = counts[digit];
    if (count[keys[0] >> (kBits * digit) & (kValues - 1)] == static_cast<uint32_t>(n)) continue;
    uint32_t sum = 0;
    for (uint32_t& c : count) {
      const uint32_t before = sum;
      sum += c;
      c = before;
    }
    for (int64_t i = 0; i < n; ++i) other[count[keys[i] >> (kBits * digit) & (kValues - 1)]++] = keys[i];
    std::swap(keys, other);
  }
  return keys;
}

template <typename K>
K* sort_keys(K* keys, K* other, int64_t n) {
  constexpr int64_t kRadixFrom = 200, kMost = int64_t{1} << 31;
  if (n >= kRadixFrom && n <= kMost) return radix_sort(keys, other, n);
  std::sort(keys, keys + n);
  return keys;
}

template <typename T>
void sort_lines(const View& x, const View& values, int axis, bool descending) {
  using K = KeyOf<T>;
  const int64_t n = x.shape[axis], from_stride = x.strides[axis], to_stride = values.strides[axis];
  const double cost = n * (5.0 + 2.0 * std::log2(static_cast<double>(n)));
  const K flip = descending ? static_cast<K>(~K{0}) : K{0};
  for_lines<2>({&x, &values}, axis, cost, [&] {
    return [&, keys = std::vector<K>(n), other = std::vector<K>(n)](const int64_t (&offset)[2]) mutable {
      const T* from = x.as<T>() + offset[0];
      for (int64_t i = 0; i < n; ++i) keys[i] = key_of(from[i * from_stride]) ^ flip;
      const K* sorted = sort_keys(keys.data(), other.data(), n);
      T* to = values.as<T>() + offset[1];
      for (int64_t i = 0; i < n; ++i) to[i * to_stride] = value_of<T>(sorted[i] ^ flip);
    };
  });
}

void run_sort_values(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 2);
  const View &x = call.inputs[0], &values = call.outputs[0];
  TD_CHECK(values.dtype == x.dtype && values.ndim == x.ndim, "sort_values");
  if (x.ndim == 0) return copy_elements(x, values);
  const int axis = static_cast<int>(call.ints[0]);
  TD_CHECK(axis >= 0 && axis < x.ndim && values.shape[axis] == x.shape[axis], "sort_values");
  if (values.numel() == 0) return;
  for_real("sort_values", x.dtype,
           [&](auto type) { sort_lines<typename decltype(type)::type>(x, values, axis, call.ints[1] != 0); });
}

const Register sort_values("sort_values", &run_sort_values);

}  // namespace
}  // namespace tandem::library
