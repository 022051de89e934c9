// Tensors on their way between the host and devices.
#pragma once
#include "tensor/tensor.h"

namespace tandem {

// A new tensor with the same elements on another device (0: the CPU, k: cuda:(k - 1)); dense memory keeps its order of
// axes. `non_blocking`: a copy between pinned host memory and a device is only queued.
Tensor* move_tensor(Tensor* tensor, int device, bool non_blocking);

TensorRef on_host(Tensor* tensor);  // itself, or a copy in host memory

void require_host(const Tensor* tensor, const char* what);  // throws Error(Device) for tensors elsewhere

// The one element of a tensor, wherever it lies, in host memory.
struct ElementCopy {
  explicit ElementCopy(const Tensor* tensor);
  DType dtype;
  char data[16];
};

// A tensor in pinned host memory with the elements of a host tensor.
Tensor* pin_tensor(Tensor* tensor);

}  // namespace tandem
