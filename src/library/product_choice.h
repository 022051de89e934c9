// Who computes a product of float32 matrices: tiles of our own, or oneDNN.
//
// Note [Choice of products]
// Neither is quicker everywhere. oneDNN packs by columns that fall into the same cache sets where rows lie a multiple
// of 2 KB apart, reads a transposed a badly, and shares few rows, or tall and narrow results, badly between threads;
// how much that costs, and who is quicker otherwise, depends on the processor. So products are of kinds, and for each
// kind one of the two is preferred: by what was measured on this machine (tandem/machine/tune.py, which keeps it on
// disk), before that by what is known of the instruction set. Results differ in the last bits between the two: a kind
// that was used keeps its preference while the process lives.
#pragma once
#include <vector>

#include "library/matmul_impl.h"

namespace tandem::library {

enum class ProductKind {
  kNever,       // too few rows or columns to be worth tiles of ours
  kBatched,     // several matrices whose columns or rows collide in the cache
  kTransposed,  // a is read by columns
  kFewRows,     // of a
  kWide,        // of a transposed b, and not deep
  kColliding,   // rows of b a multiple of 2 KB apart
  kLarge,
  kTall,  // and narrow
  kOther,
};
constexpr int kProductKinds = 9;

ProductKind kind_of(const Batched& p);
bool prefers_own(ProductKind kind);
bool suggested(ProductKind kind);  // by the instruction set

// 1: our own, 0: oneDNN's, -1: what is known of the instruction set. For the set of kernels in use now. Unless it is
// meant to be so at once, this leaves alone what was used already; false then.
bool prefer(ProductKind kind, int own, bool at_once);

// Seconds that a typical product of a kind takes us and oneDNN, of every run; they take turns.
struct ProductTimes {
  std::vector<double> own, onednn;
};
ProductTimes time_products(ProductKind kind, int runs);

}  // namespace tandem::library
