// A vector whose first N elements live inside it: the eager path must not call malloc for one edge or one result.
#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace tandem {

template <typename T, size_t N>
class SmallVector {
 public:
  SmallVector() = default;
  SmallVector(SmallVector&& o) noexcept { take(std::move(o)); }
  SmallVector& operator=(SmallVector&& o) noexcept {
    if (this != &o) {
      clear_all();
      take(std::move(o));
    }
    return *this;
  }
  SmallVector(const SmallVector&) = delete;
  SmallVector& operator=(const SmallVector&) = delete;
  ~SmallVector() { clear_all(); }

  template <typename... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == capacity_) reserve(capacity_ * 2);
    return *new (data_ + size_++) T(std::forward<Args>(args)...);
  }
  void push_back(T value) { emplace_back(std::move(value)); }
  void resize(size_t n) {
    reserve(n);
    while (size_ < n) emplace_back();
    while (size_ > n) data_[--size_].~T();
  }
  void reserve(size_t n) {
    if (n <= capacity_) return;
    T* larger = static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))));
    for (size_t i = 0; i < size_; ++i) {
      new (larger + i) T(std::move(data_[i]));
      data_[i].~T();
    }
    free_heap();
    data_ = larger;
    capacity_ = n;
  }
  void clear() {
    while (size_ > 0) data_[--size_].~T();
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T* data() { return data_; }
  T& back() { return data_[size_ - 1]; }

 private:
  T* inline_data() { return reinterpret_cast<T*>(inline_); }
  void free_heap() {
    if (data_ != inline_data()) ::operator delete(data_, std::align_val_t(alignof(T)));
  }
  void clear_all() {
    clear();
    free_heap();
    data_ = inline_data();
    capacity_ = N;
  }
  void take(SmallVector&& o) {
    if (o.data_ != o.inline_data()) {
      data_ = std::exchange(o.data_, o.inline_data());
      size_ = std::exchange(o.size_, 0);
      capacity_ = std::exchange(o.capacity_, N);
      return;
    }
    for (size_t i = 0; i < o.size_; ++i) new (data_ + i) T(std::move(o.data_[i]));
    size_ = o.size_;
    o.clear();
  }

  alignas(T) unsigned char inline_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0, capacity_ = N;
};

}  // namespace tandem
