// Tensors as they flow through a dataflow graph: memory and geometry, without a Python object.
#pragma once
#include <algorithm>

#include "executor/flow.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace tandem {

class TensorPayload final : public flow::Payload {
 public:
  TensorPayload(Ref<Storage> storage, const View& v) : storage(std::move(storage)) {
    view.data = v.data;
    view.dtype = v.dtype;
    view.ndim = v.ndim;
    std::copy_n(v.shape, v.ndim, view.shape);
    std::copy_n(v.strides, v.ndim, view.strides);
  }
  bool truth() const override;

  Ref<Storage> storage;
  View view;
};

inline const TensorPayload& as_tensor(const flow::Token& token) {
  return static_cast<const TensorPayload&>(*token);  // nothing else flows here
}

flow::Token token_of(const Tensor* t);              // GIL
TensorRef tensor_of(const TensorPayload& payload);  // GIL
flow::Token index_token(int64_t value);             // an int32 scalar

}  // namespace tandem
