#include "device/cuda/own_kernels.h"

#include "check.h"
#include "interpreter.h"

namespace tandem::cuda {

Function load_own_kernel(int device, const char* kind, int argument) {
  void* found = interpreter.own_kernel(kind, argument, device);
  if (!found) fail(ErrorKind::Unsupported, "the kernel '", kind, "' cannot be compiled here");
  return static_cast<Function>(found);
}

}  // namespace tandem::cuda
