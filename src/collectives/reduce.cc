#include "collectives/reduce.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>
#include <vector>

#include "check.h"
#include "device/parallel.h"
#include "library/kernels/kernels.h"

namespace tandem::collectives {
namespace {

constexpr int64_t kBlock = 2048;  // elements that stay in the first cache while they are worked on

struct Half {
  static void load(const uint16_t* from, float* to, int64_t n) { library::kernels().from_half(from, to, n); }
  static void store(const float* from, uint16_t* to, int64_t n) { library::kernels().to_half(from, to, n); }
};
struct BFloat16 {
  static void load(const uint16_t* from, float* to, int64_t n) { library::kernels().from_bfloat16(from, to, n); }
  static void store(const float* from, uint16_t* to, int64_t n) { library::kernels().to_bfloat16(from, to, n); }
};

template <typename T>
T extreme(T a, T b, bool largest) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return a;  // NaN wins, as in the operators
    if (b != b) return b;
  }
  return (a < b) == largest ? b : a;
}

template <typename T>
constexpr bool is_complex_type = false;
template <typename T>
constexpr bool is_complex_type<std::complex<T>> = true;

// Integers wrap around.
template <typename T, typename F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T> && sizeof(T) >= 4)
    return static_cast<T>(f(static_cast<std::make_unsigned_t<T>>(a), static_cast<std::make_unsigned_t<T>>(b)));
  else
    return static_cast<T>(f(a, b));
}
template <typename T>
T sum(T a, T b) {
  return wrapping(a, b, [](auto x, auto y) { return x + y; });
}
template <typename T>
T product(T a, T b) {
  if constexpr (std::is_same_v<T, uint16_t>) return static_cast<T>(static_cast<uint32_t>(a) * b);
  return wrapping(a, b, [](auto x, auto y) { return x * y; });
}

// a[i] = a[i] with b[i]
template <typename T>
void combine(T* a, const T* b, int64_t n, Reduction reduction) {
  switch (reduction) {
    case Reduction::Sum:
    case Reduction::Average:
      for (int64_t i = 0; i < n; ++i) a[i] = sum(a[i], b[i]);
      return;
    case Reduction::Product:
      for (int64_t i = 0; i < n; ++i) a[i] = product(a[i], b[i]);
      return;
    default:
      break;
  }
  if constexpr (!is_complex_type<T>) {
    if (reduction == Reduction::Minimum || reduction == Reduction::Maximum) {
      const bool largest = reduction == Reduction::Maximum;
      for (int64_t i = 0; i < n; ++i) a[i] = extreme(a[i], b[i], largest);
      return;
    }
  }
  if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < n; ++i)
      a[i] = static_cast<T>(reduction == Reduction::And  ? a[i] & b[i]
                            : reduction == Reduction::Or ? a[i] | b[i]
                                                         : a[i] ^ b[i]);
    return;
  }
  TD_CHECK(false, "a reduction that this type does not have");
}

template <typename T>
void finish(T* a, int64_t n, int num, Reduction reduction) {
  if constexpr (std::is_floating_point_v<T> || is_complex_type<T>) {
    if (reduction != Reduction::Average) return;
    const bool is_power = (num & (num - 1)) == 0;  // then a product has the same bits, and is quicker
    const T factor = T(1) / static_cast<T>(num);
    for (int64_t i = 0; i < n; ++i) a[i] = is_power ? a[i] * factor : a[i] / static_cast<T>(num);
  }
}

// Sums and averages of floats, by vectors.
template <typename T>
void sum_floats(const char* const* in, int num_in, char* const* out, int num_out, int64_t begin, int64_t end,
                Reduction reduction) {
  std::vector<const T*> from(num_in);
  std::vector<T*> to(num_out);
  for (int r = 0; r < num_in; ++r) from[r] = reinterpret_cast<const T*>(in[r]) + begin;
  for (int k = 0; k < num_out; ++k) to[k] = reinterpret_cast<T*>(out[k]) + begin;
  const bool average = reduction == Reduction::Average, is_power = (num_in & (num_in - 1)) == 0;
  const T factor = average && is_power ? T(1) / static_cast<T>(num_in) : T(1);  // the same bits, and quicker
  const T divisor = average && !is_power ? static_cast<T>(num_in) : T(1);
  const library::Kernels& kernels = library::kernels();
  if constexpr (std::is_same_v<T, float>)
    kernels.sum_ranks_f32(from.data(), num_in, to.data(), num_out, end - begin, factor, divisor);
  else
    kernels.sum_ranks_f64(from.data(), num_in, to.data(), num_out, end - begin, factor, divisor);
}

