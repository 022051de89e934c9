// Calls with sharded tensors go to Python, which runs them on the parts of every rank: see Note [Sharded storages].
#pragma once
#include "capture/capture.h"
#include "operators/op_function.h"

namespace tandem::dispatching {

inline bool any_sharded(const Argument* arguments, int count) {
  for (int i = 0; i < count; ++i)
    if (arguments[i].kind == Argument::Kind::Tensor && arguments[i].tensor->storage->sharded()) return true;
  return false;
}

// Bodies of loops are described on whole tensors; what they become is called with the sharded ones.
inline bool describes_body() {
  return active_capture && !active_capture->region.empty();
}

TensorList dispatch_sharded(OpFunction* op, Argument* arguments, int count, bool* returns_tuple);

}  // namespace tandem::dispatching
