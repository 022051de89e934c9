// float16 and bfloat16, one at a time. Static functions: each file that includes this gets a copy of its own, see
// kernels.h.
#pragma once
#include <cstdint>
#include <cstring>

namespace tandem::library {

static inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
static inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

static inline float bfloat16_to_float(uint16_t x) {
  return bits_to_float(static_cast<uint32_t>(x) << 16);
}

static inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;  // rounding could carry a NaN's payload into infinity
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
}

static inline float half_to_float(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000) << 16, magnitude = x & 0x7fff;
  if (magnitude >= 0x7c00) return bits_to_float(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));  // infinity, NaN
  // Shifted into place the exponent is too small by 112; one multiplication repairs it, and subnormals with it.
  return bits_to_float(sign | float_to_bits(bits_to_float(magnitude << 13) * 0x1p112f));
}

static inline uint16_t float_to_half(float value) {
  const uint32_t bits = float_to_bits(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to at least 2^16
  if (magnitude < 0x38800000) {  // subnormal: adding 1/2 puts the value's last half bit at the last float bit
    const float shifted = bits_to_float(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (float_to_bits(shifted) - float_to_bits(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

}  // namespace tandem::library
