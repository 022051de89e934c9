// Products with the adjacency matrix of a graph, without an entry for every edge in between. `start` (n + 1) says where
// the edges of each of n rows begin, `column` (m) where they come from, `order` (m) the number of each edge; all int64.
//
// spmm (x, start, column, order, ...)          -> (n, h, d): sums over the edges of a row of x[column]
// spmm (x, values, start, column, order, ...)  -> (n, h, d): the same with weights values[order], (m, h)
// spmm (x, index, start, column)               -> (n, *rest): sums of rows of x (k, *rest), without weights
// sddmm (a, x, start, column, order, ...)      -> (m, h): entry order[q] is a[row] . x[column] of edge q, head by head
// segment_softmax (x, start)               -> (m, h): softmax over the rows of each segment, head by head
// segment_softmax_backward (y, g, start)   -> (m, h)
//
// x: (k, h, d), a: (n, h, d). Sums go in the order of the edges, so they do not depend on the number of threads.
#include <algorithm>

#include "device/parallel.h"
#include "library/kernels/kernels.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

// An operand as it lies in memory, or a contiguous copy of it.
class Dense {
 public:
  explicit Dense(const View& view) : view_(view) {
    if (view.is_contiguous()) return;
    memory_.resize(view.numel() * item_size(view.dtype));
    view_.data = memory_.data();
    set_contiguous(view_);
    copy_elements(view, view_);
  }
  template <typename T>
  const T* as() const {
    return view_.as<T>();
  }
  const View& view() const { return view_; }

 private:
  View view_;
  Scratch<char> memory_;
};

template <typename T>
const EdgeKernels<T>& edge_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().edge_f32;
  else
    return kernels().edge_f64;
}

template <typename Body>
void for_single_or_double(const char* routine, DType dtype, Body&& body) {
  if (dtype == DType::Float32) return body(Type<float>{});
  if (dtype == DType::Float64) return body(Type<double>{});
  unsupported(routine, dtype);
}

void check_index(const View& view) {
  TD_CHECK(view.dtype == DType::Int64 && view.ndim == 1, "edges are given by int64 vectors");
}

double cost_of(int64_t edges, int64_t rows, int64_t width) {  // of one row
  return static_cast<double>(edges) / std::max<int64_t>(rows, 1) * (3 + 0.3 * static_cast<double>(width)) + 5;
}

void run_spmm(const Call& call) {
  constexpr int kOfRows = 4, kPlain = 7, kWeighted = 8;  // further operands are of use to gradients only
  const bool weighted = call.num_inputs == kWeighted;
  TD_CHECK((weighted || call.num_inputs == kPlain || call.num_inputs == kOfRows) && call.num_outputs == 1);
  const int first = call.num_inputs == kPlain ? 1 : 2;  // where edges begin
  for (int i : {first, first + 1}) check_index(call.inputs[i]);
  const Dense x(call.inputs[0]), start(call.inputs[first]), column(call.inputs[first + 1]);
  const Dense values(call.inputs[weighted ? 1 : 0]), order(call.inputs[weighted ? first + 2 : first]);
  const View& out = call.outputs[0];
  TD_CHECK(out.is_contiguous() && out.shape[0] + 1 == start.view().shape[0] && (!weighted || out.ndim == 3));
  if (out.numel() == 0) return;
  const int64_t rows = out.shape[0], edges = column.view().shape[0], stride = out.numel() / rows;
  const int64_t heads = weighted ? out.shape[1] : 1, width = stride / heads;
  for_single_or_double("spmm", out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const EdgeRows<T> list{x.as<T>(),
                           stride,
                           heads,
                           width,
                           column.as<int64_t>(),
                           weighted ? order.as<int64_t>() : nullptr,
                           weighted ? values.as<T>() : nullptr};
    const auto& kernel = edge_kernels<T>();
    const int64_t* starts = start.as<int64_t>();
    parallel_for(rows, cost_of(edges, rows, stride), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) kernel.sum(list, starts[i], starts[i + 1], out.as<T>() + i * stride);
    });
  });
}

void run_sddmm(const Call& call) {
  TD_CHECK(call.num_inputs >= 5 && call.num_outputs == 1);
  for (int i : {2, 3, 4}) check_index(call.inputs[i]);
  const Dense a(call.inputs[0]), x(call.inputs[1]), start(call.inputs[2]), column(call.inputs[3]),
      order(call.inputs[4]);
  const View& out = call.outputs[0];
  TD_CHECK(a.view().ndim == 3 && x.view().ndim == 3 && out.is_contiguous() && out.ndim == 2);
  const int64_t rows = a.view().shape[0], heads = a.view().shape[1], width = a.view().shape[2];
  if (out.numel() == 0) return;
  for_single_or_double("sddmm", out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const EdgeRows<T> list{x.as<T>(), heads * width, heads, width, column.as<int64_t>(), order.as<int64_t>(), nullptr};
    const auto& kernel = edge_kernels<T>();
    const int64_t* starts = start.as<int64_t>();
    parallel_for(rows, cost_of(out.shape[0], rows, heads * width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        kernel.dot(list, a.as<T>() + i * heads * width, starts[i], starts[i + 1], out.as<T>());
    });
  });
}

void run_softmax(const Call& call) {
  const bool backward = call.num_inputs == 3;
  TD_CHECK((backward || call.num_inputs == 2) && call.num_outputs == 1);
  check_index(call.inputs[call.num_inputs - 1]);
  const Dense first(call.inputs[0]), second(call.inputs[backward ? 1 : 0]), start(call.inputs[call.num_inputs - 1]);
  const View& out = call.outputs[0];
  TD_CHECK(out.is_contiguous() && out.ndim == 2);
  const int64_t rows = start.view().shape[0] - 1, heads = out.shape[1];
  if (out.numel() == 0) return;
  for_single_or_double("segment_softmax", out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto& kernel = edge_kernels<T>();
    const int64_t* starts = start.as<int64_t>();
    const double cost = 3.0 * static_cast<double>(out.numel()) / static_cast<double>(rows) + 5;
    parallel_for(rows, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = starts[i] * heads, length = starts[i + 1] - starts[i];
        if (backward)
          kernel.softmax_backward(first.as<T>() + at, second.as<T>() + at, length, heads, out.as<T>() + at);
        else
          kernel.softmax(first.as<T>() + at, length, heads, out.as<T>() + at);
      }
    });
  });
}

const Register spmm("spmm", &run_spmm);
const Register sddmm("sddmm", &run_sddmm);
const Register segment_softmax("segment_softmax", &run_softmax);
const Register segment_softmax_backward("segment_softmax_backward", &run_softmax);

}  // namespace
}  // namespace tandem::library