template <typename T>
void reduce_plain(const char* const* in, int num_in, char* const* out, int num_out, int64_t begin, int64_t end,
                  Reduction reduction) {
  if constexpr (std::is_floating_point_v<T>)
    if (reduction == Reduction::Sum || reduction == Reduction::Average)
      return sum_floats<T>(in, num_in, out, num_out, begin, end, reduction);
  T block[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    const size_t offset = at * sizeof(T), bytes = n * sizeof(T);
    const auto part = [&](int r) { return reinterpret_cast<const T*>(in[r] + offset); };
    std::memcpy(block, part(0), bytes);
    for (int r = 1; r < num_in; ++r) combine(block, part(r), n, reduction);
    finish(block, n, num_in, reduction);
    for (int k = 0; k < num_out; ++k) std::memcpy(out[k] + offset, block, bytes);
  }
}

template <typename F>
void reduce_small_float(const char* const* in, int num_in, char* const* out, int num_out, int64_t begin, int64_t end,
                        Reduction reduction) {
  float sum[kBlock], one[kBlock];
  uint16_t made[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    const auto load = [&](int r, float* to) { F::load(reinterpret_cast<const uint16_t*>(in[r]) + at, to, n); };
    load(0, sum);
    for (int r = 1; r < num_in; ++r) {
      load(r, one);
      combine(sum, one, n, reduction);
    }
    finish(sum, n, num_in, reduction);
    F::store(sum, made, n);
    for (int k = 0; k < num_out; ++k) std::memcpy(out[k] + at * 2, made, n * 2);
  }
}

// Elements 0 and 1: a sum says whether any is set, a product whether all are.
Reduction of_bool(Reduction reduction) {
  switch (reduction) {
    case Reduction::Sum:
    case Reduction::Maximum:
      return Reduction::Or;
    case Reduction::Product:
    case Reduction::Minimum:
      return Reduction::And;
    default:
      return reduction;
  }
}

}  // namespace

bool is_defined(DType dtype, Reduction reduction) {
  switch (reduction) {
    case Reduction::Sum:
    case Reduction::Product:
      return true;
    case Reduction::Average:
      return is_floating(dtype) || is_complex(dtype);
    case Reduction::Minimum:
    case Reduction::Maximum:
      return !is_complex(dtype);
    default:
      return !is_floating(dtype) && !is_complex(dtype);
  }
}

void reduce(const char* const* in, int num_in, char* const* out, int num_out, int64_t count, DType dtype,
            Reduction reduction) {
  TD_CHECK(is_defined(dtype, reduction));
  if (num_in == 1) {  // one rank's elements are what they are
    for (int k = 0; k < num_out; ++k)
      if (out[k] != in[0]) std::memmove(out[k], in[0], static_cast<size_t>(count) * item_size(dtype));
    return;
  }
  const auto run = [&](auto function, Reduction kind) {
    parallel_for(count, 0.15 * num_in * static_cast<double>(item_size(dtype)) / 4,
                 [&](int64_t begin, int64_t end) { function(in, num_in, out, num_out, begin, end, kind); });
  };
  switch (dtype) {
    case DType::Bool:
      return run(reduce_plain<uint8_t>, of_bool(reduction));
    case DType::Int8:
      return run(reduce_plain<int8_t>, reduction);
    case DType::Int16:
      return run(reduce_plain<int16_t>, reduction);
    case DType::Int32:
      return run(reduce_plain<int32_t>, reduction);
    case DType::Int64:
      return run(reduce_plain<int64_t>, reduction);
    case DType::UInt8:
      return run(reduce_plain<uint8_t>, reduction);
    case DType::UInt16:
      return run(reduce_plain<uint16_t>, reduction);
    case DType::UInt32:
      return run(reduce_plain<uint32_t>, reduction);
    case DType::UInt64:
      return run(reduce_plain<uint64_t>, reduction);
    case DType::Float16:
      return run(reduce_small_float<Half>, reduction);
    case DType::BFloat16:
      return run(reduce_small_float<BFloat16>, reduction);
    case DType::Float32:
      return run(reduce_plain<float>, reduction);
    case DType::Float64:
      return run(reduce_plain<double>, reduction);
    case DType::Complex64:
      return run(reduce_plain<std::complex<float>>, reduction);
    case DType::Complex128:
      return run(reduce_plain<std::complex<double>>, reduction);
  }
}

}  // namespace tandem::collectives
