// The caching allocator of device memory.
//
// Note [Streams and memory]
// A block belongs to the stream that was current when it was allocated, and work on that stream is in order; so a block
// that is freed can be handed out for the same stream at once, while kernels that use it are still queued. A block that
// another stream uses as well must be told so (record_stream): it then comes back only after that stream has passed the
// point where it was freed.
#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cuda/driver.h"
#include "memory/allocator.h"

namespace tandem::cuda {

struct Block;  // one piece of device memory

// Memory of at least `bytes` bytes, aligned to 512, on the current stream of the device. Throws Error(Memory) after the
// cache was given back and did not help.
Block* allocate(int device, size_t bytes);
void deallocate(Block* block) noexcept;
char* address_of(const Block* block);
size_t size_of(const Block* block);
void record_stream(Block* block, Stream stream);

MemoryStats memory_stats(int device);
void reset_peak_memory(int device);
void empty_cache(int device);
void set_memory_fraction(int device, double fraction);  // of the device's memory that may be reserved

// Memory that a captured graph owns: while a pool is set in this thread, blocks come from it and go back to it.
uint64_t new_pool();
void set_pool(uint64_t pool);  // 0: none
void release_pool(int device, uint64_t pool);

}  // namespace tandem::cuda
