#include "library/gemm_int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "library/kernels/kernels.h"
#ifdef TANDEM_X86
#include <immintrin.h>
#endif

namespace tandem::library {
namespace {

constexpr int64_t kPanel = kInt8Panel;

void finish(const int32_t* sums, int64_t first, int64_t n, float x_scale, const Int8Output& output, float* c) {
  for (int64_t j = 0; j < n; ++j) {
    const int64_t o = first + j;
    const auto exact = static_cast<float>(sums[j] - static_cast<int32_t>(kInt8Zero) * output.weight_sums[o]);
    c[j] = exact * (x_scale * output.scale[o]) + (output.bias ? output.bias[o] : 0.0f);
  }
}

// -- any processor

void panel_row(const uint8_t* x, const int8_t* w, int64_t k4, int32_t* sums) {
  std::memset(sums, 0, kPanel * sizeof(int32_t));
  for (int64_t q = 0; q < k4; ++q, x += 4, w += kPanel * 4)
    for (int64_t j = 0; j < kPanel; ++j)
      for (int64_t i = 0; i < 4; ++i) sums[j] += static_cast<int32_t>(x[i]) * w[j * 4 + i];
}

void panel_int4(const int8_t* x, const float* x_scale, const int32_t* x_sums, const uint8_t* w, const float* scale,
                int64_t outputs, int64_t count, int64_t groups, int64_t g, float* c) {
  for (int64_t j = 0; j < count; ++j) c[j] = 0;
  for (int64_t group = 0; group < groups; ++group, x += g) {
    int32_t sums[kInt4Panel] = {};
    for (int64_t i = 0; i < g / 8; ++i)
      for (int64_t j = 0; j < kInt4Panel; ++j)
        for (int64_t b = 0; b < 4; ++b) {
          const uint8_t both = *w++;
          sums[j] += (both & 15) * x[4 * i + b] + (both >> 4) * x[g / 2 + 4 * i + b];
        }
    for (int64_t j = 0; j < count; ++j)
      c[j] += static_cast<float>(sums[j] - 8 * x_sums[group]) * (x_scale[group] * scale[group * outputs + j]);
  }
}

#ifdef TANDEM_X86
#define TANDEM_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define TANDEM_AVX2 __attribute__((target("avx2,fma")))

bool has_vnni() {
  static const bool has = !std::strcmp(kernels().name, "avx512") && __builtin_cpu_supports("avx512vnni");
  return has;
}
bool has_avx2() {
  static const bool has = std::strcmp(kernels().name, "baseline") != 0;
  return has;
}

TANDEM_VNNI inline int32_t four(const uint8_t* x) {
  int32_t word;
  std::memcpy(&word, x, sizeof word);
  return word;
}

// -- AVX-512 with VNNI: M rows and a panel in registers

// sum += u w, in place: of the intrinsic the compiler makes copies, which do not fit the registers.
TANDEM_VNNI inline __attribute__((always_inline)) void multiply_add(__m512i& sum, __m512i u, __m512i w) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(w));
}

__mmask16 mask_of(int64_t n) {
  return n >= 16 ? 0xFFFF : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}

// Sixteen outputs, fewer at the end: what is done to their sums.
struct Columns {
  __mmask16 mask;
  __m512i off;
  __m512 scale, bias;
  const float* x_scale;
  float* c;
  int64_t stride;

  TANDEM_VNNI inline __attribute__((always_inline)) Columns(const Int8Output& output, const float* x_scale,
                                                            int64_t first, int64_t n, float* c, int64_t stride)
      : mask(mask_of(n)), x_scale(x_scale), c(c), stride(stride) {
    const __m512i zero = _mm512_set1_epi32(static_cast<int>(kInt8Zero));
    off = _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(mask, output.weight_sums + first), zero);
    scale = _mm512_maskz_loadu_ps(mask, output.scale + first);
    bias = output.bias ? _mm512_maskz_loadu_ps(mask, output.bias + first) : _mm512_setzero_ps();
  }
  TANDEM_VNNI inline __attribute__((always_inline)) void store(__m512i sums, int64_t r) const {
    const __m512 exact = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums, off));
    const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale[r]));
    _mm512_mask_storeu_ps(c + r * stride, mask, _mm512_fmadd_ps(exact, factor, bias));
  }
};

