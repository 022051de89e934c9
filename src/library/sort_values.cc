// sort_values (x) -> values in order, ints [axis, descending]: what sort gives first, without positions.
//
// Elements become unsigned numbers of the same order, are sorted as such and turned back: nothing else is moved. NaN is
// greater than everything, and -0.0 comes before 0.0.
#include <bit>
#include <cmath>
#include <memory>
#include <type_traits>

#include "library/kernels/kernels.h"
#include "library/radix.h"
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

// Short rows that lie side by side have kernels of their own.
template <typename T>
const OrderKernels<T>* order_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return &kernels().order_f32;
  else if constexpr (std::is_same_v<T, double>)
    return &kernels().order_f64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return &kernels().order_i32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return &kernels().order_i64;
  else
    return nullptr;
}

template <typename T>
void sort_lines(const View& x, const View& values, int axis, bool descending) {
  using K = KeyOf<T>;
  const int64_t n = x.shape[axis], from_stride = x.strides[axis], to_stride = values.strides[axis];
  const double cost = n * (5.0 + 2.0 * std::log2(static_cast<double>(n)));
  constexpr int64_t kShortest = 48;
  const bool side_by_side = from_stride == 1 && to_stride == 1 && n >= kShortest && n <= kLongestRow;
  const OrderKernels<T>* quick = side_by_side && !descending ? order_kernels<T>() : nullptr;
  const K flip = descending ? static_cast<K>(~K{0}) : K{0};
  for_lines<2>({&x, &values}, axis, cost, [&] {
    return [&, memory = std::make_unique<Scratch<K>[]>(2),
            work = std::make_unique<Scratch<char>>()](const int64_t (&offset)[2]) mutable {
      const T* from = x.as<T>() + offset[0];
      T* to = values.as<T>() + offset[1];
      if (quick) {
        if (!work->data()) work->resize(order_work<T>(n));
        if (quick->sort(from, n, to, work->data())) return;
      }
      if (!memory[0].data()) memory[0].resize(n), memory[1].resize(n);
      K* keys = memory[0].data();
      for (int64_t i = 0; i < n; ++i) keys[i] = key_of(from[i * from_stride]) ^ flip;
      const K* sorted = sort_entries(keys, memory[1].data(), n);
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
