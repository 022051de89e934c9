// concat (x0, x1, ...) -> y; ints: axis. Inputs of one dtype, one after the other along axis; all other sizes agree. An
// input may lie in its place already (tandem/codegen/concat.py).
#include "check.h"
#include "library/registry.h"
#include "library/strided.h"

namespace tandem::library {
namespace {

void run_concat(const Call& call) {
  TD_CHECK(call.num_inputs >= 1 && call.num_outputs == 1 && call.num_ints == 1);
  const View& out = call.outputs[0];
  const int axis = static_cast<int>(call.ints[0]);
  TD_CHECK(axis >= 0 && axis < out.ndim);
  View part = out;
  int64_t filled = 0;
  for (int i = 0; i < call.num_inputs; ++i) {
    const View& in = call.inputs[i];
    TD_CHECK(in.dtype == out.dtype && in.ndim == out.ndim);
    part.shape[axis] = in.shape[axis];
    part.data = static_cast<char*>(out.data) + filled * out.strides[axis] * static_cast<int64_t>(item_size(out.dtype));
    filled += in.shape[axis];
    TD_CHECK(filled <= out.shape[axis]);
    if (in.data != part.data) copy_elements(in, part);
  }
  TD_CHECK(filled == out.shape[axis]);
}

const Register concat("concat", &run_concat);

}  // namespace
}  // namespace tandem::library
