// The caching allocator of device memory.
//
// Note [Streams and memory]
// A block belongs to the stream that was current when it was allocated, and work on that stream is in order; so a block
// that is freed can be handed out for the same stream at once, while kernels that use it are still queued. A block that
// another stream uses as well must be told so (record_stream): it then comes back only after that stream has passed the
// point where it was freed.
//
// Note [Expandable segments]
// Large blocks come from segments that can grow: addresses for as much as the device has are reserved once, and
// physical memory is mapped behind what is there, in chunks. So blocks of any size share one range of addresses, and
// memory that was freed in small pieces can be joined into a large one, where separate segments would stay too small.
// What is not mapped is a block of its own kind in the segment's list: growing maps its beginning, trimming makes new
// ones.
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
int64_t peak_reserved(int device);  // the most bytes that were reserved since the last reset
void reset_peak_memory(int device);
void empty_cache(int device);
void set_expandable_segments(int device, bool on);
bool expandable_segments(int device);                   // whether they are used for large blocks from now on
void set_memory_fraction(int device, double fraction);  // of the device's memory that may be reserved

// Memory that a captured graph owns: while a pool is set in this thread, blocks come from it and go back to it.
uint64_t new_pool();
void set_pool(uint64_t pool);  // 0: none
void release_pool(int device, uint64_t pool);

}  // namespace tandem::cuda
