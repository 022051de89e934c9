// Element types. The codes are shared with tandem/dtypes.py.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tandem {

enum class DType : uint8_t {
  Bool = 0,
  Int8,
  Int16,
  Int32,
  Int64,
  UInt8,
  UInt16,
  UInt32,
  UInt64,
  Float16,
  BFloat16,
  Float32,
  Float64,
  Complex64,
  Complex128,
};
inline constexpr int kNumDTypes = 15;

inline constexpr uint8_t kItemSize[kNumDTypes] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
inline constexpr const char* kDTypeName[kNumDTypes] = {"bool",     "int8",    "int16",   "int32",     "int64",
                                                       "uint8",    "uint16",  "uint32",  "uint64",    "float16",
                                                       "bfloat16", "float32", "float64", "complex64", "complex128"};

inline constexpr size_t item_size(DType t) {
  return kItemSize[static_cast<int>(t)];
}
inline constexpr const char* name(DType t) {
  return kDTypeName[static_cast<int>(t)];
}
inline constexpr bool is_floating(DType t) {
  return t >= DType::Float16 && t <= DType::Float64;
}
inline constexpr bool is_complex(DType t) {
  return t >= DType::Complex64;
}

}  // namespace tandem
