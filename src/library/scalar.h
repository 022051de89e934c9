// C++ types of the element types, and a switch over them.
#pragma once
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "check.h"
#include "library/half.h"
#include "tensor/dtype.h"

namespace tandem::library {

struct Half {
  uint16_t bits = 0;
  Half() = default;
  Half(float value) : bits(float_to_half(value)) {}
  operator float() const { return half_to_float(bits); }
};

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  BFloat16(float value) : bits(float_to_bfloat16(value)) {}
  operator float() const { return bfloat16_to_float(bits); }
};

template <typename T>
struct Type {
  using type = T;
};

template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <typename T>
inline constexpr bool kIsComplex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// a * b without the search for infinities that std::complex makes of it: what NumPy computes, and vectorises.
template <typename T>
std::complex<T> multiply(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// What sums and comparisons of T are computed in.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <typename T>
bool is_nan(T x) {
  if constexpr (kIsFloat<T>) {
    const Wide<T> wide = x;
    return wide != wide;
  } else {
    return false;
  }
}

template <typename T>
T lowest() {  // neutral for max
  if constexpr (kIsFloat<T>)
    return T(-std::numeric_limits<Wide<T>>::infinity());
  else
    return std::numeric_limits<T>::lowest();
}
template <typename T>
T highest() {  // neutral for min
  if constexpr (kIsFloat<T>)
    return T(std::numeric_limits<Wide<T>>::infinity());
  else
    return std::numeric_limits<T>::max();
}

[[noreturn]] inline void unsupported(const char* routine, DType dtype) {
  fail(ErrorKind::Type, routine, " does not work on ", name(dtype));
}

// body(Type<T>{}) for the floating types.
template <typename F>
void for_float(const char* routine, DType dtype, F&& body) {
  switch (dtype) {
    case DType::Float16:
      return body(Type<Half>{});
    case DType::BFloat16:
      return body(Type<BFloat16>{});
    case DType::Float32:
      return body(Type<float>{});
    case DType::Float64:
      return body(Type<double>{});
    default:
      unsupported(routine, dtype);
  }
}

// body(Type<T>{}) for the integers and the floating types; bool counts as uint8.
template <typename F>
void for_real(const char* routine, DType dtype, F&& body) {
  switch (dtype) {
    case DType::Bool:
    case DType::UInt8:
      return body(Type<uint8_t>{});
    case DType::Int8:
      return body(Type<int8_t>{});
    case DType::Int16:
      return body(Type<int16_t>{});
    case DType::Int32:
      return body(Type<int32_t>{});
    case DType::Int64:
      return body(Type<int64_t>{});
    case DType::UInt16:
      return body(Type<uint16_t>{});
    case DType::UInt32:
      return body(Type<uint32_t>{});
    case DType::UInt64:
      return body(Type<uint64_t>{});
    default:
      return for_float(routine, dtype, body);
  }
}

// body(Type<T>{}) for the complex types.
template <typename F>
void for_complex(const char* routine, DType dtype, F&& body) {
  switch (dtype) {
    case DType::Complex64:
      return body(Type<std::complex<float>>{});
    case DType::Complex128:
      return body(Type<std::complex<double>>{});
    default:
      unsupported(routine, dtype);
  }
}

// body(Type<T>{}) with an unsigned type of the same size, for routines that only move elements.
template <typename F>
void for_size(size_t bytes, F&& body) {
  struct Pair {
    uint64_t a, b;
  };
  switch (bytes) {
    case 1:
      return body(Type<uint8_t>{});
    case 2:
      return body(Type<uint16_t>{});
    case 4:
      return body(Type<uint32_t>{});
    case 8:
      return body(Type<uint64_t>{});
    case 16:
      return body(Type<Pair>{});
    default:
      TD_CHECK(false, "element of ", bytes, " bytes");
  }
}

}  // namespace tandem::library
