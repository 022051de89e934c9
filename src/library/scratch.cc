#include "library/scratch.h"

#include <cstdlib>
#include <new>

namespace tandem {

// Used only where the extension is linked without memory/allocator.cc, whose definitions are strong.
__attribute__((weak)) void* allocate(size_t bytes, size_t* capacity) {
  *capacity = (bytes + 63) / 64 * 64;
  void* block = std::aligned_alloc(64, *capacity);
  if (!block) throw std::bad_alloc();
  return block;
}
__attribute__((weak)) void deallocate(void* block, size_t) noexcept {
  std::free(block);
}

}  // namespace tandem