// Sums as they are.
struct Sums {
  __mmask16 mask;
  int32_t* c;
  int64_t stride;

  TANDEM_VNNI inline __attribute__((always_inline)) void store(__m512i sums, int64_t r) const {
    _mm512_mask_storeu_epi32(c + r * stride, mask, sums);
  }
};

template <int M, class Out>
TANDEM_VNNI void tile(const uint8_t* x, int64_t row, const int8_t* w, int64_t k4, const Out& near, const Out& far,
                      int64_t first) {
  constexpr int U = M == 1 ? 4 : M == 2 ? 2 : 1;  // chains for each sum, so that few rows do not wait for one
  __m512i left[M][U], right[M][U];
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r)
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) left[r][u] = right[r][u] = _mm512_setzero_si512();
  int64_t q = 0;
  for (; q + U <= k4; q += U, w += U * kPanel * 4)
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      const __m512i w0 = _mm512_loadu_si512(w + u * kPanel * 4), w1 = _mm512_loadu_si512(w + u * kPanel * 4 + 64);
      if (M <= 2) _mm_prefetch(reinterpret_cast<const char*>(w + u * kPanel * 4 + 2048), _MM_HINT_T0);
      if (M <= 2) _mm_prefetch(reinterpret_cast<const char*>(w + u * kPanel * 4 + 2112), _MM_HINT_T0);
#pragma GCC unroll 16
      for (int r = 0; r < M; ++r) {
        const __m512i a = _mm512_set1_epi32(four(x + r * row + (q + u) * 4));
        multiply_add(left[r][u], a, w0);
        multiply_add(right[r][u], a, w1);
      }
    }
  for (; U > 1 && q < k4; ++q, w += kPanel * 4) {
    const __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 64);
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
      const __m512i a = _mm512_set1_epi32(four(x + r * row + q * 4));
      multiply_add(left[r][0], a, w0);
      multiply_add(right[r][0], a, w1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) {
#pragma GCC unroll 4
    for (int u = 1; u < U; ++u) {
      left[r][0] = _mm512_add_epi32(left[r][0], left[r][u]);
      right[r][0] = _mm512_add_epi32(right[r][0], right[r][u]);
    }
    near.store(left[r][0], first + r);
    far.store(right[r][0], first + r);
  }
}

// A panel: the first sixteen outputs and the others.
template <class Out>
TANDEM_VNNI void vnni_rows(const uint8_t* x, int64_t row, int64_t m, const int8_t* w, int64_t k4, const Out& near,
                           const Out& far) {
  int64_t i = 0;
  const auto run = [&](auto tile_of, int64_t rows) {
    tile_of(x + i * row, row, w, k4, near, far, i);
    i += rows;
  };
  while (m - i >= 12) run(tile<12, Out>, 12);
  while (m - i >= 6) run(tile<6, Out>, 6);
  while (m - i >= 4) run(tile<4, Out>, 4);
  while (m - i >= 2) run(tile<2, Out>, 2);
  while (m - i >= 1) run(tile<1, Out>, 1);
}

TANDEM_VNNI void vnni_scaled(const uint8_t* x, int64_t row, const float* x_scale, int64_t m, const int8_t* w,
                             int64_t k4, int64_t first, int64_t n, const Int8Output& output, float* c, int64_t stride) {
  vnni_rows(x, row, m, w, k4, Columns(output, x_scale, first, n, c, stride),
            Columns(output, x_scale, first + 16, n - 16, c + 16, stride));
}

TANDEM_VNNI void vnni_sums(const uint8_t* x, int64_t row, int64_t m, const int8_t* w, int64_t k4, int64_t n, int32_t* c,
                           int64_t stride) {
  vnni_rows(x, row, m, w, k4, Sums{mask_of(n), c, stride}, Sums{mask_of(n - 16), c + 16, stride});
}

