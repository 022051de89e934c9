#include "memory/shared_heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <mutex>
#include <new>

#include "memory/allocator_impl.h"
#include "memory/system.h"

namespace tandem::heap {
namespace {

constexpr size_t kPage = size_t{4} << 10;

struct Heap {
  blocks::SpinLock mutex;         // guards what follows
  std::map<size_t, size_t> free;  // offset -> bytes, neighbours joined
  char* base = nullptr;
  size_t bytes = 0;
  int descriptor = -1;
  bool open = false;    // whether blocks are handed out
  bool forked = false;  // whether this is a child of the process that it belongs to
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
  if (heap.base) {
    heap.open = !heap.forked;
    return heap.forked ? -1 : heap.descriptor;
  }
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
  heap.open = true;
  return descriptor;
}

void note_fork() noexcept {
  Heap& heap = instance();
  heap.forked = heap.base != nullptr;
  heap.open = false;
}

void pause() {
  Heap& heap = instance();
  std::lock_guard guard(heap.mutex);
  heap.open = false;
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

void* map(size_t bytes, size_t alignment) noexcept {
  Heap& heap = instance();
  if (!heap.open) return nullptr;
  std::lock_guard guard(heap.mutex);
  for (auto at = heap.free.begin(); at != heap.free.end(); ++at) {
    const size_t start = reinterpret_cast<uintptr_t>(heap.base) + at->first;
    const size_t skip = (alignment - start % alignment) % alignment;
    if (at->second < skip + bytes) continue;
    const size_t offset = at->first + skip, left = at->second - skip - bytes;
    try {
      if (left) heap.free.emplace(offset + bytes, left);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    if (skip)
      at->second = skip;
    else
      heap.free.erase(at);
    return heap.base + offset;
  }
  return nullptr;
}

bool unmap(void* address, size_t bytes) noexcept {
  if (!holds(address)) return false;
  Heap& heap = instance();
  if (heap.forked) return true;
  const auto offset = static_cast<size_t>(static_cast<char*>(address) - heap.base);
  fallocate(heap.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
  std::lock_guard guard(heap.mutex);
  try {
    add_free(heap, offset, bytes);
  } catch (const std::bad_alloc&) {  // its addresses are lost, its memory is not
  }
  return true;
}

bool holds(const void* address) noexcept {
  const Heap& heap = instance();
  const auto* at = static_cast<const char*>(address);
  return heap.base && at >= heap.base && at < heap.base + heap.bytes;
}

bool inherited(const void* address) noexcept {
  return instance().forked && holds(address);
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
