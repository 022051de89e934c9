// What a kernel or a library call sees of a tensor: address, type, sizes and strides. Owns nothing.
#pragma once
#include <cstdint>

#include "tensor/dtype.h"

namespace tandem {

inline constexpr int kMaxDims = 16;

struct View {
  char* data = nullptr;  // address of element [0, 0, ...]
  DType dtype = DType::Float32;
  int ndim = 0;
  // Only the first ndim entries mean anything; filling the rest would cost more than a small operator.
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];  // in elements; may be 0 (broadcast) or negative

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= shape[i];
    return n;
  }
  bool is_contiguous() const {
    int64_t expected = 1;
    for (int i = ndim - 1; i >= 0; --i) {
      if (shape[i] == 0) return true;
      if (shape[i] != 1 && strides[i] != expected) return false;
      expected *= shape[i];
    }
    return true;
  }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace tandem
