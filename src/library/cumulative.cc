// cumulative (x) -> y, ints [axis, kind, reverse]; kinds: 0 sum, 1 product, 2 max, 3 min, 4 log of the sum of exp.
//
// y may be of a wider type than x. Sums and products of floats run in float64 whatever the type; NaN stays in max and
// min. Complex sums and products likewise, in complex128.
#include <algorithm>
#include <cmath>

#include "library/convert.h"
#include "library/registry.h"
#include "library/rows.h"
#include "library/scalar.h"
#include "library/scratch.h"

namespace tandem::library {
namespace {

enum Kind : int64_t { kSum, kProduct, kMax, kMin, kLogSum };

template <typename T, Kind kind>
using Accumulator = std::conditional_t<
    kIsComplex<T>, std::complex<double>,
    std::conditional_t<kind == kMax || kind == kMin, Wide<T>, std::conditional_t<kIsFloat<T>, double, uint64_t>>>;

template <typename A, Kind kind>
A combine(A a, A b) {
  if constexpr (kind == kSum)
    return a + b;
  else if constexpr (kIsComplex<A>)
    return multiply(a, b);
  else if constexpr (kind == kProduct)
    return a * b;
  else if constexpr (kind == kMax)
    return a > b || a != a ? a : b;
  else if constexpr (kind == kMin)
    return a < b || a != a ? a : b;
  else {
    const A high = std::max(a, b), low = std::min(a, b);
    if (a != a || b != b) return a + b;
    return std::isinf(high) || std::isinf(low) ? high : high + std::log1p(std::exp(low - high));
  }
}

template <typename A, typename T>
A read(const T* p) {
  return static_cast<A>(static_cast<Wide<T>>(*p));
}

// `lanes` neighbouring lines side by side.
constexpr int64_t kLanes = 64;
template <typename T, Kind kind>
void run_lanes(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t n, int64_t lanes) {
  using A = Accumulator<T, kind>;
  A sums[kLanes];
  for (int64_t lane = 0; lane < lanes; ++lane) {
    sums[lane] = read<A>(from + lane);
    to[lane] = static_cast<T>(sums[lane]);
  }
  for (int64_t i = 1; i < n; ++i)
    for (int64_t lane = 0; lane < lanes; ++lane) {
      sums[lane] = combine<A, kind>(sums[lane], read<A>(from + i * from_step + lane));
      to[i * to_step + lane] = static_cast<T>(sums[lane]);
    }
}

template <typename T, Kind kind>
void run(const View& x, const View& y, int axis, bool reverse) {
  using A = Accumulator<T, kind>;
  const int64_t n = x.shape[axis], first = reverse ? n - 1 : 0, step = reverse ? -1 : 1;
  const int64_t x_step = x.strides[axis] * step, y_step = y.strides[axis] * step;
  const T* source = x.as<T>() + first * x.strides[axis];
  T* target = y.as<T>() + first * y.strides[axis];

  // Lines that lie side by side in memory are done side by side: it uses whole cache lines, and is a vector loop.
  int beside = -1;
  for (int d = 0; d < x.ndim; ++d)
    if (d != axis && x.shape[d] > 1 && x.strides[d] == 1 && y.strides[d] == 1) beside = d;
  if (beside >= 0) {
    const int64_t width = x.shape[beside], blocks = (width + kLanes - 1) / kLanes;
    View x_lines = x, y_lines = y;
    x_lines.shape[beside] = y_lines.shape[beside] = 1;
    return for_lines<2>({&x_lines, &y_lines}, axis, n * width * 0.8, [&] {
      return [&](const int64_t (&offset)[2]) {
        parallel_for(blocks, n * kLanes * 0.8, [&](int64_t begin, int64_t end) {
          for (int64_t at = begin * kLanes; at < std::min(end * kLanes, width); at += kLanes)
            run_lanes<T, kind>(source + offset[0] + at, x_step, target + offset[1] + at, y_step, n,
                               std::min(kLanes, width - at));
        });
      };
    });
  }
  for_lines<2>({&x, &y}, axis, n * 1.5, [&] {
    return [&](const int64_t (&offset)[2]) {
      const T* from = source + offset[0];
      T* to = target + offset[1];
      A sum = read<A>(from);
      *to = static_cast<T>(sum);
      for (int64_t i = 1; i < n; ++i) {
        sum = combine<A, kind>(sum, read<A>(from + i * x_step));
        to[i * y_step] = static_cast<T>(sum);
      }
    };
  });
}

void run_cumulative(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints == 3);
  const View &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel() == 0) return;
  if (x.dtype != y.dtype) {
    View same = x;
    same.dtype = y.dtype;
    const Scratch<char> memory(x.numel() * item_size(y.dtype));
    same.data = memory.data();
    set_contiguous(same);
    convert_elements(x, same);
    Call again = call;
    again.inputs = &same;
    return run_cumulative(again);
  }
  if (x.ndim == 0) return copy_elements(x, y);
  const int axis = static_cast<int>(call.ints[0]);
  const bool reverse = call.ints[2] != 0;
  TD_CHECK(axis >= 0 && axis < x.ndim, "axis of cumulative");
  if (is_complex(x.dtype)) {
    return for_complex("cumulative", x.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      TD_CHECK(call.ints[1] == kSum || call.ints[1] == kProduct, "kind ", call.ints[1], " of cumulative");
      if (call.ints[1] == kSum)
        run<T, kSum>(x, y, axis, reverse);
      else
        run<T, kProduct>(x, y, axis, reverse);
    });
  }
  for_real("cumulative", x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    switch (call.ints[1]) {
      case kSum:
        return run<T, kSum>(x, y, axis, reverse);
      case kProduct:
        return run<T, kProduct>(x, y, axis, reverse);
      case kMax:
        return run<T, kMax>(x, y, axis, reverse);
      case kMin:
        return run<T, kMin>(x, y, axis, reverse);
      case kLogSum:
        if constexpr (kIsFloat<T>) return run<T, kLogSum>(x, y, axis, reverse);
        unsupported("logcumsumexp", x.dtype);
      default:
        TD_CHECK(false, "kind ", call.ints[1], " of cumulative");
    }
  });
}

const Register cumulative("cumulative", &run_cumulative);

}  // namespace
}  // namespace tandem::library
