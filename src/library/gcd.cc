// gcd (x, z) -> y, no attributes: the greatest common divisor of integers, element by element; gcd(0, 0) is 0.
#include <numeric>

#include "device/parallel.h"
#include "library/registry.h"
#include "library/scalar.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

template <typename T>
T divisor(T a, T b) {
  using Unsigned = std::make_unsigned_t<T>;  // the size of the lowest number has no signed form
  const auto size = [](T v) {
    return v < 0 ? static_cast<Unsigned>(0 - static_cast<Unsigned>(v)) : static_cast<Unsigned>(v);
  };
  return static_cast<T>(std::gcd(size(a), size(b)));
}

void run_gcd(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1);
  const View &x = call.inputs[0], &z = call.inputs[1], &y = call.outputs[0];
  TD_CHECK(x.dtype == y.dtype && z.dtype == y.dtype && x.ndim == y.ndim && z.ndim == y.ndim, "operands of gcd");
  if (y.numel() == 0) return;
  const auto loop = make_loop<3>({&y, &x, &z}, 0, y.ndim, true);
  for_real("gcd", y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (kIsFloat<T>) {
      unsupported("gcd", y.dtype);
    } else {
      parallel_for(y.numel(), 60, [&](int64_t begin, int64_t end) {
        int64_t index[kMaxDims], offset[3];
        loop.locate(begin, loop.ndim, index, offset);
        for (int64_t i = begin; i < end; ++i) {
          y.as<T>()[offset[0]] = divisor<T>(x.as<T>()[offset[1]], z.as<T>()[offset[2]]);
          loop.advance(loop.ndim, index, offset);
        }
      });
    }
  });
}

const Register gcd("gcd", &run_gcd);

}  // namespace
}  // namespace tandem::library
