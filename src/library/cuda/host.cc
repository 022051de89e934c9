#include "library/cuda/host.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "device/cuda/device.h"
#include "interpreter.h"

namespace tandem::cuda {
namespace {

// The memory between the first and the last element of a view, and a copy of it.
struct Copied {
  char* start;
  size_t bytes;
  std::shared_ptr<char[]> memory;
};

Copied span_of(const View& v) {
  int64_t low = 0, high = 0;
  for (int i = 0; i < v.ndim; ++i) {
    if (v.shape[i] == 0) return {v.data, 0, nullptr};
    (v.strides[i] < 0 ? low : high) += (v.shape[i] - 1) * v.strides[i];
  }
  const auto item = static_cast<int64_t>(item_size(v.dtype));
  return {v.data + low * item, static_cast<size_t>((high - low + 1) * item), nullptr};
}

bool dense(const View& v, const Copied& span) {
  return static_cast<size_t>(v.numel()) * item_size(v.dtype) == span.bytes;
}

}  // namespace

void call_on_host(library::Function routine, const library::Call& call) {
  const int count = call.num_inputs + call.num_outputs;
  std::vector<View> views(call.inputs, call.inputs + call.num_inputs);
  views.insert(views.end(), call.outputs, call.outputs + call.num_outputs);
  std::vector<Copied> copies;
  for (int i = 0; i < count; ++i) {
    Copied copy = span_of(views[i]);
    // What is written where it was read has one copy.
    for (const Copied& other : copies)
      if (other.bytes && other.start == copy.start && other.bytes == copy.bytes) copy.memory = other.memory;
    if (!copy.memory && copy.bytes) {
      copy.memory.reset(new char[copy.bytes]);
      // Memory between the elements of a result comes back as it was.
      if (i < call.num_inputs || !dense(views[i], copy))
        copy_to_host(call.device, copy.memory.get(), copy.start, copy.bytes, false);
    }
    if (copy.bytes) views[i].data = copy.memory.get() + (views[i].data - copy.start);
    copies.push_back(std::move(copy));
  }
  synchronize_stream(call.device, current_stream(call.device));
  library::Call here = call;
  here.inputs = views.data();
  here.outputs = views.data() + call.num_inputs;
  here.device = 0;
  here.stream = nullptr;
  {
    const Unlocked unlocked;
    routine(here);
  }
  for (int i = call.num_inputs; i < count; ++i)
    copy_to_device(call.device, copies[i].start, copies[i].memory.get(), copies[i].bytes, false);
  synchronize_stream(call.device, current_stream(call.device));  // the copies go
}

}  // namespace tandem::cuda

namespace tandem::library {
namespace {

// Routines of the CPU that programs on devices call by the name "host.*".
#define TD_THROUGH_HOST(routine)                          \
  const Register through_host_##routine("host." #routine, \
                                        [](const Call& call) { cuda::call_on_host(find(#routine), call); })
TD_THROUGH_HOST(special);
TD_THROUGH_HOST(polynomial);
TD_THROUGH_HOST(cholesky);
TD_THROUGH_HOST(lu_factor);
TD_THROUGH_HOST(lu_solve);
TD_THROUGH_HOST(eigh);
TD_THROUGH_HOST(random_draws);
TD_THROUGH_HOST(sort_values);
TD_THROUGH_HOST(inverse);
TD_THROUGH_HOST(solve_triangular);
TD_THROUGH_HOST(permutation);
TD_THROUGH_HOST(geqrf);
TD_THROUGH_HOST(householder_product);
TD_THROUGH_HOST(qr);
TD_THROUGH_HOST(matrix_exp);
TD_THROUGH_HOST(ldl_factor);
TD_THROUGH_HOST(ldl_solve);
TD_THROUGH_HOST(det);
TD_THROUGH_HOST(slogdet);
TD_THROUGH_HOST(cofactor);
TD_THROUGH_HOST(eig);
TD_THROUGH_HOST(svd);
TD_THROUGH_HOST(pinv);
TD_THROUGH_HOST(lstsq);
#undef TD_THROUGH_HOST

}  // namespace
}  // namespace tandem::library
