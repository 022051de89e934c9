// Kernels that the runtime launches by itself, beside those of plans.
#pragma once
#include "device/cuda/driver.h"

namespace tandem::cuda {

// A kernel that the runtime itself launches, by its number (load_kernels in tandem/codegen/cuda/compile.py). Needs the
// GIL.
Function load_own_kernel(int device, int number);

}  // namespace tandem::cuda
