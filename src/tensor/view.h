// What a kernel or a library call sees of a tensor: address, type, sizes and strides. Owns nothing.
#pragma once
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace tandem {

inline constexpr int kMaxDims = 32;  // the axes that programs written to the Array API standard may count on elsewhere

struct View {
  char* data = nullptr;  // address of element [0, 0, ...]
  DType dtype = DType::Float32;
  int ndim = 0;
  // Only the first ndim entries mean anything; filling the rest would cost more than a small operator.
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];  // in elements; may be 0 (broadcast) or negative

  View() = default;
  View(const View& v) { *this = v; }
  // Few tensors have many axes: half a kilobyte for each copy would be felt in small operators and their records.
  View& operator=(const View& v) {
    data = v.data;
    dtype = v.dtype;
    ndim = v.ndim;
    constexpr int kUsual = 6;
    if (ndim <= kUsual) {
      std::memmove(shape, v.shape, kUsual * sizeof(int64_t));
      std::memmove(strides, v.strides, kUsual * sizeof(int64_t));
    } else {
      std::memmove(shape, v.shape, sizeof shape);
      std::memmove(strides, v.strides, sizeof strides);
    }
    return *this;
  }

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
