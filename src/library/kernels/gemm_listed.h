// Rows of a product whose left side is given as lists of what is not 0 (library/gemm_listed.cc).
#pragma once
#include "library/kernels/gemm_pack.h"

namespace tandem::library::TANDEM_ISA {

// As many accumulators as the registers hold beside the element that they are multiplied with: every vector of b is an
// operand of one multiplication, so that the loads it takes are shared by nobody.
constexpr int kListedVectors = 14;
constexpr int kListedColumns = kListedVectors * kWidth<float>;

// to[q * kListedColumns + j] = b(q, j), padded with zeros to whole vectors. Whether all of it is finite.
inline bool pack_listed(int64_t columns, int64_t k, Matrix<const float> b, float* to) {
  constexpr int W = kWidth<float>, P = kListedColumns;
  const int64_t padded = (columns + W - 1) / W * W;
  if (b.row == 1) {
    int64_t j = 0;
    for (; j + 8 <= columns; j += 8) {
      const float* from = b.data + j * b.column;
      int64_t q = 0;
      for (; q + 8 <= k; q += 8) transpose<float, 8, P>(from + q, b.column, to + q * P + j);
      for (; q < k; ++q)
        for (int i = 0; i < 8; ++i) to[q * P + j + i] = from[i * b.column + q];
    }
    for (int64_t q = 0; q < k; ++q)
      for (int64_t i = j; i < padded; ++i) to[q * P + i] = i < columns ? b.data[i * b.column + q] : 0;
  } else {
    for (int64_t q = 0; q < k; ++q) {
      const float* from = b.data + q * b.row;
      float* line = to + q * P;
      int64_t j = 0;
      if (b.column == 1)
        for (; j + W <= columns; j += W) store<float, W>(line + j, load<float, W>(from + j));
      for (; j < padded; ++j) line[j] = j < columns ? from[j * b.column] : 0;
    }
  }
  using Vector = typename VectorOf<float, W>::type;
  Vector sum[2] = {};
  for (int64_t q = 0; q < k; ++q)
    for (int64_t j = 0; j < padded; j += W) sum[q % 2] += load<float, W>(to + q * P + j) * 0.0f;  // NaN of what is not
  bool finite = true;
  for (int i = 0; i < W; ++i) finite = finite && sum[0][i] == 0 && sum[1][i] == 0;
  return finite;
}

inline void ask_for(Asks& asks, int64_t lines) {
  for (; lines > 0 && asks.at < asks.count; --lines) {
    const Ahead& part = asks.parts[asks.at];
    __builtin_prefetch(part.data + asks.row * part.stride + asks.next * part.step, 0, 2);
    if (++asks.next < part.count) continue;
    asks.next = 0;
    if (++asks.row == part.rows) asks.row = 0, ++asks.at;
  }
}

template <int N>
void listed_rows_of(int64_t rows, const ListedRow* a, const float* b, Matrix<float> c, bool accumulate,
                    const float* bias, Asks& asks, int64_t lines) {
  constexpr int W = kWidth<float>, kAhead = 96;
  using Vector = typename VectorOf<float, W>::type;
  float* to = c.data;
  for (const ListedRow* const stop = a + rows; a < stop; ++a, to += c.row) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) __builtin_prefetch(a->begin + kAhead + i * 8);
    ask_for(asks, lines);
    Vector sum[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) sum[i] = Vector{};
#pragma GCC unroll 1
    for (const Listed *element = a->begin, *const end = a->end; element < end; ++element) {
      uint64_t both;  // by one load, because it is loads that take the time
      __builtin_memcpy(&both, element, sizeof(both));
      asm("" : "+r"(both));
      const auto bits = static_cast<uint32_t>(both);
      float left;
      __builtin_memcpy(&left, &bits, sizeof(left));
      asm("" : "+x"(left));
      const float* right = b + (both >> 32);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) sum[i] += left * load<float, W>(right + i * W);
    }
    if (accumulate || bias) {
      const float* const from = accumulate ? to : bias;
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) sum[i] += load<float, W>(from + i * W);
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) store<float, W>(to + i * W, sum[i]);
  }
}

inline void listed_rows(int64_t rows, int64_t columns, const ListedRow* a, const float* b, Matrix<float> c,
                        bool accumulate, const float* bias, Asks& asks, int64_t lines) {
  static_assert(kListedVectors == 14);
  switch ((columns + kWidth<float> - 1) / kWidth<float>) {
#define CASE(N) \
  case N:       \
    return listed_rows_of<N>(rows, a, b, c, accumulate, bias, asks, lines);
    CASE(1)
    CASE(2)
    CASE(3)
    CASE(4)
    CASE(5)
    CASE(6)
    CASE(7)
    CASE(8)
    CASE(9)
    CASE(10)
    CASE(11)
    CASE(12)
    CASE(13)
    CASE(14)
#undef CASE
  }
}

constexpr ListedKernels listed_kernels() {
  return {kWidth<float>, kListedColumns, &pack_listed, &listed_rows};
}

}  // namespace tandem::library::TANDEM_ISA
