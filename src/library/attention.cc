// attention (q, k, v[, mask][, kinds], ...) -> (out, lse), floats [scale]; see Note [Calls of attention].
//
// q is (B, H, T, D), k (B, G, S, D), v (B, G, S, E), out (B, H, T, E), lse (B, H, T): the logarithm of each row's sum
// of exponentials, which the backward pass needs; float64 for float64 inputs, else float32. Heads of queries share
// those of keys in groups of H / G. The mask broadcasts to (B, H, T, S) by strides. Causal: query i sees keys 0 to i. A
// row that sees no key gives zeros, and lse -inf.
//
// Scores exist only a block at a time, with a running maximum and sum for each row, so memory is linear in T and S.
#include <cmath>

#include "device/parallel.h"
#include "library/attention_impl.h"
#include "library/convert.h"
#include "library/registry.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

template <typename T>
struct Forward {
  const AttentionSizes& s;
  const View &q, &k, &v, &out, &lse;
  AttentionBlocks<T> blocks{s};
  const GemmKernels<T>& gemm = gemm_kernels<T>();
  const RowKernels<T>& rows = row_kernels<T>();
  int64_t padded_values = round_up_to(s.value_depth, blocks.nr);

  void run() const {
    const double cost = 2.0 * s.queries * s.keys * (s.depth + s.value_depth) * 0.03 * sizeof(T) / 4 * s.group();
    // Many heads: a thread takes whole ones. Few: the threads share the queries of each.
    const int64_t count = s.batch * s.key_heads;
    if (count >= 2 * num_threads()) {
      parallel_for(count, cost, [&](int64_t begin, int64_t end) {
        for (int64_t head = begin; head < end; ++head) one_head(head, cost);
      });
    } else {
      for (int64_t head = 0; head < count; ++head) one_head(head, cost);
    }
  }

