// attention_backward (g, q, k, v, out, lse[, mask]) -> (dq, dk, dv), ints [causal, has_mask], floats [scale]; see
// attention.cc.
// attention_backward_packed: the same into one output (B, T, 3, H, D), for queries, keys and values of one shape.
//
// Probabilities are recomputed block by block from the saved row sums. No two threads add to one element, and the order
// of additions is fixed, so results do not depend on the number of threads.
#include <cmath>

#include "device/parallel.h"
#include "library/attention_impl.h"
#include "library/convert.h"
#include "library/registry.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

template <typename T>
struct Backward {
  const AttentionSizes& s;
  const View &g, &q, &k, &v, &out, &lse, &dq, &dk, &dv;
  AttentionBlocks<T> blocks;
  const GemmKernels<T>& gemm = gemm_kernels<T>();
  const RowKernels<T>& rows = row_kernels<T>();
  int64_t depth = round_up_to(s.depth, blocks.nr), value_depth = round_up_to(s.value_depth, blocks.nr);
  int64_t query_blocks = (s.queries + blocks.queries - 1) / blocks.queries,
          key_blocks = (s.keys + blocks.keys - 1) / blocks.keys;

  // Everything of one head that several blocks use.
  struct Head {
    int64_t number;
    Matrix<const T> q, g;
    Scratch<T> q_right, g_right;          // by block of queries, for the gradients of keys and values
    Scratch<T> k_right, v_right, k_wide;  // by block of keys; k_wide for the gradient of queries
    Scratch<T> delta;                     // sum of g * out, for each query
  };

  void run() const {
    const double cost = 5.0 * s.queries * s.keys * (s.depth + s.value_depth) * 0.03 * sizeof(T) / 4;
    if (s.count() >= num_threads() || num_threads() == 1) {
      parallel_for(s.count(), cost, [&](int64_t begin, int64_t end) {
        for (int64_t number = begin; number < end; ++number) {
          Head head;
          prepare(head, number);
          whole_head(head);
        }
      });
      return;
    }
    for (int64_t number = 0; number < s.count(); ++number) {
      Head head;
      prepare(head, number);
      // Scores are computed twice here: once for each block of keys, once for each block of queries.
      parallel_for(key_blocks, cost / key_blocks, [&](int64_t begin, int64_t end) {
        Worker worker(*this);
        for (int64_t block = begin; block < end; ++block) worker.for_keys(head, block, nullptr);
      });
      parallel_for(query_blocks, cost / query_blocks, [&](int64_t begin, int64_t end) {
        Worker worker(*this);
        for (int64_t block = begin; block < end; ++block) worker.for_queries(head, block);
      });
    }
  }

  void whole_head(const Head& head) const {
    Worker worker(*this);
    if (const Matrix<T> to = head_of<T>(dq, head.number); key_blocks == 1 && to.column == 1)
      return worker.for_keys(head, 0, &to);
    const Scratch<T> memory(s.queries * depth);
    std::fill_n(memory.data(), s.queries * depth, T(0));
    const Matrix<T> sums{memory.data(), depth, 1};
    for (int64_t block = 0; block < key_blocks; ++block) worker.for_keys(head, block, &sums);
    store(memory.data(), depth, dq, head.number, 0, s.queries, s.depth);
  }

  void store(const T* from, int64_t pitch, const View& view, int64_t number, int64_t first, int64_t count,
             int64_t columns) const {
    const Matrix<T> to = head_of<T>(view, number);
    if (to.column == 1) {
      for (int64_t r = 0; r < count; ++r) std::copy_n(from + r * pitch, columns, to.data + (first + r) * to.row);
      return;
    }
    for (int64_t r = 0; r < count; ++r)
      for (int64_t d = 0; d < columns; ++d) to.data[(first + r) * to.row + d * to.column] = from[r * pitch + d];
  }

