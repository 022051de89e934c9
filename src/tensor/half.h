// float16 and bfloat16, one number at a time, rounding to nearest even straight from double (through float would round
// twice).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace tandem {

// `Mantissa` stored bits of the fraction, `Bias` of the exponent; one sign bit on top of 16.
template <int Mantissa, int Bias>
inline uint16_t double_to_16bit(double value) {
  constexpr int kInfinity = ((1 << (15 - Mantissa)) - 1) << Mantissa;
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | kInfinity | (1 << (Mantissa - 1));
  double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | kInfinity;
  int exponent;
  double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  int biased = exponent - 1 + Bias;
  int bits;
  if (biased <= 0) {  // subnormal; rounding up to the smallest normal number comes out right by itself
    bits = static_cast<int>(std::nearbyint(std::ldexp(magnitude, Bias - 1 + Mantissa)));
  } else if (biased > 2 * Bias) {
    bits = kInfinity;
  } else {  // a fraction that rounds up to 2.0 carries into the exponent, and from the largest number into infinity
    bits =
        (biased << Mantissa) + static_cast<int>(std::nearbyint(std::ldexp(fraction, Mantissa + 1))) - (1 << Mantissa);
  }
  return static_cast<uint16_t>(sign | bits);
}

inline uint16_t double_to_half(double value) {
  return double_to_16bit<10, 15>(value);
}
inline uint16_t double_to_bfloat16(double value) {
  return double_to_16bit<7, 127>(value);
}

inline double half_to_double(uint16_t bits) {
  int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(mantissa, -24)
                                     : std::ldexp(mantissa + 1024, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

inline double bfloat16_to_double(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace tandem
