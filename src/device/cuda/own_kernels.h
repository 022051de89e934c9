// Kernels that the runtime launches by itself, beside those of plans.
#pragma once
#include "device/cuda/driver.h"

namespace tandem::cuda {

// By what it does: "copy" and "join_rows" (argument: the size of elements), "fill", "widen", "small_matmul" and
// "add_rows" (argument: the dtype). See own_kernel in tandem/codegen/cuda/compile.py, which writes them. Needs the GIL.
Function load_own_kernel(int device, const char* kind, int argument = 0);

}  // namespace tandem::cuda
