// Working memory of a library call, from the caching allocator.
#pragma once
#include <cstddef>
#include <utility>

#include "memory/allocator.h"

namespace tandem::library {

// What a program has set aside for the routine that this thread runs (plan/layout.h). Scratch takes from here first.
struct ScratchPool {
  char* at = nullptr;
  char* end = nullptr;
};
inline thread_local ScratchPool scratch_pool;

constexpr size_t scratch_bytes(size_t bytes) {  // as Scratch rounds them
  return (bytes + 63) / 64 * 64;
}

template <typename T>
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(size_t count) { resize(count); }
  ~Scratch() { reset(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void resize(size_t count) {  // contents are lost
    reset();
    if (!count) return;
    const size_t bytes = scratch_bytes(count * sizeof(T));
    ScratchPool& pool = scratch_pool;
    if (static_cast<size_t>(pool.end - pool.at) >= bytes) {
      data_ = reinterpret_cast<T*>(std::exchange(pool.at, pool.at + bytes));
      pooled_ = bytes;
    } else {
      data_ = static_cast<T*>(allocate(count * sizeof(T), &capacity_));
    }
  }
  T* data() const { return data_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  void reset() {
    if (pooled_) {  // the latest goes back; others when the routine ends
      char* data = reinterpret_cast<char*>(data_);
      if (data + pooled_ == scratch_pool.at) scratch_pool.at = data;
      pooled_ = 0;
    } else if (data_) {
      deallocate(data_, capacity_);
    }
    data_ = nullptr;
  }
  T* data_ = nullptr;
  size_t capacity_ = 0;
  size_t pooled_ = 0;  // bytes, where it comes from the pool
};

}  // namespace tandem::library
