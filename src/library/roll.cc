// roll (x) -> y, ints [count, axis..., shift...]: elements moved by shift places along each of some axes; what leaves
// at the end comes back at the start.
#include "check.h"
#include "library/registry.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

// The part of a view that starts at `first` along an axis and has `size` elements there.
View part(View view, int64_t axis, int64_t first, int64_t size) {
  view.data += first * view.strides[axis] * static_cast<int64_t>(item_size(view.dtype));
  view.shape[axis] = size;
  return view;
}

void roll(const View& x, const View& y, const int64_t* axes, const int64_t* shifts, int64_t count) {
  if (count == 0) return copy_elements(x, y);
  const int64_t axis = axes[0], n = x.shape[axis];
  if (n == 0) return;
  const int64_t shift = (shifts[0] % n + n) % n;
  roll(part(x, axis, 0, n - shift), part(y, axis, shift, n - shift), axes + 1, shifts + 1, count - 1);
  if (shift) roll(part(x, axis, n - shift, shift), part(y, axis, 0, shift), axes + 1, shifts + 1, count - 1);
}

void run_roll(const Call& call) {
  TD_CHECK(call.num_inputs == 1 && call.num_outputs == 1 && call.num_ints >= 1 &&
           call.num_ints == 1 + 2 * call.ints[0] && call.inputs[0].dtype == call.outputs[0].dtype);
  const int64_t count = call.ints[0];
  for (int64_t i = 0; i < count; ++i) {  // each axis once: parts of parts must not be rolled again
    TD_CHECK(call.ints[1 + i] >= 0 && call.ints[1 + i] < call.inputs[0].ndim, "axis of roll");
    for (int64_t k = 0; k < i; ++k) TD_CHECK(call.ints[1 + i] != call.ints[1 + k], "axes of roll");
  }
  roll(call.inputs[0], call.outputs[0], call.ints + 1, call.ints + 1 + count, count);
}

const Register register_roll("roll", &run_roll);

}  // namespace
}  // namespace tandem::library
