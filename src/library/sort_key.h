// Elements as unsigned numbers of the same order.
#pragma once
#include <bit>
#include <type_traits>

#include "library/scalar.h"

namespace tandem::library {

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

}  // namespace tandem::library
