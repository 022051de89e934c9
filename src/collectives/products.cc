// Operands of an all-reduce that are products of matrices: ranks read one another's factors, and each computes its part
// of the sum of their products. Note [Joined products] in tandem/codegen/join_products.py.
#include <algorithm>
#include <cstring>

#include "collectives/blocks.h"
#include "collectives/member.h"
#include "collectives/parts.h"
#include "device/parallel.h"
#include "library/epilogue.h"
#include "library/gemm_blocked.h"
#include "library/scratch.h"
#include "library/strided.h"
#include "memory/allocator.h"
#include "memory/shared_heap.h"

namespace tandem::collectives {
namespace {

constexpr int64_t kRows = 48, kAtOnce = int64_t{48} << 10;  // of a result, computed at once: they stay in the L2 cache
constexpr int64_t kWidest = 4096;                           // columns; otherwise those are too few rows
constexpr size_t kSmallestCopy = size_t{64} << 10;          // blocks below are never shared

struct Factor {  // of one rank
  library::Matrix<const float> a, b;
  int64_t k;
};

// Elements of sum(a b) over ranks, times a factor. What this rank needs of all a, and all b, are copied to where they
// are read from again and again.
class ProductBlocks final : public Blocks {
 public:
  ProductBlocks(const std::vector<Factor>& factors, int64_t n, int64_t begin, int64_t end, int divisor)
      : n_(n),
        first_row_(begin / n),
        rows_((end + n - 1) / n - first_row_),
        pitch_(rows_ % 512 ? rows_ : rows_ + 16),  // columns should not fall into the same sets of a cache
        divisor_(divisor),
        is_power_((divisor & (divisor - 1)) == 0),
        right_(parts(factors), n) {
    for (const Factor& one : factors) k_ += one.k;
    left_.resize(pitch_ * k_);
    const float scale = is_power_ ? 1.0f / static_cast<float>(divisor) : 1.0f;
    float* to = left_.data();
    for (const Factor& one : factors)
      for (int64_t k = 0; k < one.k; ++k, to += pitch_) {
        const float* from = one.a.data + first_row_ * one.a.row + k * one.a.column;
        if (one.a.row == 1)
          for (int64_t i = 0; i < rows_; ++i) to[i] = from[i] * scale;
        else
          for (int64_t i = 0; i < rows_; ++i) to[i] = from[i * one.a.row] * scale;
      }
  }
  int64_t at_once() const override { return std::min(kRows * n_, kAtOnce); }
  size_t room(int64_t count) const override { return static_cast<size_t>((count / n_ + 2) * n_) * sizeof(float); }

  // Whole rows are computed, also where only a part of one is asked for.
  char* make(int64_t from, int64_t count, char* memory) const override {
    const int64_t row = from / n_, stop = (from + count + n_ - 1) / n_;
    auto* to = reinterpret_cast<float*>(memory);
    library::Product<float> product{stop - row, n_,         k_, {left_.data() + (row - first_row_), 1, pitch_},
                                    {},         {to, n_, 1}};
    product.packed = &right_;
    library::Epilogue asks;  // runs nothing
    asks.kernel = [](void**, const int64_t*, int64_t, int64_t) {};
    asks.alike = kNumbers;
    for (const float* one : alike_) asks.pointers[asks.num_pointers++] = const_cast<float*>(one + row * n_);
    asks.num_alike = asks.num_pointers;
    product.epilogue = &asks;
    library::blocked_product(product);
    float* made = to + (from - row * n_);
    if (!is_power_)
      for (int64_t i = 0; i < count; ++i) made[i] /= static_cast<float>(divisor_);
    return reinterpret_cast<char*>(made);
  }

  void comes_with(const void* memory) override {
    if (alike_.size() < std::size(kNumbers)) alike_.push_back(static_cast<const float*>(memory));
  }

 private:
  static constexpr int32_t kNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
  static std::vector<library::PackedRight<float>::Rows> parts(const std::vector<Factor>& factors) {
    std::vector<library::PackedRight<float>::Rows> found;
    for (const Factor& one : factors) found.push_back({one.b, one.k});
    return found;
  }

