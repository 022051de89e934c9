#include "device/cuda/memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "device/cuda/device.h"
#include "device/cuda/virtual_memory.h"
#include "fork_guard.h"
#include "memory/format.h"

namespace tandem::cuda {

// Addresses that physical memory is mapped into as it is needed. See Note [Expandable segments].
struct Segment {
  char* base;
  size_t bytes;
  std::map<char*, MemoryHandle> chunks;  // what is mapped, by address
};

// A piece of a segment; a segment is what one call to the driver gave, cut into blocks that know their neighbours.
struct Block {
  int device = 0;
  uint64_t pool = 0;  // the stream, or the number of a graph's pool
  char* address = nullptr;
  size_t bytes = 0;
  bool used = false;
  bool small = false;
  bool mapped = true;          // false: addresses without memory
  Segment* segment = nullptr;  // of expandable ones
  Block* previous = nullptr;   // in the segment
  Block* next = nullptr;
  std::vector<Stream> others;  // streams besides its own that use it
  int pending = 0;             // events that must pass before it is free
};

namespace {

constexpr size_t kRound = 512;
constexpr size_t kSmall = size_t{1} << 20;  // up to here: pieces of small segments
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;  // at least, so that blocks of a few megabytes share one
constexpr size_t kHuge = size_t{10} << 20;          // from here on: segments of their own size
constexpr size_t kChunk = size_t{20} << 20;         // what expandable segments grow by; a multiple of the driver's 2 MB

struct Smaller {
  bool operator()(const Block* a, const Block* b) const {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
  }
};
using FreeList = std::set<Block*, Smaller>;
struct PoolKey {
  uint64_t pool;
  bool small;
  bool operator<(const PoolKey& o) const { return pool != o.pool ? pool < o.pool : small < o.small; }
};

// Small blocks that were freed last, by size: a tensor that is made and dropped again and again touches no list. They
// do not join their neighbours until they go back to the lists.
constexpr size_t kKeptSizes = 32, kKeptEach = 4;
struct Kept {
  Block* blocks[kKeptEach];
  size_t count = 0;
};

struct DeviceMemory {
  std::mutex mutex;  // guards everything here
  ForkGuard fork{mutex};
  std::map<PoolKey, FreeList> free;
  Kept kept[kKeptSizes];
  std::map<PoolKey, FreeList> unmapped;  // in expandable segments
  std::set<uint64_t> released;           // pools of graphs that are gone, but for blocks in use
  bool expandable = false;
  int64_t peak_reserved = 0;                      // highest reserved_bytes since the last reset
  std::vector<std::pair<Event, Block*>> waiting;  // blocks in use by other streams when they were freed
  MemoryStats stats;
  double fraction = 1.0;
};
DeviceMemory& memory_of(int device) {
  static auto* all = new DeviceMemory[kMaxDevices];  // never destroyed: tensors may outlive static destruction
  return all[device];
}

thread_local uint64_t active_pool = 0;
uint64_t pools_made = 0;
std::mutex pools_mutex;
ForkGuard fork_pools(pools_mutex);

constexpr uint64_t kGraphPool = uint64_t{1} << 63;  // told apart from addresses of streams

size_t rounded(size_t bytes) {
  return bytes < kRound ? kRound : (bytes + kRound - 1) / kRound * kRound;
}

size_t segment_bytes(size_t bytes) {
  if (bytes <= kSmall) return kSmallSegment;
  if (bytes < kHuge) return kLargeSegment;
  return (bytes + kSmallSegment - 1) / kSmallSegment * kSmallSegment;
}

// Every block of the segment changes hands, so that neighbours can still be joined.
void hand_over(Block* block, uint64_t pool) {
  for (Block* b = block; b; b = b->previous) b->pool = pool;
  for (Block* b = block->next; b; b = b->next) b->pool = pool;
}

void insert_free(DeviceMemory& m, Block* block) {
  if ((block->pool & kGraphPool) && m.released.count(block->pool)) [[unlikely]]
    hand_over(block, 0);
  auto& list = (block->mapped ? m.free : m.unmapped)[{block->pool, block->small}];
  // Neighbours that are free become one block.
  for (Block* other : {block->previous, block->next}) {
    if (!other || other->used || other->pending || other->mapped != block->mapped) continue;
    list.erase(other);
    Block* low = other == block->previous ? other : block;
    Block* high = low == other ? block : other;
    low->bytes += high->bytes;
    low->next = high->next;
    if (high->next) high->next->previous = low;
    delete high;
    block = low;
  }
  list.insert(block);
}

// A block that was in use goes where it is found quickly; false: it belongs into the lists.
bool keep(DeviceMemory& m, Block* block) {
  const size_t place = block->bytes / kRound - 1;
  if (!block->small || place >= kKeptSizes || (block->pool & kGraphPool)) return false;
  Kept& kept = m.kept[place];
  if (kept.count == kKeptEach) return false;
  block->used = true;  // its neighbours leave it alone
  kept.blocks[kept.count++] = block;
  return true;
}

Block* take_kept(DeviceMemory& m, uint64_t pool, size_t bytes) {
  const size_t place = bytes / kRound - 1;
  if (place >= kKeptSizes) return nullptr;
  Kept& kept = m.kept[place];
  for (size_t i = kept.count; i-- > 0;) {
    if (kept.blocks[i]->pool != pool) continue;
    Block* block = kept.blocks[i];
    kept.blocks[i] = kept.blocks[--kept.count];
    return block;
  }
  return nullptr;
}

void give_kept_back(DeviceMemory& m) {
  for (Kept& kept : m.kept) {
    for (size_t i = 0; i < kept.count; ++i) {
      kept.blocks[i]->used = false;
      insert_free(m, kept.blocks[i]);
    }
    kept.count = 0;
  }
}

void collect_waiting(DeviceMemory& m, bool wait) {
  const Driver& d = driver();
  for (size_t i = 0; i < m.waiting.size();) {
    auto [event, block] = m.waiting[i];
    Status status = wait ? d.event_synchronize(event) : d.event_query(event);
    if (status == kNotReady) {
      ++i;
      continue;
    }
    d.event_destroy(event);
    if (--block->pending == 0) insert_free(m, block);
    m.waiting[i] = m.waiting.back();
    m.waiting.pop_back();
  }
}

Block* take(DeviceMemory& m, uint64_t pool, size_t bytes) {
  auto found_list = m.free.find({pool, bytes <= kSmall});
  if (found_list == m.free.end()) return nullptr;
  FreeList& list = found_list->second;
  Block wanted;
  wanted.bytes = bytes;
  auto it = list.lower_bound(&wanted);
  if (it == list.end()) return nullptr;
  Block* block = *it;
  list.erase(it);
  size_t rest = block->bytes - bytes;
  if (rest >= (block->small ? kRound : kSmall)) {
    auto* tail = new Block;
    tail->device = block->device;
    tail->pool = block->pool;
    tail->small = block->small;
    tail->segment = block->segment;
    tail->address = block->address + bytes;
    tail->bytes = rest;
    tail->previous = block;
    tail->next = block->next;
    if (tail->next) tail->next->previous = tail;
    block->next = tail;
    block->bytes = bytes;
    list.insert(tail);
  }
  return block;
}

bool within_limit(const DeviceMemory& m, int device, size_t more) {
  const auto limit = static_cast<size_t>(static_cast<double>(properties(device).memory) * m.fraction);
  return m.fraction >= 1.0 || static_cast<size_t>(m.stats.reserved_bytes) + more <= limit;
}

void note_reserved(DeviceMemory& m, size_t bytes) {
  m.stats.reserved_bytes += static_cast<int64_t>(bytes);
  m.peak_reserved = std::max(m.peak_reserved, m.stats.reserved_bytes);
  ++m.stats.system_allocations;
}

Block* split(Block* block, size_t bytes) {  // the rest, as a block of its own that is in no list
  auto* rest = new Block(*block);
  rest->others.clear();
  rest->address += bytes;
  rest->bytes -= bytes;
  rest->previous = block;
  if (rest->next) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  return rest;
}

void unmap(Segment& segment, char* from, size_t bytes) {
  const VirtualMemory& d = *virtual_memory();
  for (char* at = from; at < from + bytes; at += kChunk) {
    auto chunk = segment.chunks.find(at);
    if (chunk == segment.chunks.end()) continue;
    d.unmap(reinterpret_cast<Address>(at), kChunk);
    d.destroy(chunk->second);
    segment.chunks.erase(chunk);
  }
}

bool map(Segment& segment, int device, char* from, size_t bytes) {
  const VirtualMemory& d = *virtual_memory();
  MemoryProperties kind;
  MemoryAccess access;
  kind.location.id = access.location.id = device;
  Status status = 0;
  for (char* at = from; at < from + bytes && status == 0; at += kChunk) {
    MemoryHandle handle = 0;
    status = d.create(&handle, kChunk, &kind, 0);
    if (status) break;
    status = d.map(reinterpret_cast<Address>(at), kChunk, 0, handle, 0);
    if (status)
      d.destroy(handle);
    else
      segment.chunks.emplace(at, handle);
  }
  if (status == 0) status = d.set_access(reinterpret_cast<Address>(from), bytes, &access, 1);
  if (status == 0) return true;
  unmap(segment, from, bytes);
  if (status != kOutOfMemory) check(status, "mapping device memory");
  return false;
}

Block* new_segment(DeviceMemory& m, int device, uint64_t pool) {  // null: no addresses
  const size_t bytes = (properties(device).memory + kChunk - 1) / kChunk * kChunk;
  Address address = 0;
  if (virtual_memory()->reserve(&address, bytes, 0, 0, 0) != 0) return nullptr;
  auto* block = new Block;
  block->device = device;
  block->pool = pool;
  block->address = reinterpret_cast<char*>(address);
  block->bytes = bytes;
  block->mapped = false;
  block->segment = new Segment{block->address, bytes, {}};
  m.unmapped[{pool, false}].insert(block);
  return block;
}

bool free_before(const Block* block) {
  const Block* before = block->previous;
  return before && before->mapped && !before->used && !before->pending;
}

// Maps as much behind the end of a free block, or in a gap, as makes room for `bytes`.
bool grow_segment(DeviceMemory& m, int device, uint64_t pool, size_t bytes) {
  const auto before = [](const Block* b) { return free_before(b) ? b->previous->bytes : 0; };
  Block* chosen = nullptr;
  for (Block* gap : m.unmapped[{pool, false}])
    if (gap->bytes + before(gap) >= bytes && (!chosen || before(gap) > before(chosen))) chosen = gap;
  if (!chosen) chosen = new_segment(m, device, pool);
  if (!chosen) return false;
  const size_t size = (bytes - std::min(bytes, before(chosen)) + kChunk - 1) / kChunk * kChunk;
  if (size > chosen->bytes || !within_limit(m, device, size)) return false;
  if (!map(*chosen->segment, device, chosen->address, size)) return false;
  m.unmapped[{pool, false}].erase(chosen);
  if (size < chosen->bytes) m.unmapped[{pool, false}].insert(split(chosen, size));
  chosen->mapped = true;
  note_reserved(m, size);
  insert_free(m, chosen);
  return true;
}

// Unmaps the chunks of expandable segments that lie in free blocks whole. Kernels that use them must have ended.
void trim_segments(DeviceMemory& m) {
  std::vector<Block*> candidates;
  for (auto& [key, list] : m.free)
    for (Block* block : list)
      if (block->segment && !(key.pool & kGraphPool) && block->bytes >= kChunk) candidates.push_back(block);
  if (candidates.empty() || driver().synchronize_context() != 0) return;
  for (Block* block : candidates) {
    Segment& segment = *block->segment;
    const size_t start = static_cast<size_t>(block->address - segment.base), end = start + block->bytes;
    const size_t low = (start + kChunk - 1) / kChunk * kChunk, high = end / kChunk * kChunk;
    if (low >= high) continue;
    auto& list = m.free[{block->pool, block->small}];
    list.erase(block);
    if (low > start) {
      Block* rest = split(block, low - start);
      list.insert(block);
      block = rest;
    }
    if (high < end) list.insert(split(block, high - low));
    unmap(segment, block->address, block->bytes);
    m.stats.reserved_bytes -= static_cast<int64_t>(block->bytes);
    ++m.stats.system_frees;
    block->mapped = false;
    insert_free(m, block);
  }
  for (auto& [key, list] : m.unmapped)
    for (auto it = list.begin(); it != list.end();) {
      Block* block = *it;
      if (block->previous || block->next) {
        ++it;
        continue;
      }
      it = list.erase(it);
      virtual_memory()->release(reinterpret_cast<Address>(block->segment->base), block->segment->bytes);
      delete block->segment;
      delete block;
    }
}

bool grow(DeviceMemory& m, int device, uint64_t pool, size_t bytes) {
  if (m.expandable && bytes > kSmall && grow_segment(m, device, pool, bytes)) return true;
  size_t size = segment_bytes(bytes);
  if (!within_limit(m, device, size)) return false;
  Address address = 0;
  Status status = driver().allocate(&address, size);
  if (status == kOutOfMemory) return false;
  check(status, "allocating device memory");
  auto* block = new Block;
  block->device = device;
  block->pool = pool;
  block->address = reinterpret_cast<char*>(address);
  block->bytes = size;
  block->small = bytes <= kSmall;
  m.free[{pool, block->small}].insert(block);
  note_reserved(m, size);
  return true;
}

// Gives whole free segments back, except those that graphs own.
void trim(DeviceMemory& m) {
  give_kept_back(m);
  collect_waiting(m, true);
  trim_segments(m);
  for (auto& [key, list] : m.free) {
    if (key.pool & kGraphPool) continue;
    for (auto it = list.begin(); it != list.end();) {
      Block* block = *it;
      if (block->previous || block->next || block->segment) {
        ++it;
        continue;
      }
      it = list.erase(it);
      driver().free(reinterpret_cast<Address>(block->address));
      m.stats.reserved_bytes -= static_cast<int64_t>(block->bytes);
      ++m.stats.system_frees;
      delete block;
    }
  }
}

[[noreturn]] void throw_out_of_memory(DeviceMemory& m, int device, size_t bytes) {
  size_t available = 0, total = 0;
  driver().memory_info(&available, &total);
  std::string text = "out of memory on cuda:" + std::to_string(device) + ": " + format_bytes(bytes) +
                     " were asked for; of " + format_bytes(total) + ", " +
                     format_bytes(static_cast<size_t>(m.stats.live_bytes)) + " are in live tensors, " +
                     format_bytes(static_cast<size_t>(m.stats.reserved_bytes)) + " reserved by this process and " +
                     format_bytes(available) + " free";
  if (m.fraction < 1.0) text += "; this process may reserve " + std::to_string(m.fraction) + " of all";
  text += describe_live(5, device + 1);
  text += "\n  fix: drop references to large tensors (del x), use smaller batches, or td.checkpoint parts of the model";
  throw Error(ErrorKind::Memory, text);
}

}  // namespace

Block* allocate(int device, size_t bytes) {
  activate(device);
  DeviceMemory& m = memory_of(device);
  bytes = rounded(bytes);
  uint64_t pool = active_pool ? active_pool : reinterpret_cast<uint64_t>(current_stream(device));
  Block* block = nullptr;
  bool failed = false;
  {
    std::lock_guard guard(m.mutex);
    if (!m.waiting.empty()) [[unlikely]]
      collect_waiting(m, false);
    block = take_kept(m, pool, bytes);
    if (!block) block = take(m, pool, bytes);
    if (!block && bytes <= kSmall) {
      give_kept_back(m);
      block = take(m, pool, bytes);
    }
    if (!block) {
      if (!grow(m, device, pool, bytes)) {
        trim(m);
        failed = !grow(m, device, pool, bytes);
      }
      if (!failed) block = take(m, pool, bytes);
    }
    if (block) {
      block->used = true;
      ++m.stats.allocations;
      ++m.stats.live_blocks;
      m.stats.live_bytes += static_cast<int64_t>(block->bytes);
      m.stats.peak_bytes = std::max(m.stats.peak_bytes, m.stats.live_bytes);
    }
  }
  if (!block) throw_out_of_memory(m, device, bytes);  // not under the lock: the report asks tensors about themselves
  return block;
}

void deallocate(Block* block) noexcept {
  DeviceMemory& m = memory_of(block->device);
  std::lock_guard guard(m.mutex);
  block->used = false;
  --m.stats.live_blocks;
  m.stats.live_bytes -= static_cast<int64_t>(block->bytes);
  if (block->others.empty()) [[likely]] {
    if (!keep(m, block)) insert_free(m, block);
    return;
  }
  // The other streams may still be using it.
  const Driver& d = driver();
  for (Stream stream : block->others) {
    Event event = nullptr;
    constexpr unsigned kNoTiming = 2;
    if (d.event_create(&event, kNoTiming) != 0 || d.event_record(event, stream) != 0) continue;
    ++block->pending;
    m.waiting.emplace_back(event, block);
  }
  block->others.clear();
  if (block->pending == 0) insert_free(m, block);
}

char* address_of(const Block* block) {
  return block->address;
}
size_t size_of(const Block* block) {
  return block->bytes;
}

void record_stream(Block* block, Stream stream) {
  DeviceMemory& m = memory_of(block->device);
  std::lock_guard guard(m.mutex);
  if (reinterpret_cast<uint64_t>(stream) == block->pool) return;
  if (std::find(block->others.begin(), block->others.end(), stream) == block->others.end())
    block->others.push_back(stream);
}

MemoryStats memory_stats(int device) {
  DeviceMemory& m = memory_of(device);
  std::lock_guard guard(m.mutex);
  return m.stats;
}

void reset_peak_memory(int device) {
  DeviceMemory& m = memory_of(device);
  std::lock_guard guard(m.mutex);
  m.stats.peak_bytes = m.stats.live_bytes;
  m.peak_reserved = m.stats.reserved_bytes;
}

void set_expandable_segments(int device, bool on) {
  activate(device);
  if (on) {
    constexpr int kVirtualMemory = 102;
    int supported = 0;
    DeviceHandle handle = 0;
    check(driver().device_get(&handle, device), "cuDeviceGet");
    driver().device_attribute(&supported, kVirtualMemory, handle);
    if (!supported || !virtual_memory())
      fail(ErrorKind::Device, "cuda:", device, " has no virtual memory management: expandable segments need it");
  }
  DeviceMemory& m = memory_of(device);
  std::lock_guard guard(m.mutex);
  m.expandable = on;
}

int64_t peak_reserved(int device) {
  DeviceMemory& m = memory_of(device);
  std::lock_guard guard(m.mutex);
  return m.peak_reserved;
}

bool expandable_segments(int device) {
  DeviceMemory& m = memory_of(device);
  std::lock_guard guard(m.mutex);
  return m.expandable;
}

void empty_cache(int device) {
  activate(device);
  DeviceMemory& m = memory_of(device);
  std::lock_guard guard(m.mutex);
  trim(m);
}

void set_memory_fraction(int device, double fraction) {
  if (!(fraction > 0 && fraction <= 1))
    fail(ErrorKind::Value, "the fraction of device memory must be above 0 and at most 1, got ", fraction);
  DeviceMemory& m = memory_of(device);
  std::lock_guard guard(m.mutex);
  m.fraction = fraction;
}

uint64_t new_pool() {
  std::lock_guard guard(pools_mutex);
  return kGraphPool | ++pools_made;
}

void set_pool(uint64_t pool) {
  active_pool = pool;
}

// What the graph owned goes over to the default stream's pools; blocks still in use, when they are freed.
void release_pool(int device, uint64_t pool) {
  DeviceMemory& m = memory_of(device);
  std::lock_guard guard(m.mutex);
  m.released.insert(pool);
  for (auto* lists : {&m.free, &m.unmapped})
    for (bool small : {false, true}) {
      auto found = lists->find({pool, small});
      if (found == lists->end()) continue;
      FreeList blocks = std::move(found->second);
      lists->erase(found);
      for (Block* block : blocks) hand_over(block, 0);
      (*lists)[{0, small}].insert(blocks.begin(), blocks.end());
    }
}

}  // namespace tandem::cuda
