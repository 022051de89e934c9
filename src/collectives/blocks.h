// Where the elements of an all-reduce come from, some at a time, for whoever reduces them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tandem::collectives {

class Blocks {
 public:
  virtual ~Blocks() = default;
  virtual int64_t at_once() const = 0;           // elements that stay in a near cache while they are worked on
  virtual size_t room(int64_t count) const = 0;  // bytes of working memory for so many
  // Reduced elements [from, from + count): somewhere in the working memory.
  virtual char* make(int64_t from, int64_t count, char* memory) const = 0;
  // Memory that lies as the elements do, and is worked on with them: may be asked for while they are computed.
  virtual void comes_with(const void*) {}
};

// Memory that other processes can look at, where the system has any.
class SharedCopy {
 public:
  explicit SharedCopy(size_t bytes);
  ~SharedCopy();
  SharedCopy(SharedCopy&& other) noexcept : capacity_(other.capacity_), data_(std::exchange(other.data_, nullptr)) {}
  SharedCopy& operator=(SharedCopy&&) = delete;
  char* data() const { return data_; }

 private:
  size_t capacity_ = 0;
  char* data_;
};

}  // namespace tandem::collectives
