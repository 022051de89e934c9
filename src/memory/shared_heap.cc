#include "memory/shared_heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "memory/allocator_impl.h"
#include "memory/system.h"

namespace tandem::heap {
namespace {

constexpr size_t kPage = size_t{4} << 10;

constexpr size_t kMostSizes = 4096;

struct Heap {
  blocks::SpinLock mutex;                      // guards what follows
  std::map<size_t, size_t> free;               // offset -> bytes, neighbours joined
  std::map<size_t, std::vector<void*>> spare;  // blocks that came back, by size
  size_t spare_bytes = 0, live_bytes = 0, peak_bytes = 0;
  std::set<size_t> wanted;  // sizes of blocks
  char* base = nullptr;
  size_t bytes = 0;
  int descriptor = -1;
  std::atomic<bool> serves{false};  // whether any size is wanted, and blocks are handed out
  bool open = false;
  bool forked = false;  // whether this is a child of the process that it belongs to

  void count_live(size_t more) {
    live_bytes += more;
    peak_bytes = std::max(peak_bytes, live_bytes);
  }
};

Heap& instance() {
  static Heap* heap = new Heap;  // never destroyed: tensors may outlive static destruction
  return *heap;
}

// Of the calling process only; inaccessible pages on both sides keep its blocks from being joined with others'.
char* reserve(int descriptor, size_t bytes) {
  void* raw = mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* base = static_cast<char*>(raw) + kPage;
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
    munmap(raw, bytes + 2 * kPage);
    return nullptr;
  }
  return base;
}

void add_free(Heap& heap, size_t offset, size_t bytes) {
  auto at = heap.free.emplace(offset, bytes).first;
  if (auto after = std::next(at); after != heap.free.end() && at->first + at->second == after->first) {
    at->second += after->second;
    heap.free.erase(after);
  }
  if (at == heap.free.begin()) return;
  if (auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    heap.free.erase(at);
  }
}

}  // namespace

int begin() {
  Heap& heap = instance();
  std::lock_guard guard(heap.mutex);
  if (heap.forked) return -1;
  if (!heap.base) {
    const size_t bytes = machine_memory() / kPage * kPage;
    const int descriptor = memfd_create("tandem-heap", MFD_CLOEXEC);
    if (descriptor < 0) return -1;
    if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0 || !(heap.base = reserve(descriptor, bytes))) {
      close(descriptor);
      return -1;
    }
    heap.bytes = bytes;
    heap.descriptor = descriptor;
    heap.free.emplace(0, bytes);
  }
  heap.open = true;
  heap.serves = !heap.wanted.empty();
  return heap.descriptor;
}

void note_fork() noexcept {
  Heap& heap = instance();
  heap.forked = heap.base != nullptr;
  heap.open = heap.serves = false;
  if (heap.base)  // what the child writes is its own
    mmap(heap.base, heap.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, heap.descriptor, 0);
}

void pause() {
  Heap& heap = instance();
  std::lock_guard guard(heap.mutex);
  heap.open = heap.serves = false;
}

std::shared_ptr<Mapping> attach(int descriptor) {
  static std::mutex mutex;  // guards what follows
  static auto* known = new std::map<ino_t, std::weak_ptr<Mapping>>;
  struct stat info;
  if (fstat(descriptor, &info) != 0) return nullptr;
  std::lock_guard guard(mutex);
  std::weak_ptr<Mapping>& found = (*known)[info.st_ino];
  if (auto mapping = found.lock()) return mapping;
  const auto bytes = static_cast<size_t>(info.st_size);
  char* base = reserve(descriptor, bytes);
  if (!base) return nullptr;
  auto mapping = std::make_shared<Mapping>(base, bytes);
  found = mapping;
  return mapping;
}

Mapping::~Mapping() {
  munmap(base - kPage, bytes + 2 * kPage);
}

void want(size_t bytes) noexcept {
  Heap& heap = instance();
  if (bytes <= blocks::kSmallMax) return;
  std::lock_guard guard(heap.mutex);
  if (!heap.open || heap.wanted.size() >= kMostSizes) return;
  try {
    heap.wanted.insert(blocks::large_block(bytes));
    heap.serves = true;
  } catch (const std::bad_alloc&) {
  }
}

bool is_wanted(size_t block) noexcept {
  Heap& heap = instance();
  if (!heap.serves.load(std::memory_order_relaxed)) return false;
  std::lock_guard guard(heap.mutex);
  return heap.wanted.contains(block);
}

void* take(size_t block) noexcept {
  Heap& heap = instance();
  std::lock_guard guard(heap.mutex);
  const auto found = heap.spare.find(block);
  if (found == heap.spare.end() || found->second.empty()) return nullptr;
  void* address = found->second.back();
  found->second.pop_back();
  heap.spare_bytes -= block;
  heap.count_live(block);
  return address;
}

void* map(size_t block) noexcept {
  Heap& heap = instance();
  std::lock_guard guard(heap.mutex);
  const auto at = std::find_if(heap.free.begin(), heap.free.end(), [&](const auto& f) { return f.second >= block; });
  if (at == heap.free.end()) return nullptr;
  const size_t offset = at->first, left = at->second - block;
  try {
    if (left) heap.free.emplace(offset + block, left);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  heap.free.erase(at);
  heap.count_live(block);
  return heap.base + offset;
}

// Called with the lock held.
static void punch(Heap& heap, void* address, size_t bytes) noexcept {
  const auto offset = static_cast<size_t>(static_cast<char*>(address) - heap.base);
  fallocate(heap.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
  try {
    add_free(heap, offset, bytes);
  } catch (const std::bad_alloc&) {  // its addresses are lost, its memory is not
  }
}

bool give(void* block, size_t bytes) noexcept {
  Heap& heap = instance();
  if (heap.forked) return false;
  std::lock_guard guard(heap.mutex);
  heap.live_bytes -= bytes;
  if (heap.spare_bytes + bytes <= std::max(blocks::kCacheAllowance, heap.peak_bytes)) {
    try {
      heap.spare[bytes].push_back(block);
      heap.spare_bytes += bytes;
      return false;
    } catch (const std::bad_alloc&) {
    }
  }
  punch(heap, block, bytes);
  return true;
}

size_t empty() noexcept {
  Heap& heap = instance();
  if (heap.forked) return 0;
  std::lock_guard guard(heap.mutex);
  for (auto& [bytes, list] : heap.spare)
    for (void* block : list) punch(heap, block, bytes);
  heap.spare.clear();
  return std::exchange(heap.spare_bytes, 0);
}

bool holds(const void* address) noexcept {
  const Heap& heap = instance();
  const auto* at = static_cast<const char*>(address);
  return heap.base && at >= heap.base && at < heap.base + heap.bytes;
}

char* base() noexcept {
  return instance().base;
}

int64_t offset_of(const void* address, size_t bytes) noexcept {
  const Heap& heap = instance();
  const auto* at = static_cast<const char*>(address);
  if (!holds(at) || at + bytes > heap.base + heap.bytes || heap.forked) return -1;
  return at - heap.base;
}

}  // namespace tandem::heap
