// Copies of strided memory on a device.
#pragma once
#include "tensor/view.h"

namespace tandem::cuda {

// to = from, element by element: same dtype and shape, on the current stream. Needs the GIL the first time.
void copy_elements(int device, const View& from, const View& to);

}  // namespace tandem::cuda
