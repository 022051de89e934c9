// Working memory of a library call, from the caching allocator.
#pragma once
#include <cstddef>

#include "memory/allocator.h"

namespace tandem::library {

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
    data_ = count ? static_cast<T*>(allocate(count * sizeof(T), &capacity_)) : nullptr;
  }
  T* data() const { return data_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  void reset() {
    if (data_) deallocate(data_, capacity_);
    data_ = nullptr;
  }
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace tandem::library