  void prepare(Head& head, int64_t number) const {
    head.number = number;
    const Matrix<const T> q_head = input_head<T>(q, number), k_head = input_head<T>(k, number),
                          v_head = input_head<T>(v, number);
    const Matrix<const T> g_head = input_head<T>(g, number), out_head = input_head<T>(out, number);
    const int64_t queries = query_blocks * blocks.queries, keys = round_up_to(s.keys, blocks.nr);
    head.q = q_head, head.g = g_head;
    head.q_right.resize(queries * depth), head.g_right.resize(queries * value_depth);
    head.k_right.resize(keys * s.depth), head.v_right.resize(keys * s.value_depth), head.k_wide.resize(keys * depth);
    head.delta.resize(s.queries);
    const auto from = [](const Matrix<const T>& x, int64_t row) {
      return Matrix<const T>{x.data + row * x.row, x.row, x.column};
    };
    const auto across = [](const Matrix<const T>& x, int64_t row) {
      return Matrix<const T>{x.data + row * x.row, x.column, x.row};
    };
    parallel_for(query_blocks, blocks.queries * (s.depth + s.value_depth) * 2.0, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t i = block * blocks.queries, m = std::min(blocks.queries, s.queries - i);
        gemm.pack(s.depth, m, blocks.nr, across(q_head, i), head.q_right.data() + i * depth);
        gemm.pack(s.value_depth, m, blocks.nr, across(g_head, i), head.g_right.data() + i * value_depth);
        for (int64_t r = i; r < i + m; ++r) head.delta[r] = dot(from(g_head, r), from(out_head, r));
      }
    });
    parallel_for(key_blocks, blocks.keys * (s.depth + s.value_depth) * 2.0, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t j = block * blocks.keys, n = std::min(blocks.keys, s.keys - j);
        gemm.pack(n, s.depth, blocks.nr, from(k_head, j), head.k_right.data() + j * s.depth);
        gemm.pack(n, s.value_depth, blocks.nr, from(v_head, j), head.v_right.data() + j * s.value_depth);
        gemm.pack(s.depth, n, blocks.nr, across(k_head, j), head.k_wide.data() + j * depth);
      }
    });
  }

  T dot(const Matrix<const T>& x, const Matrix<const T>& y) const {
    if (x.column == 1 && y.column == 1) return rows.dot(x.data, y.data, s.value_depth);
    T sum = 0;
    for (int64_t d = 0; d < s.value_depth; ++d) sum += x.data[d * x.column] * y.data[d * y.column];
    return sum;
  }

  struct Worker {
    const Backward& b;
    const AttentionSizes& s = b.s;
    int64_t pitch = b.blocks.pitch;
    Scratch<T> probabilities{b.blocks.scores}, gradients{b.blocks.scores};
    Scratch<T> key_sums{static_cast<size_t>(b.blocks.keys * b.depth)},
        value_sums{static_cast<size_t>(b.blocks.keys * b.value_depth)};
    Scratch<T> query_sums{static_cast<size_t>(b.blocks.queries * b.depth)};

    explicit Worker(const Backward& b) : b(b) {}

    // Probabilities and gradients of the scores for the first n keys of one block.
    void scores(const Head& head, int64_t i, int64_t m, int64_t j, int64_t n) {
      const T* lse =
          b.lse.template as<T>() + head.number / s.heads * b.lse.strides[0] + head.number % s.heads * b.lse.strides[1];
      T *p = probabilities.data(), *d = gradients.data();
      by_what_is_seen(s, b.blocks.part, i, m, j, n, [&](int64_t row, int64_t count, int64_t seen) {
        const auto from = [&](const Matrix<const T>& x) {
          return Matrix<const T>{x.data + (i + row) * x.row, x.row, x.column};
        };
        product_in_place<T>(count, seen, s.depth, from(head.q), head.k_right.data() + j * s.depth,
                            {p + row * pitch, pitch, 1});
        product_in_place<T>(count, seen, s.value_depth, from(head.g), head.v_right.data() + j * s.value_depth,
                            {d + row * pitch, pitch, 1});
      });
      mask_scores(s, head.number, i, m, j, n, p, pitch);
      const T before = factor<T>(s), scale = static_cast<T>(s.scale);
      for (int64_t r = 0; r < m; ++r) {
        const T sum = lse[(i + r) * b.lse.strides[2]];
        T *p_row = p + r * pitch, *d_row = d + r * pitch;
        // A row that saw no key had a constant zero as its output.
        const int64_t seen = sum == -std::numeric_limits<T>::infinity() ? 0 : visible(s, i + r, j, n);
        b.rows.backward(p_row, d_row, seen, before, sum, head.delta[i + r], scale);
        std::fill(p_row + seen, p_row + n, T(0));
        std::fill(d_row + seen, d_row + n, T(0));
      }
    }

    // Gradients of one block of keys and values; with `sums`, also adds this block's part to the gradient of all
    // queries (or writes it, if there is no other).
    void for_keys(const Head& head, int64_t block, const Matrix<T>* sums) {
      const int64_t j = block * b.blocks.keys, n = std::min(b.blocks.keys, s.keys - j);
      std::fill_n(key_sums.data(), n * b.depth, T(0));
      std::fill_n(value_sums.data(), n * b.value_depth, T(0));
      for (int64_t i = 0; i < s.queries; i += b.blocks.queries) {
        const int64_t m = std::min(b.blocks.queries, s.queries - i), seen = visible(s, i, m, j, n);
        if (seen == 0) continue;
        scores(head, i, m, j, seen);
        by_who_sees(s, b.blocks.part, i, m, j, seen, [&](int64_t key, int64_t count, int64_t first) {
          const int64_t at = first * pitch + key, nr = b.blocks.nr;
          b.gemm.product_of(count, s.value_depth, m - first, {probabilities.data() + at, 1, pitch},
                            head.g_right.data() + i * b.value_depth + first * nr, m * nr,
                            {value_sums.data() + key * b.value_depth, b.value_depth, 1}, true);
          b.gemm.product_of(count, s.depth, m - first, {gradients.data() + at, 1, pitch},
                            head.q_right.data() + i * b.depth + first * nr, m * nr,
                            {key_sums.data() + key * b.depth, b.depth, 1}, true);
        });
        if (sums) add_queries(head, i, m, j, n, seen, {sums->data + i * sums->row, sums->row, 1}, b.key_blocks > 1);
      }
      b.store(key_sums.data(), b.depth, b.dk, head.number, j, n, s.depth);
      b.store(value_sums.data(), b.value_depth, b.dv, head.number, j, n, s.value_depth);
    }

    void for_queries(const Head& head, int64_t block) {
      const int64_t i = block * b.blocks.queries, m = std::min(b.blocks.queries, s.queries - i);
      std::fill_n(query_sums.data(), m * b.depth, T(0));
      for (int64_t j = 0; j < s.keys; j += b.blocks.keys) {
        const int64_t n = std::min(b.blocks.keys, s.keys - j), seen = visible(s, i, m, j, n);
        if (seen == 0) break;
        scores(head, i, m, j, seen);
        add_queries(head, i, m, j, n, seen, {query_sums.data(), b.depth, 1}, true);
      }
      b.store(query_sums.data(), b.depth, b.dq, head.number, i, m, s.depth);
    }

    void add_queries(const Head& head, int64_t i, int64_t m, int64_t j, int64_t n, int64_t seen, Matrix<T> sums,
                     bool accumulate) {
      by_what_is_seen(s, b.blocks.part, i, m, j, seen, [&](int64_t row, int64_t count, int64_t keys) {
        b.gemm.product_of(count, s.depth, keys, {gradients.data() + row * pitch, pitch, 1},
                          head.k_wide.data() + j * b.depth, n * b.blocks.nr, {sums.data + row * sums.row, sums.row, 1},
                          accumulate);
      });
    }
  };
};

