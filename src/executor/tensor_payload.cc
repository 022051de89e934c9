#include "executor/tensor_payload.h"

#include <cstring>

#include "tensor/scalar.h"

namespace tandem {

bool TensorPayload::truth() const {
  if (view.numel() != 1) return false;
  if (storage->on_host()) return element_is_true(view.data, view.dtype);
  char element[16];
  cuda::copy_to_host(storage->device() - 1, element, view.data, item_size(view.dtype), true);
  return element_is_true(element, view.dtype);
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