  // Keys and values are packed once for all queries of their head.
  void one_head(int64_t key_head, double cost) const {
    const Scratch<T> keys(round_up_to(s.keys, blocks.nr) * s.depth), values(padded_values * s.keys);
    const Matrix<const T> k_head = input_head<T>(k, key_head), v_head = input_head<T>(v, key_head);
    const int64_t key_blocks = (s.keys + blocks.keys - 1) / blocks.keys;
    parallel_for(key_blocks, blocks.keys * (s.depth + s.value_depth) * 1.0, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t j = block * blocks.keys, n = std::min(blocks.keys, s.keys - j);
        gemm.pack(n, s.depth, blocks.nr, {k_head.data + j * k_head.row, k_head.row, k_head.column},
                  keys.data() + j * s.depth);
        gemm.pack(s.value_depth, n, blocks.nr, {v_head.data + j * v_head.row, v_head.column, v_head.row},
                  values.data() + j * padded_values);
      }
    });
    const int64_t query_blocks = (s.queries + blocks.queries - 1) / blocks.queries, all = query_blocks * s.group();
    parallel_for(all, cost / all, [&](int64_t begin, int64_t end) {
      Worker worker(*this);
      for (int64_t block = begin; block < end; ++block)
        worker.run(s.query_head(key_head) + block / query_blocks, block % query_blocks * blocks.queries, keys.data(),
                   values.data());
    });
  }

  struct Worker {
    const Forward& f;
    const AttentionSizes& s = f.s;
    int64_t most = f.blocks.queries;
    Scratch<T> scores{f.blocks.scores}, factors{s.kernels.drop ? f.blocks.scores : 0};
    Scratch<T> sums{static_cast<size_t>(most * std::max<int64_t>(f.padded_values, 1))};
    Scratch<T> top{static_cast<size_t>(most)}, total{static_cast<size_t>(most)};

    explicit Worker(const Forward& f) : f(f) {}

    void run(int64_t head, int64_t i, const T* keys, const T* values) {
      const int64_t m = std::min(most, s.queries - i), pitch = f.blocks.pitch, width = f.padded_values;
      const Matrix<const T> q_head = input_head<T>(f.q, head);
      std::fill_n(top.data(), m, -std::numeric_limits<T>::infinity());
      std::fill_n(total.data(), m, T(0));
      std::fill_n(sums.data(), m * width, T(0));
      const T scale = factor<T>(s);
      for (int64_t j = 0; j < s.keys; j += f.blocks.keys) {
        const int64_t whole = std::min(f.blocks.keys, s.keys - j), n = visible(s, i, m, j, whole);
        if (n == 0) break;
        const Seen kind = s.seen(head, i, m, j, n);
        if (kind == Seen::Nothing) continue;
        by_what_is_seen(s, f.blocks.part, i, m, j, n, [&](int64_t row, int64_t count, int64_t seen) {
          product_in_place<T>(count, seen, s.depth, {q_head.data + (i + row) * q_head.row, q_head.row, q_head.column},
                              keys + j * s.depth, {scores.data() + row * pitch, pitch, 1});
        });
        const ScoreBlock<T> block{head, i, m, j, n, scores.data(), pitch};
        mask_scores(s, block, kind);
        for (int64_t r = 0; r < m; ++r) {
          T* row = scores.data() + r * pitch;
          const int64_t seen = visible(s, i + r, j, n);
          std::fill(row + seen, row + n, T(0));
          if (seen == 0) continue;
          const T highest = std::max(top[r], f.rows.max(row, seen) * scale);
          const T shift = std::isinf(highest) ? T(0) : highest;              // so that -inf stays -inf
          const bool first = top[r] == -std::numeric_limits<T>::infinity();  // nothing was summed, or zeros
          const T fade = first ? T(0) : std::exp(top[r] - shift);
          total[r] = total[r] * fade + f.rows.exp_sum(row, seen, scale, shift);
          if (!first && fade != T(1)) f.rows.scale(sums.data() + r * width, width, fade);
          top[r] = highest;
        }
        if (s.kernels.drop) {
          ScoreBlock<T>{head, i, m, j, n, factors.data(), pitch}.call(s, *s.kernels.drop);
          multiply(block, factors.data());
        }
        by_what_is_seen(s, f.blocks.part, i, m, j, n, [&](int64_t row, int64_t count, int64_t seen) {
          f.gemm.product_of(count, s.value_depth, seen, {scores.data() + row * pitch, pitch, 1}, values + j * width,
                            whole * f.blocks.nr, {sums.data() + row * width, width, 1}, true);
        });
      }
      write(head, i, m);
    }

    void write(int64_t head, int64_t i, int64_t m) {
      const Matrix<T> out = head_of<T>(f.out, head);
      T* lse = f.lse.as<T>() + head / s.heads * f.lse.strides[0] + head % s.heads * f.lse.strides[1];
      for (int64_t r = 0; r < m; ++r) {
        // Zero is the sum of a row that sees no key; NaN goes on.
        const T inverse = total[r] == T(0) ? T(0) : T(1) / total[r];
        const T* from = sums.data() + r * f.padded_values;
        T* to = out.data + (i + r) * out.row;
        if (out.column == 1) {
          for (int64_t d = 0; d < s.value_depth; ++d) to[d] = from[d] * inverse;
        } else {
          for (int64_t d = 0; d < s.value_depth; ++d) to[d * out.column] = from[d] * inverse;
        }
        const T shift = std::isinf(top[r]) ? T(0) : top[r];
        lse[(i + r) * f.lse.strides[2]] =
            total[r] == T(0) ? -std::numeric_limits<T>::infinity() : shift + std::log(total[r]);
      }
    }
  };
};

// A few queries, as when text is generated: keys and values are read once, where they lie.
template <typename T>
struct FewQueries {
  const AttentionSizes& s;
  const View &q, &k, &v, &out, &lse;
  const GemmKernels<T>& gemm = gemm_kernels<T>();
  const RowKernels<T>& rows = row_kernels<T>();

  static constexpr int64_t kMost = 8;         // queries for a head of keys: packing is worth its while for more
  static constexpr int64_t kLongest = 16384;  // keys: threads share heads alone

  bool suits() const {
    const bool plain = !s.kinds && !s.kernels.score && !s.kernels.masked && !s.kernels.drop && !s.causal;
    const bool dense = q.strides[3] == 1 && k.strides[3] == 1 && v.strides[3] == 1 && out.strides[3] == 1;
    const bool few = s.queries * s.group() <= kMost && 4 * s.queries <= s.keys;
    return plain && dense && few && s.keys <= kLongest;
  }

  void run() const {
    const double cost = s.keys * (s.depth + s.value_depth) * sizeof(T) * 0.05 * static_cast<double>(s.group());
    parallel_for(s.batch * s.key_heads, cost, [&](int64_t begin, int64_t end) {
      const Scratch<T> scores(static_cast<size_t>(kMost * s.keys));
      for (int64_t head = begin; head < end; ++head) one_head(head, scores.data());
    });
  }

