// Products of bfloat16 where the processor multiplies pairs of them (AVX-512 with BF16), summed in float32.
//
// The right side is packed in panels of 32 columns, rows in pairs: [panel][k / 2][32][2]. A tile of 12 rows and a panel
// stays in registers along all of k, so results do not depend on the number of threads. A few rows against a matrix
// whose columns are contiguous are dot products: the matrix is read once, as it lies.
#include <algorithm>
#include <cstring>
#include <utility>

#include "device/parallel.h"
#include "library/kernels/kernels.h"
#include "library/matmul_impl.h"
#include "library/registry.h"
#include "library/scratch.h"
#ifdef TANDEM_X86
#include <immintrin.h>
#endif

namespace tandem::library {
#ifdef TANDEM_X86
namespace {

#define TANDEM_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define TANDEM_INLINE TANDEM_BF16 inline __attribute__((always_inline))

constexpr int64_t kPanel = 32, kRows = 96, kFew = 4, kSide = 64;
constexpr double kPerProduct = 0.005;  // nanoseconds

bool has_bf16() {
  static const bool has = !std::strcmp(kernels().name, "avx512") && __builtin_cpu_supports("avx512bf16");
  return has;
}

int64_t up(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

TANDEM_INLINE __m512 widened(__mmask16 mask, const uint16_t* from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
}
TANDEM_INLINE void narrow(__m512 value, __mmask16 mask, uint16_t* to) {
  _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(value));
}
// sum += a b over pairs, in place: of the intrinsic the compiler makes copies, which do not fit the registers.
TANDEM_INLINE void multiply_add(__m512& sum, __m512i a, __m512i b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}
TANDEM_INLINE int32_t pair(const uint16_t* x) {
  int32_t word;
  std::memcpy(&word, x, sizeof word);
  return word;
}
__mmask16 lanes(int64_t n) {
  return n >= 16 ? 0xFFFF : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}

template <int M>
TANDEM_BF16 void tile(const uint16_t* a, int64_t row, const uint16_t* b, int64_t k2, int64_t n, const uint16_t* bias,
                      uint16_t* c, int64_t stride) {
  const __mmask16 near = lanes(n), far = lanes(n - 16);
  __m512 left[M], right[M];
  const __m512 first = bias ? widened(near, bias) : _mm512_setzero_ps();
  const __m512 second = bias ? widened(far, bias + 16) : _mm512_setzero_ps();
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) left[r] = first, right[r] = second;
  for (int64_t q = 0; q < k2; ++q, b += 2 * kPanel) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 32);
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
      const __m512i x = _mm512_set1_epi32(pair(a + r * row + 2 * q));
      multiply_add(left[r], x, b0);
      multiply_add(right[r], x, b1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) {
    narrow(left[r], near, c + r * stride);
    narrow(right[r], far, c + r * stride + 16);
  }
}

TANDEM_BF16 void rows_of_panel(const uint16_t* a, int64_t row, int64_t m, const uint16_t* b, int64_t k2, int64_t n,
                               const uint16_t* bias, uint16_t* c, int64_t stride) {
  int64_t i = 0;
  const auto run = [&](auto tile_of, int64_t rows) {
    tile_of(a + i * row, row, b, k2, n, bias, c + i * stride, stride);
    i += rows;
  };
  while (m - i >= 12) run(tile<12>, 12);
  while (m - i >= 6) run(tile<6>, 6);
  while (m - i >= 2) run(tile<2>, 2);
  while (m - i >= 1) run(tile<1>, 1);
}

