// running_extremum (x) -> (values, positions), ints [axis, smallest]: the largest (smallest) element so far along axis
// and where it is, int64; of equal ones the latest. NaN, once met, stays; later NaNs take its place.
#include "library/registry.h"
#include "library/rows.h"
#include "library/scalar.h"

namespace tandem::library {
namespace {

template <typename T>
void run(const View& x, const View& values, const View& positions, int axis, bool smallest) {
  const int64_t n = x.shape[axis];
  const int64_t steps[] = {x.strides[axis], values.strides[axis], positions.strides[axis]};
  for_lines<3>({&x, &values, &positions}, axis, n * 2.0, [&] {
    return [&](const int64_t (&offset)[3]) {
      const T* from = x.as<T>() + offset[0];
      T* to = values.as<T>() + offset[1];
      int64_t* place = positions.as<int64_t>() + offset[2];
      T best = *from;
      int64_t at = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T now = from[i * steps[0]];
        const Wide<T> a = now, b = best;
        if (is_nan(now) || (!is_nan(best) && (smallest ? a <= b : a >= b))) best = now, at = i;
        to[i * steps[1]] = best;
        place[i * steps[2]] = at;
      }
    };
  });
}

void run_extremum(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 2 && call.num_ints == 2);
  const View &x = call.inputs[0], &values = call.outputs[0], &positions = call.outputs[1];
  TD_CHECK(values.dtype == x.dtype && positions.dtype == DType::Int64 && x.ndim > 0, "running_extremum");
  if (x.numel() == 0) return;
  const int axis = static_cast<int>(call.ints[0]);
  TD_CHECK(axis >= 0 && axis < x.ndim, "axis of running_extremum");
  for_real("running_extremum", x.dtype,
           [&](auto type) { run<typename decltype(type)::type>(x, values, positions, axis, call.ints[1] != 0); });
}

const Register running_extremum("running_extremum", &run_extremum);

}  // namespace
}  // namespace tandem::library
