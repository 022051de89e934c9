// attention_backward (g, q, k, v, out, lse[, mask][, kinds], ...) -> (dq, dk, dv[, dmask]), floats [scale]; see
// attention.cc. dmask, of float32 or float64 as lse is: (B or 1, H or 1, T or 1, S or 1), sums over what the mask is
// the same for. attention_backward_packed: the same into one output (B, T, 3, H, D), for queries, keys and values of
// one shape.
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
  const View* dmask;
  AttentionBlocks<T> blocks{s};
  const GemmKernels<T>& gemm = gemm_kernels<T>();
  const RowKernels<T>& rows = row_kernels<T>();
  int64_t depth = round_up_to(s.depth, blocks.nr), value_depth = round_up_to(s.value_depth, blocks.nr);
  int64_t query_blocks = (s.queries + blocks.queries - 1) / blocks.queries,
          key_blocks = (s.keys + blocks.keys - 1) / blocks.keys;

  // Everything of one head that several blocks use.
  struct Queries {
    int64_t number;
    Matrix<const T> q, g;
    Scratch<T> q_right, g_right;  // by block of queries, for the gradients of keys and values
    Scratch<T> delta;             // sum of g * out, for each query
  };
  struct Head {  // of keys, with those of queries that share it
    int64_t number;
    Scratch<T> k_right, v_right, k_wide;  // by block of keys; k_wide for the gradient of queries
    std::vector<Queries> queries;
  };

  void run() const {
    const int64_t count = s.batch * s.key_heads;
    const double cost = 5.0 * s.queries * s.keys * (s.depth + s.value_depth) * 0.03 * sizeof(T) / 4 * s.group();
    if (dmask) fill_zero(*dmask);
    const auto heads = [&](int64_t first, int64_t last, int64_t step) {
      for (int64_t number = first; number < last; number += step) {
        Head head;
        prepare(head, number);
        whole_head(head);
      }
    };
    // Heads with one mask come one after the other, so that no two threads add to its gradient, and in order.
    const bool one_batch = dmask && dmask->shape[0] == 1 && s.batch > 1, one_head = dmask && dmask->shape[1] == 1;
    const int64_t apart = one_head ? (one_batch ? 1 : s.batch) : one_batch ? s.key_heads : count;
    if (apart >= num_threads() || num_threads() == 1) {
      parallel_for(apart, cost * (count / apart), [&](int64_t begin, int64_t end) {
        for (int64_t number = begin; number < end; ++number) {
          if (one_head)
            heads(number * (count / apart), (number + 1) * (count / apart), 1);
          else
            heads(number, count, apart);
        }
      });
      return;
    }
    for (int64_t number = 0; number < count; ++number) {
      Head head;
      prepare(head, number);
      // Scores are computed twice here: once for each block of keys, once for each block of queries.
      const auto all_keys = [&](int64_t begin, int64_t end) {
        Worker worker(*this);
        for (int64_t block = begin; block < end; ++block) worker.for_keys(head, block, {});
      };
      if (dmask && dmask->shape[3] == 1)
        all_keys(0, key_blocks);
      else
        parallel_for(key_blocks, cost / key_blocks, all_keys);
      const int64_t all = query_blocks * s.group();
      parallel_for(all, cost / all, [&](int64_t begin, int64_t end) {
        Worker worker(*this);
        for (int64_t block = begin; block < end; ++block)
          worker.for_queries(head, head.queries[block / query_blocks], block % query_blocks);
      });
    }
  }

  void whole_head(const Head& head) const {
    Worker worker(*this);
    std::vector<Matrix<T>> sums;
    for (const Queries& one : head.queries) sums.push_back(head_of<T>(dq, one.number));
    if (key_blocks == 1 && sums[0].column == 1) return worker.for_keys(head, 0, sums);
    const int64_t size = s.queries * depth;
    const Scratch<T> memory(size * s.group());
    std::fill_n(memory.data(), size * s.group(), T(0));
    for (int64_t r = 0; r < s.group(); ++r) sums[r] = {memory.data() + r * size, depth, 1};
    for (int64_t block = 0; block < key_blocks; ++block) worker.for_keys(head, block, sums);
    for (int64_t r = 0; r < s.group(); ++r)
      store(sums[r].data, depth, dq, head.queries[r].number, 0, s.queries, s.depth);
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

  static Matrix<const T> from(const Matrix<const T>& x, int64_t row) { return {x.data + row * x.row, x.row, x.column}; }
  static Matrix<const T> across(const Matrix<const T>& x, int64_t row) {
    return {x.data + row * x.row, x.column, x.row};
  }

  void prepare(Head& head, int64_t number) const {
    head.number = number;
    const Matrix<const T> k_head = input_head<T>(k, number), v_head = input_head<T>(v, number);
    const int64_t keys = round_up_to(s.keys, blocks.nr);
    head.k_right.resize(keys * s.depth), head.v_right.resize(keys * s.value_depth), head.k_wide.resize(keys * depth);
    parallel_for(key_blocks, blocks.keys * (s.depth + s.value_depth) * 2.0, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t j = block * blocks.keys, n = std::min(blocks.keys, s.keys - j);
        gemm.pack(n, s.depth, blocks.nr, from(k_head, j), head.k_right.data() + j * s.depth);
        gemm.pack(n, s.value_depth, blocks.nr, from(v_head, j), head.v_right.data() + j * s.value_depth);
        gemm.pack(s.depth, n, blocks.nr, across(k_head, j), head.k_wide.data() + j * depth);
      }
    });
    head.queries = std::vector<Queries>(static_cast<size_t>(s.group()));
    for (int64_t r = 0; r < s.group(); ++r) prepare(head.queries[r], s.query_head(number) + r);
  }

  void prepare(Queries& head, int64_t number) const {
    head.number = number;
    head.q = input_head<T>(q, number), head.g = input_head<T>(g, number);
    const Matrix<const T> out_head = input_head<T>(out, number);
    const int64_t queries = query_blocks * blocks.queries;
    head.q_right.resize(queries * depth), head.g_right.resize(queries * value_depth);
    head.delta.resize(s.queries);
    parallel_for(query_blocks, blocks.queries * (s.depth + s.value_depth) * 2.0, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t i = block * blocks.queries, m = std::min(blocks.queries, s.queries - i);
        gemm.pack(s.depth, m, blocks.nr, across(head.q, i), head.q_right.data() + i * depth);
        gemm.pack(s.value_depth, m, blocks.nr, across(head.g, i), head.g_right.data() + i * value_depth);
        for (int64_t r = i; r < i + m; ++r) head.delta[r] = dot(from(head.g, r), from(out_head, r));
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
    Scratch<T> before{s.kernels.slope ? b.blocks.scores : 0}, factors{s.kernels.drop ? b.blocks.scores : 0};
    Scratch<T> key_sums{static_cast<size_t>(b.blocks.keys * b.depth)},
        value_sums{static_cast<size_t>(b.blocks.keys * b.value_depth)};
    Scratch<T> query_sums{static_cast<size_t>(b.blocks.queries * b.depth)};

    explicit Worker(const Backward& b) : b(b) {}

    // Probabilities and gradients of the scores for the first n keys of one block.
    void scores(const Head& head, const Queries& own, int64_t i, int64_t m, int64_t j, int64_t n, Seen kind,
                bool adds_mask) {
      const T* lse =
          b.lse.template as<T>() + own.number / s.heads * b.lse.strides[0] + own.number % s.heads * b.lse.strides[1];
      T *p = probabilities.data(), *d = gradients.data();
      by_what_is_seen(s, b.blocks.part, i, m, j, n, [&](int64_t row, int64_t count, int64_t seen) {
        product_in_place<T>(count, seen, s.depth, from(own.q, i + row), head.k_right.data() + j * s.depth,
                            {p + row * pitch, pitch, 1});
        product_in_place<T>(count, seen, s.value_depth, from(own.g, i + row), head.v_right.data() + j * s.value_depth,
                            {d + row * pitch, pitch, 1});
      });
      const ScoreBlock<T> weights{own.number, i, m, j, n, p, pitch}, slopes{own.number, i, m, j, n, d, pitch};
      mask_scores(s, weights, kind, s.kernels.slope ? before.data() : nullptr);
      if (s.kernels.drop) {
        ScoreBlock<T>{own.number, i, m, j, n, factors.data(), pitch}.call(s, *s.kernels.drop);
        multiply(slopes, factors.data());
      }
      // Where something is done to the gradients of what was exponentiated, they are scaled after it.
      const bool scales_last = s.kernels.slope || (b.dmask && adds_mask);
      const T first = factor<T>(s), scale = scales_last ? T(1) : static_cast<T>(s.scale);
      for (int64_t r = 0; r < m; ++r) {
        const T sum = lse[(i + r) * b.lse.strides[2]];
        T *p_row = p + r * pitch, *d_row = d + r * pitch;
        // A row that saw no key had a constant zero as its output.
        const int64_t seen = sum == -std::numeric_limits<T>::infinity() ? 0 : visible(s, i + r, j, n);
        b.rows.backward(p_row, d_row, seen, first, sum, own.delta[i + r], scale);
        std::fill(p_row + seen, p_row + n, T(0));
        std::fill(d_row + seen, d_row + n, T(0));
      }
      if (s.kernels.drop) multiply(weights, factors.data());
      if (b.dmask && adds_mask) add_to_mask(slopes);
      if (s.kernels.slope) ScoreBlock<T>{own.number, i, m, j, n, before.data(), pitch}.call(s, *s.kernels.slope, d);
      if (scales_last)
        for (int64_t r = 0; r < m; ++r) b.rows.scale(d + r * pitch, n, static_cast<T>(s.scale));
    }

    void add_to_mask(const ScoreBlock<T>& block) const {
      const View& view = *b.dmask;
      const auto step = [&](int axis) { return view.shape[axis] == 1 ? 0 : view.strides[axis]; };
      T* to = view.as<T>() + block.head / s.heads * step(0) + block.head % s.heads * step(1) + block.i * step(2) +
              block.j * step(3);
      for (int64_t r = 0; r < block.m; ++r) {
        const T* row = block.data + r * pitch;
        T* target = to + r * step(2);
        if (const int64_t across = step(3); across == 1)
          for (int64_t k = 0; k < block.n; ++k) target[k] += row[k];
        else
          for (int64_t k = 0; k < block.n; ++k) target[k * across] += row[k];
      }
    }

    // Gradients of one block of keys and values; with `sums`, also adds this block's part to the gradients of all
    // queries (or writes it, if there is no other).
    void for_keys(const Head& head, int64_t block, const std::vector<Matrix<T>>& sums) {
      const int64_t j = block * b.blocks.keys, n = std::min(b.blocks.keys, s.keys - j);
      std::fill_n(key_sums.data(), n * b.depth, T(0));
      std::fill_n(value_sums.data(), n * b.value_depth, T(0));
      for (size_t number = 0; number < head.queries.size(); ++number) {
        const Queries& own = head.queries[number];
        for (int64_t i = 0; i < s.queries; i += b.blocks.queries) {
          const int64_t m = std::min(b.blocks.queries, s.queries - i), seen = visible(s, i, m, j, n);
          const Seen kind = s.seen(own.number, i, m, j, n);
          if (seen == 0 || kind == Seen::Nothing) {
            if (!sums.empty() && b.key_blocks == 1)
              for (int64_t r = i; r < i + m; ++r) std::fill_n(sums[number].data + r * sums[number].row, s.depth, T(0));
            continue;
          }
          scores(head, own, i, m, j, seen, kind, true);
          by_who_sees(s, b.blocks.part, i, m, j, seen, [&](int64_t key, int64_t count, int64_t first) {
            const int64_t at = first * pitch + key, nr = b.blocks.nr;
            b.gemm.product_of(count, s.value_depth, m - first, {probabilities.data() + at, 1, pitch},
                              own.g_right.data() + i * b.value_depth + first * nr, m * nr,
                              {value_sums.data() + key * b.value_depth, b.value_depth, 1}, true);
            b.gemm.product_of(count, s.depth, m - first, {gradients.data() + at, 1, pitch},
                              own.q_right.data() + i * b.depth + first * nr, m * nr,
                              {key_sums.data() + key * b.depth, b.depth, 1}, true);
          });
          if (!sums.empty()) {
            const Matrix<T>& to = sums[number];
            add_queries(head, i, m, j, n, seen, {to.data + i * to.row, to.row, 1}, b.key_blocks > 1);
          }
        }
      }
      b.store(key_sums.data(), b.depth, b.dk, head.number, j, n, s.depth);
      b.store(value_sums.data(), b.value_depth, b.dv, head.number, j, n, s.value_depth);
    }

    void for_queries(const Head& head, const Queries& own, int64_t block) {
      const int64_t i = block * b.blocks.queries, m = std::min(b.blocks.queries, s.queries - i);
      std::fill_n(query_sums.data(), m * b.depth, T(0));
      for (int64_t j = 0; j < s.keys; j += b.blocks.keys) {
        const int64_t n = std::min(b.blocks.keys, s.keys - j), seen = visible(s, i, m, j, n);
        if (seen == 0) break;
        const Seen kind = s.seen(own.number, i, m, j, n);
        if (kind == Seen::Nothing) continue;
        scores(head, own, i, m, j, seen, kind, false);
        add_queries(head, i, m, j, n, seen, {query_sums.data(), b.depth, 1}, true);
      }
      b.store(query_sums.data(), b.depth, b.dq, own.number, i, m, s.depth);
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
  TD_CHECK(call.num_inputs >= 6 && (call.num_outputs == 3 || call.num_outputs == 4) && call.num_ints >= 2 &&
           call.num_floats == 1);
  const View* in = call.inputs;
  const View &g = in[0], &q = in[1], &k = in[2], &v = in[3], &out = in[4], &lse = in[5];
  TD_CHECK(g.ndim == 4 && q.ndim == 4 && k.ndim == 4 && v.ndim == 4 && lse.ndim == 3, "attention");
  if (q.dtype == DType::Float16 || q.dtype == DType::BFloat16) {
    Scratch<char> memory[8];
    std::vector<View> wide(in, in + call.num_inputs), results(call.outputs, call.outputs + call.num_outputs);
    for (int i = 0; i < 5; ++i) wide[i] = contiguous_as(in[i], DType::Float32, memory[i]);
    for (int i = 0; i < 3; ++i) {
      results[i].dtype = DType::Float32;
      memory[5 + i].resize(results[i].numel() * 4);
      results[i].data = memory[5 + i].data();
      set_contiguous(results[i]);
    }
    Call again = call;
    again.inputs = wide.data(), again.outputs = results.data();
    run_backward(again);
    for (int i = 0; i < 3; ++i) convert_elements(results[i], call.outputs[i]);
    return;
  }
  const AttentionSizes s(call, q, k, v, 6);
  const View &dq = call.outputs[0], &dk = call.outputs[1], &dv = call.outputs[2];
  const View* dmask = call.num_outputs == 4 ? &call.outputs[3] : nullptr;
  TD_CHECK(lse.dtype == q.dtype && lse.shape[2] == s.queries && g.shape[3] == s.value_depth, "sizes of attention");
  TD_CHECK(!dmask || (s.mask && dmask->ndim == 4 && dmask->dtype == q.dtype), "the mask's gradient");
  if (s.count() == 0 || s.queries == 0 || s.keys == 0) {
    for (int i = 0; i < call.num_outputs; ++i)
      if (call.outputs[i].numel()) fill_zero(call.outputs[i]);
    return;
  }
  if (q.dtype == DType::Float32)
    Backward<float>{s, g, q, k, v, out, lse, dq, dk, dv, dmask}.run();
  else if (q.dtype == DType::Float64)
    Backward<double>{s, g, q, k, v, out, lse, dq, dk, dv, dmask}.run();
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
