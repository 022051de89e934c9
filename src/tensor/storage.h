// Reference-counted memory, shared by a tensor and its views, with the version counter that in-place operators raise.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ref.h"
#include "source.h"

namespace tandem {

class Batch;  // autobatch/batch.h
struct View;
struct LargeRecord;  // storage.cc: what the out-of-memory error tells of a large block

class Storage {
 public:
  // From the caching allocator of a device (0: the CPU, k: cuda:(k - 1)); reference count 1.
  static Storage* allocate(size_t bytes, int device = 0);
  // Memory of somebody else: `release(context)` is called when the last reference goes (with the GIL held).
  static Storage* borrow(void* data, size_t bytes, bool writable, void (*release)(void*), void* context,
                         int device = 0);

  // Memory of a deferred tensor: not there yet; fulfil takes over the block of a storage that nobody else holds.
  static Storage* deferred(size_t bytes, int device = 0);
  bool pending() const { return pending_; }
  void fulfil(Storage& made);

  // A deferred tensor of calls that run in batches (autobatch/batch.h), and its number there. Its memory is
  // part of a larger block in the end, which lives as long as any of its rows; writing one counts as writing all.
  static Storage* deferred_row(size_t bytes, int device, Batch* batch, size_t number);
  Batch* batch() const { return pending_ ? static_cast<Batch*>(context_) : nullptr; }
  size_t number() const { return capacity_; }
  void renumber(size_t number) { capacity_ = number; }
  void fulfil_row(Storage& block, size_t offset);
  Storage* row_of() const { return release_ == &release_block ? static_cast<Storage*>(context_) : nullptr; }
  void forget_batch() { context_ = nullptr, capacity_ = 0; }

  // Note [Sharded storages]
  // Elements that lie in parts on several ranks. `parts`, a Python object that is taken over, says where. There is no
  // memory: the address is one that nothing is ever mapped at, of a range of its own, so that tensors on it compare as
  // others do. dispatch() hands calls on such tensors to Python (tandem/distributed/sharding); materialize() refuses.
  static Storage* shard(size_t bytes, Object* parts, bool writable, int device);
  bool sharded() const { return sharded_; }
  Object* parts() const { return sharded_ ? static_cast<Object*>(context_) : nullptr; }  // borrowed

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int device() const { return device_; }
  bool on_host() const { return device_ == 0; }
  bool pinned() const { return pinned_; }  // host memory that devices copy to and from by themselves
  void set_pinned() { pinned_ = true; }
  void* block() const {
    return device_ && !release_ && !pending_ ? context_ : nullptr;
  }  // of the device's allocator, or null
  bool writable() const { return writable_; }
  bool borrowed() const { return release_ != nullptr; }  // another Storage may stand for the same memory
  bool overlaps(const Storage& other) const {
    return data_ < other.data_ + other.bytes_ && other.data_ < data_ + bytes_;
  }
  uint32_t version() const { return version_; }
  void bump_version() {
    ++version_;
    if (release_ == &release_block) [[unlikely]]
      static_cast<Storage*>(context_)->bump_version();
  }

  // Note [Writes through x.data]
  // x.data is outside of what autograd watches, as in PyTorch: writes through it change the memory, so that everything
  // that depends on contents sees a new version, but a record that saved x runs backward all the same. Such tensors
  // and their views are `unwatched`; their writes are counted apart, and what was saved compares the count of its kind.
  void bump_unwatched() {
    ++version_, ++unwatched_;
    if (release_ == &release_block) [[unlikely]]
      static_cast<Storage*>(context_)->bump_unwatched();
  }
  uint32_t version_for(bool unwatched) const { return unwatched ? unwatched_ : version_ - unwatched_; }

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  int64_t references() const { return references_.load(std::memory_order_relaxed); }

  // What `borrow` was given, if the memory is to be released by this function; else null.
  void* context_of(void (*release)(void*)) const { return release_ == release ? context_ : nullptr; }

  Source mutated_at;  // the last in-place write, for error messages (GIL)
  Source made_at;     // where the memory was first allocated; filled for large blocks only

  // Called (with the GIL) by the first tensor on this memory, so that messages can name its type, shape and line.
  void describe(const View& view) {
    if (record_) [[unlikely]]
      set_record(view);
  }

 private:
  Storage() = default;
  ~Storage() = default;
  static void* operator new(size_t size);  // from those that went, of this thread
  static void operator delete(void* memory) noexcept;
  void destroy() noexcept;
  static void release_block(void* block) { static_cast<Storage*>(block)->release(); }
  void set_record(const View& view);

  std::atomic<int64_t> references_{1};
  uint32_t version_ = 0;
  uint32_t unwatched_ = 0;  // how many of them were writes through x.data
  bool writable_ = true;
  bool pending_ = false;
  bool pinned_ = false;
  bool sharded_ = false;
  uint8_t device_ = 0;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  size_t capacity_ = 0;  // of the allocator's block; 0 for borrowed memory
  void (*release_)(void*) = nullptr;
  void* context_ = nullptr;  // for release_; of device memory, the allocator's block
  LargeRecord* record_ = nullptr;
};

std::string format_shape(int ndim, const int64_t* shape);  // "(2, 3)"

}  // namespace tandem