  void one_head(int64_t key_head, T* scores) const {
    const int64_t first = s.query_head(key_head), group = s.group();
    const Matrix<const T> keys = input_head<T>(k, key_head), values = input_head<T>(v, key_head);
    const T scale = factor<T>(s);
    // Heads that share keys are rows of one product where each has one query.
    const int64_t together = s.queries == 1 ? group : 1;
    for (int64_t g = 0; g < group; g += together) {
      const int64_t m = together * s.queries;
      const Matrix<const T> queries = input_head<T>(q, first + g);
      const int64_t q_row = s.queries == 1 ? q.strides[1] : queries.row;
      gemm.dot(m, s.keys, s.depth, {queries.data, q_row, 1}, {keys.data, 1, keys.row}, {scores, s.keys, 1}, nullptr);
      const Matrix<T> to = head_of<T>(out, first + g);
      const int64_t to_row = s.queries == 1 ? out.strides[1] : to.row;
      for (int64_t r = 0; r < m; ++r) weigh(scores + r * s.keys, first + g + r / s.queries, r % s.queries, scale);
      gemm.thin(m, s.value_depth, s.keys, {scores, s.keys, 1}, {values.data, values.row, 1}, {to.data, to_row, 1},
                nullptr);
    }
  }

  // Scores of a query become the weights of values.
  void weigh(T* row, int64_t head, int64_t query, T scale) const {
    mask_scores(s, ScoreBlock<T>{head, query, 1, 0, s.keys, row, s.keys}, Seen::All);
    const T highest = rows.max(row, s.keys) * scale;
    const T shift = std::isinf(highest) ? T(0) : highest;  // so that -inf stays -inf
    const T total = rows.exp_sum(row, s.keys, scale, shift);
    rows.scale(row, s.keys, total == T(0) ? T(0) : T(1) / total);  // zero: it sees no key; NaN goes on
    T* sum = lse.as<T>() + head / s.heads * lse.strides[0] + head % s.heads * lse.strides[1] + query * lse.strides[2];
    *sum = total == T(0) ? -std::numeric_limits<T>::infinity() : shift + std::log(total);
  }
};

template <typename T>
void run_for(const AttentionSizes& s, const View& q, const View& k, const View& v, const View& out, const View& lse) {
  const FewQueries<T> few{s, q, k, v, out, lse};
  if (few.suits()) return few.run();
  Forward<T>{s, q, k, v, out, lse}.run();
}

void run_attention(const Call& call) {
  TD_CHECK(call.num_inputs >= 3 && call.num_outputs == 2 && call.num_ints >= 2 && call.num_floats == 1);
  const View &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2], &out = call.outputs[0],
             &lse = call.outputs[1];
  TD_CHECK(q.ndim == 4 && k.ndim == 4 && v.ndim == 4 && out.ndim == 4 && lse.ndim == 3, "attention");
  if (q.dtype == DType::Float16 || q.dtype == DType::BFloat16) {
    Scratch<char> memory[4];
    std::vector<View> wide(call.inputs, call.inputs + call.num_inputs);
    for (int i = 0; i < 3; ++i) wide[i] = contiguous_as(call.inputs[i], DType::Float32, memory[i]);
    View result = out;
    result.dtype = DType::Float32;
    memory[3].resize(out.numel() * 4);
    result.data = memory[3].data();
    set_contiguous(result);
    const View results[2] = {result, lse};
    Call again = call;
    again.inputs = wide.data(), again.outputs = results;
    run_attention(again);
    return convert_elements(result, out);
  }
  const AttentionSizes s(call, q, k, v, 3);
  TD_CHECK(k.shape[3] == s.depth && v.shape[2] == s.keys && out.shape[2] == s.queries &&
               out.shape[3] == s.value_depth && lse.shape[2] == s.queries && lse.dtype == q.dtype,
           "sizes of attention");
  if (lse.numel() == 0) return;
  if (q.dtype == DType::Float32)
    run_for<float>(s, q, k, v, out, lse);
  else if (q.dtype == DType::Float64)
    run_for<double>(s, q, k, v, out, lse);
  else
    unsupported("attention", q.dtype);
}

const Register attention("attention", &run_attention);

}  // namespace
}  // namespace tandem::library
