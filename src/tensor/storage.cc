#include "tensor/storage.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda/memory.h"
#include "fork_guard.h"
#include "memory/allocator.h"
#include "memory/format.h"
#include "tensor/view.h"

namespace tandem {

std::string format_shape(int ndim, const int64_t* shape) {
  std::string text = "(";
  for (int i = 0; i < ndim; ++i) {
    if (i) text += ", ";
    text += std::to_string(shape[i]);
  }
  text += ndim == 1 ? ",)" : ")";
  return text;
}

// Blocks of this size and more are listed, with the line that made them. Finding the line takes a fraction of a
// microsecond, which filling a megabyte dwarfs.
constexpr size_t kLargeBytes = size_t{1} << 20;

struct LargeRecord {
  Storage* storage;
  LargeRecord* previous = nullptr;
  LargeRecord* next = nullptr;
  bool described = false;
  View view;  // of the first tensor on it
};

namespace {

std::mutex records_mutex;  // guards the list and what is in it; never held while waiting for the GIL
ForkGuard fork_records(records_mutex);
LargeRecord* records = nullptr;

void insert(LargeRecord* record) {
  std::lock_guard guard(records_mutex);
  record->next = records;
  if (records) records->previous = record;
  records = record;
}

void remove(LargeRecord* record) noexcept {
  std::lock_guard guard(records_mutex);
  (record->previous ? record->previous->next : records) = record->next;
  if (record->next) record->next->previous = record->previous;
}

std::string report_largest(int count, int device) {
  if (interpreter.is_gone()) return "";
  const Locked locked;
  std::string text;
  {
    std::lock_guard guard(records_mutex);
    std::vector<const LargeRecord*> all;
    for (LargeRecord* r = records; r; r = r->next)
      if (r->storage->device() == device) all.push_back(r);
    size_t shown = std::min(all.size(), static_cast<size_t>(count));
    std::partial_sort(all.begin(), all.begin() + shown, all.end(), [](const LargeRecord* a, const LargeRecord* b) {
      return a->storage->bytes() > b->storage->bytes();
    });
    for (size_t i = 0; i < shown; ++i) {
      const LargeRecord& r = *all[i];
      text += i == 0 ? "\n  largest: " : "\n           ";
      text += format_bytes(r.storage->bytes());
      if (r.described) text += std::string(" ") + name(r.view.dtype) + " " + format_shape(r.view.ndim, r.view.shape);
      std::string line = format_source(r.storage->made_at);
      if (!line.empty()) text += " made at " + line;
    }
  }
  return text;
}

[[maybe_unused]] const bool reporter_set = (set_live_report(&report_largest), true);

}  // namespace

Storage* Storage::allocate(size_t bytes, int device) {
  size_t capacity;
  Storage* storage;
  if (device == 0) [[likely]] {
    void* block = tandem::allocate(bytes, &capacity);
    storage = new Storage;
    storage->data_ = static_cast<char*>(block);
  } else {
    cuda::Block* block = cuda::allocate(device - 1, bytes);
    capacity = cuda::size_of(block);
    storage = new Storage;
    storage->data_ = cuda::address_of(block);
    storage->context_ = block;
    storage->device_ = static_cast<uint8_t>(device);
  }
  storage->bytes_ = bytes;
  storage->capacity_ = capacity;
  if (bytes >= kLargeBytes) [[unlikely]] {
    if (interpreter.holds_lock()) storage->made_at = user_source();
    storage->record_ = new LargeRecord{storage};
    insert(storage->record_);
  }
  return storage;
}

Storage* Storage::borrow(void* data, size_t bytes, bool writable, void (*release)(void*), void* context, int device) {
  Storage* storage = new Storage;
  storage->data_ = static_cast<char*>(data);
  storage->bytes_ = bytes;
  storage->writable_ = writable;
  storage->release_ = release;
  storage->device_ = static_cast<uint8_t>(device);
  storage->context_ = context;
  return storage;
}

Storage* Storage::shard(size_t bytes, Object* parts, bool writable, int device) {
  static std::atomic<uintptr_t> next{uintptr_t{1} << 60};  // no address of a process has this bit
  const uintptr_t at = next.fetch_add((bytes + 64) & ~size_t{63}, std::memory_order_relaxed);
  Storage* storage = borrow(
      reinterpret_cast<void*>(at), bytes, writable,
      [](void* owned) { interpreter.release(static_cast<Object*>(owned)); }, parts, device);
  storage->sharded_ = true;
  return storage;
}

Storage* Storage::deferred(size_t bytes, int device) {
  Storage* storage = new Storage;
  storage->device_ = static_cast<uint8_t>(device);
  storage->bytes_ = bytes;
  storage->pending_ = true;
  return storage;
}

Storage* Storage::deferred_row(size_t bytes, int device, Batch* batch, size_t number) {
  Storage* storage = deferred(bytes, device);
  storage->context_ = batch;
  storage->capacity_ = number;
  return storage;
}

void Storage::fulfil_row(Storage& block, size_t offset) {
  pending_ = false;
  data_ = block.data_ + offset;
  capacity_ = 0;
  block.retain();
  context_ = &block;
  release_ = &release_block;
}

void Storage::fulfil(Storage& made) {
  pending_ = false;
  data_ = std::exchange(made.data_, nullptr);
  capacity_ = std::exchange(made.capacity_, 0);
  context_ = std::exchange(made.context_, nullptr);
  release_ = std::exchange(made.release_, nullptr);
  pinned_ = made.pinned_;
  device_ = made.device_;
  if (made.record_) {
    std::lock_guard guard(records_mutex);
    record_ = std::exchange(made.record_, nullptr);
    record_->storage = this;
    std::swap(made_at, made.made_at);
  }
}

void Storage::set_record(const View& view) {
  if (!made_at.code) made_at = user_source();  // allocated inside a program, while the GIL was free
  std::lock_guard guard(records_mutex);
  if (record_->described) return;
  record_->described = true;
  record_->view = view;
}

namespace {
// Without a constructor or destructor of its own, so that who asks for it need not ask whether it is there.
struct SpareStorages {
  struct Spare {
    Spare* next;
  };
  static constexpr int kMost = 1 << 16;
  Spare* first = nullptr;
  int count = 0;
  bool is_emptied = false;  // when the thread ends
  bool is_gone = false;     // the thread has ended
};
constinit thread_local SpareStorages spare_storages;

struct EmptySpareStorages {
  EmptySpareStorages() { spare_storages.is_emptied = true; }
  ~EmptySpareStorages() {
    SpareStorages& spare = spare_storages;
    spare.is_gone = true;
    while (spare.first) ::operator delete(std::exchange(spare.first, spare.first->next));
  }
};
}  // namespace

void* Storage::operator new(size_t size) {
  SpareStorages& spare = spare_storages;
  if (!spare.first) return ::operator new(size);
  --spare.count;
  return std::exchange(spare.first, spare.first->next);
}

void Storage::operator delete(void* memory) noexcept {
  SpareStorages& spare = spare_storages;
  if (!spare.is_emptied) [[unlikely]] {
    static thread_local EmptySpareStorages when_the_thread_ends;
    (void)when_the_thread_ends;
  }
  if (spare.is_gone || spare.count == SpareStorages::kMost) return ::operator delete(memory);
  ++spare.count;
  spare.first = new (memory) SpareStorages::Spare{spare.first};
}

void Storage::destroy() noexcept {
  if (record_) {
    remove(record_);
    delete record_;
  }
  if (capacity_ && !pending_) {
    if (device_ == 0) [[likely]]
      deallocate(data_, capacity_);
    else
      cuda::deallocate(static_cast<cuda::Block*>(context_));
  }
  if (release_ || mutated_at.code || made_at.code) {
    // After the interpreter is gone, there is nobody left to give a reference back to.
    if (!interpreter.is_gone()) {
      const Locked locked;
      if (release_) release_(context_);
      interpreter.release(mutated_at.code);
      interpreter.release(made_at.code);
    }
  }
  delete this;
}

}  // namespace tandem
