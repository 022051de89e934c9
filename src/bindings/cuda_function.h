// What Python hands over of a kernel that it has loaded on a device.
#pragma once
#include <cstdint>

namespace tandem {

struct CudaFunction {
  uintptr_t address;
  int threads_x, threads_y;
  int extra;        // Instruction::Extra
  uint32_t shared;  // bytes of shared memory that a launch asks for
};

}  // namespace tandem
