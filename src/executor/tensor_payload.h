// Tensors as they flow through a dataflow graph: memory and geometry, without a Python object.
#pragma once
#include <algorithm>

#include "device/cuda/device.h"
#include "executor/flow.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace tandem {

class TensorPayload final : public flow::Payload {
 public:
  TensorPayload(Ref<Storage> given, const View& v) : storage(std::move(given)) {
    if (int device = storage->device()) stream = cuda::current_stream(device - 1);
    view.data = v.data;
    view.dtype = v.dtype;
    view.ndim = v.ndim;
    std::copy_n(v.shape, v.ndim, view.shape);
    std::copy_n(v.strides, v.ndim, view.strides);
  }
  bool truth() const override;
  bool waits() const override { return !storage->on_host(); }

  Ref<Storage> storage;
  View view;
  cuda::Stream stream = nullptr;  // of device memory: the one that writes it
};

inline const TensorPayload& as_tensor(const flow::Token& token) {
  return static_cast<const TensorPayload&>(*token);  // nothing else flows here
}

flow::Token token_of(const Tensor* t);              // GIL
TensorRef tensor_of(const TensorPayload& payload);  // GIL
flow::Token index_token(int64_t value);             // an int32 scalar

}  // namespace tandem
