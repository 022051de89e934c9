#include "executor/tensor_payload.h"

#include <cstring>

namespace tandem {

bool TensorPayload::truth() const {
  if (view.numel() != 1) return false;
  if (view.dtype == DType::Bool) return *reinterpret_cast<const uint8_t*>(view.data) != 0;
  const char* p = view.data;  // any other type: whether it is not zero; -0.0 counts as zero
  switch (view.dtype) {
    case DType::Float32:
      return *reinterpret_cast<const float*>(p) != 0;
    case DType::Float64:
      return *reinterpret_cast<const double*>(p) != 0;
    default:
      for (size_t i = 0; i < item_size(view.dtype); ++i)
        if (p[i]) return true;
      return false;
  }
}

flow::Token token_of(const Tensor* t) {
  return flow::Token::adopt(new TensorPayload(Ref<Storage>::share(t->storage), t->view));
}

TensorRef tensor_of(const TensorPayload& payload) {
  const View& v = payload.view;
  Ref<Storage> storage = payload.storage;
  return TensorRef::adopt(new_tensor(storage.leak(), v.data, v.dtype, v.ndim, v.shape, v.strides));
}

flow::Token index_token(int64_t value) {
  Ref<Storage> storage = Ref<Storage>::adopt(Storage::allocate(sizeof(int32_t)));
  auto number = static_cast<int32_t>(value);
  std::memcpy(storage->data(), &number, sizeof number);
  View v;
  v.data = storage->data();
  v.dtype = DType::Int32;
  v.ndim = 0;
  return flow::Token::adopt(new TensorPayload(std::move(storage), v));
}

}  // namespace tandem