// Dot products of M rows with one column, both contiguous along k.
template <int M>
TANDEM_BF16 void dots(const uint16_t* a, int64_t row, const uint16_t* b, int64_t k, float bias, uint16_t* c,
                      int64_t stride) {
  __m512 sums[M][2];
#pragma GCC unroll 4
  for (int r = 0; r < M; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  int64_t q = 0;
  for (; q + 64 <= k; q += 64) {
    const __m512i b0 = _mm512_loadu_si512(b + q), b1 = _mm512_loadu_si512(b + q + 32);
    _mm_prefetch(reinterpret_cast<const char*>(b + q + 1024), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(b + q + 1056), _MM_HINT_T0);
#pragma GCC unroll 4
    for (int r = 0; r < M; ++r) {
      multiply_add(sums[r][0], _mm512_loadu_si512(a + r * row + q), b0);
      multiply_add(sums[r][1], _mm512_loadu_si512(a + r * row + q + 32), b1);
    }
  }
  for (; q < k; q += 32) {
    const __mmask32 mask = k - q >= 32 ? 0xFFFFFFFF : (1u << (k - q)) - 1;
    const __m512i rest = _mm512_maskz_loadu_epi16(mask, b + q);
#pragma GCC unroll 4
    for (int r = 0; r < M; ++r) multiply_add(sums[r][0], _mm512_maskz_loadu_epi16(mask, a + r * row + q), rest);
  }
#pragma GCC unroll 4
  for (int r = 0; r < M; ++r) {
    const float total = _mm512_reduce_add_ps(_mm512_add_ps(sums[r][0], sums[r][1])) + bias;
    narrow(_mm512_set1_ps(total), 1, c + r * stride);
  }
}

struct Packed : Kept {
  Packed(const uint16_t* b, int64_t row, int64_t column, int64_t n, int64_t k) : k2(up(k, 2)) {
    const ScratchPool pool = std::exchange(scratch_pool, {});  // it may outlive the call
    memory.resize(static_cast<size_t>(up(n, kPanel) * kPanel * k2 * 2));
    scratch_pool = pool;
    parallel_for(up(n, kPanel), 0.3 * static_cast<double>(kPanel * k), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        pack(b + p * kPanel * column, row, column, std::min(kPanel, n - p * kPanel), k, p);
    });
  }
  const uint16_t* panel(int64_t index) const { return memory.data() + index * kPanel * k2 * 2; }

  int64_t k2;
  Scratch<uint16_t> memory;

 private:
  void pack(const uint16_t* b, int64_t row, int64_t column, int64_t n, int64_t k, int64_t index) {
    uint16_t* to = memory.data() + index * kPanel * k2 * 2;
    const int64_t pairs = k / 2;
    if (row == 1 && column % 2 == 0 && n == kPanel) {  // columns are contiguous: pairs are words
      kernels().transpose_u32(reinterpret_cast<const uint32_t*>(b), column / 2, reinterpret_cast<uint32_t*>(to), kPanel,
                              pairs, kPanel);
    } else {
      for (int64_t q = 0; q < pairs; ++q)
        for (int64_t j = 0; j < kPanel; ++j)
          for (int64_t i = 0; i < 2; ++i) to[(q * kPanel + j) * 2 + i] = j < n ? b[(2 * q + i) * row + j * column] : 0;
    }
    if (k % 2)
      for (int64_t j = 0; j < kPanel; ++j) {
        to[(pairs * kPanel + j) * 2] = j < n ? b[(k - 1) * row + j * column] : 0;
        to[(pairs * kPanel + j) * 2 + 1] = 0;
      }
  }
};

// Up to kSide rows of a left side whose columns are contiguous, as rows: two columns at a time become pairs, and these
// are turned as words.
TANDEM_BF16 void turn(const uint16_t* a, int64_t column, int64_t rows, int64_t k, uint16_t* to, int64_t row) {
  alignas(64) uint32_t pairs[kSide * kSide];
  const int64_t k2 = up(k, 2);
  for (int64_t from = 0; from < k2; from += kSide) {
    const int64_t count = std::min(kSide, k2 - from);
    for (int64_t q = 0; q < count; ++q) {
      const int64_t place = 2 * (from + q);
      const uint16_t* first = a + place * column;
      for (int64_t i = 0; i < rows; i += 16) {
        const __mmask16 mask = lanes(rows - i), second = place + 1 < k ? mask : 0;
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first + i));
        const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, first + column + i));
        _mm512_store_si512(pairs + q * kSide + i, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
      }
    }
    kernels().transpose_u32(pairs, kSide, reinterpret_cast<uint32_t*>(to) + from, row / 2, rows, count);
  }
}