TANDEM_VNNI void vnni_int4(const int8_t* x, const float* x_scale, const int32_t* x_sums, const uint8_t* w,
                           const float* scale, int64_t outputs, int64_t count, int64_t groups, int64_t g, float* c) {
  const __m512i low = _mm512_set1_epi8(15);
  const __mmask16 mask = count >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << count) - 1);
  __m512 result = _mm512_setzero_ps();
  const auto* bytes = reinterpret_cast<const uint8_t*>(x);
  for (int64_t group = 0; group < groups; ++group, bytes += g) {
    __m512i a = _mm512_set1_epi32(-8 * x_sums[group]), b = _mm512_setzero_si512();
    for (int64_t i = 0; i < g / 8; ++i, w += 64) {
      const __m512i both = _mm512_loadu_si512(w);
      _mm_prefetch(reinterpret_cast<const char*>(w + 2048), _MM_HINT_T0);
      const __m512i first = _mm512_and_si512(both, low), second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
      a = _mm512_dpbusd_epi32(a, first, _mm512_set1_epi32(four(bytes + 4 * i)));
      b = _mm512_dpbusd_epi32(b, second, _mm512_set1_epi32(four(bytes + g / 2 + 4 * i)));
    }
    const __m512 factor =
        _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, scale + group * outputs), _mm512_set1_ps(x_scale[group]));
    result = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(a, b)), factor, result);
  }
  _mm512_mask_storeu_ps(c, mask, result);
}

// -- AVX2: bytes widened to 16 bits; four outputs to a vector, as two halves of a sum each

TANDEM_AVX2 void avx2_row(const uint8_t* x, const int8_t* w, int64_t k4, int32_t* sums) {
  __m256i parts[8];
  for (__m256i& p : parts) p = _mm256_setzero_si256();
  for (int64_t q = 0; q < k4; ++q, x += 4, w += kPanel * 4) {
    int32_t word;
    std::memcpy(&word, x, sizeof word);
    const __m256i a = _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(word)));
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      const __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 16 * v)));
      parts[v] = _mm256_add_epi32(parts[v], _mm256_madd_epi16(a, b));
    }
  }
  for (int v = 0; v < 8; ++v) {
    alignas(32) int32_t halves[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(halves), parts[v]);
    for (int j = 0; j < 4; ++j) sums[4 * v + j] = halves[2 * j] + halves[2 * j + 1];
  }
}

TANDEM_AVX2 float avx2_largest(const float* x, int64_t k) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 most = _mm256_setzero_ps(), odd = most;
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    most = _mm256_max_ps(most, _mm256_andnot_ps(sign, v));
    odd = _mm256_add_ps(odd, _mm256_sub_ps(v, v));  // NaN where one is infinite or NaN
  }
  alignas(32) float lanes[8], others[8];
  _mm256_store_ps(lanes, most), _mm256_store_ps(others, odd);
  float largest = 0, strange = 0;
  for (int j = 0; j < 8; ++j) largest = std::max(largest, lanes[j]), strange += others[j];
  for (; i < k; ++i) largest = std::max(largest, std::abs(x[i])), strange += x[i] - x[i];
  return largest + strange;
}

TANDEM_AVX2 int64_t avx2_quantize(const float* x, int64_t k, float inverse, int zero, uint8_t* q) {
  const __m256 factor = _mm256_set1_ps(inverse), most = _mm256_set1_ps(127), least = _mm256_set1_ps(-127);
  const __m128i shift = _mm_set1_epi8(static_cast<char>(zero));
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), factor);
    const __m256i whole = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(scaled, most), least));
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    const __m128i bytes = _mm_add_epi8(_mm_packs_epi16(words, words), shift);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(q + i), bytes);
  }
  return i;
}
#endif

// Rounds half to even, as td.round does; NaN becomes the largest.
void quantize_all(const float* x, int64_t k, float inverse, int zero, uint8_t* q) {
  int64_t i = 0;
#ifdef TANDEM_X86
  if (has_avx2()) i = avx2_quantize(x, k, inverse, zero, q);
#endif
  for (; i < k; ++i) {
    const float scaled = x[i] * inverse;
    const float within = scaled < 127 ? (scaled > -127 ? scaled : -127.0f) : 127.0f;
    q[i] = static_cast<uint8_t>(static_cast<int>(std::nearbyint(within)) + zero);
  }
}

