// What the ways to compute a product share.
#pragma once
#include <algorithm>

#include "library/gemm.h"

namespace tandem::library {

inline int64_t divide_up(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}
inline int64_t round_up(int64_t n, int64_t multiple) {
  return divide_up(n, multiple) * multiple;
}

inline int64_t even_depth(int64_t k, int64_t most) {
  return round_up(divide_up(k, divide_up(k, most)), 8);
}

// A part of a matrix, of `rows` by `columns` elements; nothing where the part fills no cache lines.
template <typename T>
Ahead lines_of(const Matrix<const T>& x, int64_t rows, int64_t columns) {
  if (x.column != 1 && x.row != 1) return {};
  const bool along = x.column == 1;
  const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data) % 64);
  const int64_t bytes = static_cast<int64_t>((along ? columns : rows) * sizeof(T)) + misaligned;
  const int64_t lines = divide_up(bytes, 64), others = along ? rows : columns;
  const int64_t apart = static_cast<int64_t>((along ? x.row : x.column) * sizeof(T));
  const char* data = reinterpret_cast<const char*>(x.data) - misaligned;
  if (lines < others) return {data, others, apart, lines, 64};
  return {data, lines, 64, others, apart};
}

// What the epilogue of a block of c will read and write, to be asked for while the block is computed.
template <typename T>
Asks asks_of(const Product<T>& p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  Asks asks;
  if (!p.epilogue || sizeof(T) != 4) return asks;
  const Epilogue& e = *p.epilogue;
  for (int i = 0; i < e.num_alike; ++i) {
    const T* data = static_cast<const T*>(e.pointers[e.alike[i]]) + row * p.n + column;
    asks.add(lines_of(Matrix<const T>{data, p.n, 1}, rows, columns));
  }
  return asks;
}

}  // namespace tandem::library
