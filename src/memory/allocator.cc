// Two tiers behind one spin lock. Small blocks come from slabs of 256 KiB, one size class each; large ones are mapped
// from the system and cached by size, and those of a megabyte and more are split and joined again (Note [Splitting]).
// The lock is held for tens of nanoseconds and nearly always uncontended (callers mostly hold the GIL), so a plain lock
// beats per-thread caches, and every statistic stays exact.
// Small blocks are here, with what everybody calls; large ones in large_blocks.cc, arenas in arenas.cc.
#include "memory/allocator.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "memory/allocator_impl.h"
#include "memory/format.h"
#include "memory/fresh.h"
#include "memory/shared_heap.h"
#include "memory/system.h"

namespace tandem {
namespace blocks {

constinit thread_local bool fresh_block = false;

// Never destroyed: tensors may outlive static destruction.
Allocator& allocator() {
  static auto* instance = new Allocator;
  return *instance;
}

// A child of fork must not inherit a lock that a thread, which it does not have, was holding. This comes before all
// other constructors, because what is registered first is locked last: who holds another lock (fork_guard.h) may want
// memory.
__attribute__((constructor(101))) static void guard_forks() {
  pthread_atfork([] { allocator().mutex.lock(); }, [] { allocator().mutex.unlock(); },
                 [] {
                   heap::note_fork();
                   allocator().mutex.unlock();
                 });
}

void give_back(const std::vector<Range>& ranges) {
  for (auto [address, bytes] : ranges) {
    ASAN_UNPOISON_MEMORY_REGION(address, bytes);
    system_unmap(address, bytes);
  }
}

size_t effective_limit(const Allocator& a) {
  return a.limit ? a.limit : machine_memory();
}

// Accounts for `bytes` more from the system, if the limit allows.
bool Allocator::reserve_locked(size_t bytes) {
  if (static_cast<size_t>(stats.reserved_bytes) + bytes > effective_limit(*this)) return false;
  stats.reserved_bytes += static_cast<int64_t>(bytes);
  ++stats.system_allocations;
  return true;
}

void Allocator::link(Slab* slab) {
  Slab*& head = partial[slab->class_index];
  slab->previous = nullptr;
  slab->next = head;
  if (head) head->previous = slab;
  head = slab;
}

void Allocator::unlink(Slab* slab) {
  (slab->previous ? slab->previous->next : partial[slab->class_index]) = slab->next;
  if (slab->next) slab->next->previous = slab->previous;
}

Slab* Allocator::add_slab(SizeClass wanted) {
  void* memory = empty_slabs;
  if (memory) {
    empty_slabs = empty_slabs->next;
  } else {
    if (!reserve_locked(kSlabBytes)) return nullptr;
    memory = system_map(kSlabBytes, kSlabBytes);
    if (!memory) {
      stats.reserved_bytes -= static_cast<int64_t>(kSlabBytes);
      --stats.system_allocations;
      return nullptr;
    }
    ASAN_POISON_MEMORY_REGION(static_cast<char*>(memory) + sizeof(Slab), kSlabBytes - sizeof(Slab));
  }
  Slab* slab = new (memory) Slab;
  slab->fresh = static_cast<char*>(memory) + sizeof(Slab);
  slab->end = static_cast<char*>(memory) + kSlabBytes;
  slab->block_bytes = wanted.bytes;
  slab->class_index = wanted.index;
  link(slab);
  return slab;
}

void* Allocator::allocate_small(SizeClass wanted) {
  Slab* slab = partial[wanted.index];
  if (!slab) [[unlikely]] {
    slab = add_slab(wanted);
    if (!slab) return nullptr;
  }
  void* block = slab->free;
  if (block) {
    ASAN_UNPOISON_MEMORY_REGION(block, sizeof(void*));
    slab->free = *static_cast<void**>(block);
  } else {
    block = slab->fresh;
    slab->fresh += slab->block_bytes;
  }
  ++slab->used;
  if (slab->full()) unlink(slab);
  count_allocation(wanted.bytes);
  return block;
}

void Allocator::deallocate_small(void* block, size_t capacity) noexcept {
  Slab* slab = Slab::of(block);
  bool was_full = slab->full();
  *static_cast<void**>(block) = slab->free;
  slab->free = block;
  ASAN_POISON_MEMORY_REGION(block, capacity);
  --slab->used;
  if (was_full) link(slab);
  // The last slab of a class stays, so that one tensor made and dropped in a loop does not set it up again and again.
  if (slab->used == 0 && (slab->previous || slab->next)) {
    unlink(slab);
    slab->next = empty_slabs;
    empty_slabs = slab;
  }
  count_free(capacity);
}

void Allocator::take_all_locked(std::vector<Range>* out) {
  for (auto& [key, block] : cached) out->emplace_back(block, key.first);
  if (chunk_bytes) out->emplace_back(chunk, std::exchange(chunk_bytes, 0));
  out->insert(out->end(), idle_arenas.begin(), idle_arenas.end());
  idle_arenas.clear();
  cached.clear();
  joinable.clear();
  cached_bytes = 0;
  for (Slab* head : partial) {
    for (Slab *slab = head, *next; slab; slab = next) {
      next = slab->next;
      if (slab->used == 0) {
        unlink(slab);
        out->emplace_back(slab, kSlabBytes);
      }
    }
  }
  for (; empty_slabs; empty_slabs = empty_slabs->next) out->emplace_back(empty_slabs, kSlabBytes);
  for (auto& range : *out) stats.reserved_bytes -= static_cast<int64_t>(range.second);
  stats.system_frees += static_cast<int64_t>(out->size());
}

}  // namespace blocks

using namespace blocks;

namespace {

std::string (*live_report)(int, int) = nullptr;

[[noreturn]] void throw_out_of_memory(size_t bytes) {
  Allocator& a = allocator();
  MemoryStats stats = memory_stats();
  size_t limit = effective_limit(a);
  std::string text = "out of memory: tried to allocate " + format_bytes(bytes) + "; live " +
                     format_bytes(stats.live_bytes) + " in " + std::to_string(stats.live_blocks) +
                     (stats.live_blocks == 1 ? " tensor" : " tensors") + ", reserved " +
                     format_bytes(stats.reserved_bytes) + ", limit " + format_bytes(limit) +
                     (a.limit ? " (td.memory.set_limit)" : " (this machine)");
  text += describe_live(5, 0);
  text += "\n  fix: ";
  if (bytes > machine_memory())
    text += "no such tensor fits here; check its shape";
  else
    text += "drop references to large tensors (del x), use smaller batches" +
            std::string(a.limit ? ", or raise the limit" : "");
  throw Error(ErrorKind::Memory, text);
}

}  // namespace

void* allocate(size_t bytes, size_t* capacity) {
  Allocator& a = allocator();
  if (bytes > kMaxBytes) throw_out_of_memory(bytes);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt) empty_cache();
    std::lock_guard guard(a.mutex);
    void* block;
    if (bytes <= kSmallMax) {
      fresh_block = false;
      SizeClass wanted = size_class(bytes);
      *capacity = wanted.bytes;
      block = a.allocate_small(wanted);
    } else {
      block = a.allocate_large(bytes, capacity);
    }
    if (block) [[likely]] {
      ASAN_POISON_MEMORY_REGION(block, *capacity);
      ASAN_UNPOISON_MEMORY_REGION(block, bytes);
      return block;
    }
  }
  throw_out_of_memory(bytes);
}

