// The driver's virtual memory interface: physical memory that is mapped into addresses reserved before.
#pragma once
#include <cstddef>

#include "device/cuda/driver.h"

namespace tandem::cuda {

using MemoryHandle = unsigned long long;
struct MemoryLocation {
  int type, id;  // type 1: a device
};
struct MemoryProperties {  // CUmemAllocationProp
  int type = 1, handle_types = 0;
  MemoryLocation location{1, 0};
  void* security = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {  // CUmemAccessDesc
  MemoryLocation location{1, 0};
  int flags = 3;  // read and write
};

struct VirtualMemory {
  Status (*reserve)(Address* address, size_t bytes, size_t alignment, Address wanted, unsigned long long flags);
  Status (*release)(Address address, size_t bytes);
  Status (*create)(MemoryHandle* handle, size_t bytes, const MemoryProperties* properties, unsigned long long flags);
  Status (*destroy)(MemoryHandle handle);
  Status (*map)(Address address, size_t bytes, size_t offset, MemoryHandle handle, unsigned long long flags);
  Status (*unmap)(Address address, size_t bytes);
  Status (*set_access)(Address address, size_t bytes, const MemoryAccess* access, size_t count);
};

// Null where the driver does not have it.
const VirtualMemory* virtual_memory();

}  // namespace tandem::cuda
