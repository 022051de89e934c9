// The type of floats that nothing else is said about (td.set_default_dtype), for the whole process. The GIL guards it.
#pragma once
#include "tensor/dtype.h"

namespace tandem {

inline DType default_float = DType::Float32;

inline DType default_complex() {
  return default_float == DType::Float64 ? DType::Complex128 : DType::Complex64;
}

}  // namespace tandem
