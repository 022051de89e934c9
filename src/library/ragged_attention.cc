// Attention within sequences that lie one after the other, without padding.
//
// ragged_attention (q, k, v, start_q, start_k) -> (out, lse), ints [causal], floats [scale]
// ragged_attention_backward (g, q, k, v, out, lse, start_q, start_k) -> (dq, dk, dv)
//
// q is (T, H, D), k (S, H, D), v (S, H, E), out (T, H, E), lse (H, T). Sequence b has queries start_q[b] to start_q[b +
// 1] and keys start_k[b] to start_k[b + 1]; both begin with 0 and end with T and S. Each is a call of attention (see
// attention.cc) on its part of the memory.
#include "check.h"
#include "library/registry.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

class Starts {
 public:
  Starts(const View& view, int64_t total) : view_(view) {
    TD_CHECK(view.dtype == DType::Int64 && view.ndim == 1 && view.shape[0] >= 1, "starts of sequences");
    for (int64_t b = 0; b < count(); ++b)
      if (at(b + 1) < at(b)) fail(ErrorKind::Value, "starts of sequences fall from ", at(b), " to ", at(b + 1));
    if (at(0) != 0 || at(count()) != total)
      fail(ErrorKind::Value, "starts of sequences go from ", at(0), " to ", at(count()), ", but there are ", total,
           " rows");
  }
  int64_t count() const { return view_.shape[0] - 1; }
  int64_t at(int64_t b) const { return view_.as<int64_t>()[b * view_.strides[0]]; }
  int64_t length(int64_t b) const { return at(b + 1) - at(b); }

 private:
  const View& view_;
};

// Rows first to first + length of x (T, H, D), as (1, H, length, D).
View part(const View& x, int64_t first, int64_t length) {
  View made = x;
  made.data += first * x.strides[0] * static_cast<int64_t>(item_size(x.dtype));
  made.ndim = 4;
  made.shape[0] = 1, made.shape[1] = x.shape[1], made.shape[2] = length, made.shape[3] = x.shape[2];
  made.strides[0] = 0, made.strides[1] = x.strides[1], made.strides[2] = x.strides[0], made.strides[3] = x.strides[2];
  return made;
}

View part_of_sums(const View& lse, int64_t first, int64_t length) {  // (H, T) as (1, H, length)
  View made = lse;
  made.data += first * lse.strides[1] * static_cast<int64_t>(item_size(lse.dtype));
  made.ndim = 3;
  made.shape[0] = 1, made.shape[1] = lse.shape[0], made.shape[2] = length;
  made.strides[0] = 0, made.strides[1] = lse.strides[0], made.strides[2] = lse.strides[1];
  return made;
}

void run_forward(const Call& call) {
  TD_CHECK(call.num_inputs == 5 && call.num_outputs == 2 && call.num_ints == 1 && call.num_floats == 1);
  const View *in = call.inputs, *to = call.outputs;
  const Starts queries(in[3], in[0].shape[0]), keys(in[4], in[1].shape[0]);
  static const Function attention = find("attention");
  const int64_t ints[2] = {call.ints[0], 0};
  for (int64_t b = 0; b < queries.count(); ++b) {
    const int64_t first = queries.at(b), length = queries.length(b);
    if (length == 0) continue;
    const View inputs[3] = {part(in[0], first, length), part(in[1], keys.at(b), keys.length(b)),
                            part(in[2], keys.at(b), keys.length(b))};
    const View outputs[2] = {part(to[0], first, length), part_of_sums(to[1], first, length)};
    Call one = call;
    one.inputs = inputs, one.num_inputs = 3, one.outputs = outputs, one.ints = ints, one.num_ints = 2;
    attention(one);
  }
}

void run_backward(const Call& call) {
  TD_CHECK(call.num_inputs == 8 && call.num_outputs == 3 && call.num_ints == 1 && call.num_floats == 1);
  const View *in = call.inputs, *to = call.outputs;
  const Starts queries(in[6], in[1].shape[0]), keys(in[7], in[2].shape[0]);
  static const Function backward = find("attention_backward");
  const int64_t ints[2] = {call.ints[0], 0};
  for (int64_t b = 0; b < queries.count(); ++b) {
    const int64_t first = queries.at(b), length = queries.length(b), key = keys.at(b), count = keys.length(b);
    const View outputs[3] = {part(to[0], first, length), part(to[1], key, count), part(to[2], key, count)};
    if (length == 0 || count == 0) {
      for (const View& view : outputs)
        if (view.numel()) fill_zero(view);
      continue;
    }
    const View inputs[6] = {part(in[0], first, length), part(in[1], first, length), part(in[2], key, count),
                            part(in[3], key, count),    part(in[4], first, length), part_of_sums(in[5], first, length)};
    Call one = call;
    one.inputs = inputs, one.num_inputs = 6, one.outputs = outputs, one.ints = ints, one.num_ints = 2;
    backward(one);
  }
}

const Register forward("ragged_attention", &run_forward);
const Register backward("ragged_attention_backward", &run_backward);

}  // namespace
}  // namespace tandem::library