void deallocate(void* block, size_t capacity) noexcept {
  Allocator& a = allocator();
  ASAN_UNPOISON_MEMORY_REGION(block, sizeof(void*));
  std::lock_guard guard(a.mutex);
  if (capacity <= kSmallMax)
    a.deallocate_small(block, capacity);
  else
    a.deallocate_large(block, capacity);
}

bool latest_block_is_zero() {
  return fresh_block;
}

MemoryStats memory_stats() {
  Allocator& a = allocator();
  std::lock_guard guard(a.mutex);
  return a.stats;
}

void reset_peak_memory() {
  Allocator& a = allocator();
  std::lock_guard guard(a.mutex);
  a.stats.peak_bytes = a.stats.live_bytes;
}

void empty_cache() {
  Allocator& a = allocator();
  std::vector<Range> ranges;
  {
    std::lock_guard guard(a.mutex);
    a.take_all_locked(&ranges);
    a.stats.reserved_bytes -= static_cast<int64_t>(heap::empty());
  }
  give_back(ranges);
}

void set_memory_limit(int64_t bytes) {
  if (bytes < 0) fail(ErrorKind::Value, "the memory limit must not be negative, got ", bytes);
  Allocator& a = allocator();
  std::lock_guard guard(a.mutex);
  a.limit = static_cast<size_t>(bytes);
}

void set_live_report(std::string (*report)(int, int)) {
  live_report = report;
}

std::string describe_live(int n, int device) {
  return live_report ? live_report(n, device) : "";
}

}  // namespace tandem
