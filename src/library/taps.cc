// Elements of planes (n, c, size) at places (n, points), with weights: what reading images between their elements comes
// to. The places are `taps` tensors of offsets into a plane, int32 or int64, of which a negative one stands for
// nothing; neighbouring ones in runs of `run` taps are usually neighbours in memory. float32 and float64.
//   tap_sum (x, offsets..., weights...) -> (n, c, points), ints [taps, run]: sums of weights times elements; without
//   weights, they are 1. tap_scatter (g (n, c, points), offsets..., weights...) -> (n, c, size), ints [taps, run,
//   size]: its gradient by x. tap_dot (g, x, offsets...) -> taps tensors (n, points), ints [taps, run]: its gradients
//   by the weights.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "check.h"
#include "device/parallel.h"
#include "library/kernels/kernels.h"
#include "library/registry.h"
#include "library/scratch.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

constexpr int64_t kBlock = 64;  // points whose places and weights are gathered at a time
constexpr int kMostTaps = 64;

template <typename T>
const TapKernels<T>& tap_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().tap_f32;
  else
    return kernels().tap_f64;
}

// A view whose elements lie one after the other: itself, or a copy.
class Dense {
 public:
  explicit Dense(const View& view) : view(view) {
    if (view.is_contiguous()) return;
    copy_.resize(view.numel() * item_size(view.dtype));
    this->view.data = copy_.data();
    int64_t step = 1;
    for (int i = view.ndim - 1; i >= 0; --i) this->view.strides[i] = step, step *= view.shape[i];
    copy_elements(view, this->view);
  }
  View view;

 private:
  Scratch<char> copy_;
};

// The places and weights of some points of one plane, point by point.
template <typename T>
struct Points {
  Points(const Call& call, int first_offset, int first_weight)
      : taps(static_cast<int>(call.ints[0])), run(static_cast<int>(call.ints[1])) {
    TD_CHECK(taps >= 1 && taps <= kMostTaps && run >= 1 && taps % run == 0, "taps");
    TD_CHECK(call.num_inputs == first_weight || call.num_inputs == first_weight + taps, "weights of taps");
    for (int i = first_offset; i < call.num_inputs; ++i) {
      const View& v = call.inputs[i];
      const bool weight = i >= first_weight;
      TD_CHECK(v.ndim == 2 && v.shape[0] == call.inputs[first_offset].shape[0] &&
                   v.shape[1] == call.inputs[first_offset].shape[1] &&
                   (weight ? v.dtype == call.inputs[0].dtype : v.dtype == DType::Int32 || v.dtype == DType::Int64),
               "operands of taps");
      lists.push_back(std::make_unique<Dense>(v));
    }
    batch = lists[0]->view.shape[0], count = lists[0]->view.shape[1];
  }

  // Room for a block, of one thread's own.
  struct Block {
    explicit Block(const Points& p) : offsets(kBlock * p.taps), weights(kBlock * p.taps), regular(kBlock), data{} {
      data = {offsets.data(), weights.data(), regular.data(), 0, p.taps, p.run};
    }
    std::vector<int64_t> offsets;
    std::vector<T> weights;
    std::vector<uint8_t> regular;
    TapBlock<T> data;
  };

  void read(Block& block, int64_t n, int64_t begin, int64_t end) const {
    const int64_t points = block.data.points = end - begin, from = n * count + begin;
    for (int t = 0; t < taps; ++t) {
      const View& offsets = lists[t]->view;
      if (offsets.dtype == DType::Int32)
        spread(offsets.as<int32_t>() + from, points, block.offsets.data() + t);
      else
        spread(offsets.as<int64_t>() + from, points, block.offsets.data() + t);
      if (static_cast<int>(lists.size()) > taps)
        spread(lists[taps + t]->view.template as<T>() + from, points, block.weights.data() + t);
      else
        for (int64_t i = 0; i < points; ++i) block.weights[i * taps + t] = 1;
    }
    for (int64_t i = 0; i < points; ++i) {
      const int64_t* at = block.offsets.data() + i * taps;
      bool regular = true;
      for (int t = 0; t < taps; ++t) regular &= t % run ? at[t] == at[t - 1] + 1 : at[t] >= 0;
      block.regular[i] = regular;
    }
  }

  template <typename From, typename To>
  void spread(const From* from, int64_t points, To* to) const {
    for (int64_t i = 0; i < points; ++i) to[i * taps] = from[i];
  }

  int taps, run;
  int64_t batch, count;
  std::vector<std::unique_ptr<Dense>> lists;
};

