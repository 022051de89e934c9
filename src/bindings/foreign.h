// Memory of another library on its way to becoming a tensor.
#pragma once
#include "tensor/tensor.h"

namespace tandem {

struct Foreign {
  char* data = nullptr;  // address of element [0, 0, ...]
  DType dtype = DType::Float32;
  bool writable = true;
  int device = 0;  // 0: host memory, k: cuda:(k - 1)
  int ndim = 0;
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];  // in elements

  // Checks and takes over a shape and strides in bytes (null: row-major). `dtype` and `data` must be set.
  void set_geometry(int ndim, const Py_ssize_t* shape, const Py_ssize_t* byte_strides, const char* what);
  void check_alignment(const char* what) const;

  // New references. The first takes over `context`: it is released with the last tensor, or here if this throws.
  Tensor* tensor(void (*release)(void*), void* context) const;
  Tensor* tensor_on(Storage* storage) const;  // `storage` is taken over
};

}  // namespace tandem