void sums_of_row(const uint8_t* x, const int8_t* w, int64_t k4, int32_t* sums) {
#ifdef TANDEM_X86
  if (has_avx2()) return avx2_row(x, w, k4, sums);
#endif
  panel_row(x, w, k4, sums);
}

float scale_of(float largest) {  // NaN makes all results of the row NaN
  return largest == 0 ? 1.0f : largest / 127;
}

}  // namespace

float largest_number(const float* x, int64_t k) {
#ifdef TANDEM_X86
  if (has_avx2()) return avx2_largest(x, k);
#endif
  float largest = 0, strange = 0;
  for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(x[i])), strange += x[i] - x[i];
  return largest + strange;
}

float quantize_row(const float* x, int64_t k, int64_t padded, float scale, uint8_t* q) {
  if (scale == 0) scale = scale_of(largest_number(x, k));
  quantize_all(x, k, 1 / scale, static_cast<int>(kInt8Zero), q);
  std::memset(q + k, static_cast<int>(kInt8Zero), static_cast<size_t>(padded - k));
  return scale;
}

float quantize_group(const float* x, int64_t k, int8_t* q, int32_t* sum) {
  const float scale = scale_of(largest_number(x, k));
  quantize_all(x, k, 1 / scale, 0, reinterpret_cast<uint8_t*>(q));
  int32_t total = 0;
  for (int64_t i = 0; i < k; ++i) total += q[i];
  *sum = total;
  return scale;
}

void int8_rows(const uint8_t* x, int64_t row, const float* x_scale, int64_t m, const int8_t* panels, int64_t k4,
               int64_t first, int64_t n, const Int8Output& output, float* c, int64_t stride) {
  for (int64_t j = 0; j < n; j += kPanel) {
    const int64_t count = std::min(kPanel, n - j), o = first * kPanel + j;
    const int8_t* w = panels + o * k4 * 4;
#ifdef TANDEM_X86
    if (has_vnni()) {
      vnni_scaled(x, row, x_scale, m, w, k4, o, count, output, c + j, stride);
      continue;
    }
#endif
    for (int64_t i = 0; i < m; ++i) {
      int32_t sums[kPanel];
      sums_of_row(x + i * row, w, k4, sums);
      finish(sums, o, count, x_scale[i], output, c + i * stride + j);
    }
  }
}

void int8_sums(const uint8_t* x, int64_t row, int64_t m, const int8_t* panels, int64_t k4, int64_t n, int32_t* c,
               int64_t stride) {
  for (int64_t j = 0; j < n; j += kPanel) {
    const int64_t count = std::min(kPanel, n - j);
    const int8_t* w = panels + j * k4 * 4;
#ifdef TANDEM_X86
    if (has_vnni()) {
      vnni_sums(x, row, m, w, k4, count, c + j, stride);
      continue;
    }
#endif
    for (int64_t i = 0; i < m; ++i) {
      int32_t sums[kPanel];
      sums_of_row(x + i * row, w, k4, sums);
      std::memcpy(c + i * stride + j, sums, static_cast<size_t>(count) * sizeof(int32_t));
    }
  }
}

void int4_row(const int8_t* x, const float* x_scale, const int32_t* x_sums, const uint8_t* panels, const float* scale,
              int64_t groups, int64_t g, int64_t outputs, int64_t first, int64_t n, const float* bias, float* c) {
  for (int64_t j = 0; j < n; j += kInt4Panel) {
    const int64_t count = std::min(kInt4Panel, n - j), o = first * kInt4Panel + j;
    const uint8_t* w = panels + o / kInt4Panel * groups * g / 8 * 64;
#ifdef TANDEM_X86
    if (has_vnni())
      vnni_int4(x, x_scale, x_sums, w, scale + o, outputs, count, groups, g, c + j);
    else
#endif
      panel_int4(x, x_scale, x_sums, w, scale + o, outputs, count, groups, g, c + j);
    if (bias)
      for (int64_t i = 0; i < count; ++i) c[j + i] += bias[o + i];
  }
}

}  // namespace tandem::library