void run_dots(const Batched& p, const uint16_t* a, const uint16_t* b, const uint16_t* bias, uint16_t* c) {
  parallel_for(p.n, 0.05 * static_cast<double>(p.k), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const uint32_t word = bias ? static_cast<uint32_t>(bias[j]) << 16 : 0;
      float start;
      std::memcpy(&start, &word, sizeof start);
      int64_t i = 0;
      for (; i + 4 <= p.m; i += 4)
        dots<4>(a + i * p.a.row, p.a.row, b + j * p.b.column, p.k, start, c + i * p.c.row + j, p.c.row);
      for (; i + 2 <= p.m; i += 2)
        dots<2>(a + i * p.a.row, p.a.row, b + j * p.b.column, p.k, start, c + i * p.c.row + j, p.c.row);
      for (; i < p.m; ++i)
        dots<1>(a + i * p.a.row, p.a.row, b + j * p.b.column, p.k, start, c + i * p.c.row + j, p.c.row);
    }
  });
}

}  // namespace

bool matmul_bf16(const Batched& p, std::unique_ptr<Kept>* kept) {
  if (p.dtype != DType::BFloat16 || !has_bf16() || p.batch.count(0, p.batch.ndim) != 1 || p.c.column != 1 || p.k == 0 ||
      p.n < 8)
    return false;
  const bool few = p.m <= kFew && p.b.row == 1 && p.a.column == 1;
  if (!few && p.m < 8 && !kept) return false;
  if (preparing()) return true;
  const auto* a = reinterpret_cast<const uint16_t*>(p.a.data);
  const auto* b = reinterpret_cast<const uint16_t*>(p.b.data);
  const auto* bias = reinterpret_cast<const uint16_t*>(p.bias);
  auto* c = reinterpret_cast<uint16_t*>(p.c.data);
  if (few) {
    run_dots(p, a, b, bias, c);
    return true;
  }
  const int64_t k2 = up(p.k, 2);
  Scratch<uint16_t> copy;
  int64_t row = p.a.row;
  if (p.a.column != 1 || p.k % 2) {
    row = 2 * k2;
    copy.resize(static_cast<size_t>(p.m * row));
    if (p.a.row == 1) {
      parallel_for(up(p.m, kSide), 0.1 * static_cast<double>(kSide * p.k), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * kSide; i < std::min(end * kSide, p.m); i += kSide)
          turn(a + i, p.a.column, std::min(kSide, p.m - i), p.k, copy.data() + i * row, row);
      });
    } else {
      parallel_for(p.m, 0.5 * static_cast<double>(p.k), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          for (int64_t q = 0; q < p.k; ++q) copy[i * row + q] = a[i * p.a.row + q * p.a.column];
          if (p.k % 2) copy[i * row + p.k] = 0;
        }
      });
    }
    a = copy.data();
  }
  const auto make = [&] { return std::make_unique<Packed>(b, p.b.row, p.b.column, p.n, p.k); };
  std::unique_ptr<Packed> own;
  const Packed& packed = kept ? kept_by<Packed>(*kept, make) : *(own = make());
  const int64_t panels = up(p.n, kPanel), blocks = up(p.m, kRows);
  const double cost = kPerProduct * static_cast<double>(std::min(p.m, kRows) * kPanel * p.k) + 0.1 * kPanel * p.k;
  parallel_for(panels * blocks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t panel = t / blocks, i = t % blocks * kRows, j = panel * kPanel;
      rows_of_panel(a + i * row, row, std::min(kRows, p.m - i), packed.panel(panel), k2, std::min(kPanel, p.n - j),
                    bias ? bias + j : nullptr, c + i * p.c.row + j, p.c.row);
    }
  });
  return true;
}
#else
bool matmul_bf16(const Batched&, std::unique_ptr<Kept>*) {
  return false;
}
#endif

}  // namespace tandem::library
