// What forward and backward of attention share: sizes, blocks, and one head's scores block by block.
//
// Note [Calls of attention]
// ints [causal, has_mask], or with score functions [causal, has_mask, has_kinds, rows, columns, kernels]: the last is a
// set of bits that says which kernels the call has (Note [Block kernels] in block_kernel.h), in the order of
// ScoreKernels. Operands end with the mask, then the kinds of blocks: (B or 1, H or 1, blocks of `rows` queries, blocks
// of `columns` keys), 0 where nobody sees anything, 1 where some do, 2 where all see all.
#pragma once
#include <algorithm>
#include <limits>

#include "library/block_kernel.h"
#include "library/gemm.h"
#include "library/kernels/kernels.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "tensor/view.h"

namespace tandem::library {

template <typename T>
const RowKernels<T>& row_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().row_f32;
  else
    return kernels().row_f64;
}

inline int64_t round_up_to(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Generated kernels over blocks of scores, which the first two change where they lie.
struct ScoreKernels {
  const BlockKernel* score = nullptr;   // what is done to the scaled scores
  const BlockKernel* masked = nullptr;  // that, and -inf for what may not be seen
  const BlockKernel* drop = nullptr;    // writes factors of the probabilities
  const BlockKernel* slope = nullptr;   // gradients by what `score` made become gradients by the scaled scores
};

enum class Seen : uint8_t { Nothing, Some, All };

struct AttentionSizes {
  int64_t batch, heads, queries, keys, depth, value_depth;
  bool causal;
  double scale;
  int64_t key_heads;           // each of them is that of heads / key_heads queries' heads
  const View* mask = nullptr;  // broadcasts to (B, H, queries, keys); bool: true takes part; float: added to the scores
  int64_t mask_strides[4] = {};
  const View* kinds = nullptr;
  int64_t kind_rows = 1, kind_columns = 1;
  ScoreKernels kernels;

  // Of q, k, v and what follows `operands` of the call's inputs; see Note [Calls of attention].
  AttentionSizes(const Call& call, const View& q, const View& k, const View& v, int operands);

  int64_t count() const { return batch * heads; }
  int64_t group() const { return heads / key_heads; }
  // The first head of queries for a head of keys, both counted through the whole batch.
  int64_t query_head(int64_t key_head) const { return key_head * group(); }

  // What queries [i, i + m) see of keys [j, j + n), but for causality.
  Seen seen(int64_t head, int64_t i, int64_t m, int64_t j, int64_t n) const;
};

template <typename T>
Matrix<T> head_of(const View& view, int64_t number) {  // (B, H, rows, columns)
  const int64_t b = number / view.shape[1], h = number % view.shape[1];
  return {const_cast<std::remove_const_t<T>*>(view.as<T>()) + b * view.strides[0] + h * view.strides[1],
          view.strides[2], view.strides[3]};
}
template <typename T>
Matrix<const T> input_head(const View& view, int64_t number) {
  const Matrix<T> head = head_of<T>(view, number);
  return {head.data, head.row, head.column};
}

// Blocks: the scores of a block of queries against a block of keys stay in the L2 cache.
template <typename T>
struct AttentionBlocks {
  int mr = gemm_kernels<T>().mr, nr = gemm_kernels<T>().nr;
  int64_t queries = 8 * mr, keys;  // a multiple of nr for every instruction set; small where blocks may be left out
  int64_t part = 2 * mr;           // of a block on the diagonal
  // Of rows of scores: room for whole tiles, and not a multiple of the cache's size, since columns are read, too.
  int64_t pitch = keys + 16;
  size_t scores = static_cast<size_t>(round_up_to(queries, mr) * pitch);

  explicit AttentionBlocks(const AttentionSizes& s) : keys(s.kinds ? 128 : 256) {}
};

// c (m, n) = a packed_b with a as it lies in memory, and no row behind its last is read. Needs c.column == 1.
template <typename T>
void product_in_place(int64_t m, int64_t n, int64_t k, Matrix<const T> a, const T* b, Matrix<T> c) {
  const GemmKernels<T>& gemm = gemm_kernels<T>();
  const int64_t mr = gemm.mr, whole = m / mr * mr, panel = k * gemm.nr;
  if (whole == 0 || (a.row != 1 && a.column != 1)) {
    const Scratch<T> copy(static_cast<size_t>(round_up_to(m, mr) * k));
    for (int64_t r = 0; r < m; ++r)
      for (int64_t p = 0; p < k; ++p) copy.data()[r * k + p] = a.data[r * a.row + p * a.column];
    std::fill(copy.data() + m * k, copy.data() + round_up_to(m, mr) * k, T(0));
    return gemm.product_of(m, n, k, {copy.data(), k, 1}, b, panel, c, false);
  }
  gemm.product_of(whole, n, k, a, b, panel, c, false);
  if (whole == m) return;
  const int64_t first = m - mr;  // some rows are computed twice
  gemm.product_of(mr, n, k, {a.data + first * a.row, a.row, a.column}, b, panel, {c.data + first * c.row, c.row, 1},
                  false);
}

// A block of scores: of queries [i, i + m) against keys [j, j + n), in rows of `pitch`.
template <typename T>
struct ScoreBlock {
  int64_t head, i, m, j, n;
  T* data;
  int64_t pitch;

  // Calls a kernel for it, with another block of the same place beside it.
  void call(const AttentionSizes& s, const BlockKernel& kernel, T* other = nullptr) const {
    const int64_t row = head * s.queries + i;
    kernel.run(row, row + m, j, j + n, {reinterpret_cast<char*>(data), reinterpret_cast<char*>(other)}, pitch,
               sizeof(T));
  }
};

// Raw scores are scaled here if they cannot be scaled on the way (see `factor`), changed and masked; causality is the
// caller's. `before`: where scaled scores go before they are changed, if that is asked for.
template <typename T>
void mask_scores(const AttentionSizes& s, const ScoreBlock<T>& block, Seen seen, T* before = nullptr);

// block *= factors, which lie alike.
template <typename T>
void multiply(const ScoreBlock<T>& block, const T* factors) {
  for (int64_t r = 0; r < block.m; ++r) {
    T* row = block.data + r * block.pitch;
    const T* from = factors + r * block.pitch;
    for (int64_t k = 0; k < block.n; ++k) row[k] *= from[k];
  }
}

// Whether mask_scores has anything to do. A scale that is positive keeps the order of scores, so that the maximum can
// be taken before.
inline bool scales_first(const AttentionSizes& s) {
  return s.mask || !(s.scale > 0) || s.kernels.score || s.kernels.masked;
}
// What raw scores are multiplied by after mask_scores.
template <typename T>
T factor(const AttentionSizes& s) {
  return scales_first(s) ? T(1) : static_cast<T>(s.scale);
}

// How many of n keys from j on are seen by at least one of the queries [i, i + m), and by query i alone.
inline int64_t visible(const AttentionSizes& s, int64_t i, int64_t m, int64_t j, int64_t n) {
  return s.causal ? std::clamp<int64_t>(i + m - j, 0, n) : n;
}
inline int64_t visible(const AttentionSizes& s, int64_t i, int64_t j, int64_t n) {
  return visible(s, i, 1, j, n);
}

// Calls f(row, rows, keys) for parts of m queries from i on, with as many of n keys from j on as any of them sees. On
// the diagonal parts are short, which leaves out tiles that nobody sees.
template <typename F>
void by_what_is_seen(const AttentionSizes& s, int64_t part, int64_t i, int64_t m, int64_t j, int64_t n, const F& f) {
  if (visible(s, i, j, n) == n) return f(int64_t{0}, m, n);
  for (int64_t row = 0; row < m; row += part) {
    const int64_t rows = std::min(part, m - row), keys = visible(s, i + row, rows, j, n);
    if (keys > 0) f(row, rows, keys);
  }
}
// The same the other way round: calls f(key, keys, first) for parts of n keys from j on, which no query before the
// first of m from i on sees.
template <typename F>
void by_who_sees(const AttentionSizes& s, int64_t part, int64_t i, int64_t m, int64_t j, int64_t n, const F& f) {
  const int64_t below = s.causal ? std::clamp<int64_t>((i - j) / part * part, 0, n) : n;  // seen by all
  if (below > 0) f(int64_t{0}, below, int64_t{0});
  for (int64_t key = below; key < n; key += part)
    if (const int64_t first = std::max<int64_t>(j + key - i, 0); first < m) f(key, std::min(part, n - key), first);
}

}  // namespace tandem::library
