// The caching allocator of the CPU. Freed blocks stay with us, mapped and warm, and are handed out again; so a large
// eager operator does not fault its output in page by page every time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem {

struct MemoryStats {
  int64_t live_bytes = 0;      // in blocks handed out
  int64_t reserved_bytes = 0;  // taken from the system
  int64_t peak_bytes = 0;      // highest live_bytes since the last reset
  int64_t live_blocks = 0;
  int64_t allocations = 0;  // requests served
  int64_t system_allocations = 0;
  int64_t system_frees = 0;
};

// A block of at least `bytes` bytes, 64-byte aligned, contents undefined. `capacity` receives its real size, to be
// given back with it. Throws Error(Memory) when the system or the limit refuses, after the cache was emptied.
void* allocate(size_t bytes, size_t* capacity);
void deallocate(void* block, size_t capacity) noexcept;

// Working memory of a whole program: one block, contents undefined. While idle it is kept apart from the other free
// blocks; see Note [Arenas].
struct Arena {
  char* data = nullptr;
  size_t bytes = 0;     // what was asked for, rounded up
  size_t capacity = 0;  // what the block has
};
Arena allocate_arena(size_t bytes);  // throws as allocate does
void deallocate_arena(const Arena& arena) noexcept;

MemoryStats memory_stats();
void reset_peak_memory();
void empty_cache();
void set_memory_limit(int64_t bytes);  // on reserved bytes; 0: what the machine (or its container) has

// Who can say what the live blocks are. `report(n, device)` describes the n largest of a device (0: the CPU), one per
// line, for the out-of-memory error.
void set_live_report(std::string (*report)(int n, int device));
std::string describe_live(int n, int device);

}  // namespace tandem
