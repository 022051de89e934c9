// The signature of a call: everything about the arguments that a plan depends on, as bytes. Two calls with equal bytes
// can run the same plan (if its guards hold).
#pragma once
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensor/layout_class.h"
#include "tensor/tensor.h"

namespace tandem {

// One argument after binding, flattened: lists of tensors and tuples of ints are preceded by a Count.
struct Argument {
  enum class Kind : uint8_t { Tensor, Float, Integer, Bool, None, Static, Int, Count, Seed, Offset, Complex } kind;
  // A number that says where a stream of random numbers stands: a Seed or an Offset, or what backward was given of
  // them.
  enum class Stream : uint8_t { None, Seed, Offset } stream = Stream::None;
  tandem::Tensor* tensor = nullptr;  // borrowed from the caller
  PyObject* object = nullptr;        // borrowed: static values; of a stream, the generator
  union {
    double real;
    int64_t integer;
    uint8_t truth;
  };
  double imaginary;  // of a Complex, right after its real part: a kernel reads both as one element
};
static_assert(offsetof(Argument, imaginary) == offsetof(Argument, real) + sizeof(double));

class Signature {
 public:
  void byte(uint8_t b) {
    grow(1);
    data_[size_++] = b;
  }
  template <typename T>
  void value(T v) {
    grow(sizeof v);
    std::memcpy(data_ + size_, &v, sizeof v);
    size_ += sizeof v;
  }
  void bytes(const void* p, size_t n) {
    grow(n);
    std::memcpy(data_ + size_, p, n);
    size_ += n;
  }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  uint64_t hash() const;

  void tensor(const Tensor* t, bool requires_grad) { view(t->view, requires_grad, t->storage->device()); }
  void view(const View& v, bool requires_grad, int device);
  void object(PyObject* o);  // static attribute; objects without a value of their own go by identity

 private:
  void grow(size_t n) {
    if (size_ + n <= capacity_) return;
    capacity_ = (size_ + n) * 2;
    std::vector<uint8_t> larger(capacity_);
    std::memcpy(larger.data(), data_, size_);
    heap_.swap(larger);
    data_ = heap_.data();
  }
  uint8_t inline_[256];
  std::vector<uint8_t> heap_;
  uint8_t* data_ = inline_;
  size_t size_ = 0, capacity_ = sizeof inline_;
};

}  // namespace tandem
