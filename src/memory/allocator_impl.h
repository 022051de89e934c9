// What the files of the allocator share: slabs of small blocks, the cache of large ones, idle arenas, and their lock.
#pragma once
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "memory/allocator.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace tandem::blocks {

constexpr size_t kAlignment = 64;
constexpr size_t kSlabBytes = size_t{256} << 10;
constexpr size_t kSmallMax = size_t{32} << 10;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSplitMin = size_t{1} << 20;          // Note [Splitting]
constexpr size_t kMaxBytes = size_t{1} << 47;          // what an address space can hold
constexpr size_t kCacheAllowance = size_t{256} << 20;  // see trim_locked
constexpr size_t kPlentyCached = size_t{64} << 20;
constexpr size_t kChunk = size_t{8} << 20, kChunkFrom = size_t{32} << 20;  // Note [Chunks]

extern constinit thread_local bool fresh_block;  // whether the latest block of this thread came from the system

class SpinLock {
 public:
  void lock() noexcept {
    for (int spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) {
      if (spins > 64) sched_yield();  // the holder may be off the CPU
    }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

// Size classes in units of 64 bytes: 1, 2, ..., 8, then four per doubling: 10, 12, 14, 16, 20, ... 512.
struct SizeClass {
  int index;
  size_t bytes;
};
constexpr int kNumClasses = 32;

constexpr SizeClass size_class(size_t bytes) {
  size_t units = (bytes + kAlignment - 1) / kAlignment;
  if (units == 0) units = 1;
  if (units <= 8) return {static_cast<int>(units) - 1, units * kAlignment};
  int exponent = std::bit_width(units - 1);
  size_t quarter = (units - 1) >> (exponent - 3);  // 4..7
  return {8 + (exponent - 4) * 4 + static_cast<int>(quarter) - 4, ((quarter + 1) << (exponent - 3)) * kAlignment};
}
static_assert(size_class(1).index == 0 && size_class(513).bytes == 640 && size_class(640).index == 8);
static_assert(size_class(kSmallMax).index == kNumClasses - 1 && size_class(kSmallMax).bytes == kSmallMax);

// Sits at the start of its 256 KiB, which are aligned, so a block finds its slab by masking its address.
struct alignas(kAlignment) Slab {
  Slab* previous = nullptr;
  Slab* next = nullptr;
  void* free = nullptr;   // blocks that came back; each holds the address of the next
  char* fresh = nullptr;  // blocks from here on were never handed out, so their pages are not touched yet
  char* end = nullptr;
  size_t block_bytes = 0;
  int used = 0;
  int class_index = 0;

  bool full() const { return free == nullptr && fresh + block_bytes > end; }
  static Slab* of(void* block) {
    return reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(block) & ~(uintptr_t{kSlabBytes} - 1));
  }
};
static_assert(sizeof(Slab) == kAlignment);

using Range = std::pair<void*, size_t>;

struct Allocator {
  SpinLock mutex;  // guards everything below
  MemoryStats stats;
  size_t limit = 0;                 // 0: what the machine has
  Slab* partial[kNumClasses] = {};  // slabs with room, by class
  Slab* empty_slabs = nullptr;      // of no class
  std::map<std::pair<size_t, uint64_t>, void*>
      cached;  // large free blocks by (size, age): the youngest of a size first
  std::map<char*, std::map<std::pair<size_t, uint64_t>, void*>::iterator> joinable;  // those of kSplitMin and more
  size_t cached_bytes = 0;
  char* chunk = nullptr;  // Note [Chunks]: what is left of the latest
  size_t chunk_bytes = 0;
  std::vector<Range> idle_arenas;
  size_t missed_bytes = 0;        // asked of the system since an arena was last used
  uint64_t clock = ~uint64_t{0};  // counts down, for that order

  // Each returns null when it would need the system to say yes and the system (or the limit) says no.
  void* allocate_small(SizeClass wanted);
  void* allocate_large(size_t bytes, size_t* capacity);
  void deallocate_small(void* block, size_t capacity) noexcept;
  void deallocate_large(void* block, size_t capacity) noexcept;

  Slab* add_slab(SizeClass wanted);
  bool reserve_locked(size_t bytes);
  void add_to_cache(void* block, size_t bytes);
  void* take_from_chunk(size_t bytes);
  bool dissolve_arenas();
  void* grow_arena(Range idle, size_t bytes);
  void* take_from_cache(std::map<std::pair<size_t, uint64_t>, void*>::iterator at);
  void trim_locked(std::vector<Range>* out);
  void take_all_locked(std::vector<Range>* out);
  void unlink(Slab* slab);
  void link(Slab* slab);
  void count_allocation(size_t bytes) {
    ++stats.allocations;
    ++stats.live_blocks;
    stats.live_bytes += static_cast<int64_t>(bytes);
    stats.peak_bytes = std::max(stats.peak_bytes, stats.live_bytes);
  }
  void count_free(size_t bytes) {
    --stats.live_blocks;
    stats.live_bytes -= static_cast<int64_t>(bytes);
  }
};

Allocator& allocator();
size_t large_block(size_t bytes);  // the size of the block that so many bytes get, if they are more than kSmallMax
void give_back(const std::vector<Range>& ranges);
size_t effective_limit(const Allocator& a);

}  // namespace tandem::blocks
