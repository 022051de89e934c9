// Blocks that programs lay their values out in.
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>

#include "memory/allocator.h"
#include "memory/allocator_impl.h"
#include "memory/system.h"

namespace tandem {
namespace blocks {

// Note [Arenas]
// A program lays its values out in one block (plan/layout.h) and wants it back, whole, at its next run. Were that
// block cached with the others, the next batch of data would take a piece of it, and the step would map all of its
// memory anew. So idle arenas are kept apart. What a larger program needs beyond one is added to it, with the pages
// that it has. Where other work asks the system for a quarter of what lies idle, programs are taken to be over, and
// their memory becomes ordinary.
bool Allocator::dissolve_arenas() {
  missed_bytes = 0;
  try {
    while (!idle_arenas.empty()) {
      add_to_cache(idle_arenas.back().first, idle_arenas.back().second);
      idle_arenas.pop_back();
    }
  } catch (const std::bad_alloc&) {  // no memory for the entry: it stays an arena
    return false;
  }
  return true;
}

// A larger block with the pages of an idle one, which it takes the place of; null where the system refuses. The lock is
// held: the pages are moved, not copied.
void* Allocator::grow_arena(Range idle, size_t bytes) {
  if (!reserve_locked(bytes - idle.second)) return nullptr;
  void* block = system_map(bytes, kHugePage);
  if (!block) {
    stats.reserved_bytes -= static_cast<int64_t>(bytes - idle.second);
    --stats.system_allocations;
    return nullptr;
  }
  madvise(block, bytes, MADV_HUGEPAGE);
  ASAN_UNPOISON_MEMORY_REGION(idle.first, idle.second);
  if (mremap(idle.first, idle.second, idle.second, MREMAP_MAYMOVE | MREMAP_FIXED, block) == MAP_FAILED)
    system_unmap(idle.first, idle.second);
  return block;
}

}  // namespace blocks

using namespace blocks;

Arena allocate_arena(size_t bytes) {
  Allocator& a = allocator();
  Arena arena;
  if (bytes < kHugePage || bytes > kMaxBytes) {
    arena.data = static_cast<char*>(allocate(bytes, &arena.capacity));
    arena.bytes = arena.capacity;
    return arena;
  }
  constexpr size_t kStep = size_t{64} << 10;
  arena.bytes = (bytes + kStep - 1) / kStep * kStep;
  std::lock_guard guard(a.mutex);
  a.missed_bytes = 0;
  if (!a.idle_arenas.empty()) {  // smallest first
    auto found = std::find_if(a.idle_arenas.begin(), a.idle_arenas.end(),
                              [&](const Range& range) { return range.second >= arena.bytes; });
    if (found != a.idle_arenas.end()) {
      std::tie(arena.data, arena.capacity) = std::pair(static_cast<char*>(found->first), found->second);
      a.idle_arenas.erase(found);
    } else if (void* grown = a.grow_arena(a.idle_arenas.back(), arena.bytes)) {
      arena.data = static_cast<char*>(grown);
      arena.capacity = arena.bytes;
      a.idle_arenas.pop_back();
    }
    if (arena.data) {
      ASAN_UNPOISON_MEMORY_REGION(arena.data, arena.bytes);
      a.count_allocation(arena.bytes);
      return arena;
    }
  }
  a.mutex.unlock();
  struct Again {
    SpinLock& mutex;
    ~Again() { mutex.lock(); }
  } again{a.mutex};
  arena.data = static_cast<char*>(allocate(bytes, &arena.capacity));
  arena.bytes = arena.capacity;
  return arena;
}

void deallocate_arena(const Arena& arena) noexcept {
  if (arena.capacity < kHugePage) return deallocate(arena.data, arena.capacity);
  constexpr size_t kMostIdle = 8;
  Allocator& a = allocator();
  std::lock_guard guard(a.mutex);
  ASAN_POISON_MEMORY_REGION(arena.data, arena.capacity);
  const Range range{arena.data, arena.capacity};
  const auto place = std::find_if(a.idle_arenas.begin(), a.idle_arenas.end(),
                                  [&](const Range& other) { return other.second >= range.second; });
  if (a.idle_arenas.size() < kMostIdle) {
    try {
      a.idle_arenas.insert(place, range);
      a.count_free(arena.bytes);
      return;
    } catch (const std::bad_alloc&) {  // then it is an ordinary block
    }
  }
  a.count_free(arena.bytes);
  a.count_allocation(arena.capacity);
  a.deallocate_large(arena.data, arena.capacity);
}

}  // namespace tandem