void run_backward(const Call& call) {
  TD_CHECK(call.num_inputs >= 6 && call.num_outputs == 3 && call.num_ints == 2 && call.num_floats == 1);
  const View* in = call.inputs;
  const View &g = in[0], &q = in[1], &k = in[2], &v = in[3], &out = in[4], &lse = in[5];
  const bool has_mask = call.ints[1] != 0;
  TD_CHECK(g.ndim == 4 && q.ndim == 4 && k.ndim == 4 && v.ndim == 4 && lse.ndim == 3 && call.num_inputs == 6 + has_mask,
           "attention");
  if (q.dtype == DType::Float16 || q.dtype == DType::BFloat16) {
    Scratch<char> memory[8];
    View wide[7], results[3];
    for (int i = 0; i < 5; ++i) wide[i] = contiguous_as(in[i], DType::Float32, memory[i]);
    wide[5] = lse;
    if (has_mask) wide[6] = in[6];
    for (int i = 0; i < 3; ++i) {
      results[i] = call.outputs[i];
      results[i].dtype = DType::Float32;
      memory[5 + i].resize(results[i].numel() * 4);
      results[i].data = memory[5 + i].data();
      set_contiguous(results[i]);
    }
    Call again = call;
    again.inputs = wide, again.outputs = results;
    run_backward(again);
    for (int i = 0; i < 3; ++i) convert_elements(results[i], call.outputs[i]);
    return;
  }
  AttentionSizes s{q.shape[0], q.shape[1], q.shape[2],        k.shape[2],
                   q.shape[3], v.shape[3], call.ints[0] != 0, call.floats[0]};
  if (has_mask) s.mask = &in[6];
  TD_CHECK(lse.dtype == q.dtype && lse.shape[2] == s.queries && g.shape[3] == s.value_depth, "sizes of attention");
  if (s.count() == 0) return;
  if (s.queries == 0 || s.keys == 0) {
    for (int i = 0; i < 3; ++i) fill_zero(call.outputs[i]);
    return;
  }
  const View &dq = call.outputs[0], &dk = call.outputs[1], &dv = call.outputs[2];
  if (q.dtype == DType::Float32)
    Backward<float>{s, g, q, k, v, out, lse, dq, dk, dv}.run();
  else if (q.dtype == DType::Float64)
    Backward<double>{s, g, q, k, v, out, lse, dq, dk, dv}.run();
  else
    unsupported("attention", q.dtype);
}

void run_backward_packed(const Call& call) {
  TD_CHECK(call.num_outputs == 1 && call.outputs[0].ndim == 5 && call.outputs[0].shape[2] == 3, "packed gradients");
  const View& all = call.outputs[0];
  constexpr int kAxes[] = {0, 3, 1, 4};  // batch, heads, positions, depth
  View parts[3];
  for (int part = 0; part < 3; ++part) {
    View& view = parts[part];
    view.data = all.data + part * all.strides[2] * static_cast<int64_t>(item_size(all.dtype));
    view.dtype = all.dtype;
    view.ndim = 4;
    for (int i = 0; i < 4; ++i) view.shape[i] = all.shape[kAxes[i]], view.strides[i] = all.strides[kAxes[i]];
  }
  Call apart = call;
  apart.outputs = parts, apart.num_outputs = 3;
  run_backward(apart);
}

const Register attention_backward("attention_backward", &run_backward);
const Register attention_backward_packed("attention_backward_packed", &run_backward_packed);

}  // namespace
}  // namespace tandem::library