template <typename T>
struct Planes {  // (n, c, size), whose last axis lies in order
  explicit Planes(const View& v) : dense(v) {
    TD_CHECK(v.ndim == 3, "planes of taps");
    channels = v.shape[1], size = v.shape[2];
  }
  T* at(int64_t n, int64_t c) const { return dense.view.as<T>() + (n * channels + c) * size; }
  Dense dense;
  int64_t channels, size;
};

// Blocks of points of all planes, all channels of a block by one thread: body(block, n, begin).
template <typename T, typename F>
void for_blocks(const Points<T>& points, double cost, F&& body) {
  const int64_t blocks = (points.count + kBlock - 1) / kBlock;
  parallel_for(points.batch * blocks, cost * kBlock, [&](int64_t first, int64_t last) {
    typename Points<T>::Block block(points);
    for (int64_t k = first; k < last; ++k) {
      const int64_t n = k / blocks, begin = k % blocks * kBlock;
      points.read(block, n, begin, std::min(begin + kBlock, points.count));
      body(block.data, n, begin);
    }
  });
}

template <typename T>
void sum(const Call& call) {
  const Planes<T> x(call.inputs[0]), out(call.outputs[0]);
  const Points<T> points(call, 1, 1 + static_cast<int>(call.ints[0]));
  TD_CHECK(out.size == points.count && call.outputs[0].is_contiguous(), "result of tap_sum");
  for_blocks(points, x.channels * points.taps * 0.3, [&](const TapBlock<T>& block, int64_t n, int64_t begin) {
    for (int64_t c = 0; c < x.channels; ++c) tap_kernels<T>().sum(x.at(n, c), block, out.at(n, c) + begin);
  });
}

template <typename T>
void scatter(const Call& call) {
  const Planes<T> g(call.inputs[0]), out(call.outputs[0]);
  const Points<T> points(call, 1, 1 + static_cast<int>(call.ints[0]));
  TD_CHECK(call.num_ints == 3 && out.size == call.ints[2] && g.size == points.count && call.outputs[0].is_contiguous(),
           "operands of tap_scatter");
  // Threads take planes, so that no two write to one, in the order of the points.
  parallel_for(points.batch * g.channels, points.count * points.taps * 0.4, [&](int64_t first, int64_t last) {
    typename Points<T>::Block block(points);
    while (first < last) {
      const int64_t n = first / g.channels, from = first % g.channels, to = std::min(g.channels, from + last - first);
      std::memset(out.at(n, from), 0, (to - from) * out.size * sizeof(T));
      for (int64_t begin = 0; begin < points.count; begin += kBlock) {
        points.read(block, n, begin, std::min(begin + kBlock, points.count));
        for (int64_t c = from; c < to; ++c) tap_kernels<T>().scatter(out.at(n, c), block.data, g.at(n, c) + begin);
      }
      first += to - from;
    }
  });
}

template <typename T>
void dot(const Call& call) {
  const Planes<T> g(call.inputs[0]), x(call.inputs[1]);
  const Points<T> points(call, 2, 2 + static_cast<int>(call.ints[0]));
  TD_CHECK(call.num_outputs == points.taps && g.size == points.count, "results of tap_dot");
  for (int t = 0; t < points.taps; ++t)
    TD_CHECK(call.outputs[t].is_contiguous() && call.outputs[t].numel() == points.batch * points.count);
  for_blocks(points, g.channels * points.taps * 0.3, [&](const TapBlock<T>& block, int64_t n, int64_t begin) {
    T sums[kBlock * kMostTaps];
    std::fill_n(sums, block.points * block.taps, T(0));
    for (int64_t c = 0; c < g.channels; ++c) tap_kernels<T>().dot(x.at(n, c), block, g.at(n, c) + begin, sums);
    for (int t = 0; t < block.taps; ++t) {
      T* to = call.outputs[t].as<T>() + n * points.count + begin;
      for (int64_t i = 0; i < block.points; ++i) to[i] = sums[i * block.taps + t];
    }
  });
}

template <void (*single)(const Call&), void (*wide)(const Call&)>
void by_type(const Call& call) {
  TD_CHECK(call.num_inputs >= 2 && call.num_outputs >= 1 && call.num_ints >= 2, "operands of taps");
  if (call.inputs[0].dtype == DType::Float32) return single(call);
  TD_CHECK(call.inputs[0].dtype == DType::Float64, "type of taps");
  wide(call);
}

const Register register_sum("tap_sum", &by_type<&sum<float>, &sum<double>>);
const Register register_scatter("tap_scatter", &by_type<&scatter<float>, &scatter<double>>);
const Register register_dot("tap_dot", &by_type<&dot<float>, &dot<double>>);

}  // namespace
}  // namespace tandem::library
