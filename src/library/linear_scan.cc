// linear_scan (a, b) -> y, ints [axis, reverse]: y[i] = a[i] * y[i-1] + b[i] along axis, with y[-1] = 0; floats and
// complex numbers only.
// In reverse, y[i] = a[i] * y[i+1] + b[i]. Runs in float64 or complex128 whatever the type.
#include "library/registry.h"
#include "library/rows.h"
#include "library/scalar.h"

namespace tandem::library {
namespace {

// What states of T are computed in.
template <typename T>
using State = std::conditional_t<kIsComplex<T>, std::complex<double>, double>;

template <typename T>
State<T> read(const T* p) {
  return static_cast<State<T>>(static_cast<Wide<T>>(*p));
}

inline double product(double a, double b) {
  return a * b;
}
inline std::complex<double> product(std::complex<double> a, std::complex<double> b) {
  return multiply(a, b);
}

template <typename T>
void run(const View& a, const View& b, const View& y, int axis, bool reverse) {
  const int64_t n = a.shape[axis], first = reverse ? n - 1 : 0, step = reverse ? -1 : 1;
  const int64_t a_step = a.strides[axis] * step, b_step = b.strides[axis] * step, y_step = y.strides[axis] * step;
  const T* factors = a.as<T>() + first * a.strides[axis];
  const T* terms = b.as<T>() + first * b.strides[axis];
  T* target = y.as<T>() + first * y.strides[axis];
  for_lines<3>({&a, &b, &y}, axis, n * 3.0, [&] {
    return [&](const int64_t (&offset)[3]) {
      const T* factor = factors + offset[0];
      const T* term = terms + offset[1];
      T* to = target + offset[2];
      State<T> state = read(term);
      *to = static_cast<T>(static_cast<Wide<T>>(state));
      for (int64_t i = 1; i < n; ++i) {
        state = product(read(factor + i * a_step), state) + read(term + i * b_step);
        to[i * y_step] = static_cast<T>(static_cast<Wide<T>>(state));
      }
    };
  });
}

void run_linear_scan(const Call& call) {
  TD_CHECK(call.num_inputs == 2 && call.num_outputs == 1 && call.num_ints == 2);
  const View &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  TD_CHECK(a.dtype == y.dtype && b.dtype == y.dtype, "dtypes of linear_scan");
  if (y.numel() == 0) return;
  if (y.ndim == 0) return copy_elements(b, y);
  const int axis = static_cast<int>(call.ints[0]);
  TD_CHECK(axis >= 0 && axis < y.ndim, "axis of linear_scan");
  const auto body = [&](auto type) { run<typename decltype(type)::type>(a, b, y, axis, call.ints[1] != 0); };
  if (is_complex(y.dtype)) return for_complex("linear_scan", y.dtype, body);
  for_float("linear_scan", y.dtype, body);
}

const Register linear_scan("linear_scan", &run_linear_scan);

}  // namespace
}  // namespace tandem::library
