// Products of matrices that are worth packing.
#pragma once
#include <span>

#include "library/gemm.h"

namespace tandem::library {

constexpr int64_t kLongestProduct = 8192;  // working memory grows with k
constexpr int64_t kFewRows = 384;          // of a, all of which is packed at once then

// b for several products with at most half as many rows, none of which has to pack it again. (More rows may be cut into
// other slices, and give other bits.)
template <typename T>
class PackedRight {
 public:
  struct Rows {  // of b, which may lie in several places
    Matrix<const T> b;
    int64_t count;
  };
  PackedRight(std::span<const Rows> parts, int64_t n);
  PackedRight(Matrix<const T> b, int64_t n, int64_t k) : PackedRight(std::initializer_list<Rows>{{b, k}}, n) {}
  ~PackedRight();
  PackedRight(const PackedRight&) = delete;
  // A panel of columns from row q on, where a slice begins.
  const T* panel(int64_t index, int64_t q) const { return memory_ + place(index, q); }
  int64_t depth() const { return depth_; }  // rows of a slice

 private:
  PackedRight(std::initializer_list<Rows> parts, int64_t n) : PackedRight(std::span(parts), n) {}
  int64_t place(int64_t panel, int64_t q) const;

  const int64_t k_, padded_, depth_;
  size_t capacity_ = 0;
  T* const memory_;  // outlives the call, unlike Scratch
};

// Needs p.k > 0.
template <typename T>
void blocked_product(const Product<T>& p);

// Bytes of Scratch that the calling thread takes for it.
template <typename T>
size_t blocked_scratch(int64_t m, int64_t n, int64_t k);

}  // namespace tandem::library
