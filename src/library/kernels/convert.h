// 16-bit floats to and from float32, rounding to nearest even.
#pragma once
#include <cstdint>
#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "library/half.h"

namespace tandem::library::TANDEM_ISA {

inline void from_half(const uint16_t* from, float* to, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
  for (; i < n; ++i) to[i] = half_to_float(from[i]);
}

inline void to_half(const float* from, uint16_t* to, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
#endif
  for (; i < n; ++i) to[i] = float_to_half(from[i]);
}

inline void from_bfloat16(const uint16_t* from, float* to, int64_t n) {
  uint32_t* bits = reinterpret_cast<uint32_t*>(to);
  for (int64_t i = 0; i < n; ++i) bits[i] = static_cast<uint32_t>(from[i]) << 16;
}

inline void to_bfloat16(const float* from, uint16_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = float_to_bfloat16(from[i]);
}

}  // namespace tandem::library::TANDEM_ISA
