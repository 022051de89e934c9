// Copies of strided memory on a device.
#pragma once
#include "device/cuda/driver.h"
#include "tensor/view.h"

namespace tandem::cuda {

// to = from, element by element: same dtype and shape, on the current stream. Needs the GIL the first time.
void copy_elements(int device, const View& from, const View& to);

// A kernel that the runtime itself launches, by its number (load_kernels in tandem/codegen/cuda/compile.py). Needs the
// GIL.
Function load_own_kernel(int device, int number);

}  // namespace tandem::cuda
