// Two tiers behind one spin lock. Small blocks come from slabs of 256 KiB, one size class each; large ones are mapped
// from the system and cached by size, and those of a megabyte and more are split and joined again (Note [Splitting]).
// The lock is held for tens of nanoseconds and nearly always uncontended (callers mostly hold the GIL), so a plain lock
// beats per-thread caches, and every statistic stays exact.
#include "memory/allocator.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "check.h"
#include "memory/format.h"
#include "memory/fresh.h"
#include "memory/system.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace tandem {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSlabBytes = size_t{256} << 10;
constexpr size_t kSmallMax = size_t{32} << 10;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSplitMin = size_t{1} << 20;          // Note [Splitting]
constexpr size_t kMaxBytes = size_t{1} << 47;          // what an address space can hold
constexpr size_t kCacheAllowance = size_t{256} << 20;  // see trim_locked
constexpr size_t kPlentyCached = size_t{64} << 20;
constexpr size_t kChunk = size_t{8} << 20, kChunkFrom = size_t{32} << 20;  // Note [Chunks]

thread_local bool fresh_block = false;  // whether the latest block of this thread came from the system

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

// Never destroyed: tensors may outlive static destruction.
Allocator& allocator() {
  static Allocator* instance = [] {
    // A child of fork must not inherit a lock that a thread, which it does not have, was holding.
    pthread_atfork([] { allocator().mutex.lock(); }, [] { allocator().mutex.unlock(); },
                   [] { allocator().mutex.unlock(); });
    return new Allocator;
  }();
  return *instance;
}

std::string (*live_report)(int, int) = nullptr;

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

// Called with the lock held; lets it go around the system's work.
void* Allocator::allocate_large(size_t bytes, size_t* capacity) {
  fresh_block = false;
  size_t step = bytes < kHugePage ? size_t{4} << 10 : size_t{64} << 10;
  size_t rounded = (bytes + step - 1) / step * step;
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

// Note [Arenas]
// A program lays its values out in one block (program/layout.h) and wants it back, whole, at its next run. Were that
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
