// Blocks of more than 32 KiB: mapped from the system, cached by size, split and joined again.
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "memory/allocator_impl.h"
#include "memory/shared_heap.h"
#include "memory/system.h"

namespace tandem::blocks {

// Note [Chunks]
// Blocks below the size of a huge page would be made of small pages, and those of a model's parameters, gradients and
// optimiser state are many: faulting them in took longer than filling them. So once there is as much memory in use,
// they are cut from chunks of huge pages. Freed, they are blocks like others.
void* Allocator::take_from_chunk(size_t bytes) {
  if (bytes >= kHugePage || stats.live_bytes < static_cast<int64_t>(kChunkFrom)) return nullptr;
  if (chunk_bytes < bytes) {
    if (!reserve_locked(kChunk)) return nullptr;
    void* fresh = system_map(kChunk, kHugePage);
    if (!fresh) {
      stats.reserved_bytes -= static_cast<int64_t>(kChunk);
      --stats.system_allocations;
      return nullptr;
    }
    madvise(fresh, kChunk, MADV_HUGEPAGE);
    if (chunk_bytes) {
      ASAN_POISON_MEMORY_REGION(chunk, chunk_bytes);
      try {
        add_to_cache(chunk, chunk_bytes);
      } catch (const std::bad_alloc&) {  // no memory for the entry
        stats.reserved_bytes -= static_cast<int64_t>(chunk_bytes);
        system_unmap(chunk, chunk_bytes);
      }
    }
    chunk = static_cast<char*>(fresh);
    chunk_bytes = kChunk;
  }
  chunk_bytes -= bytes;
  return std::exchange(chunk, chunk + bytes);
}

size_t large_block(size_t bytes) {
  const size_t step = bytes < kHugePage ? size_t{4} << 10 : size_t{64} << 10;
  return (bytes + step - 1) / step * step;
}

// Called with the lock held; lets it go around the system's work.
void* Allocator::allocate_large(size_t bytes, size_t* capacity) {
  fresh_block = false;
  const size_t rounded = large_block(bytes);
  if (heap::is_wanted(rounded)) {
    void* shared = heap::take(rounded);
    if (!shared && reserve_locked(rounded)) {
      shared = heap::map(rounded);
      fresh_block = shared != nullptr;
      if (!shared) {
        stats.reserved_bytes -= static_cast<int64_t>(rounded);
        --stats.system_allocations;
      }
    }
    if (shared) {
      *capacity = rounded;
      count_allocation(rounded);
      return shared;
    }
  }
  auto found = cached.lower_bound({rounded, 0});
  // A block that is a little too large will do. One that is much too large will do where it saves asking the system,
  // whose fresh pages cost more than filling them: so a smaller batch runs in the memory of the larger one before it.
  // Not where little is cached, which a large request may need next.
  const size_t slack = cached_bytes >= kPlentyCached ? rounded : rounded / 4;
  if (found != cached.end()) {
    size_t have = found->first.first;
    // What is left over and too small to stand alone goes along, so that any block that is large enough serves.
    bool splits = rounded >= kSplitMin && have - rounded >= kSplitMin;
    if (rounded >= kSplitMin || have <= rounded + slack) {
      void* block = take_from_cache(found);
      if (splits) {
        try {
          add_to_cache(static_cast<char*>(block) + rounded, have - rounded);
          have = rounded;
        } catch (const std::bad_alloc&) {  // no memory for the entry: the block stays whole
        }
      }
      *capacity = have;
      count_allocation(have);
      return block;
    }
  }
  if (!idle_arenas.empty() && (missed_bytes += rounded) > idle_arenas.back().second / 4 && dissolve_arenas())
    return allocate_large(bytes, capacity);
  if (void* block = take_from_chunk(rounded)) {
    fresh_block = true;
    *capacity = rounded;
    count_allocation(rounded);
    return block;
  }
  std::vector<Range> trimmed;
  trim_locked(&trimmed);
  if (!reserve_locked(rounded)) {
    mutex.unlock();
    give_back(trimmed);
    mutex.lock();
    return nullptr;
  }
  mutex.unlock();
  give_back(trimmed);
  void* block = system_map(rounded, rounded >= kHugePage ? kHugePage : size_t{4} << 10);
  if (block && rounded >= kHugePage) madvise(block, rounded, MADV_HUGEPAGE);
  mutex.lock();
  if (!block) {
    stats.reserved_bytes -= static_cast<int64_t>(rounded);
    --stats.system_allocations;
    return nullptr;
  }
  fresh_block = true;
  *capacity = rounded;
  count_allocation(rounded);
  return block;
}

void Allocator::deallocate_large(void* block, size_t capacity) noexcept {
  ASAN_POISON_MEMORY_REGION(block, capacity);
  count_free(capacity);
  if (heap::holds(block)) {
    if (!heap::give(block, capacity)) return;
    stats.reserved_bytes -= static_cast<int64_t>(capacity);
    ++stats.system_frees;
    return;
  }
  try {
    add_to_cache(block, capacity);
  } catch (...) {  // no memory for the entry: do without the cache
    stats.reserved_bytes -= static_cast<int64_t>(capacity);
    ++stats.system_frees;
    give_back({{block, capacity}});
  }
}

// Note [Splitting]
// A program asks for hundreds of sizes. Kept apart by size, free blocks of one would lie idle while another is mapped
// anew: a step of ResNet-50 held 1.28 times its live peak. So a request of kSplitMin or more takes its part of the
// smallest free block that holds it, and a free block is joined with free neighbours. Addresses decide who is a
// neighbour, not mappings: the system unmaps any range of pages, also across mappings that happen to lie side by side.
// Smaller blocks stay out of it, so that they, which often live long, do not sit in the middle of large ones.
void Allocator::add_to_cache(void* block, size_t bytes) {
  auto entry = cached.emplace(std::pair{bytes, clock--}, block).first;
  cached_bytes += bytes;
  if (bytes < kSplitMin) return;
  auto place = joinable.end();
  try {
    place = joinable.emplace(static_cast<char*>(block), entry).first;
  } catch (...) {
    cached.erase(entry);
    cached_bytes -= bytes;
    throw;
  }
  // From here on nothing asks for memory: the entry that stays takes the other's bytes over.
  auto absorb = [&](auto& stays, auto& goes) {
    auto node = cached.extract(stays->second);
    node.key() = {node.key().first + goes->second->first.first, clock--};
    stays->second = cached.insert(std::move(node)).position;
    cached.erase(goes->second);
    joinable.erase(goes);
  };
  auto end_of = [](const auto& at) { return at->first + at->second->first.first; };
  if (auto after = std::next(place); after != joinable.end() && end_of(place) == after->first) absorb(place, after);
  if (place == joinable.begin()) return;
  if (auto before = std::prev(place); end_of(before) == place->first) absorb(before, place);
}

void* Allocator::take_from_cache(std::map<std::pair<size_t, uint64_t>, void*>::iterator at) {
  void* block = at->second;
  cached_bytes -= at->first.first;
  if (at->first.first >= kSplitMin) joinable.erase(static_cast<char*>(block));
  cached.erase(at);
  return block;
}

// A program whose sizes grow step by step would leave behind a cached block of each size. Whenever the system is asked
// for more, what is cached beyond the peak of live memory (and an allowance) goes back, the longest unused first.
void Allocator::trim_locked(std::vector<Range>* out) {
  size_t allowed = std::max(kCacheAllowance, static_cast<size_t>(stats.peak_bytes));
  while (cached_bytes > allowed) {
    auto oldest = std::max_element(cached.begin(), cached.end(),
                                   [](const auto& a, const auto& b) { return a.first.second < b.first.second; });
    size_t bytes = oldest->first.first;
    out->emplace_back(take_from_cache(oldest), bytes);
    stats.reserved_bytes -= static_cast<int64_t>(bytes);
    ++stats.system_frees;
  }
}

}  // namespace tandem::blocks