  const int64_t n_, first_row_, rows_, pitch_;
  const int divisor_;
  const bool is_power_;
  const library::PackedRight<float> right_;
  int64_t k_ = 0;
  library::Scratch<float> left_;
  std::vector<const float*> alike_;
};

// Where others find a matrix; copied to where they do if they do not.
Address place(const View& of, bool threads, int64_t (&strides)[2], std::vector<SharedCopy>& copies) {
  strides[0] = of.strides[0], strides[1] = of.strides[1];
  if (threads) return {reinterpret_cast<int64_t>(of.data)};
  if (strides[0] >= 0 && strides[1] >= 0) {
    const int64_t span = (of.shape[0] - 1) * strides[0] + (of.shape[1] - 1) * strides[1] + 1;
    const auto bytes = static_cast<size_t>(span) * sizeof(float);
    const Address found{heap::offset_of(of.data, bytes)};
    if (found.known()) return found;
    heap::want(bytes);  // the next one like it may lie there
  }
  View from = of;
  const bool by_columns = std::abs(strides[0]) < std::abs(strides[1]);
  if (by_columns) std::swap(from.shape[0], from.shape[1]), std::swap(from.strides[0], from.strides[1]);
  const auto bytes = static_cast<size_t>(from.numel()) * sizeof(float);
  const SharedCopy& copy = copies.emplace_back(bytes);
  const Address found{heap::offset_of(copy.data(), bytes)};
  if (!found.known()) return found;
  View to = from;
  to.data = copy.data();
  library::set_contiguous(to);
  library::copy_elements(from, to);
  strides[0] = by_columns ? 1 : to.strides[0], strides[1] = by_columns ? to.strides[0] : 1;
  return found;
}

}  // namespace

SharedCopy::SharedCopy(size_t bytes) {
  bytes = std::max(bytes, kSmallestCopy);
  heap::want(bytes);
  data_ = static_cast<char*>(allocate(bytes, &capacity_));
}

SharedCopy::~SharedCopy() {
  if (data_) deallocate(data_, capacity_);
}

void Member::describe_products(const Request& request, Descriptor& to) {
  for (int i = 0; i < request.num_factors; ++i) {
    const library::Factors& factors = request.factors[i];
    const Piece& piece = request.pieces[factors.piece];
    const View &a = factors.a, &b = factors.b, &c = factors.c;
    const bool fits = size_ > 1 && c.dtype == DType::Float32 && piece.in == c.data && piece.out == c.data &&
                      c.ndim == 2 && c.numel() * item_size(c.dtype) >= kSmallestCopy && a.shape[1] > 0 &&
                      c.is_contiguous();
    if (!fits) {
      factors.multiply();
      continue;
    }
    Product& product = to.pieces[factors.piece].product;
    int64_t left[2], right[2];
    product = {c.shape[0], c.shape[1], a.shape[1], {}, {}};
    product.a.at = place(a, of_threads(), left, copies_), product.a.row = left[0], product.a.column = left[1];
    product.b.at = place(b, of_threads(), right, copies_), product.b.row = right[0], product.b.column = right[1];
  }
}

// Whether all ranks have factors of one result, and it is less work to read them all than to write products and read
// them again.
bool Member::have_factors(int piece) const {
  const Product& mine = descriptor(rank_).pieces[piece].product;
  const auto reduction = static_cast<Reduction>(descriptor(rank_).call.reduction);
  if (!mine.n || mine.n > kWidest || (reduction != Reduction::Sum && reduction != Reduction::Average)) return false;
  int64_t k = 0;
  for (int r = 0; r < size_; ++r) {
    const Product& its = descriptor(r).pieces[piece].product;
    if (its.m != mine.m || its.n != mine.n || !its.a.at.known() || !its.b.at.known()) return false;
    k += its.k;
  }
  return k <= library::kLongestProduct && k * (mine.m / size_ + mine.n) < mine.m * mine.n;
}

bool Member::is_shared_product(int piece) const {
  if (!have_factors(piece)) return false;
  return is_direct(piece) || (have_one_update(piece) && !descriptor(rank_).pieces[piece].follows.keeps);
}

// Computes the products that ranks do not share; whether there are any, on any rank.
bool Member::multiply_others(const Request& request) const {
  for (int i = 0; i < request.num_factors; ++i) {
    const int piece = request.factors[i].piece;
    if (descriptor(rank_).pieces[piece].product.n && !is_shared_product(piece)) request.factors[i].multiply();
  }
  for (int piece = 0; piece < descriptor(rank_).num_pieces; ++piece)
    for (int r = 0; r < size_; ++r)
      if (descriptor(r).pieces[piece].product.n && !is_shared_product(piece)) return true;
  return false;
}

std::unique_ptr<Blocks> Member::product_of(const Request& request, int piece, int64_t begin, int64_t end) const {
  std::vector<Factor> factors;
  int64_t n = 0;
  for (int r = 0; r < size_; ++r) {
    const Product& its = descriptor(r).pieces[piece].product;
    n = its.n;
    factors.push_back({{reinterpret_cast<const float*>(at(r, its.a.at)), its.a.row, its.a.column},
                       {reinterpret_cast<const float*>(at(r, its.b.at)), its.b.row, its.b.column},
                       its.k});
  }
  return std::make_unique<ProductBlocks>(factors, n, begin, end, request.reduction == Reduction::Average ? size_ : 1);
}

// This rank's part of a product that no update follows, to all ranks.
void Member::reduce_product(const Request& request, int piece) const {
  const int64_t item = sizeof(float);
  const auto [begin, end] = share(request.pieces[piece].in_count, rank_, size_);
  if (begin == end) return;
  const auto blocks = product_of(request, piece, begin, end);
  const int64_t at_once = blocks->at_once(), first = begin, last = end;
  const auto work = [&](int64_t from, int64_t to) {
    const library::Scratch<char> memory(blocks->room(at_once));
    for (int64_t i = first + from * at_once; i < std::min(first + to * at_once, last); i += at_once) {
      const int64_t count = std::min(at_once, last - i);
      const char* made = blocks->make(i, count, memory.data());
      for (int k = 0; k < size_; ++k)
        std::memcpy(target((rank_ + k) % size_, piece) + i * item, made, static_cast<size_t>(count * item));
    }
  };
  parallel_for((last - first + at_once - 1) / at_once, 1e5, work);
}

}  // namespace tandem::collectives
